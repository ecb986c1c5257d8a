"""From hyperparameters and rows to a posterior: kernel → Prior → Posterior → Frozen.

Arrays are padded to a few sizes, so that data sets of about the same size share their programs: rows by
ones with noise so wide that they say nothing, centres by repetition.
"""

import math
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import cho_solve, solve_triangular
from jaxtyping import Array, ArrayLike, Float

from ..coordinates import Frozen
from ..energy import JITTER, Nodes
from ..likelihoods import Gaussian
from ..linear import BLOCK
from ..networks import Radial
from ..posterior import Posterior
from ..prior import Prior
from .hyperparameters import Hyper

SMALLEST_SIZE = 16
# Variance of the noise of rows that are there to fill up.
NOTHING = 1e12


class Rows(NamedTuple):
    """Data; the variance of noise is `known` plus `learns` times the learned one. Repeated rows have
    left their scatter, with its degrees of freedom."""

    x: Float[Array, "n d"]
    y: Float[Array, " n"]
    known: Float[Array, " n"]
    learns: Float[Array, " n"]
    present: Float[Array, " n"]
    freedom: Float[Array, ""]
    scatter: Float[Array, ""]

    def log_evidence(self, hyper: Hyper) -> Float[Array, ""]:
        """log p(y | X) of the process itself."""
        absent = self.present.shape[0] - jnp.sum(self.present)
        value = normal_log_density(self.covariance(hyper), self.y * self.present)
        return value + 0.5 * math.log(2 * math.pi) * absent + self._log_scatter(hyper)

    def covariance(self, hyper: Hyper) -> Float[Array, "n n"]:
        """That of the targets, noise included."""
        kernel = hyper.covariance
        inner = kernel.matrix(self.x, self.x) * jnp.outer(self.present, self.present)
        # What a kernel of kept modes leaves out is each row's own.
        tail = jnp.maximum(kernel.diagonal(self.x) - jnp.diag(inner), 0.0)
        diagonal = jnp.where(self.present > 0, noise_variances(hyper, self) + tail, 1.0)
        return inner + jnp.diag(diagonal)

    def _log_scatter(self, hyper: Hyper) -> Float[Array, ""]:
        """log density of the scatter of repeated rows, a scaled χ²."""
        noise = jnp.exp(2 * hyper.noise)
        return -0.5 * (self.freedom * jnp.log(noise) + self.scatter / noise)


def padded_size(count: int) -> int:
    """The next of a few sizes: a multiple of sixteen, at most a quarter more from 64 on, whole blocks
    beyond one."""
    step = BLOCK if count > BLOCK else max(2 ** (count.bit_length() - 3), SMALLEST_SIZE)
    return -(-count // step) * step


def pad(array: np.ndarray, size: int, value: float = 0.0) -> np.ndarray:
    """More rows of one value at the end."""
    more = [(0, size - len(array))] + [(0, 0)] * (array.ndim - 1)
    return np.pad(array, more, constant_values=value)


class Columns(NamedTuple):
    """Rows of data as they come to a learner, all of the same length: variances of known noise, and
    what the learned one is multiplied by; and the scatter that repeated rows have left."""

    x: Float[np.ndarray, "n d"]
    y: Float[np.ndarray, " n"]
    known: Float[np.ndarray, " n"]
    learns: Float[np.ndarray, " n"]
    freedom: float = 0.0
    scatter: float = 0.0

    def at(self, chosen: np.ndarray) -> "Columns":
        """Some of the rows, with their share of the scatter."""
        share = len(chosen) / len(self.y)
        arrays = (column[chosen] for column in self[:4])
        return Columns(*arrays, share * self.freedom, share * self.scatter)

    def with_noise(self, variances: np.ndarray) -> "Columns":
        """The same rows, their noise known."""
        return Columns(self.x, self.y, variances, np.zeros(len(self.y)))

    def padded(self) -> Rows:
        """As JAX's arrays, of one of a few sizes."""
        size = padded_size(len(self.y))
        columns = (
            pad(np.asarray(self.x, float), size),
            pad(np.asarray(self.y, float), size),
            pad(self.known, size, NOTHING),
            pad(self.learns, size),
            pad(np.ones(len(self.y)), size),
        )
        return Rows(*map(jnp.asarray, (*columns, self.freedom, self.scatter)))


def make_centres(points: np.ndarray) -> Float[Array, "W d"]:
    """Where the radial units sit."""
    size = padded_size(len(points))
    return jnp.asarray(points[np.arange(size) % len(points)], float)


def noise_variances(hyper: Hyper, rows: Rows) -> Float[Array, " n"]:
    """Variance of the noise of each row, with what keeps matrices invertible."""
    floor = JITTER * jnp.exp(2 * hyper.amplitude)
    return rows.known + rows.learns * jnp.exp(2 * hyper.noise) + floor


@jax.custom_vjp
def normal_log_density(covariance: Float[Array, "n n"], y: Float[Array, " n"]) -> Float[Array, ""]:
    """log N(y; 0, C), with the derivative ½(αα' − C⁻¹), α = C⁻¹y: no factor is differentiated."""
    return _with_factor(covariance, y)[0]


def _with_factor(covariance, y):
    factor = jnp.linalg.cholesky(covariance)
    white = solve_triangular(factor, y, lower=True)
    size = 0.5 * y.shape[0] * math.log(2 * math.pi)
    value = -0.5 * jnp.sum(white**2) - jnp.sum(jnp.log(jnp.diag(factor))) - size
    return value, (factor, y)


def _derivative(saved, slope):
    factor, y = saved
    alpha = cho_solve((factor, True), y)
    inverse = cho_solve((factor, True), jnp.eye(y.shape[0]))
    return 0.5 * slope * (jnp.outer(alpha, alpha) - inverse), -slope * alpha


normal_log_density.defvjp(_with_factor, _derivative)


class Fitted(eqx.Module):
    """A radial network given data."""

    frozen: Frozen

    def moments(self, x: ArrayLike) -> tuple[Array, Array]:
        """Mean and variance of u at each row, tail included."""
        local = self.frozen.posterior.local
        return _moments(self.frozen, x) if local is None else self.frozen.moments(x)

    def draw(self, key: Array, x: ArrayLike, count: int) -> Float[np.ndarray, "draws n"]:
        """Functions at the rows, jointly; a tail without neighbours is independent from row to row."""
        first, second = jax.random.split(key)
        x, local = jnp.asarray(x), self.frozen.posterior.local
        drawn = _draw_coordinates(self.frozen, jax.random.split(first, count))
        if local is None:
            return np.asarray(_draw_paths(self.frozen, second, drawn, x))
        targets = jnp.asarray(self.frozen.posterior.targets)
        return local.draw(second, x, drawn["latent"][0], targets)


@eqx.filter_jit
def _draw_coordinates(frozen: Frozen, keys: Array) -> dict:
    return jax.vmap(frozen.draw)(keys)


@eqx.filter_jit
def _draw_paths(frozen: Frozen, key: Array, drawn: dict, x: Float[Array, "n d"]) -> Array:
    """Functions at these draws of the coordinates, and an independent draw of the tail at each row."""
    paths = jax.lax.map(lambda params: jax.vmap(frozen.network(params))(x), drawn)
    tail = jnp.sqrt(sum(jax.tree.leaves(frozen.posterior.tail_variances(x))))
    return paths + tail[None] * jax.random.normal(key, paths.shape)


@eqx.filter_jit
def _moments(frozen: Frozen, x: Array) -> tuple[Array, Array]:
    return frozen.moments(x)


def make_prior(hyper: Hyper, centres: Float[Array, "W d"]) -> Prior:
    """The Mercer prior of a network of radial units at the centres."""
    energy = Nodes(hyper.covariance, centres)
    return Prior(energy, Radial(energy), normalised=True, solver="cholesky")


@eqx.filter_jit
def fit(hyper: Hyper, centres: Float[Array, "W d"], rows: Rows) -> Fitted:
    """The exact posterior of the readout, rows a block at a time: O(nW²), memory O(W²)."""
    scale = jnp.sqrt(noise_variances(hyper, rows))
    data = rows.x, rows.y
    prior = make_prior(hyper, centres)
    posterior = Posterior(prior, Gaussian(scale), data, tail="independent")
    return Fitted(Frozen(posterior))


def leave_one_out(hyper: Hyper, columns: Columns) -> tuple[np.ndarray, np.ndarray]:
    """Residual and variance of each row as the others predict it, noise included.

    With C the covariance of the targets these are (C⁻¹y)ᵢ/(C⁻¹)ᵢᵢ and 1/(C⁻¹)ᵢᵢ.
    """
    residuals, variances = _leave_one_out(hyper, columns.padded())
    return np.asarray(residuals)[: len(columns.y)], np.asarray(variances)[: len(columns.y)]


@eqx.filter_jit
def _leave_one_out(hyper: Hyper, rows: Rows) -> tuple[Array, Array]:
    factor = jnp.linalg.cholesky(rows.covariance(hyper))
    inverse = cho_solve((factor, True), jnp.eye(len(rows.y)))
    precisions = jnp.diag(inverse)
    return inverse @ (rows.y * rows.present) / precisions, 1 / precisions
