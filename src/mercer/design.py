"""The choice of a network whose prior, or posterior, is within a tolerance of a process's."""

import itertools
import logging
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float, PRNGKeyArray
from scipy import special

from .checks import Real, require_positive
from .domains import Box
from .energy import Nodes, Quadrature
from .fidelity import (
    comparison_points,
    fidelity,
    kernel_matrix,
    layer_errors,
    network_covariance,
)
from .likelihoods import Gaussian
from .networks import FourierMLP, Radial
from .posterior import Posterior
from .prior import Prior
from .spectra import Matern, Spectrum, SquaredExponential
from .spectra.base import Scaled
from .spectra.boundary import Boundary
from .spectra.eigenvalues import num_invertible

# In units of the process's standard deviation, from the least stiff up.
READOUT_SCALES = (30.0, 100.0, 300.0, 1000.0, 3000.0)
FREQUENCY_SCALES = (2.0, 5.0, 10.0, 20.0, 40.0, 80.0)
# Rough paths need sharp units and leave a Dirichlet side at once; smooth ones the opposite.
HIDDEN_SCALE = {"rough": 6.0, "smooth": 2.0}
SATURATION = {"rough": 0.003, "smooth": 0.1}
MAX_WIDTH = 3000
# Beyond this width radial units at the rows are as good; rows that get one at most.
MAX_WIDTH_GIVEN_DATA, MAX_UNITS = 256, 2000
# What a prior's error may be beside the variance of the noise for the posterior to be right.
BESIDE_NOISE = 0.02
# Share of the tolerance that the correlation with a row's mirror image may have.
MIRROR_SHARE = 0.01
MAX_MODES = 4096
# Another draw of the hidden layer has another error; this much of the tolerance is left for it.
MARGIN = 0.85
# A network must not reach beyond the modes that weigh it (the tail rule).
MODES_TO_SPARE = {1: 2, 2: 4}

log: logging.Logger = logging.getLogger(__name__)


def design(
    spectrum: Spectrum,
    tolerance: Real = 0.01,
    *,
    key: PRNGKeyArray,
    data: tuple[Any, Any] | None = None,
    noise: ArrayLike | None = None,
) -> Prior:
    """A prior over a network that follows its process within the tolerance.

    Without data the tolerance is on the covariance, relative to the largest variance and averaged
    over hidden layers: `fidelity(prior).relative_error`. Tries readout scales from the least stiff
    up, with the frequencies that suit each, then wider networks; more modes where the spectrum can
    make them.

    With `data` = (X, y) and the standard deviation of their `noise` it is on the posterior:
    means within so many standard deviations, and standard deviations within that share, of the
    exact process's. A process that is reflected at the sides of its domain is given a wider
    domain where rows would feel these. Where no `FourierMLP` is close enough beside the noise, the
    network has a radial unit at each row, which is exact.

    `describe(prior)` tells what was chosen. Raises a ValueError that says what is in the way where
    nothing meets the tolerance.

    >>> import mercer
    >>> prior = mercer.design(mercer.BrownianBridge(200), tolerance=0.01, key=jax.random.key(0))
    >>> mercer.fidelity(prior).relative_error <= 0.01
    True
    """
    require_positive("tolerance", tolerance)
    if not isinstance(spectrum.domain, Box):
        raise ValueError(
            f"design chooses a FourierMLP, which lives on an Interval or a Box; got "
            f"{type(spectrum.domain).__name__}. Make the Prior by hand and look at its fidelity."
        )
    spectrum.check()
    if data is None and noise is None:
        return _design_prior(spectrum, float(tolerance), key)
    if data is None or noise is None:
        raise ValueError("a tolerance on the posterior needs both data=(X, y) and noise=.")
    return _design_posterior(spectrum, float(tolerance), key, data, noise)


def _design_posterior(
    spectrum: Spectrum, tolerance: float, key: PRNGKeyArray, data: tuple[Any, Any], noise: ArrayLike
) -> Prior:
    require_positive("noise", noise)
    inputs = np.asarray(data[0], float)
    spectrum = pad_domain(spectrum, inputs, tolerance)
    share = float(np.min(np.square(noise))) / float(spectrum.trace / spectrum.domain.measure)
    try:
        wanted = min(BESIDE_NOISE * share, tolerance)
        prior = _design_prior(spectrum, wanted, key, MAX_WIDTH_GIVEN_DATA)
        if _meets(prior, data, noise, tolerance):
            return prior
    except ValueError as refusal:
        log.info("%s", refusal)
    energy = Nodes(spectrum, np.unique(inputs, axis=0)[:MAX_UNITS])
    prior = Prior(energy, Radial(energy), normalised=True, solver="cholesky")
    log.info("a radial unit at each row")
    if _meets(prior, data, noise, tolerance):
        return prior
    raise ValueError(
        f"no network meets tolerance={tolerance:g} on the posterior of these data; ask for less, or "
        "give fewer rows to design by."
    )


def _meets(prior: Prior, data: tuple[Any, Any], noise: ArrayLike, tolerance: float) -> bool:
    closeness = fidelity(Posterior(prior, Gaussian(noise), data))
    log.info("%s", closeness)
    return max(closeness.worst_mean, closeness.worst_sd) <= tolerance


def pad_domain(spectrum: Spectrum, inputs: np.ndarray, tolerance: float) -> Spectrum:
    """The same stationary process on a domain large enough that reflection does not matter.

    A row is correlated with its own mirror image, at twice the distance to a side.
    """
    if isinstance(spectrum, Scaled):
        inner = pad_domain(spectrum.spectrum, inputs, tolerance)
        return Scaled(inner, spectrum.log_factor)
    reflects = spectrum.boundary is not None and set(sum(spectrum.boundary, ())) == {"neumann"}
    if not isinstance(spectrum, Matern | SquaredExponential) or not reflects:
        return spectrum
    domain, scale = spectrum.domain, float(spectrum.lengthscale)
    room = 0.5 * scale * _correlation_reach(spectrum, MIRROR_SHARE * tolerance)
    lower = np.minimum(domain.lower, inputs.min(axis=0) - room)
    upper = np.maximum(domain.upper, inputs.max(axis=0) + room)
    growth = math.prod((upper - lower) / np.array(domain.lengths))
    count = min(math.ceil(growth * spectrum.num_modes), MAX_MODES)
    arguments = spectrum.lengthscale, spectrum.variance, Box(lower, upper), count
    if isinstance(spectrum, Matern):
        return Matern(spectrum.nu, *arguments)
    return SquaredExponential(*arguments)


def _correlation_reach(spectrum: Matern | SquaredExponential, level: float) -> float:
    """Length scales after which the correlation of the stationary process is below a level."""
    lags = np.linspace(0.0, 40.0, 4001)[1:]
    if isinstance(spectrum, SquaredExponential):
        values = np.exp(-0.5 * lags**2)
    else:
        nu = float(spectrum.nu)
        scaled = math.sqrt(2 * nu) * lags
        values = 2 ** (1 - nu) / special.gamma(nu) * scaled**nu * special.kv(nu, scaled)
    below = values < level
    return float(lags[np.argmax(below)]) if below.any() else float(lags[-1])


def _design_prior(
    spectrum: Spectrum, tolerance: float, key: PRNGKeyArray, max_width: int = MAX_WIDTH
) -> Prior:
    points = comparison_points(spectrum.domain)
    kernel = kernel_matrix(spectrum, points)
    spectrum = spectrum[: num_invertible(np.asarray(spectrum.log_eigenvalues))]
    needed = modes_needed(spectrum, points, jnp.diag(kernel), tolerance / 2)
    spectrum = _resolve(spectrum, MODES_TO_SPARE.get(spectrum.domain.dimension, 4) * needed)
    search = _Search(spectrum, points, kernel, key)
    for width in _widths(needed, max_width):
        for readout_scale in READOUT_SCALES:
            network = search.best_frequencies(width, readout_scale)
            log.info("width %d, %s: error %.3g", width, _describe_scales(network), search.error)
            if search.error <= MARGIN * tolerance:
                prior = Prior(search.energy, network, normalised=True)
                if float(jnp.mean(layer_errors(prior, 0, points, kernel))) <= tolerance:
                    return prior
    raise ValueError(
        f"no network to width {max_width} meets tolerance={tolerance:g} for this spectrum; the closest "
        f"has a relative error of {search.lowest:.2g}. Ask for less, {_alternative(spectrum)}."
    )


def _alternative(spectrum: Spectrum) -> str:
    """What else helps: smoother paths or, for those that are smooth already, more modes."""
    if math.isinf(spectrum.path_order):
        return "or make the spectrum with more modes"
    return "or for smoother paths"


class _Search:
    """Tries networks against one spectrum, whose covariances at some points are known."""

    def __init__(
        self,
        spectrum: Spectrum,
        points: Float[Array, "p d"],
        kernel: Float[Array, "p p"],
        key: PRNGKeyArray,
    ):
        self.energy = Quadrature(spectrum)
        self.points, self.kernel, self.key = points, kernel, key
        self.variance = float(jnp.max(jnp.diag(kernel)))
        self.frequency = 2
        self.error = self.lowest = math.inf

    def best_frequencies(self, width: int, readout_scale: float) -> FourierMLP:
        """The network with the best frequency scale, downhill from where the last one was."""
        tried: dict[int, tuple[float, FourierMLP]] = {}

        def error(index: int) -> float:
            if not 0 <= index < len(FREQUENCY_SCALES):
                return math.inf
            if index not in tried:
                network = self.network(width, readout_scale, FREQUENCY_SCALES[index])
                tried[index] = self.relative_error(network), network
            return tried[index][0]

        for step in (-1, 1):
            while error(self.frequency + step) < error(self.frequency):
                self.frequency += step
        self.error, network = tried[self.frequency]
        self.lowest = min(self.lowest, self.error)
        return network

    def relative_error(self, network: FourierMLP) -> float:
        """The largest error of a covariance, over the largest variance."""
        # The solver that suits any network: stiff ones are tried as well.
        prior = Prior(self.energy, network, normalised=True, solver="qr")
        (term,) = prior.terms(prior.params)
        covariance = network_covariance(prior, term, self.points)
        return float(jnp.max(jnp.abs(covariance - self.kernel))) / self.variance

    def network(self, width: int, readout_scale: float, frequency_scale: float) -> FourierMLP:
        spectrum = self.energy.spectrum
        paths = "rough" if spectrum.path_order < 1 else "smooth"
        return FourierMLP(
            spectrum.domain.dimension,
            width,
            frequency_scale=frequency_scale,
            boundary=dirichlet_sides(spectrum.boundary),
            key=jax.random.clone(self.key),
            saturation=SATURATION[paths],
            hidden_scale=HIDDEN_SCALE[paths],
            readout_scale=readout_scale * math.sqrt(self.variance),
            domain=spectrum.domain,
        )


def modes_needed(
    spectrum: Spectrum, points: Float[Array, "p d"], variance: Float[Array, " p"], tolerance: float
) -> int:
    """How many modes leave at most this share of the largest variance in the tail."""
    while True:
        missing = _tail(spectrum, points, variance) / float(jnp.max(variance))
        if np.any(missing <= tolerance):
            return int(np.argmax(missing <= tolerance)) + 1
        extended = _extend(spectrum, 2 * spectrum.num_modes)
        if extended is spectrum:
            raise ValueError(
                f"{spectrum.num_modes} modes leave {missing[-1]:.2g} of the variance in the tail, more "
                f"than tolerance {2 * tolerance:g} allows; make the spectrum with more modes or raise "
                "the tolerance."
            )
        spectrum = extended


def _tail(
    spectrum: Spectrum, points: Float[Array, "p d"], variance: Float[Array, " p"]
) -> Float[np.ndarray, " K"]:
    """The largest variance over the points that the first 1, 2, …, K modes leave out."""
    values = jax.vmap(spectrum.eigenfunctions)(points)
    kept = jnp.cumsum(jnp.exp(spectrum.log_eigenvalues)[None] * values**2, axis=1)
    return np.asarray(jnp.max(variance[:, None] - kept, axis=0))


def _extend(spectrum: Spectrum, num_modes: int) -> Spectrum:
    """The spectrum with this many modes, or itself where it has as many or cannot have more."""
    num_modes = min(num_modes, MAX_MODES)
    if num_modes <= spectrum.num_modes:
        return spectrum
    try:
        return spectrum.with_modes(num_modes)
    except ValueError:
        return spectrum


def _resolve(spectrum: Spectrum, num_modes: int) -> Spectrum:
    """The spectrum with at least this many modes where it can have them."""
    extended = _extend(spectrum, num_modes)
    return extended[: num_invertible(np.asarray(extended.log_eigenvalues))]


def _widths(needed: int, most: int) -> list[int]:
    """Widths to try: a few units a mode first."""
    first = min(max(64, needed + needed // 2), most)
    growth = itertools.takewhile(lambda w: w <= most, (int(first * 1.5**i) for i in range(10)))
    return list(growth)


def dirichlet_sides(boundary: Boundary | None) -> Boundary | None:
    """The sides where a network has to vanish, or None where there are none."""
    if boundary is None:
        return None
    pairs = (tuple(s if s == "dirichlet" else "neumann" for s in sides) for sides in boundary)
    sides = tuple((lower, upper) for lower, upper in pairs)
    return sides if any("dirichlet" in pair for pair in sides) else None


def _describe_scales(network: FourierMLP) -> str:
    frequency = math.sqrt(float(np.mean(network.frequencies**2)))
    return f"readout scale {network.readout_scale:g}, frequencies about {frequency:.3g}"
