"""Models whose hyperparameters are learned: the motorcycle data, with constant noise and with noise
that varies, a Matérn process of known hyperparameters, and the period of the CO2 series."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy.optimize import minimize

from ..conditioned import Conditioned, find_sights
from ..data import co2
from ..density import Prior, is_random
from ..domains import Interval
from ..energy import Quadrature
from ..hyper import Joint
from ..likelihoods import Gaussian, Heteroscedastic
from ..networks import FourierMLP
from ..posterior import Posterior
from ..spectra import Laplacian, Matern
from ..terms import readout_only
from ..unknowns import Above, LogNormal, Normal
from .baselines import Split
from .co2_model import LEARNED, Scales, log_evidence
from .motorcycle_model import DOMAIN, standardised

# The motorcycle data with constant noise, as the closed form needs it: about that of all rows.
NOISE = 0.5
SURFACE = {"variance": LogNormal(1.0, 1.5), "power": Above(0.5, 1.0, 0.6)}
# The process that hyperparameters are to be found again of, and what is known of them before.
TRUTH = {"lengthscale": 0.15, "variance": 2.0, "noise": 0.1}
RECOVERED = {
    "lengthscale": LogNormal(0.3, 1.0),
    "variance": LogNormal(1.0, 1.0),
    "noise": LogNormal(0.2, 1.0),
}
PADDED = Interval(-0.25, 1.25)
# Mean and logarithm of the noise of the motorcycle data, standardised.
HETEROSCEDASTIC = {
    "mean_lengthscale": LogNormal(0.5, 0.7),
    "mean_variance": LogNormal(1.0, 1.0),
    "scale_lengthscale": LogNormal(1.0, 0.7),
    "scale_variance": LogNormal(1.0, 1.0),
    "level": Normal(-1.0, 1.0),
    "smoothness": Above(0.5, 1.0, 0.5),
}


def surface_family(width: int, num_modes: int, key: jax.Array, frozen: bool = True) -> Joint:
    """A constant noise, and (shift − Δ)^(−power) of a variance and a power to be learned; the hidden
    layer frozen, as the closed form needs it, or not."""
    inputs, targets = standardised()[:2]
    network = FourierMLP(
        1, width, frequency_scale=8.0, hidden_scale=2.0, readout_scale=100.0, domain=DOMAIN, key=key
    )

    def make(hyper):
        process = Laplacian(DOMAIN, num_modes, "neumann", shift=3.0) ** hyper["power"]
        energy = Quadrature(process.with_variance(hyper["variance"]))
        prior = Prior(energy, network, trainable=readout_only(network) if frozen else is_random)
        return Conditioned(Posterior(prior, Gaussian(NOISE), (inputs, targets)))

    return Joint(make, SURFACE)


def closed_form(family: Joint) -> Callable[[jax.Array], jax.Array]:
    """log p(y | λ) given the hidden layer, at standard normal numbers in the order of the names."""
    params = family.template.params

    def value(vector):
        density = family.at(dict(zip(family.unknowns, vector, strict=True)))
        flat = sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(params))
        count = sum(leaf.size for leaf in jax.tree.leaves(params))
        return density(params) + 0.5 * flat + 0.5 * count * jnp.log(2 * jnp.pi)

    return jax.jit(value)


def draw_matern(seed: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows of the stationary Matérn-3/2 process of `TRUTH`, uniform on [0, 1]."""
    random = np.random.default_rng(seed)
    x = random.uniform(0, 1, count)
    r = np.sqrt(3) * np.abs(x[:, None] - x[None]) / TRUTH["lengthscale"]
    covariance = TRUTH["variance"] * (1 + r) * np.exp(-r) + 1e-10 * np.eye(count)
    noise = TRUTH["noise"] * random.standard_normal(count)
    return x[:, None], np.linalg.cholesky(covariance) @ random.standard_normal(count) + noise


def recovery_family(width: int, num_modes: int, data: tuple, key: jax.Array) -> Joint:
    """Matérn-3/2 with length scale, variance and noise to be learned, all parameters random."""
    network = FourierMLP(
        1, width, num_frequencies=64, frequency_scale=18.0, hidden_scale=1.5, readout_scale=300.0,
        domain=PADDED, key=key,
    )  # fmt: skip

    def make(hyper):
        process = Matern(1.5, hyper["lengthscale"], hyper["variance"], PADDED, num_modes)
        prior = Prior(Quadrature(process), network)
        return Conditioned(Posterior(prior, Gaussian(hyper["noise"]), data))

    return Joint(make, RECOVERED)


def heteroscedastic_family(width: int, num_modes: int, split: Split, key: jax.Array) -> Joint:
    """Mean and noise as networks with frozen hidden layers, six hyperparameters to be learned."""
    keys = dict(zip(("mean", "scale"), jax.random.split(key), strict=True))
    networks = {
        name: FourierMLP(
            1, width, frequency_scale=10.0, hidden_scale=2.0, readout_scale=100.0, domain=DOMAIN,
            key=k,
        )
        for name, k in keys.items()
    }  # fmt: skip
    trainable = readout_only(networks)

    def posterior(hyper):
        energies = {
            name: Quadrature(
                Matern(
                    hyper["smoothness"], hyper[f"{name}_lengthscale"], hyper[f"{name}_variance"],
                    DOMAIN, num_modes,
                )
            )
            for name in networks
        }  # fmt: skip
        means = {"mean": lambda x: jnp.zeros(()), "scale": lambda x: hyper["level"]}
        prior = Prior(energies, networks, mean=means, trainable=trainable)
        return Posterior(prior, Heteroscedastic(jnp.exp), (split.inputs, split.targets))

    medians = {name: unknown(jnp.zeros(())) for name, unknown in HETEROSCEDASTIC.items()}
    sights = find_sights(posterior(medians))
    return Joint(lambda hyper: Conditioned(posterior(hyper), sights), HETEROSCEDASTIC)


def learn_period(window: str, start: float, num_modes: int = 24) -> tuple[float, np.ndarray]:
    """The period of largest posterior density over that of a year, and the way to it.

    Season, line and trend are those of the CO2 experiment, their scales learned with the period; a
    priori its logarithm is about that of `start` years, with a deviation of 0.15.
    """
    series, learned = co2(window), LEARNED["ours"]
    spread = 0.15

    def loss(z: Any) -> Any:
        pairs = zip(learned.items(), z[1:], strict=True)
        scales = Scales(**{name: m * jnp.exp(s * one) for (name, (m, s)), one in pairs})
        period = series.year * start * jnp.exp(spread * z[0])
        return 0.5 * jnp.sum(z**2) - log_evidence(scales, series, num_modes, period)

    compiled, path = jax.jit(loss), []
    found = minimize(
        lambda z: float(compiled(jnp.asarray(z))), np.zeros(1 + len(learned)), method="L-BFGS-B",
        callback=lambda z: path.append(start * np.exp(spread * z[0])),
    )  # fmt: skip
    return float(start * np.exp(spread * found.x[0])), np.array([start, *path])
