"""Draws of a run: recorded values, statistics of the steps, and predictions."""

import dataclasses
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import ArrayLike, PRNGKeyArray

from ..checks import PyTree, require_count
from ..density import Density
from ..diagnostics import Summary, load_arviz, summarise
from .layout import Layout, Rows
from .predict import Prediction, Predictive, Request, Sliceable, log_scores


@dataclasses.dataclass(frozen=True)
class Draws:
    """Draws of a density, in memory or, for a run with a store, read from it when asked for.

    Parameters are the density's own, in whatever coordinates they were sampled. `algorithm` is the
    tuned algorithm, a chain a row; `temperature` is one but for stochastic gradient chains;
    `interrupted` says that draws are missing.
    """

    rows: Rows
    layout: Layout
    num_draws: int
    density: Density
    algorithm: Any
    interrupted: bool = False
    temperature: float = 1.0

    def complete(self) -> "Draws":
        """These draws; raises KeyboardInterrupt where Ctrl-C cut them short."""
        if self.interrupted:
            raise KeyboardInterrupt
        return self

    @property
    def recorded(self) -> Any:
        """What `record` returned, each leaf with shape (chain, draw, …)."""
        return self._read("posterior")

    @property
    def params(self) -> PyTree | None:
        """The parameters, each leaf with shape (chain, draw, …), where they were kept."""
        return self._read("params")

    @property
    def statistics(self) -> dict[str, np.ndarray]:
        """Acceptance, divergences, energy, step size and gradients of each draw (chain, draw)."""
        return self._read("sample_stats")

    @property
    def likelihood(self) -> dict[str, np.ndarray]:
        """Learned quantities of the likelihood, by name and in the user's units (chain, draw)."""
        return self._learned("likelihood")

    @property
    def hyper(self) -> dict[str, np.ndarray]:
        """The hyperparameters of a `Joint`, by name and in the user's units (chain, draw)."""
        return self._learned("hyper")

    def _learned(self, group: str) -> dict[str, np.ndarray]:
        params = self.params
        while isinstance(params, dict) and group not in params and "network" in params:
            params = params["network"]
        if not isinstance(params, dict) or group not in params:
            return {}
        density: Any = self.density
        learned = density.learned(group, jax.tree.map(jnp.asarray, params[group]))
        return {name: np.asarray(value) for name, value in learned.items()}

    def summary(self) -> Summary:
        """Convergence of everything recorded, with a verdict in words."""
        values = self.recorded
        values = values if jax.tree.leaves(values) else self.params
        return summarise(values, self.statistics, self.temperature)

    def networks(self, num_draws: int | None = None) -> PyTree:
        """Parameters with chains and draws in one leading axis: all, or about `num_draws` spread
        evenly over the run."""
        if not self.layout.names("params"):
            raise ValueError("the parameters were not kept; sample with keep_params=True.")
        stride = 1
        if num_draws is not None:
            require_count("num_draws", num_draws)
            num_chains = jax.tree.leaves(self._read("params", slice(0, 1)))[0].shape[0]
            stride = max(1, self.num_draws * num_chains // num_draws)
        params = self._read("params", slice(0, self.num_draws, stride))
        return jax.tree.map(lambda x: jnp.asarray(x.reshape(-1, *x.shape[2:])), params)

    def values(
        self,
        points: ArrayLike | Sliceable | list[Any],
        *,
        noise_key: PRNGKeyArray | None = None,
        num_draws: int | None = None,
        chunk: int = 4096,
        out: str | Path | None = None,
    ) -> Any:
        """Values of every draw at the points, shape (draws, points): joint samples of the network.

        With a `noise_key`, new observations there instead, noise and the units' tail included.
        `points` is anything of shape (n, d) that can be sliced, and is read `chunk` rows at a time;
        with `out` the values go to a Zarr array in that folder, which is returned, and memory stays
        bounded.
        """
        self._require(noise_key is not None)
        params = self.networks(num_draws)
        return Request(self.density, params, points, noise_key, chunk, out).values()

    def predict(
        self,
        points: ArrayLike | Sliceable | list[Any],
        quantiles: tuple[float, ...] = (0.025, 0.5, 0.975),
        *,
        noise_key: PRNGKeyArray | None = None,
        num_draws: int | None = None,
        chunk: int = 4096,
        out: str | Path | None = None,
    ) -> Prediction:
        """Mean, sd and quantiles at the points; arguments as for `values`.

        They are of the process: the variance that the network's units leave out is in the sd, and
        quantiles are widened about the mean alike. With `tail="none"` in the posterior they are of
        the network alone.
        """
        self._require(noise_key is not None)
        params = self.networks(num_draws)
        request = Request(self.density, params, points, noise_key, chunk, out)
        return request.moments(tuple(quantiles))

    def log_densities(
        self, points: ArrayLike | list[Any], targets: ArrayLike | list[Any]
    ) -> np.ndarray:
        """log p(y | θ) of new data, shape (draws, points): what `diagnostics.nlpd` takes."""
        self._require(noisy=True)
        return log_scores(self.density, self.networks(), points, targets)

    def _require(self, noisy: bool) -> None:
        """Raise unless the density can predict: a function, or new observations."""
        if isinstance(self.density, Predictive):
            return
        if noisy:
            raise ValueError("a prior has no noise and no data: this needs draws of a posterior.")
        self.density.network(self.density.params)

    def to_arviz(self) -> Any:
        """An ArviZ InferenceData of what was recorded."""
        names = {name: name.split("/")[-1] for name in self.layout.names("posterior")}
        posterior = {short: self._array(name) for name, short in names.items()}
        return load_arviz().from_dict(posterior=posterior, sample_stats=self.statistics)

    def _read(self, group: str, draws: slice | None = None) -> Any:
        return self.layout.build(group, lambda name: self._array(name, draws))

    def _array(self, name: str, draws: slice | None = None) -> np.ndarray:
        return self.rows.read(name, slice(0, self.num_draws) if draws is None else draws)
