"""Models whose hyperparameters are learned: the motorcycle data, with constant noise and with noise
that varies, and a Matérn process of known hyperparameters."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import mercer

from .baselines import Split
from .motorcycle_model import DOMAIN, fourier_networks, posterior_of, standardised, two_processes

# The motorcycle data with constant noise, as the closed form needs it: about that of all rows.
NOISE = 0.5
SURFACE = {"variance": mercer.hyper.LogNormal(1.0, 1.5), "power": mercer.hyper.Above(0.5, 1.0, 0.6)}
# The process that hyperparameters are to be found again of, and what is known of them before.
TRUTH = {"lengthscale": 0.15, "variance": 2.0, "noise": 0.1}
RECOVERED = {
    "lengthscale": mercer.hyper.LogNormal(0.3, 1.0),
    "variance": mercer.hyper.LogNormal(1.0, 1.0),
    "noise": mercer.hyper.LogNormal(0.2, 1.0),
}
PADDED = mercer.Interval(-0.25, 1.25)
# Mean and logarithm of the noise of the motorcycle data, standardised.
HETEROSCEDASTIC = {
    "mean_lengthscale": mercer.hyper.LogNormal(0.5, 0.7),
    "mean_variance": mercer.hyper.LogNormal(1.0, 1.0),
    "scale_lengthscale": mercer.hyper.LogNormal(1.0, 0.7),
    "scale_variance": mercer.hyper.LogNormal(1.0, 1.0),
    "level": mercer.hyper.Normal(-1.0, 1.0),
    "smoothness": mercer.hyper.Above(0.5, 1.0, 0.5),
}
Hyper = dict[str, Any]


def surface_family(
    width: int, num_modes: int, key: jax.Array, frozen: bool = True
) -> mercer.hyper.Joint:
    """A constant noise, and (shift − Δ)^(−power) of a variance and a power to be learned; the hidden
    layer frozen, as the closed form needs it, or not."""
    network = mercer.FourierMLP(1, width, frequency_scale=8.0, hidden_scale=2.0,
                                readout_scale=100.0, domain=DOMAIN, key=key)  # fmt: skip
    trainable = mercer.readout_only(network) if frozen else None

    def make(hyper: Hyper) -> mercer.NonCentred:
        process = mercer.Laplacian(DOMAIN, num_modes, "neumann", shift=3.0) ** hyper["power"]
        energy = mercer.Quadrature(process.with_variance(hyper["variance"]))
        prior, rows = mercer.Prior(energy, network, trainable=trainable), standardised()[:2]
        return mercer.NonCentred(mercer.Posterior(prior, mercer.Gaussian(NOISE), rows, tail="none"))

    return mercer.hyper.Joint(make, SURFACE)


def closed_form(family: mercer.hyper.Joint) -> Callable[[jax.Array], jax.Array]:
    """log p(y | λ) given the hidden layer, at standard normal numbers in the order of the names."""

    def value(vector: jax.Array) -> jax.Array:
        density = family.at(dict(zip(family.hyperpriors, vector, strict=True)))
        return mercer.Frozen(density.posterior).log_evidence

    return jax.jit(value)


def draw_matern(seed: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows of the stationary Matérn-3/2 process of `TRUTH`, uniform on [0, 1]."""
    random = np.random.default_rng(seed)
    x = random.uniform(0, 1, count)
    r = np.sqrt(3) * np.abs(x[:, None] - x[None]) / TRUTH["lengthscale"]
    covariance = TRUTH["variance"] * (1 + r) * np.exp(-r) + 1e-10 * np.eye(count)
    noise = TRUTH["noise"] * random.standard_normal(count)
    return x[:, None], np.linalg.cholesky(covariance) @ random.standard_normal(count) + noise


def recovery_family(width: int, num_modes: int, data: tuple, key: jax.Array) -> mercer.hyper.Joint:
    """Matérn-3/2 with length scale, variance and noise to be learned, all parameters random."""
    network = mercer.FourierMLP(
        1, width, num_frequencies=64, frequency_scale=18.0, hidden_scale=1.5, readout_scale=300.0,
        domain=PADDED, key=key,
    )  # fmt: skip

    def make(hyper: Hyper) -> mercer.NonCentred:
        process = mercer.Matern(1.5, hyper["lengthscale"], hyper["variance"], PADDED, num_modes)
        prior = mercer.Prior(mercer.Quadrature(process), network)
        likelihood = mercer.Gaussian(hyper["noise"])
        return mercer.NonCentred(mercer.Posterior(prior, likelihood, data))

    return mercer.hyper.Joint(make, RECOVERED)


def heteroscedastic_family(
    width: int, num_modes: int, split: Split, key: jax.Array
) -> mercer.hyper.Joint:  # fmt: skip
    """Mean and noise as networks with frozen hidden layers, six hyperparameters to be learned."""
    networks = fourier_networks(width, key, hidden_scale=2.0)
    trainable = mercer.readout_only(networks)

    def posterior(hyper: Hyper) -> mercer.Posterior:
        def process(name: str) -> mercer.Matern:
            variance, lengthscale = hyper[f"{name}_variance"], hyper[f"{name}_lengthscale"]
            return mercer.Matern(hyper["smoothness"], lengthscale, variance, DOMAIN, num_modes)

        processes = {name: process(name) for name in networks}
        prior = two_processes(networks, processes, hyper["level"], trainable=trainable)
        return posterior_of(prior, split.inputs, split.targets)

    medians = {name: prior(jnp.zeros(())) for name, prior in HETEROSCEDASTIC.items()}
    # Sites are found once, at the medians: a search in each gradient would take far longer.
    at_medians = mercer.NonCentred(posterior(medians))

    def make(hyper: Hyper) -> mercer.NonCentred:
        return eqx.tree_at(lambda density: density.posterior, at_medians, posterior(hyper))

    return mercer.hyper.Joint(make, HETEROSCEDASTIC)
