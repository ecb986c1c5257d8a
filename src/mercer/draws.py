"""What a run leaves: recorded values, statistics of the steps, and predictions."""

import dataclasses
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import ArrayLike, PRNGKeyArray, PyTree

from .checks import require_count
from .diagnostics import Summary, load_arviz, summarise
from .predict import Prediction, Sliceable, joint_samples, moments
from .rows import Layout, Rows


@dataclasses.dataclass(frozen=True)
class Draws:
    """Draws of a density, in memory or, for a run with a store, read from it when asked for.

    `algorithm` is the tuned algorithm, a chain a row; `temperature` that of a stochastic gradient
    chain, one for all others; `interrupted` says that draws are missing.
    """

    rows: Rows
    layout: Layout
    num_draws: int
    density: Any
    algorithm: Any
    interrupted: bool = False
    temperature: float = 1.0

    def complete(self) -> "Draws":
        """These draws, or the KeyboardInterrupt that cut them short: for runs within a computation
        that is worth nothing with fewer."""
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

    def summary(self) -> Summary:
        """Convergence of everything recorded, with a verdict in words."""
        recorded = self.recorded
        return summarise(
            self.params if recorded is None else recorded, self.statistics, self.temperature
        )

    def networks(self, num_draws: int | None = None) -> PyTree:
        """Parameters with chains and draws in one leading axis: all, or about `num_draws` spread
        evenly over the run."""
        if not self.layout.groups["params"][0]:
            raise ValueError("the parameters were not kept; sample with keep_params=True.")
        every = 1
        if num_draws is not None:
            require_count("num_draws", num_draws)
            chains = jax.tree.leaves(self._read("params", slice(0, 1)))[0].shape[0]
            every = max(1, self.num_draws * chains // num_draws)
        kept = self._read("params", slice(0, self.num_draws, every))
        return jax.tree.map(lambda x: jnp.asarray(x.reshape(-1, *x.shape[2:])), kept)

    def values(
        self,
        points: ArrayLike | Sliceable | list,
        *,
        noise_key: PRNGKeyArray | None = None,
        num_draws: int | None = None,
        chunk: int = 4096,
        out: str | Path | None = None,
    ) -> Any:
        """Values of every draw at the points, shape (draws, points): joint samples.

        With a `noise_key`, new observations there instead, noise included. `points` is anything
        of shape (n, d) that can be sliced, and is read `chunk` rows at a time; with `out` the
        values go to a Zarr array in that folder, which is returned, and memory stays bounded.
        """
        self._require(noise_key is not None)
        return joint_samples(self.density, self.networks(num_draws), points, noise_key, chunk, out)

    def predict(
        self,
        points: ArrayLike | Sliceable | list,
        quantiles: tuple[float, ...] = (0.025, 0.5, 0.975),
        *,
        noise_key: PRNGKeyArray | None = None,
        num_draws: int | None = None,
        chunk: int = 4096,
        out: str | Path | None = None,
    ) -> Prediction:
        """Mean, sd and quantiles at the points; arguments as for `values`."""
        self._require(noise_key is not None)
        params = self.networks(num_draws)
        return moments(self.density, params, points, tuple(quantiles), noise_key, chunk, out)

    def log_densities(self, points: ArrayLike | list, targets: ArrayLike | list) -> np.ndarray:
        """log p(y | θ) of new data, shape (draws, points): what `diagnostics.nlpd` takes."""
        self._require(noisy=True)
        x, y = jnp.asarray(points, float), jnp.asarray(targets)
        self.density.require_inputs(x, "points")
        score = jax.jit(lambda p: jax.lax.map(lambda q: self.density.score(q, x, y), p))
        return np.asarray(score(self.networks()))

    def _require(self, noisy: bool) -> None:
        """Raise unless the density can predict: a function, or new observations."""
        if not hasattr(self.density, "network"):
            raise ValueError("this density has no network, so there is nothing to predict with.")
        if noisy and not hasattr(self.density, "draw_observations"):
            raise ValueError("a prior has no noise and no data: this needs draws of a posterior.")

    def to_arviz(self) -> Any:
        """An ArviZ InferenceData of what was recorded."""
        names = {name: name.split("/")[-1] for name in self.layout.groups["posterior"][0]}
        posterior = {short: self._array(name) for name, short in names.items()}
        return load_arviz().from_dict(posterior=posterior, sample_stats=self.statistics)

    def _read(self, group: str, draws: slice | None = None) -> Any:
        return self.layout.build(group, lambda name: self._array(name, draws))

    def _array(self, name: str, draws: slice | None = None) -> np.ndarray:
        return self.rows.read(name, slice(0, self.num_draws) if draws is None else draws)
