"""What a run leaves: recorded values, statistics of the steps, and predictions."""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import ArrayLike, PyTree

from .checks import default_float, require_count
from .diagnostics import Summary, load_arviz, summarise


class Prediction(NamedTuple):
    """Mean, standard deviation and quantiles (one a row) at each point."""

    mean: np.ndarray
    sd: np.ndarray
    quantiles: np.ndarray


@dataclasses.dataclass(frozen=True)
class Draws:
    """Draws of a density.

    `recorded` is what `record` returned, each leaf with shape (chain, draw, …); `params` the
    parameters themselves where they were kept; `statistics` acceptance, divergences, energy,
    step size and gradients of each step; `algorithm` the tuned algorithm, a chain a row.
    """

    recorded: Any
    params: PyTree | None
    statistics: dict[str, np.ndarray]
    density: Any
    algorithm: Any
    interrupted: bool = False

    def summary(self) -> Summary:
        """Convergence of everything recorded, with a verdict in words."""
        return summarise(self.params if self.recorded is None else self.recorded, self.statistics)

    def networks(self) -> PyTree:
        """Parameters with chains and draws in one leading axis."""
        if self.params is None:
            raise ValueError("the parameters were not kept; sample with keep_params=True.")
        return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), self.params)

    def values(self, points: ArrayLike | list, chunk: int = 4096) -> np.ndarray:
        """Values of every draw at the points, shape (draws, points): joint samples."""
        blocks = [np.asarray(block) for block in self._blocks(points, chunk)]
        return np.concatenate(blocks, axis=1)

    def predict(
        self,
        points: ArrayLike | list,
        quantiles: tuple[float, ...] = (0.025, 0.5, 0.975),
        chunk: int = 4096,
    ) -> Prediction:
        """Mean, sd and quantiles at the points, `chunk` points at a time."""
        parts = [
            (
                np.mean(block, axis=0),
                np.std(block, axis=0, ddof=1),
                np.quantile(block, quantiles, axis=0),
            )
            for block in map(np.asarray, self._blocks(points, chunk))
        ]
        mean, sd, levels = zip(*parts, strict=True)
        return Prediction(np.concatenate(mean), np.concatenate(sd), np.concatenate(levels, axis=1))

    def _blocks(self, points: ArrayLike | list, chunk: int):
        require_count("chunk", chunk)
        points = np.asarray(points, default_float())
        if points.ndim != 2:
            raise ValueError(f"points must have shape (n, d), got {points.shape}.")
        params, density = self.networks(), self.density
        getattr(density, "prior", density).require_inside(jnp.asarray(points), "points")

        @jax.jit
        def evaluate(params, block):
            return jax.lax.map(lambda p: jax.vmap(density.network(p))(block), params)

        for begin in range(0, len(points), chunk):
            block = points[begin : begin + chunk]
            padded = np.concatenate([block, np.repeat(block[-1:], chunk - len(block), axis=0)])
            yield evaluate(params, jnp.asarray(padded if len(points) > chunk else block))[
                :, : len(block)
            ]

    def to_arviz(self) -> Any:
        """An ArviZ InferenceData of what was recorded."""
        recorded = self.recorded
        if not isinstance(recorded, dict):
            recorded = {"recorded": recorded}
        posterior = {
            name: np.asarray(value) for name, value in recorded.items() if value is not None
        }
        return load_arviz().from_dict(posterior=posterior, sample_stats=self.statistics)
