"""Models whose hyperparameters are learned: the motorcycle data, with constant noise and with noise
that varies, and a Matérn process of known hyperparameters."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import mercer

from .baselines import Split
from .motorcycle_model import DOMAIN, posterior_of, standardised, two_keys, two_processes

# The motorcycle data with constant noise, as the closed form needs it: about that of all rows.
NOISE = 0.5
SURFACE = {"variance": mercer.LogNormal(1.0, 1.5), "power": mercer.Above(0.5, 1.0, 0.6)}
# The process that hyperparameters are to be found again of, and what is known of them before.
TRUTH = {"lengthscale": 0.15, "variance": 2.0, "noise": 0.1}
RECOVERED = {
    "lengthscale": mercer.LogNormal(0.3, 1.0),
    "variance": mercer.LogNormal(1.0, 1.0),
    "noise": mercer.LogNormal(0.2, 1.0),
}
PADDED = mercer.Interval(-0.25, 1.25)
# Mean and logarithm of the noise of the motorcycle data, standardised.
HETEROSCEDASTIC = {
    "mean_lengthscale": mercer.LogNormal(0.5, 0.7),
    "mean_variance": mercer.LogNormal(1.0, 1.0),
    "scale_lengthscale": mercer.LogNormal(1.0, 0.7),
    "scale_variance": mercer.LogNormal(1.0, 1.0),
    "level": mercer.Normal(-1.0, 1.0),
    "smoothness": mercer.Above(0.5, 1.0, 0.5),
}
Hyper = dict[str, Any]


def surface_family(width: int, num_modes: int, key: jax.Array, frozen: bool = True) -> mercer.Joint:
    """A constant noise, and (shift − Δ)^(−power) of a variance and a power to be learned; the hidden
    layer frozen, as the closed form needs it, or not."""
    network = mercer.FourierMLP(1, width, frequency_scale=8.0, hidden_scale=2.0,
                                readout_scale=100.0, domain=DOMAIN, key=key)  # fmt: skip
    options = {"trainable": mercer.readout_only(network)} if frozen else {}

    def make(hyper: Hyper) -> mercer.Conditioned:
        process = mercer.Laplacian(DOMAIN, num_modes, "neumann", shift=3.0) ** hyper["power"]
        energy = mercer.Quadrature(process.with_variance(hyper["variance"]))
        prior = mercer.Prior(energy, network, **options)
        posterior = mercer.Posterior(prior, mercer.Gaussian(NOISE), standardised()[:2])
        return mercer.Conditioned(posterior)

    return mercer.Joint(make, SURFACE)


def closed_form(family: mercer.Joint) -> Callable[[jax.Array], jax.Array]:
    """log p(y | λ) given the hidden layer, at standard normal numbers in the order of the names."""
    params = family.template.params
    leaves = jax.tree.leaves(params)

    def value(vector: jax.Array) -> jax.Array:
        density = family.at(dict(zip(family.unknowns, vector, strict=True)))
        # The density has N(0, I) of the readout for a factor.
        return density(params) - sum(jnp.sum(jax.scipy.stats.norm.logpdf(x)) for x in leaves)

    return jax.jit(value)


def draw_matern(seed: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows of the stationary Matérn-3/2 process of `TRUTH`, uniform on [0, 1]."""
    random = np.random.default_rng(seed)
    x = random.uniform(0, 1, count)
    r = np.sqrt(3) * np.abs(x[:, None] - x[None]) / TRUTH["lengthscale"]
    covariance = TRUTH["variance"] * (1 + r) * np.exp(-r) + 1e-10 * np.eye(count)
    noise = TRUTH["noise"] * random.standard_normal(count)
    return x[:, None], np.linalg.cholesky(covariance) @ random.standard_normal(count) + noise


def recovery_family(width: int, num_modes: int, data: tuple, key: jax.Array) -> mercer.Joint:
    """Matérn-3/2 with length scale, variance and noise to be learned, all parameters random."""
    network = mercer.FourierMLP(
        1, width, num_frequencies=64, frequency_scale=18.0, hidden_scale=1.5, readout_scale=300.0,
        domain=PADDED, key=key,
    )  # fmt: skip

    def make(hyper: Hyper) -> mercer.Conditioned:
        process = mercer.Matern(1.5, hyper["lengthscale"], hyper["variance"], PADDED, num_modes)
        prior = mercer.Prior(mercer.Quadrature(process), network)
        likelihood = mercer.Gaussian(hyper["noise"])
        return mercer.Conditioned(mercer.Posterior(prior, likelihood, data))

    return mercer.Joint(make, RECOVERED)


def heteroscedastic_family(
    width: int, num_modes: int, split: Split, key: jax.Array
) -> mercer.Joint:  # fmt: skip
    """Mean and noise as networks with frozen hidden layers, six hyperparameters to be learned."""
    scales = {"frequency_scale": 10.0, "hidden_scale": 2.0, "readout_scale": 100.0}
    networks = {n: mercer.FourierMLP(1, width, key=k, domain=DOMAIN, **scales)
                for n, k in two_keys(key).items()}  # fmt: skip
    trainable = mercer.readout_only(networks)

    def posterior(hyper: Hyper) -> mercer.Posterior:
        def process(name: str) -> mercer.Matern:
            variance, lengthscale = hyper[f"{name}_variance"], hyper[f"{name}_lengthscale"]
            return mercer.Matern(hyper["smoothness"], lengthscale, variance, DOMAIN, num_modes)

        processes = {name: process(name) for name in networks}
        prior = two_processes(networks, processes, hyper["level"], trainable=trainable)
        return posterior_of(prior, split.inputs, split.targets)

    medians = {name: unknown(jnp.zeros(())) for name, unknown in HETEROSCEDASTIC.items()}
    sights = mercer.Conditioned(posterior(medians)).sights
    return mercer.Joint(lambda hyper: mercer.Conditioned(posterior(hyper), sights), HETEROSCEDASTIC)
