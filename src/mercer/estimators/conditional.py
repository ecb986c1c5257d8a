"""Densities of single rows given their nearest neighbours, whole process and all rows in view.

    Σᵢ log N(yᵢ; bᵢ·y_N, dᵢ),   bᵢ = (k_NN + σ²)⁻¹ k_N,i,   dᵢ = k_ii + σ² − bᵢ·k_N,i

is a sum over rows that sees the shortest length scale of dense data, as the evidence of a thinned
random subset cannot. Neighbours come out of all rows, or of a part of them, to see how far a process
is to be trusted.
"""

import math
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import cho_solve
from jaxtyping import Array, Float, Int

from ..energy import JITTER
from ..neighbours import Search, nearest_others
from .hyperparameters import Hyper
from .model import Columns

# Rows of a block, times neighbours squared, times columns.
BLOCK_SIZE = 2**21


class ConditionedRows(NamedTuple):
    """Some rows, each after its neighbours; noise is `known` plus `learns` times the learned variance.

    The sum of their log densities counts `share` times, for the rows that they stand for.
    """

    x: Float[Array, "q m d"]
    y: Float[Array, "q m"]
    known: Float[Array, "q m"]
    learns: Float[Array, "q m"]
    share: Float[Array, ""]

    def log_evidence(self, hyper: Hyper) -> Float[Array, ""]:
        """The sum over all rows of the log density of each given its neighbours."""

        def density(row):
            return conditional_density(*_covariance(hyper, row), row[1])

        return self.share * jnp.sum(self._map(density))

    def predictions(self, hyper: Hyper) -> tuple[Float[Array, " q"], Float[Array, " q"]]:
        """Mean and variance of each row's target, noise included, given its neighbours'."""

        def predict(row):
            covariance, noise = _covariance(hyper, row)
            (innovation, variance), _ = _innovate(covariance, noise, row[1])
            return row[1][-1] - innovation, variance

        return self._map(predict)

    def _map(self, function):
        size = self.x.shape[1] ** 2 * (self.x.shape[2] + 4)
        batch = int(np.clip(BLOCK_SIZE // size, 1, len(self.x)))
        return jax.lax.map(function, (self.x, self.y, self.known, self.learns), batch_size=batch)


def condition_on_neighbours(
    columns: Columns,
    coordinates: Float[np.ndarray, "n d"],
    chosen: Int[np.ndarray, " q"],
    count: int,
    thinning: int = 1,
) -> ConditionedRows:
    """Chosen rows after their nearest neighbours by the coordinates, out of all other rows or, thinned,
    out of each so many of the rest."""
    if thinning == 1:
        around = nearest_others(coordinates, chosen, count)
    else:
        pool = np.setdiff1d(np.arange(len(coordinates)), chosen)[::thinning]
        around = pool[Search(coordinates[pool]).nearest(coordinates[chosen], count)]
    index = np.concatenate([around, chosen[:, None]], axis=1)
    share = jnp.asarray(len(coordinates) / len(chosen))
    parts = columns.x, columns.y, columns.known, columns.learns
    return ConditionedRows(*(jnp.asarray(part[index]) for part in parts), share)


def _covariance(
    hyper: Hyper, row: tuple[Any, ...]
) -> tuple[Float[Array, "m m"], Float[Array, " m"]]:
    """Of a row and its neighbours: that of the process, and the variances of the noise."""
    points, _, known, learns = row
    kernel = hyper.covariance
    own = kernel.matrix(points, points)
    floor = JITTER * jnp.exp(2 * hyper.amplitude)
    # What a kernel of kept modes leaves out is each row's own.
    missing = jnp.maximum(kernel.diagonal(points) - jnp.diag(own), 0.0)
    return own, known + learns * jnp.exp(2 * hyper.noise) + floor + missing


@jax.custom_vjp
def conditional_density(
    covariance: Float[Array, "m m"], noise: Float[Array, " m"], y: Float[Array, " m"]
) -> Float[Array, ""]:
    """log density of the last of some numbers given the others; its derivative factorises nothing."""
    return _density_with_terms(covariance, noise, y)[0]


def _innovate(covariance, noise, y):
    """Innovation and variance of the last number, and the solutions behind them."""
    own = covariance[:-1, :-1] + jnp.diag(noise[:-1])
    cross = covariance[:-1, -1]
    factor = jnp.linalg.cholesky(own), True
    gain, solved = cho_solve(factor, jnp.stack([cross, y[:-1]], axis=1)).T
    variance = covariance[-1, -1] + noise[-1] - gain @ cross
    return (y[-1] - gain @ y[:-1], variance), (gain, solved)


def _density_with_terms(covariance, noise, y):
    (innovation, variance), (gain, solved) = _innovate(covariance, noise, y)
    value = -0.5 * (jnp.log(2 * math.pi * variance) + innovation**2 / variance)
    contrast, solved = jnp.append(-gain, 1.0), jnp.append(solved, 0.0)
    return value, (contrast, solved, innovation, variance)


def _density_derivative(saved, slope):
    contrast, solved, innovation, variance = saved
    square = 0.5 * (innovation**2 / variance - 1) / variance
    cross = 0.5 * innovation / variance
    both = jnp.outer(contrast, solved)
    slopes = slope * (square * jnp.outer(contrast, contrast) + cross * (both + both.T))
    return slopes, jnp.diag(slopes), jnp.zeros_like(contrast)


conditional_density.defvjp(_density_with_terms, _density_derivative)


@eqx.filter_jit
def predictions(
    rows: ConditionedRows, hyper: Hyper
) -> tuple[Float[Array, " q"], Float[Array, " q"]]:
    """`rows.predictions` as one compiled program."""
    return rows.predictions(hyper)
