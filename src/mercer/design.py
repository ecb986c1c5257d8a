"""A network prior that meets a tolerance: width, modes, points and scales chosen."""

import itertools
import logging
import math

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from .checks import Real, require_positive
from .domains import Box
from .energy import Quadrature
from .fidelity import comparison_points, kernel_matrix, network_covariance
from .networks import FourierMLP
from .prior import Prior
from .spectra import Spectrum
from .spectra.boundary import Boundary
from .spectra.eigenvalues import num_invertible

# In units of the process's standard deviation, from the least stiff up.
READOUT_SCALES = (30.0, 100.0, 300.0, 1000.0, 3000.0)
FREQUENCY_SCALES = (2.0, 5.0, 10.0, 20.0, 40.0, 80.0)
# Rough paths need sharp units and leave a Dirichlet side at once; smooth ones the opposite.
HIDDEN_SCALE = {"rough": 6.0, "smooth": 2.0}
SATURATION = {"rough": 0.003, "smooth": 0.1}
MAX_WIDTH = 3000
MAX_MODES = 4096
# Another draw of the hidden layer has another error; this much of the tolerance is left for it.
MARGIN = 0.85
# A network must not reach beyond the modes that weigh it (the tail rule).
MODES_TO_SPARE = {1: 2, 2: 4}

log = logging.getLogger(__name__)


def design(spectrum: Spectrum, tolerance: Real = 0.01, *, key: PRNGKeyArray) -> Prior:
    """A prior over a `FourierMLP` whose `fidelity` has a relative error within the tolerance.

    Tries readout scales from the least stiff up, with the frequencies that suit each, then
    wider networks; more modes where the spectrum can make them. `describe(prior)` tells what
    was chosen. Raises a ValueError that says what is in the way where nothing meets it.

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
    spectrum = spectrum[: num_invertible(np.asarray(spectrum.log_eigenvalues))]
    needed = modes_needed(spectrum, tolerance / 2)
    spectrum = _resolve(spectrum, MODES_TO_SPARE.get(spectrum.domain.dimension, 4) * needed)
    search = _Search(spectrum, key)
    for width in _widths(needed):
        for readout_scale in READOUT_SCALES:
            network = search.best_frequencies(width, readout_scale)
            log.info("width %d, %s: error %.3g", width, _words(network), search.error)
            if search.error <= MARGIN * tolerance:
                return Prior(search.energy, network, normalised=True)
    raise ValueError(
        f"no network to width {MAX_WIDTH} meets tolerance={tolerance:g} for this spectrum; the "
        f"closest has a relative error of {search.lowest:.2g}. Ask for less, or for smoother paths."
    )


class _Search:
    """Tries networks against one spectrum."""

    def __init__(self, spectrum: Spectrum, key: PRNGKeyArray):
        self.energy = Quadrature(spectrum)
        self.key = key
        self.points = comparison_points(spectrum.domain)
        self.kernel = kernel_matrix(spectrum, self.points)
        self.variance = float(jnp.max(jnp.diag(self.kernel)))
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
        prior = Prior(self.energy, network, normalised=True)
        (term,) = prior.terms(prior.params)
        covariance = network_covariance(prior, term, self.points)
        return float(jnp.max(jnp.abs(covariance - self.kernel))) / self.variance

    def network(self, width: int, readout_scale: float, frequency_scale: float) -> FourierMLP:
        spectrum = self.energy.spectrum
        dimension = spectrum.domain.dimension
        paths = "rough" if spectrum.path_order < 1 else "smooth"
        return FourierMLP(
            dimension,
            width,
            frequency_scale=frequency_scale,
            boundary=dirichlet_sides(spectrum.boundary),
            key=jax.random.clone(self.key),
            saturation=SATURATION[paths],
            hidden_scale=HIDDEN_SCALE[paths],
            readout_scale=readout_scale * math.sqrt(self.variance),
            domain=spectrum.domain,
        )


def modes_needed(spectrum: Spectrum, tolerance: float) -> int:
    """How many modes leave at most this share of the largest variance in the tail."""
    points = comparison_points(spectrum.domain)
    variance = jax.lax.map(lambda x: spectrum.kernel(x, x), points)
    available = min(MAX_MODES, spectrum.num_modes)
    while True:
        missing = _tail(spectrum, variance, points) / float(jnp.max(variance))
        if np.any(missing <= tolerance):
            return int(np.argmax(missing <= tolerance)) + 1
        try:
            available = 2 * available
            spectrum = spectrum.with_modes(min(available, MAX_MODES))
        except ValueError:
            available = MAX_MODES + 1
        if available > MAX_MODES:
            raise ValueError(
                f"{spectrum.num_modes} modes leave {missing[-1]:.2g} of the variance in the tail, more "
                f"than tolerance {2 * tolerance:g} allows; make the spectrum with more modes or raise "
                "the tolerance."
            )


def _tail(spectrum: Spectrum, variance: Float[Array, " p"], points: Array) -> np.ndarray:
    """The largest missing variance over the points after 1, 2, …, K modes."""
    values = jax.vmap(spectrum.eigenfunctions)(points)
    kept = jnp.cumsum(jnp.exp(spectrum.log_eigenvalues)[None] * values**2, axis=1)
    return np.asarray(jnp.max(variance[:, None] - kept, axis=0))


def _resolve(spectrum: Spectrum, num_modes: int) -> Spectrum:
    """The spectrum with at least this many modes where it can have them."""
    if spectrum.num_modes >= num_modes:
        return spectrum
    try:
        more = spectrum.with_modes(min(num_modes, MAX_MODES))
    except ValueError:
        return spectrum
    return more[: num_invertible(np.asarray(more.log_eigenvalues))]


def _widths(needed: int) -> list[int]:
    """Widths to try: a few units a mode first."""
    first = min(max(64, needed + needed // 2), MAX_WIDTH)
    growth = itertools.takewhile(lambda w: w <= MAX_WIDTH, (int(first * 1.5**i) for i in range(10)))
    return list(growth)


def dirichlet_sides(boundary: Boundary | None) -> Boundary | None:
    """The sides where a network has to vanish, or None where there are none."""
    if boundary is None:
        return None
    pairs = (tuple(s if s == "dirichlet" else "neumann" for s in sides) for sides in boundary)
    sides = tuple((lower, upper) for lower, upper in pairs)
    return sides if any("dirichlet" in pair for pair in sides) else None


def _words(network: FourierMLP) -> str:
    frequency = math.sqrt(float(np.mean(network.frequencies**2)))
    return f"readout scale {network.readout_scale:g}, frequencies about {frequency:.3g}"
