"""What networks with a Mercer prior are compared with, each scored on held-out rows in one way.

A baseline takes a `Split` of the data and returns log p(y | draw) of the held-out rows, shape
(draws, rows): members of an ensemble count as draws, a closed form as one. `Expansion` and
`Ridgelet` are networks, to be sampled like ours.
"""

import dataclasses
import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.stats import norm
from jaxtyping import Array, Float, PRNGKeyArray
from scipy.optimize import minimize

import mercer

# Of an expansion's readout, so wide that the reference takes 1e-4 of the variance.
WIDE = 100.0
# Nodes on the interval: enough for ridgelet units as narrow as the largest slope makes them.
NUM_NODES = 400
# Functions of the frozen units are tabulated, linear between points: to 1e-4 of their size.
NUM_GRID = 4000
# How far beyond the interval a ridgelet unit may sit, in its own widths.
REACH = 4.0


@dataclasses.dataclass(frozen=True)
class Split:
    """Rows to learn from and rows to be judged by, X of shape (n, d)."""

    inputs: np.ndarray
    targets: np.ndarray
    test_inputs: np.ndarray
    test_targets: np.ndarray


def split_rows(x: np.ndarray, y: np.ndarray, test: np.ndarray) -> Split:
    """The rows `test` apart, both columns standardised by the others."""
    train = np.setdiff1d(np.arange(len(y)), test)
    x = (x - x[train].mean()) / x[train].std()
    y = (y - y[train].mean()) / y[train].std()
    return Split(x[train, None], y[train], x[test, None], y[test])


def ten_folds(num_rows: int) -> list[np.ndarray]:
    """The ten folds that every method is scored on."""
    return np.array_split(np.random.default_rng(0).permutation(num_rows), 10)


def motorcycle_fold(index: int) -> Split:
    """One of the ten folds of the motorcycle data."""
    times, values = mercer.data.motorcycle()
    return split_rows(times, values, ten_folds(len(times))[index])


def score_process(split: Split, spectrum: mercer.Matern) -> np.ndarray:
    """The exact process with constant noise; its length scale, variance and noise by evidence."""

    def given(logs: Array) -> tuple[Any, Array]:
        lengthscale, variance, noise = jnp.exp(jnp.asarray(logs))
        scales, shape = (lengthscale, variance), (spectrum.domain, spectrum.num_modes)
        process = mercer.GaussianProcess(mercer.Matern(spectrum.nu, *scales, *shape))
        return process.condition(split.inputs, split.targets, noise), noise

    loss = jax.jit(jax.value_and_grad(lambda logs: -given(logs)[0].log_evidence))
    start = np.log([spectrum.lengthscale, 1.0, 0.3])
    best = minimize(lambda v: tuple(map(np.asarray, loss(v))), start, jac=True, method="L-BFGS-B",
                    bounds=[(-5.0, 3.0)] * 3)  # fmt: skip
    process, noise = given(best.x)
    sd = jnp.sqrt(process.variance(split.test_inputs) + noise**2)
    return np.asarray(norm.logpdf(split.test_targets, process.mean(split.test_inputs), sd))[None]


def score_ensemble(split: Split, key: PRNGKeyArray) -> np.ndarray:
    """A deep ensemble: networks for mean and log scale, five of each trained alone from their own
    starts, with the weight decay of unit normal weights; scales of layers are trained too."""
    domain = mercer.Interval(split.inputs.min(), split.inputs.max())
    likelihood = mercer.Heteroscedastic(lambda s: jnp.exp(s) + 1e-3)
    test = jnp.asarray(split.test_inputs), jnp.asarray(split.test_targets)

    @jax.jit
    def train(key: PRNGKeyArray) -> Array:
        climb_key, *keys = jax.random.split(key, 3)
        pairs = zip(("mean", "scale"), keys, strict=True)
        networks = {name: mercer.MLP(1, 64, 2, key=k, domain=domain) for name, k in pairs}
        prior = mercer.IsotropicPrior(networks, trainable=eqx.is_inexact_array)
        # As a density of batches, though of all rows, it is climbed by Adam, as ensembles are.
        data, batch_size = (split.inputs, split.targets), len(split.targets)
        posterior = mercer.Posterior(prior, likelihood, data, batch_size)
        trained = mercer.optimise.maximise(climb_key, posterior, num_steps=2000, learning_rate=0.01)
        return posterior.score(trained, *test)

    return np.stack([train(k) for k in jax.random.split(key, 5)])


class Expansion(eqx.Module):
    """A network whose hidden units are eigenfunctions: the truncated (Hilbert-space) process."""

    readout: Float[Array, " K"]
    spectrum: mercer.spectra.Spectrum = mercer.parameters.constant()

    def __init__(self, spectrum: mercer.spectra.Spectrum):
        self.spectrum = spectrum
        self.readout = jnp.zeros(spectrum.num_modes)

    def __call__(self, x: Float[Array, " d"]) -> Float[Array, ""]:
        return WIDE * jnp.dot(self.readout, self.spectrum.features(x))


class Ridgelet(eqx.Module):
    """The ridgelet prior of Matsubara, Oates and Briol (2021) for one hidden layer on an interval.

    A function is Σᵢ rᵢ φ(wᵢ·x + bᵢ), φ(z) = exp(−z²/2). With a ψ such that ∫ φ̂ ψ̂ /|ξ| dξ = 1,

        f(x) = ∫∫ (∫ ψ(w·y + b) f(y) dy) φ(w·x + b) dw db,

    so that readouts r = Ψ f, Ψᵢⱼ = ψ(wᵢ·yⱼ + bᵢ) uⱼ / (N p(wᵢ, bᵢ)), of f at the nodes yⱼ of a
    quadrature with weights uⱼ, make a network like f: for f ~ N(0, K) they are N(0, Ψ K Ψᵀ). Here
    f = Σₙ √λₙ φₙ ξₙ is a process cut after its leading modes, with white ξ = `readout`.

    Slopes are uniform on [−steepest, steepest], and biases over the units that reach the interval:
    a choice with bounded weights 1/p, which normal ones do not have. `table` has what each ξₙ adds
    to the function on a grid.
    """

    readout: Float[Array, " K"]
    domain: mercer.Box
    level: float = eqx.field(static=True)
    table: Float[Array, "G K"] = mercer.parameters.constant()

    def __init__(
        self, spectrum: mercer.spectra.Spectrum, width: int, steepest: float, level: float = 0.0,
        *, key: PRNGKeyArray,
    ):  # fmt: skip
        self.domain, self.level = spectrum.domain, level
        (lower,), (upper,) = self.domain.lower, self.domain.upper
        nodes, weights = self.domain.quadrature(NUM_NODES)
        slope_key, bias_key = jax.random.split(key)
        slopes = jax.random.uniform(slope_key, (width,), minval=-steepest, maxval=steepest)
        farthest = jnp.abs(slopes) * (upper - lower) / 2 + REACH
        biases = farthest * jax.random.uniform(bias_key, (width,), minval=-1.0, maxval=1.0)
        density = 1 / (2 * steepest) / (2 * farthest)

        def before(points: Array) -> Array:
            return slopes[:, None] * (points - (lower + upper) / 2)[None] + biases[:, None]

        psi = _ridgelet(before(nodes[:, 0])) * weights[None] / (width * density)[:, None]
        readouts = psi @ jax.vmap(spectrum.features)(nodes)
        units = jnp.exp(-0.5 * before(jnp.linspace(lower, upper, NUM_GRID)) ** 2)
        self.table = units.T @ readouts
        self.readout = jnp.zeros(spectrum.num_modes)

    def __call__(self, x: Float[Array, " d"]) -> Float[Array, ""]:
        place = self.domain.to_unit(x)[0] * (NUM_GRID - 1)
        left = jnp.clip(jnp.floor(place), 0, NUM_GRID - 2).astype(int)
        share = place - left
        functions = (1 - share) * self.table[left] + share * self.table[left + 1]
        return self.level + jnp.dot(functions, self.readout)


def _ridgelet(z: Array) -> Array:
    """ψ for φ(z) = exp(−z²/2): φ̂ψ̂ = 2π ξ² exp(−ξ²) before the constant; over |ξ| it has 2π."""
    return (1 - z**2) * jnp.exp(-0.5 * z**2) / (2 * math.pi)
