"""The paper's own recipe, unchanged: SGLD on the Monte Carlo energy of the printed density."""

import itertools
import warnings
from typing import Any

import blackjax
import jax
import jax.numpy as jnp
import numpy as np

import mercer
from mercer import diagnostics

from .case_study import record_at, second_moments
from .experiment import Arrays, Run, fold, strings
from .processes import Network, Process
from .summaries import stack

NUM_CHAINS = 4
# Steps after which a decaying step size has begun to fall, and the power it falls by.
DELAY, POWER = 100.0, 0.55
# Values beyond this are called diverged.
DIVERGED = 1e6


def follow_recipe(process: Process, run: Run) -> Arrays:
    """Constant and decaying step sizes, from exact draws and from random weights, side by side."""
    sizes, times = run.settings.recipe_step_sizes, process.grid(50)
    prior, starts = _printed_prior(process, run)
    schedules = [(size, 0.0) for size in sizes] + [(size, POWER) for size in sizes[-2:]]
    attempts = [(start, *schedule) for start, schedule in itertools.product(starts, schedules)]
    labels = [
        f"from {start}, {f'{size:.0e}, decaying' if power else f'h = {size:.0e}'}"
        for start, size, power in attempts
    ]
    init = jax.tree.map(lambda *x: jnp.concatenate(x), *[starts[start] for start, *_ in attempts])
    schedule_of_chain = jnp.repeat(jnp.array([a[1:] for a in attempts]), NUM_CHAINS, axis=0)
    values, hidden = _follow(run, prior, init, schedule_of_chain, times)
    chains = [slice(i, i + NUM_CHAINS) for i in range(0, len(values), NUM_CHAINS)]
    summaries = [_summarise(process, times, values[rows], hidden[rows]) for rows in chains]
    return {"times": times, "labels": strings(labels)} | stack(summaries)


def _printed_prior(process: Process, run: Run) -> tuple[mercer.Prior, dict[str, Any]]:
    """The improper density as printed, and two sets of initial parameters of its chains."""
    settings, key = run.settings, fold(run.key, "network")
    width, num_modes = settings.recipe_width, settings.recipe_modes
    network = mercer.FourierMLP(1, width, boundary=process.boundary, key=key)
    spectrum = process.make_spectrum(num_modes)
    energy = mercer.MonteCarlo(spectrum, settings.recipe_points, settings.recipe_sampled_modes)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "reference=None")
        prior = mercer.Prior(energy, network, reference=None)
    scales = {"frequency_scale": 10.0, "readout_scale": 30.0, "saturation": None}
    proper = Network(width=width, num_modes=num_modes, **scales).prior(process, key)
    keys = jax.random.split(fold(run.key, "starts"), (2, NUM_CHAINS))
    return prior, {
        "exact draws": jax.jit(lambda keys: jax.lax.map(proper.draw, keys))(keys[0]),
        "random weights": jax.vmap(proper.draw_reference)(keys[1]),
    }


def _follow(
    run: Run, prior: mercer.Prior, params: Any, schedules: jax.Array, times: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Values (chain, draw, time) and sizes of the hidden weights, by BlackJAX's own SGLD.

    A row of `schedules` is the first step size of a chain and the power by which it decays.
    """
    thin = run.settings.recipe_thin
    algorithm, record = blackjax.sgld(jax.grad(prior)), record_at(prior, times)

    def advance(params: Any, key: jax.Array, schedule: jax.Array, begin: int) -> tuple:
        def step(params: Any, i: jax.Array) -> tuple[Any, None]:
            batch_key, noise_key = jax.random.split(jax.random.fold_in(key, i))
            size = schedule[0] * (1 + i / DELAY) ** -schedule[1]
            return algorithm.step(noise_key, params, prior.batch(batch_key), size), None

        params = jax.lax.scan(step, params, begin + jnp.arange(thin))[0]
        return params, record(params), jnp.std(params.weights[0])

    chunk = jax.jit(jax.vmap(advance, in_axes=(0, 0, 0, None)))
    keys = jax.random.split(fold(run.key, "steps"), len(schedules))
    values, hidden = [], []
    for i in run.each("SGLD as printed", range(run.settings.recipe_draws)):
        params, value, size = chunk(params, keys, schedules, i * thin)
        values.append(np.asarray(value))
        hidden.append(np.asarray(size))
    return np.stack(values, axis=1), np.stack(hidden, axis=1)


def _summarise(
    process: Process, times: np.ndarray, values: np.ndarray, hidden: np.ndarray
) -> Arrays:
    """Errors of the second half of the draws; NaN for chains that diverged."""
    values = values[:, values.shape[1] // 2 :].astype(float)
    if not np.all(np.abs(values) < DIVERGED):
        missing = {"error": np.nan, "rhat": np.nan, "hidden": np.nan}
        return missing | {"variance": np.full(len(times), np.nan)}
    covariance = second_moments(values.reshape(-1, len(times)))
    return {
        "error": np.max(np.abs(covariance - process.kernel(times, times))),
        "rhat": np.max(diagnostics.rhat(values)),
        "hidden": np.mean(hidden[:, -1]),
        "variance": np.diag(covariance),
    }
