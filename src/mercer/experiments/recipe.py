"""The paper's own recipe, told as it is: SGLD on the Monte Carlo energy of the printed density."""

import dataclasses
import warnings

import blackjax
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from ..density import Prior
from ..diagnostics import rhat
from ..energy import MonteCarlo
from ..networks import FourierMLP
from .case_study import grid_of, record_at
from .experiment import Arrays, Run, fold, strings
from .processes import Network, Process

NUM_CHAINS = 4
# Steps after which a decaying step size has begun to fall, and the power it falls by.
DELAY, POWER = 100.0, 0.55
# Values beyond this are called diverged.
DIVERGED = 1e6


@dataclasses.dataclass(frozen=True)
class Recipe:
    """Width, modes and batch sizes of the recipe, and how long it is followed at each step size."""

    width: int
    num_modes: int
    sampled_modes: int
    num_points: int
    num_draws: int
    thin: int
    step_sizes: tuple[float, ...]


@dataclasses.dataclass(frozen=True)
class Attempt:
    """A step size, whether it decays, and where its chains start."""

    start: str
    step_size: float
    power: float

    def __str__(self) -> str:
        kind = f"h = {self.step_size:.0e}" if self.power == 0 else f"{self.step_size:.0e}, decaying"
        return f"from {self.start}, {kind}"


def follow_recipe(process: Process, run: Run) -> Arrays:
    """Constant and decaying steps, from exact draws and from random weights, all side by side."""
    recipe: Recipe = run.settings.recipe
    prior, starts = _printed_prior(process, recipe, run.key)
    times = grid_of(50, process)
    attempts = [
        Attempt(start, step, power)
        for start in starts
        for power in (0.0, POWER)
        for step in (recipe.step_sizes if power == 0 else recipe.step_sizes[-2:])
    ]
    rows = [starts[a.start] for a in attempts]
    init = jax.tree.map(lambda *x: jnp.concatenate(x), *rows)
    values, sizes = _follow(run, prior, init, attempts, times)
    found = [
        _judge(process, times, values[i : i + NUM_CHAINS], sizes[i : i + NUM_CHAINS])
        for i in range(0, len(values), NUM_CHAINS)
    ]
    return {"times": times, "labels": strings(attempts)} | {
        name: np.stack([f[name] for f in found]) for name in found[0]
    }


def _printed_prior(process: Process, recipe: Recipe, key: jax.Array):
    """The improper density as printed, and where its chains start: a row a chain."""
    network = FourierMLP(1, recipe.width, boundary=process.boundary, key=fold(key, "network"))
    spectrum = process.make_spectrum(recipe.num_modes)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "reference=None")
        prior = Prior(
            MonteCarlo(spectrum, recipe.num_points, recipe.sampled_modes), network, reference=None
        )
    proper = Network(recipe.width, recipe.num_modes, 10.0, 4.0, 30.0, None).prior(
        process, fold(key, "network")
    )
    keys = jax.random.split(fold(key, "starts"), (2, NUM_CHAINS))
    draw = jax.jit(lambda keys: jax.lax.map(proper.draw, keys))
    return prior, {
        "exact draws": draw(keys[0]),
        "random weights": jax.vmap(proper.draw_reference)(keys[1]),
    }


def _follow(
    run: Run, prior: Prior, init: PyTree, attempts: list[Attempt], times: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Values (chain, draw, time) and sizes of the hidden weights, by BlackJAX's own SGLD."""
    recipe: Recipe = run.settings.recipe
    algorithm = blackjax.sgld(jax.grad(prior))
    record = record_at(prior, times)
    first = jnp.repeat(jnp.array([a.step_size for a in attempts]), NUM_CHAINS)
    powers = jnp.repeat(jnp.array([a.power for a in attempts]), NUM_CHAINS)

    def advance(params, key, first, power, begin):
        def step(params, i):
            batch_key, noise_key = jax.random.split(jax.random.fold_in(key, i))
            size = first * (1 + i / DELAY) ** -power
            return algorithm.step(noise_key, params, prior.batch(batch_key), size), None

        params = jax.lax.scan(step, params, begin + jnp.arange(recipe.thin))[0]
        return params, record(params), jnp.std(params.weights[0])

    chunk = jax.jit(jax.vmap(advance, in_axes=(0, 0, 0, 0, None)))
    keys = jax.random.split(fold(run.key, "steps"), len(first))
    values, sizes = [], []
    for i in run.each("SGLD as printed", range(recipe.num_draws)):
        init, value, size = chunk(init, keys, first, powers, i * recipe.thin)
        values.append(np.asarray(value))
        sizes.append(np.asarray(size))
    return np.stack(values, axis=1), np.stack(sizes, axis=1)


def _judge(process: Process, times: np.ndarray, values: np.ndarray, sizes: np.ndarray) -> Arrays:
    """Errors of the second half of the draws; chains that left the finite numbers have none."""
    values = values[:, values.shape[1] // 2 :].astype(float)
    if not np.all(np.abs(values) < DIVERGED):
        nothing = np.full(len(times), np.nan)
        return {"error": np.nan, "rhat": np.nan, "hidden": np.nan, "variance": nothing}
    flat = values.reshape(-1, len(times))
    error = np.abs(flat.T @ flat / len(flat) - process.kernel(times, times))
    return {
        "error": np.max(error),
        "rhat": np.max(rhat(values)),
        "hidden": float(np.mean(sizes[:, -1])),
        "variance": np.mean(flat**2, axis=0),
    }
