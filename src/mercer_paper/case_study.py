"""Stages of the case study: exact draws, closed form, tests and HMC for the prior of a process."""

import time
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import mercer
from mercer import diagnostics

from .experiment import Arrays, Run, fold
from .processes import Network, Process

LEVEL = 0.05
MARGINAL_TIMES = (0.25, 0.5, 0.75, 1.0)
NEAR_ZERO = 0.05
# Exact paths in each set that shows how the share of passed tests varies.
NULL_DRAWS = 1000


def make_prior(process: Process, run: Run, network: Network, **options: Any) -> mercer.Prior:
    """The prior of a network; all stages draw its frequencies with the same key."""
    return network.prior(process, fold(run.shared, "network"), **options)


def record_at(prior: mercer.Prior, times: np.ndarray) -> Callable[[Any], jax.Array]:
    """The function of the parameters that is kept of a draw: values at the times, as float32."""
    points = jnp.asarray(times)[:, None]

    def record(params: Any) -> jax.Array:
        values = jax.lax.map(prior.network(params), points, batch_size=4096)
        return values.astype(jnp.float32)

    return record


def value_drawer(
    run: Run, prior: mercer.Prior, times: np.ndarray, count: int
) -> Callable[[str], np.ndarray]:
    """A compiled function of a name: values (draw, time) of `count` independent exact draws."""
    parallel = min(run.settings.parallel, count)
    record = record_at(prior, times)
    chunk = jax.jit(jax.vmap(lambda key: record(prior.draw(key))))
    rounds = -(-count // parallel)

    def draw(name: str) -> np.ndarray:
        keys = jax.random.split(fold(run.key, name), (rounds, parallel))
        values = [np.asarray(chunk(keys[i])) for i in run.each(name, range(rounds))]
        return np.concatenate(values)[:count]

    return draw


def closed_form(
    process: Process, prior: mercer.Prior, key: jax.Array, num_hidden: int, times: np.ndarray
) -> Arrays:
    """Closed-form covariance averaged over hidden layers, and its largest error; also the mean of
    the largest errors of single hidden layers."""
    points, kernel = jnp.asarray(times)[:, None], process.kernel(times, times)
    covariances = [_covariance(prior, k, points) for k in jax.random.split(key, num_hidden)]
    mean = np.mean(covariances, axis=0)
    return {
        "closed_form": mean,
        "closed_error": np.max(np.abs(mean - kernel)),
        "closed_error_one": np.mean([np.max(np.abs(c - kernel)) for c in covariances]),
    }


@eqx.filter_jit
def _covariance(prior: mercer.Prior, key: jax.Array, points: jax.Array) -> jax.Array:
    """Cov(u(s), u(t)) given a hidden layer of the reference."""
    (term,) = prior.terms(prior.draw_reference(key))
    return prior.readout_law(term).covariance(prior.white_features(term.network, points))


def second_moments(values: np.ndarray) -> np.ndarray:
    """Covariance of rows about the known mean zero, in blocks so that float32 is enough."""
    blocks = (values[i : i + 1000] for i in range(0, len(values), 1000))
    return sum((block.T @ block).astype(float) for block in blocks) / len(values)


def summarise(process: Process, times: np.ndarray, values: np.ndarray) -> Arrays:
    """Covariance with its error, and Kolmogorov–Smirnov tests along t, for draws with mean zero.

    `values` are independent draws (draw, time), or chains (chain, draw, time), which are thinned
    for the tests.
    """
    kernel, flat = process.kernel(times, times), values.reshape(-1, len(times))
    covariance, independent = second_moments(flat), flat
    if values.ndim == 3:
        error, standard_error = diagnostics.covariance_error(values, kernel)
        independent = values[:, :: diagnostics.independent_stride(values)].reshape(-1, len(times))
    else:
        error = np.abs(covariance - kernel)
        spread = np.outer(np.diag(kernel), np.diag(kernel)) + kernel**2
        standard_error = np.sqrt(spread / len(flat))
    statistic, p_value = diagnostics.ks_along(independent, np.sqrt(process.variance(times)))
    worst = np.unravel_index(np.argmax(error), error.shape)
    return {
        "times": times,
        "num_draws": len(flat),
        "covariance": covariance.astype(np.float32),
        "max_error": error[worst],
        "max_error_se": standard_error[worst],
        "z": (error / standard_error).astype(np.float32),
        "statistic": statistic,
        "p_value": p_value,
        "shares": passed_shares(times, p_value),
    }


def passed_shares(times: np.ndarray, p_value: np.ndarray) -> tuple[float, float]:
    """Shares of p-values above the level, at all times and near zero; NaN without such times."""
    passed, near = p_value > LEVEL, times < NEAR_ZERO
    return float(passed.mean()), float(passed[near].mean()) if near.any() else np.nan


def draw_samples(process: Process, run: Run) -> Arrays:
    """Five networks and five exact paths on a fine grid."""
    prior = make_prior(process, run, run.settings.portrait)
    fine = np.linspace(0, 1, run.settings.num_fine)
    record = jax.jit(lambda key: record_at(prior, fine)(prior.draw(key)))
    keys = jax.random.split(fold(run.key, "ours"), 5)
    return {
        "times": fine,
        "width": run.settings.portrait.width,
        "ours": np.stack([np.asarray(record(key)) for key in keys]),
        "exact": process.paths(fold(run.key, "exact"), 5, fine),
    }


def measure_fidelity(process: Process, run: Run) -> Arrays:
    """The closed-form covariance on a grid that is denser at the sides."""
    prior = make_prior(process, run, run.settings.network)
    times = (1 - np.cos(np.linspace(0, np.pi, 101))) / 2
    return closed_form(process, prior, fold(run.key, "hidden"), run.settings.num_hidden, times)


def draw_exactly(process: Process, run: Run) -> Arrays:
    """Independent exact draws of every parameter: covariance, and tests along t."""
    settings, times = run.settings, process.grid(run.settings.num_grid)
    prior = make_prior(process, run, settings.network)
    begin = time.monotonic()
    draws = run.sample(
        "exact",
        prior,
        mercer.exact(),
        num_draws=-(-settings.num_draws // settings.parallel),
        num_warmup=0,
        num_chains=settings.parallel,
        record=record_at(prior, times),
    )
    values, seconds = draws.recorded.reshape(-1, len(times)), time.monotonic() - begin
    run.tell("      testing marginals along t")
    marked = [np.argmin(np.abs(times - t)) for t in MARGINAL_TIMES]
    rate = {"draws_per_second": len(values) / seconds}
    return summarise(process, times, values) | {"marginals": values[:, marked]} | rate


def repeat_tests(process: Process, run: Run) -> Arrays:
    """Shares of times that pass the test, for further sets of draws and for sets of exact paths.

    Values at neighbouring times are nearly equal and pass or fail together, so the share of one
    set varies far more than that of independent tests, above all near zero. For exact paths its
    law does not depend on the number of draws.
    """
    settings, times = run.settings, process.grid(run.settings.num_grid)
    deviation = np.sqrt(process.variance(times))
    prior = make_prior(process, run, settings.network)
    draw = value_drawer(run, prior, times, settings.num_draws)

    def shares(values: np.ndarray) -> tuple[float, float]:
        return passed_shares(times, diagnostics.ks_along(values, deviation)[1])

    ours = [shares(draw(f"set {i + 2} of draws")) for i in range(settings.num_repeats)]
    keys = jax.random.split(fold(run.key, "null"), settings.num_null)
    null = [
        shares(process.paths(keys[i], NULL_DRAWS, times))
        for i in run.each("exact paths", range(settings.num_null))
    ]
    return {"shares": np.reshape(ours, (-1, 2)), "null_shares": np.array(null)}


def run_chain(process: Process, run: Run) -> Arrays:
    """HMC over every parameter, started from exact draws of the same prior."""
    settings, times = run.settings, process.grid(run.settings.study_grid)
    prior = make_prior(process, run, settings.chain_network)
    target = make_prior(process, run, settings.chain_network, normalised=settings.chain_normalised)
    keys = jax.random.split(fold(run.key, "starts"), settings.chains.num_chains)
    starts = jax.jit(lambda keys: jax.lax.map(prior.draw, keys))(keys)
    hmc = mercer.hmc(settings.chain_steps, adaptation="step", initial_step=settings.chain_step_size)
    begin = time.monotonic()
    record = record_at(target, times)
    draws = run.sample("hmc", target, hmc, init=starts, record=record, **settings.chains.counts)
    seconds, values = time.monotonic() - begin, draws.recorded.astype(float)
    effective = diagnostics.ess(values)
    stated = closed_form(process, prior, fold(run.key, "hidden"), settings.num_hidden, times)
    return summarise(process, times, values) | {
        "closed_form": stated["closed_form"],
        "ess": effective,
        "ess_min": effective.min(),
        "ess_per_second": effective.min() / seconds,
        "rhat_max": diagnostics.rhat(values).max(),
        "acceptance": draws.statistics["acceptance"].mean(),
        "trace": values[:4, :, len(times) // 2 if process.pinned else -1],
    }
