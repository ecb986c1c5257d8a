"""Networks of radial units, whose Mercer energy is known with every mode, in any dimension.

For u = Σⱼ wⱼ k(·, zⱼ) the energy ½⟨u, S⁻¹u⟩ is ½ wᵀ K w with K = [k(zᵢ, zⱼ)]: no quadrature, no
cut and no reference. So the readout is w ~ N(0, K⁻¹), u(x) = φ(x)·ξ with φ(x) = L⁻¹ k(z, x),
K = L Lᵀ and white ξ, and what the units leave out is k(x, x) − |φ(x)|², the tail variance, which
counts as noise of its own at each point.

The process is a² times a named kernel plus a random plane; `Hyper` holds the logarithms
of its hyperparameters. With as many centres as rows the posterior is that of the process itself.
"""

import math
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import cho_solve, solve_triangular
from jax.scipy.stats import norm
from jaxtyping import Array, Float

NAMES = ("matern12", "matern32", "matern52", "squared-exponential")
# Relative to the variance: what keeps a covariance matrix of repeated rows invertible.
JITTER = 1e-8
BLOCK = 2048


class Hyper(NamedTuple):
    """Logarithms of length scales, amplitude, slope and noise; which of the kernels it is."""

    lengthscales: Float[Array, " d"]
    amplitude: Float[Array, ""]
    slope: Float[Array, ""]
    noise: Float[Array, ""]
    kernel: Float[Array, " 4"]


# Means, but for the length scales', and widths of the logarithms a priori.
MEANS = (0.0, -1.0, -1.5)
WIDTHS = (3.0, 3.0, 2.0, 3.0)


def unpack(flat: Float[Array, " p"], kernel: str) -> Hyper:
    """Hyperparameters from a vector of their logarithms and the kernel's name."""
    chosen = jnp.zeros(len(NAMES)).at[NAMES.index(kernel)].set(1.0)
    return Hyper(flat[:-3], flat[-3], flat[-2], flat[-1], chosen)


def start(dimension: int, spread: float = 1.0) -> np.ndarray:
    """Logarithms at their prior's mean, length scales about √d times `spread`."""
    scales = np.full(dimension, 0.5 * math.log(dimension) + math.log(spread))
    return np.append(scales, MEANS)


def log_prior(hyper: Hyper) -> Float[Array, ""]:
    """Of the logarithms, for columns that are standardised: wide normals about `start`."""
    centre = start(hyper.lengthscales.shape[0])
    means = (centre[:-3], *MEANS)
    parts = zip(hyper[:4], means, WIDTHS, strict=True)
    return sum(norm.logpdf(value, mean, width).sum() for value, mean, width in parts)


def correlation(hyper: Hyper, s: Float[Array, "n d"], t: Float[Array, "m d"]):
    """The kernel at all pairs, one where the points agree."""
    scale = jnp.exp(-hyper.lengthscales)[None]
    a, b = s * scale, t * scale
    squares = jnp.sum(a * a, 1)[:, None] + jnp.sum(b * b, 1)[None] - 2 * a @ b.T
    r = jnp.sqrt(jnp.maximum(squares, 0.0) + 1e-14)
    three, five = math.sqrt(3) * r, math.sqrt(5) * r
    kernels = (
        jnp.exp(-r),
        (1 + three) * jnp.exp(-three),
        (1 + five + five**2 / 3) * jnp.exp(-five),
        jnp.exp(-0.5 * r**2),
    )
    return sum(share * kernel for share, kernel in zip(hyper.kernel, kernels, strict=True))


def plane(hyper: Hyper, x: Float[Array, "n d"]) -> Float[Array, "n c"]:
    """Features of a constant and a random slope, with the prior's scales."""
    slopes = x * jnp.exp(hyper.slope) / math.sqrt(x.shape[1])
    return jnp.concatenate([jnp.ones((x.shape[0], 1)), slopes], axis=1)


def log_evidence(
    hyper: Hyper, x: Float[Array, "n d"], y: Float[Array, " n"], known: Float[Array, " n"] | None
) -> Float[Array, ""]:
    """log p(y | X) of the process itself; `known` are noise variances, else the learned one."""
    variance = jnp.exp(2 * hyper.amplitude)
    noise = jnp.exp(2 * hyper.noise) if known is None else known
    flat = plane(hyper, x)
    covariance = variance * correlation(hyper, x, x) + flat @ flat.T
    diagonal = jnp.broadcast_to(noise + JITTER * variance, y.shape)
    return normal_log_density(covariance + jnp.diag(diagonal), y)


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


class RadialNetwork(eqx.Module):
    """Radial units at the centres, and the plane: u(x) = φ(x)·ξ with white ξ a priori."""

    hyper: Hyper
    centres: Float[Array, "W d"]
    factor: Float[Array, "W W"]

    def __init__(self, hyper: Hyper, centres: Float[Array, "W d"]):
        self.hyper = hyper
        self.centres = centres
        own = correlation(hyper, centres, centres) + JITTER * jnp.eye(centres.shape[0])
        self.factor = jnp.linalg.cholesky(own)

    def units(self, x: Float[Array, "n d"]) -> Float[Array, "n W+c"]:
        """φ at each row."""
        amplitude = jnp.exp(self.hyper.amplitude)
        cross = correlation(self.hyper, self.centres, x)
        radial = amplitude * solve_triangular(self.factor, cross, lower=True).T
        return jnp.concatenate([radial, plane(self.hyper, x)], axis=1)

    def tail(self, units: Float[Array, "n W+c"]) -> Float[Array, " n"]:
        """The variance that the units leave out, at the rows they were computed for."""
        kept = jnp.sum(units[:, : self.centres.shape[0]] ** 2, axis=1)
        return jnp.maximum(jnp.exp(2 * self.hyper.amplitude) - kept, 0.0)


class Fitted(eqx.Module):
    """A network given data: ξ ~ N(weights, (L Lᵀ)⁻¹)."""

    network: RadialNetwork
    factor: Float[Array, "m m"]
    weights: Float[Array, " m"]
    noise: Float[Array, ""]

    def moments(self, x: Float[Array, "n d"]) -> tuple[Array, Array]:
        """Mean and variance of u at each row, tail included."""
        units = self.network.units(x)
        half = solve_triangular(self.factor, units.T, lower=True)
        return units @ self.weights, jnp.sum(half**2, axis=0) + self.network.tail(units)

    def leave_one_out(
        self, x: Float[Array, "n d"], y: Float[Array, " n"], noise: Float[Array, " n"]
    ) -> tuple[Array, Array]:
        """Residual and variance of each row of the data as the others predict it.

        With noise D = noise + tail and h = Var(φξ)/D these are r/(1 − h) and D/(1 − h).
        """
        units = self.network.units(x)
        half = solve_triangular(self.factor, units.T, lower=True)
        floor = JITTER * jnp.exp(2 * self.network.hyper.amplitude)
        spread = noise + self.network.tail(units) + floor
        rest = jnp.maximum(1 - jnp.sum(half**2, axis=0) / spread, 1e-6)
        return (y - units @ self.weights) / rest, spread / rest

    def draw(self, key: Any, x: Float[Array, "n d"], count: int) -> Float[Array, "draws n"]:
        """Functions at the rows, jointly; the tail is independent from row to row."""
        first, second = jax.random.split(key)
        units = self.network.units(x)
        white = jax.random.normal(first, (self.weights.shape[0], count))
        drawn = self.weights[:, None] + solve_triangular(self.factor.T, white, lower=False)
        tail = jnp.sqrt(self.network.tail(units))[None]
        rest = tail * jax.random.normal(second, (count, x.shape[0]))
        return (units @ drawn).T + rest


@eqx.filter_jit
def fit(
    hyper: Hyper,
    centres: Float[Array, "W d"],
    x: Float[Array, "n d"],
    y: Float[Array, " n"],
    known: Float[Array, " n"] | None = None,
) -> Fitted:
    """The posterior of the readout by one factor, rows a block at a time: O(nW²), memory O(W²)."""
    network = RadialNetwork(hyper, centres)
    noise = jnp.exp(2 * hyper.noise) if known is None else jnp.zeros(())
    rows = x.shape[0]
    spare = -rows % min(BLOCK, rows)
    size = min(BLOCK, rows)
    weight = jnp.concatenate([jnp.ones(rows), jnp.zeros(spare)]).reshape(-1, size)
    blocks = jnp.concatenate([x, jnp.zeros((spare, x.shape[1]))]).reshape(-1, size, x.shape[1])
    targets = jnp.concatenate([y, jnp.zeros(spare)]).reshape(-1, size)
    given = jnp.zeros(rows) if known is None else known
    given = jnp.concatenate([given, jnp.ones(spare)]).reshape(-1, size)

    def add(carry, block):
        matrix, vector = carry
        inputs, values, share, own = block
        units = network.units(inputs)
        floor = JITTER * jnp.exp(2 * hyper.amplitude)
        precision = share / (noise + own + network.tail(units) + floor)
        scaled = units * precision[:, None]
        return (matrix + scaled.T @ units, vector + scaled.T @ values), None

    count = centres.shape[0] + 1 + x.shape[1]
    begin = jnp.eye(count), jnp.zeros(count)
    (matrix, vector), _ = jax.lax.scan(add, begin, (blocks, targets, weight, given))
    factor = jnp.linalg.cholesky(matrix)
    return Fitted(network, factor, cho_solve((factor, True), vector), noise)
