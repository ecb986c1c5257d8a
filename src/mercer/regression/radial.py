"""Networks of radial units, whose Mercer energy is known with every mode, in any dimension.

For u = Σⱼ wⱼ k(·, zⱼ) the energy ½⟨u, S⁻¹u⟩ is ½ wᵀ K w with K = [k(zᵢ, zⱼ)]: no quadrature, no
cut and no reference. So the readout is w ~ N(0, K⁻¹), u(x) = φ(x)·ξ with φ(x) = L⁻¹ k(z, x),
K = L Lᵀ and white ξ, and what the units leave out is k(x, x) − |φ(x)|², the tail variance, which
counts as noise of its own at each point.

The process is a² times a named kernel, or one with a given spectrum, plus a random plane; `Hyper`
holds the logarithms of its hyperparameters. With as many centres as rows the posterior is that of
the process itself.
"""

import math
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import solve_triangular
from jax.scipy.stats import norm
from jaxtyping import Array, Float, Int

from .modal import Modes

NAMES = ("matern12", "matern32", "matern52", "squared-exponential")
# Relative to the variance: what keeps a covariance matrix of repeated rows invertible.
JITTER = 1e-8


class Hyper(NamedTuple):
    """Logarithms of length scales, amplitude, slope and noise; the kernel by its place among the
    names, or its modes, which have no length scales."""

    lengthscales: Float[Array, " d"]
    amplitude: Float[Array, ""]
    slope: Float[Array, ""]
    noise: Float[Array, ""]
    kernel: Int[Array, ""] | Modes


# Means, but for the length scales', and widths of the logarithms a priori.
MEANS = (0.0, -1.0, -1.5)
WIDTHS = (3.0, 3.0, 2.0, 3.0)


def as_kernel(name: str) -> Int[Array, ""]:
    """A kernel's place among the names."""
    return jnp.asarray(NAMES.index(name))


def unpack(flat: Float[Array, " p"], kernel: Int[Array, ""] | Modes) -> Hyper:
    """Hyperparameters from a vector of their logarithms."""
    return Hyper(flat[:-3], flat[-3], flat[-2], flat[-1], kernel)


def start(num_lengthscales: int, spread: float = 1.0) -> np.ndarray:
    """Logarithms at their prior's mean, length scales about √d times `spread`."""
    middle = 0.5 * math.log(max(num_lengthscales, 1)) + math.log(spread)
    return np.append(np.full(num_lengthscales, middle), MEANS)


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
    return jax.lax.switch(hyper.kernel, PROFILES, r)


def _matern32(r: Array) -> Array:
    scaled = math.sqrt(3) * r
    return (1 + scaled) * jnp.exp(-scaled)


def _matern52(r: Array) -> Array:
    scaled = math.sqrt(5) * r
    return (1 + scaled + scaled**2 / 3) * jnp.exp(-scaled)


# By distance in length scales, in the order of the names.
PROFILES = (
    lambda r: jnp.exp(-r),
    _matern32,
    _matern52,
    lambda r: jnp.exp(-0.5 * r**2),
)


def plane(hyper: Hyper, x: Float[Array, "n d"]) -> Float[Array, "n c"]:
    """Features of a constant and a random slope, with the prior's scales."""
    slopes = x * jnp.exp(hyper.slope) / math.sqrt(x.shape[1])
    return jnp.concatenate([jnp.ones((x.shape[0], 1)), slopes], axis=1)


class Centres(NamedTuple):
    """Where radial units sit; those that are not present count for nothing."""

    points: Float[Array, "W d"]
    present: Float[Array, " W"]


class Radial(eqx.Module):
    """Radial units at the centres, of a process with unit variance."""

    hyper: Hyper
    centres: Centres
    factor: Float[Array, "W W"]

    def __init__(self, hyper: Hyper, centres: Centres):
        self.hyper, self.centres = hyper, centres
        points, present = centres
        own = correlation(hyper, points, points) * jnp.outer(present, present)
        self.factor = jnp.linalg.cholesky(own + jnp.diag(JITTER + 1 - present))

    def features(self, x: Float[Array, "n d"]) -> Float[Array, "n W"]:
        """φ at each row."""
        cross = correlation(self.hyper, self.centres.points, x) * self.centres.present[:, None]
        return solve_triangular(self.factor, cross, lower=True).T

    def variance(self, x: Float[Array, "n d"]) -> Float[Array, " n"]:
        """That of the process at each row."""
        return jnp.ones(x.shape[0])


class Network(eqx.Module):
    """Units φ of radial functions or of modes, and the plane's: u(x) = φ(x)·ξ with white ξ a priori."""

    hyper: Hyper
    basis: Radial | Modes

    def __init__(self, hyper: Hyper, centres: Centres):
        self.hyper = hyper
        self.basis = hyper.kernel if isinstance(hyper.kernel, Modes) else Radial(hyper, centres)

    @property
    def variance(self) -> Float[Array, ""]:
        """a², by which the kernel is scaled."""
        return jnp.exp(2 * self.hyper.amplitude)

    def units(self, x: Float[Array, "n d"]) -> Float[Array, "n W+c"]:
        """φ at each row."""
        own = jnp.exp(self.hyper.amplitude) * self.basis.features(x)
        return jnp.concatenate([own, plane(self.hyper, x)], axis=1)

    def tail(self, x: Float[Array, "n d"], units: Float[Array, "n W+c"]) -> Float[Array, " n"]:
        """The variance that these units leave out at the rows."""
        kept = jnp.sum(units[:, : units.shape[1] - x.shape[1] - 1] ** 2, axis=1)
        return jnp.maximum(self.variance * self.basis.variance(x) - kept, 0.0)


def covariance(hyper: Hyper, x: Float[Array, "n d"]) -> Float[Array, "n n"]:
    """Of the process at all pairs of rows; of modes, what they leave out is each row's own."""
    flat = plane(hyper, x)
    if isinstance(hyper.kernel, Modes):
        kept = hyper.kernel.features(x)
        rest = jnp.maximum(hyper.kernel.variance(x) - jnp.sum(kept**2, axis=1), 0.0)
        own = kept @ kept.T + jnp.diag(rest)
    else:
        own = correlation(hyper, x, x)
    return jnp.exp(2 * hyper.amplitude) * own + flat @ flat.T
