"""What a spectrum's paths look like, and what a prior consists of, in words and numbers."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np

from .domains import Box
from .fidelity import comparison_points, fidelity
from .networks import FourierMLP
from .prior import Prior
from .spectra import Spectrum
from .spectra.boundary import Boundary


@dataclasses.dataclass(frozen=True)
class Description:
    """What the paths of a process look like; `print` it to read it.

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
    """What a prior over one network consists of, and how well it follows its process."""

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
    """What the paths of a spectrum look like, or what a prior consists of.

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
    domain = what.domain
    what.check()
    points = comparison_points(domain)
    variance = np.asarray(jax.lax.map(lambda x: what.kernel(x, x), points))
    mean = float(what.trace) / domain.measure
    return Description(
        dimension=domain.dimension,
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
    error = fidelity(prior).relative_error
    network = term.network if isinstance(term.network, FourierMLP) else None
    return PriorDescription(
        process=describe(term.energy.spectrum),
        width=network and network.width,
        num_parameters=sum(leaf.size for leaf in jax.tree.leaves(prior.params)),
        num_points=term.energy.points.shape[0],
        readout_scale=network and float(network.readout_scale),
        frequency_scale=network and math.sqrt(float(np.mean(network.frequencies**2))),
        relative_error=error,
    )


def _correlation_length(spectrum: Spectrum) -> float:
    """Distance from the middle of the domain at which the correlation first is 1/e."""
    domain = spectrum.domain
    if not isinstance(domain, Box):
        middle, reach = jnp.zeros(domain.dimension), getattr(domain, "scale", math.nan)
        if math.isnan(reach):
            return math.nan
    else:
        middle, reach = (
            (jnp.asarray(domain.lower) + jnp.asarray(domain.upper)) / 2,
            domain.lengths[0] / 2,
        )
    lags = np.linspace(0, reach, 2001)[1:]
    direction = jnp.eye(domain.dimension)[0]
    at_middle = spectrum.kernel(middle, middle)

    def correlation(lag):
        x = middle - lag * direction
        return spectrum.kernel(middle, x) / jnp.sqrt(at_middle * spectrum.kernel(x, x))

    values = np.asarray(jax.lax.map(correlation, jnp.asarray(lags)))
    below = values < math.exp(-1)
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
    words = {
        "dirichlet": "zero",
        "neumann": "zero slope on average",
        "periodic": "periodic",
    }
    sides = []
    for axis, (lower, upper) in enumerate(boundary):
        where = f" of axis {axis}" if len(boundary) > 1 else ""
        if lower == upper == "periodic":
            sides.append(f"periodic{where}")
        elif lower == upper:
            sides.append(f"{words[lower]} at both sides{where}")
        else:
            sides.append(f"{words[lower]} at the lower side{where}")
            sides.append(f"{words[upper]} at the upper side{where}")
    return "; ".join(sides)
