"""What networks with a Mercer prior are compared with, each scored on held-out rows in one way.

A baseline takes a `Split` of the data and returns log p(y | draw) of the held-out rows, shape
(draws, rows): members of an ensemble count as draws, a closed form as one.
"""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jax.scipy.stats import norm
from jaxtyping import Array, Float, PRNGKeyArray
from scipy.optimize import minimize

from ..domains import Interval
from ..isotropic import MLP
from ..reference import GaussianProcess
from ..sampling.maximise import ascend
from ..spectra import Matern, Spectrum

# Of an expansion's readout, so wide that the reference takes 1e-4 of the variance.
WIDE = 100.0


@dataclasses.dataclass(frozen=True)
class Split:
    """Rows to learn from and rows to be judged by, X of shape (n, d)."""

    inputs: np.ndarray
    targets: np.ndarray
    held_inputs: np.ndarray
    held_targets: np.ndarray


def split_rows(x: np.ndarray, y: np.ndarray, held: np.ndarray) -> Split:
    """The rows `held` apart, both columns standardised by the others."""
    kept = np.setdiff1d(np.arange(len(y)), held)
    x = (x - x[kept].mean()) / x[kept].std()
    y = (y - y[kept].mean()) / y[kept].std()
    return Split(x[kept, None], y[kept], x[held, None], y[held])


def ten_folds(num_rows: int) -> list[np.ndarray]:
    """The ten folds that every method is scored on."""
    return np.array_split(np.random.default_rng(0).permutation(num_rows), 10)


class Expansion(eqx.Module):
    """A network whose hidden units are the eigenfunctions: the truncated (Hilbert-space) process."""

    readout: Float[Array, " K"]
    spectrum: Spectrum

    def __init__(self, spectrum: Spectrum):
        self.spectrum = spectrum
        self.readout = jnp.zeros(spectrum.num_modes)

    def __call__(self, x: Float[Array, " d"]) -> Float[Array, ""]:
        fixed = jax.lax.stop_gradient(self.spectrum)
        return WIDE * jnp.dot(self.readout, fixed.features(x))


def score_process(split: Split, spectrum: Matern) -> np.ndarray:
    """The exact process with constant noise; its length scale, variance and noise by evidence."""
    domain, count = spectrum.domain, spectrum.num_modes

    def process_of(logs):
        lengthscale, variance, noise = jnp.exp(jnp.asarray(logs))
        return GaussianProcess(Matern(spectrum.nu, lengthscale, variance, domain, count)), noise

    @jax.jit
    def loss(logs):
        process, noise = process_of(logs)
        return -process.log_evidence(split.inputs, split.targets, noise)

    slope = jax.jit(jax.value_and_grad(loss))
    start = np.log([spectrum.lengthscale, 1.0, 0.3])
    found = minimize(lambda v: tuple(map(np.asarray, slope(v))), start, jac=True, method="L-BFGS-B",
                     bounds=[(-5.0, 3.0)] * 3)  # fmt: skip
    process, noise = process_of(found.x)
    given = process.condition(split.inputs, split.targets, noise)
    sd = jnp.sqrt(given.variance(split.held_inputs) + noise**2)
    return np.asarray(norm.logpdf(split.held_targets, given.mean(split.held_inputs), sd))[None]


def score_ensemble(
    split: Split, key: PRNGKeyArray, num_members: int = 5, num_steps: int = 2000
) -> np.ndarray:
    """A deep ensemble: networks for mean and log scale, each trained alone from its own start, with
    the weight decay of unit normal weights."""
    x, y = jnp.asarray(split.inputs), jnp.asarray(split.targets)
    held, domain = jnp.asarray(split.held_inputs), Interval(x.min(), x.max())

    def moments(networks, inputs):
        mean, log_scale = (jax.vmap(network)(inputs) for network in networks)
        return mean, jnp.exp(log_scale) + 1e-3

    def train(key):
        first, second, ascent = jax.random.split(key, 3)
        networks = tuple(MLP(1, 64, 2, key=k, domain=domain) for k in (first, second))
        params, static = eqx.partition(networks, eqx.is_inexact_array)

        def value(params, key):
            fit = jnp.sum(norm.logpdf(y, *moments(eqx.combine(params, static), x)))
            return (fit - 0.5 * jnp.sum(ravel_pytree(params)[0] ** 2)) / len(y)

        params = ascend(ascent, value, params, num_steps, 1e-2)
        return norm.logpdf(split.held_targets, *moments(eqx.combine(params, static), held))

    return np.stack([np.asarray(train(k)) for k in jax.random.split(key, num_members)])
