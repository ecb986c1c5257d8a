"""The CO2 series as season, line and slow trend: one spectrum, its scales, and its networks."""

import dataclasses
import functools
import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jax.scipy.stats import multivariate_normal, norm
from jaxtyping import Array, Float, PyTree
from scipy.optimize import minimize

from ..checks import Real
from ..data import Series, co2
from ..density import Prior
from ..domains import Interval
from ..energy import Quadrature
from ..likelihoods import Gaussian
from ..networks import FourierMLP
from ..posterior import Posterior
from ..readout import Readout, features, make_law, offset
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


def components(scales: Scales, year: Real, num_modes: int) -> dict[str, Spectrum]:
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


def log_evidence(scales: Scales, series: Series, num_modes: int) -> Float[Array, ""]:
    """log p(y) of the training rows under the process, its readout and slope integrated out."""
    inputs, targets = (jnp.asarray(a) for a in training_rows(series))
    parts = components(scales, series.year, num_modes).values()
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


class Collapsed(eqx.Module):
    """The posterior of every parameter, the readout in coordinates where it is N(0, I).

    Given the hidden layers η and the data, the readout is Gaussian: w = mean(η) + T(η)z. In terms
    of (η, z) the posterior is N(η; 0, I) N(z; 0, I) p(y | η), and p(y | η) is nearly the same for
    all η of a faithful network, so that few leapfrog steps lead to an independent draw. Parameters
    have the structure of the prior's, with z where the readout is.
    """

    posterior: Posterior
    __hash__ = object.__hash__

    @property
    def params(self) -> PyTree:
        """A starting point, and the structure of the parameters."""
        return self.posterior.prior.params

    def __call__(self, params: PyTree, batch: None = None) -> Float[Array, ""]:
        own, joint = self.laws(params)
        scale = jnp.broadcast_to(self.posterior.likelihood.scale, self.posterior.targets.shape)
        log_noise = jnp.sum(jnp.log(scale) + 0.5 * math.log(2 * math.pi))
        evidence = joint.log_normaliser - own.log_normaliser - log_noise
        return jnp.sum(norm.logpdf(ravel_pytree(params)[0])) + evidence

    def laws(self, params: PyTree) -> tuple[Readout, Readout]:
        """The law of the readout given the hidden layers: without the data, and with them."""
        posterior, prior = self.posterior, self.posterior.prior
        (term,) = prior.terms(params)
        own = prior.readout_law(term)
        scale = posterior.likelihood.scale
        slopes = jax.vmap(lambda x: features(term.network, prior.where, x))(posterior.inputs)
        rest = jax.vmap(lambda x: offset(term.network, prior.where, x))(posterior.inputs)
        mixing = jnp.concatenate([own.mixing, own.scale * slopes / scale])
        residual = jnp.concatenate([own.residual, (rest - posterior.targets) / scale])
        return own, make_law(mixing, residual, own.scale, prior.is_stiff)

    def network(self, params: PyTree) -> PyTree:
        """The network with these hidden layers and its readout back in its own coordinates."""
        prior, (_, joint) = self.posterior.prior, self.laws(params)
        white = ravel_pytree(prior.where(params))[0]
        weights = joint.mean() + joint.root() @ white
        return prior.network(prior.with_readouts(params, [weights]))
