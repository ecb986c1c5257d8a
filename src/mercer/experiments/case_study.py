"""The case study of one process: every stage but the paper's own recipe."""

import dataclasses
import time
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from ..density import Prior
from ..diagnostics import covariance_error, ess, independent_stride, ks_along, rhat
from ..fidelity import comparison_points, network_covariance
from ..sampling import exact, hmc
from .experiment import Arrays, Run, fold
from .processes import Network, Process

LEVEL = 0.05
MARGINAL_TIMES = (0.25, 0.5, 0.75, 1.0)
NEAR_ZERO = 0.05
# Repetitions of exact paths that tell how the share of passed tests itself is spread.
NULL_DRAWS = 1000


@dataclasses.dataclass(frozen=True)
class Chain:
    """HMC over every parameter of a network, from exact draws."""

    network: Network
    normalised: bool
    num_chains: int
    num_draws: int
    num_warmup: int
    num_steps: int
    step_size: float


@dataclasses.dataclass(frozen=True)
class Study:
    """How large the studies of truncation, width, depth and boundary factor are."""

    num_draws: int
    num_grid: int
    truncations: tuple[int, ...]
    widths: tuple[int, ...]
    depths: tuple[int, ...]
    num_hidden: int


@dataclasses.dataclass(frozen=True)
class CaseSettings:
    """How large a run is. `parallel` exact draws are made at once; `portrait` is the network whose
    paths are shown; tests are repeated with `num_repeats` further sets of `num_draws`, and
    `num_null` times with exact paths."""

    network: Network
    portrait: Network
    chain: Chain
    study: Study
    num_draws: int
    parallel: int
    num_grid: int
    num_fine: int
    num_repeats: int
    num_null: int


def grid_of(num_grid: int, process: Process) -> np.ndarray:
    """Equally spaced times in (0, 1], or (0, 1) for a bridge, which is zero at one."""
    end = num_grid / (num_grid + 1) if process.pinned else 1.0
    return np.linspace(end / num_grid, end, num_grid)


def record_at(prior: Prior, times: np.ndarray):
    """Values at the times, in single precision: that is what is kept of a draw."""
    points = jnp.asarray(times)[:, None]

    def record(params):
        values = jax.lax.map(prior.network(params), points, batch_size=4096)
        return values.astype(jnp.float32)

    return record


def value_drawer(
    run: Run, prior: Prior, times: np.ndarray, count: int
) -> Callable[[str], np.ndarray]:
    """A compiled function of a name: values of `count` independent exact draws, (draws, times)."""
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
    prior: Prior, key: jax.Array, times: np.ndarray, count: int
) -> tuple[np.ndarray, np.ndarray]:
    """Covariances given each of `count` hidden layers, by the closed form, and their mean."""
    points = jnp.asarray(times)[:, None]
    each = []
    for one in jax.random.split(key, count):
        (term,) = prior.terms(prior.draw_reference(one))
        each.append(np.asarray(network_covariance(prior, term, points)[0]))
    return np.stack(each), np.mean(each, axis=0)


def second_moments(values: np.ndarray) -> np.ndarray:
    """Covariance about the known mean zero, in blocks, so that single precision is enough."""
    blocks = (values[i : i + 1000] for i in range(0, len(values), 1000))
    return sum((b.T @ b).astype(float) for b in blocks) / len(values)


def draw_samples(process: Process, run: Run) -> Arrays:
    """Five networks and five exact paths on a fine grid."""
    settings = run.settings
    prior = settings.portrait.prior(process, fold(run.shared, "network"))
    fine = np.linspace(0, 1, settings.num_fine)
    record = jax.jit(lambda key: record_at(prior, fine)(prior.draw(key)))
    ours = [np.asarray(record(key)) for key in jax.random.split(fold(run.key, "ours"), 5)]
    return {
        "times": fine,
        "width": settings.portrait.width,
        "ours": np.stack(ours),
        "exact": process.paths(fold(run.key, "exact"), 5, fine),
    }


def measure_fidelity(process: Process, run: Run) -> Arrays:
    """The closed form: of one hidden layer, and averaged over several."""
    prior = run.settings.network.prior(process, fold(run.shared, "network"))
    times = np.asarray(comparison_points(prior.energy.spectrum.domain))[:, 0]
    each, mean = closed_form(prior, fold(run.key, "hidden"), times, run.settings.study.num_hidden)
    kernel = process.kernel(times, times)
    return {
        "times": times,
        "covariance": mean,
        "max_error": np.max(np.abs(mean - kernel)),
        "max_error_one": np.mean([np.max(np.abs(c - kernel)) for c in each]),
    }


def draw_exactly(process: Process, run: Run) -> Arrays:
    """Independent exact draws of every parameter: covariance, and tests along t."""
    settings = run.settings
    times = grid_of(settings.num_grid, process)
    prior = settings.network.prior(process, fold(run.shared, "network"))
    begin = time.monotonic()
    draws = run.sample(
        "exact",
        prior,
        exact(),
        num_draws=-(-settings.num_draws // settings.parallel),
        num_warmup=0,
        num_chains=settings.parallel,
        record=record_at(prior, times),
    )
    values = draws.recorded.reshape(-1, len(times))
    drawing = time.monotonic() - begin
    run.tell("      testing marginals along t")
    statistic, p_value = ks_along(values, np.sqrt(process.variance(times)))
    marked = [np.argmin(np.abs(times - t)) for t in MARGINAL_TIMES]
    return {
        "times": times,
        "covariance": second_moments(values).astype(np.float32),
        "num_draws": len(values),
        "drawing_seconds": drawing,
        "statistic": statistic,
        "p_value": p_value,
        "marginals": values[:, marked],
    }


def repeat_tests(process: Process, run: Run) -> Arrays:
    """Shares of times that pass the test, for further sets of draws and for sets of exact paths.

    Neighbouring times see nearly the same draws, so they pass or fail together, and the share of
    one set is far more spread than that of independent tests, near zero above all. For exact paths
    its law does not depend on the number of draws.
    """
    settings = run.settings
    times = grid_of(settings.num_grid, process)
    prior = settings.network.prior(process, fold(run.shared, "network"))
    draw = value_drawer(run, prior, times, settings.num_draws)
    ours = [
        passed_shares(process, times, draw(f"set {i + 2} of draws"))
        for i in range(settings.num_repeats)
    ]
    keys = jax.random.split(fold(run.key, "null"), settings.num_null)
    exact_paths = [
        passed_shares(process, times, process.paths(keys[i], NULL_DRAWS, times))
        for i in run.each("exact paths", range(settings.num_null))
    ]
    return {"shares": np.reshape(ours, (-1, 2)), "null_shares": np.array(exact_paths)}


def passed_shares(process: Process, times: np.ndarray, values: np.ndarray) -> tuple[float, float]:
    """Shares of all times, and of those near zero, at which the values pass the test."""
    return shares_of(times, ks_along(values, np.sqrt(process.variance(times)))[1])


def shares_of(times: np.ndarray, p_value: np.ndarray) -> tuple[float, float]:
    """Shares of p-values above the level, at all times and near zero."""
    passed = p_value > LEVEL
    return float(passed.mean()), float(passed[times < NEAR_ZERO].mean())


def run_chain(process: Process, run: Run) -> Arrays:
    """HMC over every parameter, from exact draws, on the same kind of prior."""
    chain: Chain = run.settings.chain
    times = grid_of(run.settings.study.num_grid, process)
    key = fold(run.shared, "network")
    prior = chain.network.prior(process, key)
    target = prior if chain.normalised else chain.network.prior(process, key, normalised=False)
    starts = jax.jit(lambda keys: jax.lax.map(prior.draw, keys))(
        jax.random.split(fold(run.key, "starts"), chain.num_chains)
    )
    begin = time.monotonic()
    draws = run.sample(
        "hmc",
        target,
        hmc(chain.num_steps, adaptation="step", initial_step=chain.step_size),
        num_draws=chain.num_draws,
        num_warmup=chain.num_warmup,
        num_chains=chain.num_chains,
        init=starts,
        record=record_at(target, times),
    )
    seconds = time.monotonic() - begin
    values = draws.recorded.astype(float)
    kernel = process.kernel(times, times)
    error, standard = covariance_error(values, kernel)
    thinned = values[:, :: independent_stride(values)].reshape(-1, len(times))
    statistic, p_value = ks_along(thinned, np.sqrt(process.variance(times)))
    _, stated = closed_form(prior, fold(run.key, "hidden"), times, run.settings.study.num_hidden)
    return {
        "times": times,
        "covariance": second_moments(values.reshape(-1, len(times))),
        "error": error,
        "standard_error": standard,
        "ess": ess(values),
        "rhat": rhat(values),
        "statistic": statistic,
        "p_value": p_value,
        "closed_form": stated,
        "acceptance": draws.statistics["acceptance"].mean(),
        "num_draws": values.shape[0] * values.shape[1],
        "sampling_seconds": seconds,
        "trace": values[:4, :, -1 if not process.pinned else len(times) // 2],
    }
