"""Networks of known units given data: the evidence, and the posterior of the readout, both exact.

Arrays are padded to a few sizes, so that data sets of about the same size share their programs.
"""

import math
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import cho_solve, solve_triangular
from jaxtyping import Array, Float

from .radial import JITTER, Centres, Hyper, Network, covariance

BLOCK = 2048
SMALLEST_SIZE = 16


class Rows(NamedTuple):
    """Data; noise has the variances `known` and, where `learns` is one, the learned variance.

    Rows that are not present count for nothing.
    """

    x: Float[Array, "n d"]
    y: Float[Array, " n"]
    known: Float[Array, " n"]
    learns: Float[Array, ""]
    present: Float[Array, " n"]


def padded_size(count: int) -> int:
    """The next of a few sizes: a multiple of sixteen, at most a quarter more from 64 on, whole blocks
    beyond one."""
    step = BLOCK if count > BLOCK else max(2 ** (count.bit_length() - 3), SMALLEST_SIZE)
    return -(-count // step) * step


def pad(array: np.ndarray, size: int, value: float = 0.0) -> np.ndarray:
    """More rows of one value at the end."""
    more = [(0, size - len(array))] + [(0, 0)] * (array.ndim - 1)
    return np.pad(array, more, constant_values=value)


def make_rows(x: np.ndarray, y: np.ndarray, known: np.ndarray | None = None) -> Rows:
    """Rows of data with noise to be learned, or of known variances."""
    size = padded_size(len(y))
    given = np.zeros(len(y)) if known is None else np.asarray(known, float)
    return Rows(
        jnp.asarray(pad(np.asarray(x, float), size)),
        jnp.asarray(pad(np.asarray(y, float), size)),
        jnp.asarray(pad(given, size, 1.0)),
        jnp.asarray(float(known is None)),
        jnp.asarray(pad(np.ones(len(y)), size)),
    )


def make_centres(points: np.ndarray) -> Centres:
    """Centres at these points."""
    size = padded_size(len(points))
    padded, present = pad(np.asarray(points, float), size), pad(np.ones(len(points)), size)
    return Centres(jnp.asarray(padded), jnp.asarray(present))


def noise_variances(hyper: Hyper, rows: Rows) -> Float[Array, " n"]:
    """Of each row, with what keeps matrices invertible."""
    floor = JITTER * jnp.exp(2 * hyper.amplitude)
    return rows.known + rows.learns * jnp.exp(2 * hyper.noise) + floor


def log_evidence(hyper: Hyper, rows: Rows) -> Float[Array, ""]:
    """log p(y | X) of the process itself."""
    diagonal = jnp.where(rows.present > 0, noise_variances(hyper, rows), 1.0)
    inner = covariance(hyper, rows.x) * jnp.outer(rows.present, rows.present)
    absent = rows.present.shape[0] - jnp.sum(rows.present)
    value = normal_log_density(inner + jnp.diag(diagonal), rows.y * rows.present)
    return value + 0.5 * math.log(2 * math.pi) * absent


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
    """A network given data: ξ ~ N(weights, (L Lᵀ)⁻¹); `noise` is the variance that was learned."""

    network: Network
    factor: Float[Array, "m m"]
    weights: Float[Array, " m"]
    noise: Float[Array, ""]

    def moments(self, x: Float[Array, "n d"]) -> tuple[Array, Array]:
        """Mean and variance of u at each row, tail included."""
        units = self.network.units(x)
        half = solve_triangular(self.factor, units.T, lower=True)
        return units @ self.weights, jnp.sum(half**2, axis=0) + self.network.tail(x, units)

    def leave_one_out(
        self, x: Float[Array, "n d"], y: Float[Array, " n"], noise: Float[Array, " n"]
    ) -> tuple[Array, Array]:
        """Residual and variance of each row of the data as the others predict it.

        With noise D = noise + tail and h = Var(φξ)/D these are r/(1 − h) and D/(1 − h).
        """
        units = self.network.units(x)
        half = solve_triangular(self.factor, units.T, lower=True)
        spread = noise + self.network.tail(x, units) + JITTER * self.network.variance
        rest = jnp.maximum(1 - jnp.sum(half**2, axis=0) / spread, 1e-6)
        return (y - units @ self.weights) / rest, spread / rest

    def draw(self, key: Any, x: Float[Array, "n d"], count: int) -> Float[Array, "draws n"]:
        """Functions at the rows, jointly; the tail is independent from row to row."""
        first, second = jax.random.split(key)
        white = jax.random.normal(first, (self.weights.shape[0], count))
        drawn = self.weights[:, None] + solve_triangular(self.factor.T, white, lower=False)
        return with_tail(second, self.network, drawn, x)


def with_tail(
    key: Any, network: Network, readouts: Float[Array, "m draws"], x: Float[Array, "n d"]
) -> Float[Array, "draws n"]:
    """Functions with these readouts at the rows, and an independent draw of the tail at each."""
    units = network.units(x)
    tail = jnp.sqrt(network.tail(x, units))[None]
    rest = tail * jax.random.normal(key, (readouts.shape[1], x.shape[0]))
    return (units @ readouts).T + rest


@eqx.filter_jit
def fit(hyper: Hyper, centres: Centres, rows: Rows) -> Fitted:
    """The posterior of the readout by one factor, rows a block at a time: O(nW²), memory O(W²)."""
    network = Network(hyper, centres)
    blocks = in_blocks((rows.x, rows.y, noise_variances(hyper, rows), rows.present))
    count = eqx.filter_eval_shape(network.units, blocks[0][0]).shape[1]

    def add(carry, block):
        matrix, vector = carry
        inputs, values, noise, present = block
        units = network.units(inputs)
        scaled = units * (present / (noise + network.tail(inputs, units)))[:, None]
        return (matrix + scaled.T @ units, vector + scaled.T @ values), None

    (matrix, vector), _ = jax.lax.scan(add, (jnp.eye(count), jnp.zeros(count)), blocks)
    factor = jnp.linalg.cholesky(matrix)
    weights = cho_solve((factor, True), vector)
    return Fitted(network, factor, weights, rows.learns * jnp.exp(2 * hyper.noise))


def leave_one_out(
    fitted: Fitted, x: np.ndarray, y: np.ndarray, noise: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Residual and variance of each row as the others predict it."""
    size = padded_size(len(y))
    padded = (jnp.asarray(pad(v, size, 1.0)) for v in (x, y, noise))
    residuals, spread = _leave_one_out(fitted, *padded)
    return np.asarray(residuals)[: len(y)], np.asarray(spread)[: len(y)]


@eqx.filter_jit
def _leave_one_out(fitted: Fitted, *columns: Array) -> tuple[Array, Array]:
    blocks = in_blocks(columns)
    found = jax.lax.map(lambda block: fitted.leave_one_out(*block), blocks)
    return jax.tree.map(jnp.ravel, found)


def in_blocks(columns: tuple[Array, ...]) -> tuple[Array, ...]:
    """Rows a block at a time, the block the leading axis."""
    size = min(BLOCK, columns[0].shape[0])
    return jax.tree.map(lambda a: a.reshape(-1, size, *a.shape[1:]), columns)
