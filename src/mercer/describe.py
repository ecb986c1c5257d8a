"""Summaries of a process, and of a prior over a network, in words and numbers."""

import dataclasses
import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .domains import Box, RealLine
from .fidelity import comparison_points, fidelity
from .kernels import SpectrumKernel
from .networks import FourierMLP
from .prior import Prior
from .spectra import Spectrum
from .spectra.boundary import Boundary

# Pairs of points whose covariances are computed at once.
BATCH = 64
SIDE_WORDS = {"dirichlet": "zero", "neumann": "zero slope on average"}


@dataclasses.dataclass(frozen=True)
class Description:
    """Variance, smoothness and boundary conditions of a process; `print` it to read it.

    `variance` is (least, mean, largest) over the domain; `correlation_length` the distance from
    the middle at which the correlation falls to 1/e, infinite if it does not within the domain;
    `decay` the exponent p of λₙ ∝ n^(−p), infinite if faster than algebraic; `sobolev_order`
    and `holder_order` are suprema for the paths; `rkhs_order` is the Sobolev order of the space
    that posterior means live in, d/2 above the paths'.
    """

    dimension: int
    num_modes: int
    variance: tuple[float, float, float]
    kept_share: float
    correlation_length: float
    decay: float
    sobolev_order: float
    holder_order: float
    rkhs_order: float
    boundary: str

    def __str__(self) -> str:
        low, mean, high = self.variance
        flat = high - low <= 1e-6 * high
        spread = (
            f"is {mean:.4g} everywhere"
            if flat
            else f"runs from {low:.3g} to {high:.3g}, {mean:.4g} on average"
        )
        return "\n".join(
            [
                f"A Gaussian process in {self.dimension} dimension{'s' * (self.dimension > 1)}, "
                f"{self.num_modes} modes, which hold {self.kept_share:.2%} of its variance.",
                f"Variance: {spread}.",
                f"Correlation length: {_length(self.correlation_length)}.",
                f"Eigenvalues: {_decay(self.decay)}.",
                f"Paths: {_paths(self.sobolev_order, self.holder_order)}.",
                f"Posterior means: {_means(self.rkhs_order)}.",
                f"Boundary: {self.boundary}.",
            ]
        )


@dataclasses.dataclass(frozen=True)
class PriorDescription:
    """The network of a prior, and how closely it follows its process."""

    process: Description
    width: int | None
    num_parameters: int
    num_points: int
    readout_scale: float | None
    frequency_scale: float | None
    relative_error: float

    def __str__(self) -> str:
        network = "A network"
        if self.width is not None:
            network = (
                f"A FourierMLP of width {self.width}, frequencies of size {self.frequency_scale:.3g} "
                f"and readout scale {self.readout_scale:.4g}"
            )
        return (
            f"{network} with {self.num_parameters} random parameters, {self.process.num_modes} modes "
            f"on {self.num_points} quadrature points; its covariance is within "
            f"{self.relative_error:.2g} of the process's (relative to the largest variance).\n"
            f"{self.process}"
        )


def describe(what: Spectrum | Prior) -> Description | PriorDescription:
    """Summary of the process of a spectrum, or of a prior over one network.

    >>> import mercer
    >>> print(mercer.describe(mercer.BrownianMotion(100)))
    A Gaussian process in 1 dimension, 100 modes, which hold 99.80% of its variance.
    Variance: runs from 0 to 1, 0.5 on average.
    Correlation length: 0.432 (correlation 1/e from the middle of the domain).
    Eigenvalues: decay like n^-2.
    Paths: continuous but nowhere differentiable, Hölder up to 0.5, Sobolev order below 0.5.
    Posterior means: in a smoother space, of Sobolev order 1.
    Boundary: zero at the lower side; zero slope on average at the upper side.
    """
    if isinstance(what, Prior):
        return _describe_prior(what)
    what.check()
    points = comparison_points(what.domain)
    variance = np.asarray(_covariances(what, points, points))
    mean = float(what.trace) / what.domain.measure
    return Description(
        dimension=what.domain.dimension,
        num_modes=what.num_modes,
        variance=(float(max(variance.min(), 0.0)), mean, float(variance.max())),
        kept_share=float(what.cumulative_ratio[-1]),
        correlation_length=_correlation_length(what),
        decay=what.decay,
        sobolev_order=what.path_order,
        holder_order=min(1.0, what.path_order),
        rkhs_order=what.rkhs_order,
        boundary=_boundary_words(what.boundary),
    )


def _describe_prior(prior: Prior) -> PriorDescription:
    terms = prior.terms(prior.params)
    if len(terms) != 1:
        raise ValueError(
            "describe takes a prior over one network; describe the spectra one by one."
        )
    (term,) = terms
    kernel = term.energy and term.energy.kernel
    if not isinstance(kernel, SpectrumKernel):
        raise ValueError(
            "describe takes a prior whose energy is that of a spectrum; look at its fidelity."
        )
    network = term.network if isinstance(term.network, FourierMLP) else None
    return PriorDescription(
        process=describe(kernel.spectrum),
        width=network and network.width,
        num_parameters=sum(leaf.size for leaf in jax.tree.leaves(prior.params)),
        num_points=term.energy.points.shape[0],
        readout_scale=network and float(network.readout_scale),
        frequency_scale=network and math.sqrt(float(np.mean(network.frequencies**2))),
        relative_error=fidelity(prior).relative_error,
    )


def _covariances(
    spectrum: Spectrum, s: Float[Array, "p d"], t: Float[Array, "p d"]
) -> Float[Array, " p"]:
    """k(s, t) for pairs of points."""
    # The process is the same however many modes are kept: one compiled program serves them all.
    return _map_pairs(spectrum.with_modes(1), s, t)


@eqx.filter_jit
def _map_pairs(
    spectrum: Spectrum, s: Float[Array, "p d"], t: Float[Array, "p d"]
) -> Float[Array, " p"]:
    return jax.lax.map(lambda pair: spectrum.kernel(*pair), (s, t), batch_size=BATCH)


def _correlation_length(spectrum: Spectrum) -> float:
    """Distance from the middle of the domain at which the correlation first is 1/e."""
    domain = spectrum.domain
    if isinstance(domain, Box):
        middle, reach = np.add(domain.lower, domain.upper) / 2, domain.lengths[0] / 2
    elif isinstance(domain, RealLine):
        middle, reach = np.zeros(1), domain.scale
    else:
        return math.nan
    lags = np.linspace(0, reach, 2001)
    line = jnp.asarray(middle - lags[:, None] * np.eye(domain.dimension)[0])
    centre = jnp.broadcast_to(line[:1], line.shape)
    variance = _covariances(spectrum, line, line)
    correlation = _covariances(spectrum, centre, line) / jnp.sqrt(variance[0] * variance)
    below = np.asarray(correlation < math.exp(-1))
    return float(lags[np.argmax(below)]) if below.any() else math.inf


def _length(length: float) -> str:
    if math.isnan(length):
        return "not defined for a set of points"
    if math.isinf(length):
        return "longer than the domain"
    return f"{length:.3g} (correlation 1/e from the middle of the domain)"


def _decay(decay: float) -> str:
    return "decay faster than any power" if math.isinf(decay) else f"decay like n^-{decay:.3g}"


def _paths(sobolev: float, holder: float) -> str:
    if math.isinf(sobolev):
        return "infinitely smooth"
    derivatives = math.ceil(sobolev) - 1
    kind = "continuous but nowhere differentiable"
    if derivatives >= 1:
        times = {1: "once", 2: "twice"}.get(derivatives, f"{derivatives} times")
        kind = f"{times} differentiable"
    if sobolev <= 0:
        kind = "rougher than continuous"
    return f"{kind}, Hölder up to {holder:.3g}, Sobolev order below {sobolev:.3g}"


def _means(order: float) -> str:
    if math.isinf(order):
        return "infinitely smooth too"
    return f"in a smoother space, of Sobolev order {order:.3g}"


def _boundary_words(boundary: Boundary | None) -> str:
    if boundary is None:
        return "nothing is imposed"
    axes = [f" of axis {axis}" if len(boundary) > 1 else "" for axis in range(len(boundary))]
    return "; ".join(_side_words(*sides, axis) for sides, axis in zip(boundary, axes, strict=True))


def _side_words(lower: str, upper: str, axis: str) -> str:
    if lower == "periodic":
        return f"periodic{axis}"
    if lower == upper:
        return f"{SIDE_WORDS[lower]} at both sides{axis}"
    return (
        f"{SIDE_WORDS[lower]} at the lower side{axis}; {SIDE_WORDS[upper]} at the upper side{axis}"
    )
