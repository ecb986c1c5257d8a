"""The CO2 series as season, line and slow trend: one spectrum, its scales, and its networks."""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.stats import multivariate_normal
from jaxtyping import Array, Float
from scipy.optimize import minimize

from ..checks import Real
from ..data import Series, co2
from ..density import Prior
from ..domains import Interval
from ..energy import Quadrature
from ..likelihoods import Gaussian
from ..networks import FourierMLP
from ..posterior import Posterior
from ..reference import GaussianProcess
from ..spectra import FiniteRank, Matern, Periodic, Spectrum

DOMAIN = Interval(0.0, 1.0)
PRINTED_SLOPE = 0.95
PRINTED_PERIOD = 0.18
NUM_HARMONICS = 5
SMOOTHNESS = 1.5
LEVEL_SCALE = 0.3
# A trend too small to matter that weighs every function of the network (the tail rule).
NEGLIGIBLE = 0.01


@dataclasses.dataclass(frozen=True)
class Scales:
    """Standard deviations and length scales, both axes in [0, 1].

    `season_length` is in years. `slope` is the deviation of the slope from the mean's; None leaves
    the line out.
    """

    season: float = 0.3
    season_length: float = 0.3
    noise: float = 0.05
    slope: float | None = None
    trend: float = NEGLIGIBLE
    trend_length: float = 0.5


# What is learned, its median, and the spread of its logarithm.
SEASON = {"season": (0.3, 1.0), "season_length": (0.3, 0.5), "noise": (0.05, 0.7)}
LINE_AND_TREND = {"slope": (0.5, 1.0), "trend": (0.1, 1.0), "trend_length": (0.5, 0.5)}
LEARNED = {"ours": SEASON | LINE_AND_TREND, "printed_mean": SEASON}


@dataclasses.dataclass(frozen=True)
class Network:
    """A Fourier network of the experiment and the number of modes of the trend."""

    width: int
    num_modes: int
    num_frequencies: int = 32
    frequency_scale: float = 20.0
    hidden_scale: float = 1.0
    readout_scale: float = 100.0


def printed_mean(x: Float[Array, " d"]) -> Float[Array, ""]:
    """m(t) = 0.95 t."""
    return PRINTED_SLOPE * x[0]


def components(scales: Scales, year: Any, num_modes: int) -> dict[str, Spectrum]:
    """The parts whose sum is the process: season, line where there is one, and slow trend."""
    season = Periodic(year, scales.season_length * year, NUM_HARMONICS, DOMAIN)
    trend = Matern(SMOOTHNESS, scales.trend_length, scales.trend**2, DOMAIN, num_modes)
    parts: dict[str, Spectrum] = {"season": scales.season**2 * season, "trend": trend}
    if scales.slope is not None:
        weights = jnp.stack([jnp.asarray(LEVEL_SCALE**2), jnp.asarray(scales.slope**2)])
        parts["line"] = FiniteRank(lambda x: jnp.stack([jnp.ones(()), x[0]]), weights, DOMAIN, 8)
    return parts


def make_spectrum(scales: Scales, year: Real, num_modes: int) -> Spectrum:
    """The parts as one spectrum."""
    parts = list(components(scales, year, num_modes).values())
    return functools.reduce(lambda first, second: first + second, parts)


def training_rows(series: Series) -> tuple[np.ndarray, np.ndarray]:
    """(X, y) of the rows to learn from."""
    return series.times[series.train][:, None], series.values[series.train]


def log_evidence(
    scales: Scales, series: Series, num_modes: int, period: Any = None
) -> Float[Array, ""]:
    """log p(y) of the training rows under the process, its readout and slope integrated out; the
    period is a year unless it is given."""
    inputs, targets = (jnp.asarray(a) for a in training_rows(series))
    year = series.year if period is None else period
    parts = components(scales, year, num_modes).values()
    covariance = sum(GaussianProcess(part).covariance(inputs) for part in parts)
    covariance = covariance + scales.noise**2 * jnp.eye(len(inputs))
    return multivariate_normal.logpdf(targets, jax.vmap(printed_mean)(inputs), covariance)


@functools.cache
def fit_scales(window: str, model: str, num_modes: int = 24) -> Scales:
    """The scales of largest posterior density given the training rows, by the closed-form evidence.

    Each has a log-normal prior, wide, since four years say little of what is slow.
    """
    series, learned = co2(window), LEARNED[model]

    def unpack(z: Any) -> Scales:
        pairs = zip(learned.items(), z, strict=True)
        return Scales(**{name: m * jnp.exp(s * one) for (name, (m, s)), one in pairs})

    def loss(z: Array) -> Array:
        return 0.5 * jnp.sum(z**2) - log_evidence(unpack(z), series, num_modes)

    compiled = jax.jit(loss)
    bounds = [(-3.0, 3.0)] * len(learned)
    start = np.zeros(len(learned))
    found = minimize(lambda z: float(compiled(jnp.asarray(z))), start, method="L-BFGS-B",
                     bounds=bounds)  # fmt: skip
    best = unpack(jnp.asarray(found.x))
    return Scales(**{name: float(getattr(best, name)) for name in learned})


def make_posterior(network: Network, window: str, model: str, key: jax.Array) -> Posterior:
    """The Mercer prior of a network for the fitted process, given the training rows."""
    series, scales = co2(window), fit_scales(window, model)
    spectrum = make_spectrum(scales, series.year, network.num_modes)
    with jax.default_device(jax.local_devices(backend="cpu")[0]):
        function = FourierMLP(
            1,
            network.width,
            num_frequencies=network.num_frequencies,
            frequency_scale=network.frequency_scale,
            key=key,
            hidden_scale=network.hidden_scale,
            readout_scale=network.readout_scale,
            domain=DOMAIN,
        )
        prior = Prior(Quadrature(spectrum), function, mean=printed_mean)
    return Posterior(prior, Gaussian(scales.noise), training_rows(series))
