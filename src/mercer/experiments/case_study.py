"""The case study of one process: every stage but the paper's own recipe."""

import dataclasses
import math
import time
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ..density import Prior
from ..diagnostics import covariance_error, ess, ks_along, ks_between, rhat
from ..fidelity import comparison_points, network_covariance
from ..sampling import exact, hmc
from .experiment import Arrays, Run, fold, strings
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
    paths are shown."""

    network: Network
    portrait: Network
    chain: Chain
    study: Study
    num_draws: int
    parallel: int
    num_grid: int
    num_fine: int
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


def draw_values(run: Run, name: str, prior: Prior, times: np.ndarray, count: int) -> np.ndarray:
    """Values of `count` independent exact draws at the times, shape (draws, times)."""
    parallel = min(run.settings.parallel, count)
    record = record_at(prior, times)
    chunk = jax.jit(jax.vmap(lambda key: record(prior.draw(key))))
    rounds = -(-count // parallel)
    keys = jax.random.split(fold(run.key, name), (rounds, parallel))
    values = [np.asarray(chunk(keys[i])) for i in run.each(name, range(rounds))]
    return np.concatenate(values)[:count]


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
        "null_share": null_shares(process, run, times),
        "marginals": values[:, marked],
    }


def null_shares(process: Process, run: Run, times: np.ndarray) -> np.ndarray:
    """Shares of times that pass the test when the draws are exact paths, one a repetition.

    Neighbouring times see nearly the same draws, so they pass or fail together, and the share is
    far more spread than that of independent tests. Its law does not depend on the number of draws.
    """
    shares = []
    for key in jax.random.split(fold(run.key, "null"), run.settings.num_null):
        paths = process.paths(key, NULL_DRAWS, times)
        shares.append(np.mean(ks_along(paths, np.sqrt(process.variance(times)))[1] > LEVEL))
    return np.array(shares)


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
    effective = ess(values)
    every = max(1, math.ceil(values.shape[0] * values.shape[1] / effective.min()))
    statistic, p_value = ks_along(
        values[:, ::every].reshape(-1, len(times)), np.sqrt(process.variance(times))
    )
    _, stated = closed_form(prior, fold(run.key, "hidden"), times, run.settings.study.num_hidden)
    return {
        "times": times,
        "covariance": second_moments(values.reshape(-1, len(times))),
        "error": error,
        "standard_error": standard,
        "ess": effective,
        "rhat": rhat(values),
        "statistic": statistic,
        "p_value": p_value,
        "closed_form": stated,
        "acceptance": draws.statistics["acceptance"].mean(),
        "num_draws": values.shape[0] * values.shape[1],
        "sampling_seconds": seconds,
        "trace": values[:4, :, -1 if not process.pinned else len(times) // 2],
    }


def compare(
    process: Process, run: Run, networks: dict[str, Network], with_draws: bool = True
) -> Arrays:
    """Networks beside one another: closed form, sampled covariance, two-sample tests, paths."""
    study: Study = run.settings.study
    times = grid_of(study.num_grid, process)
    fine = np.linspace(0, 1, 2000)
    kernel = process.kernel(times, times)
    rows: dict[str, list] = {}
    for label, network in networks.items():
        run.tell(f"      {label}")
        prior = network.prior(process, fold(run.shared, "network"))
        each, mean = closed_form(prior, fold(run.key, label), times, study.num_hidden)
        found = {
            "closed_form": mean,
            "closed_error": np.max(np.abs(mean - kernel)),
            "closed_error_one": np.mean([np.max(np.abs(c - kernel)) for c in each]),
            "energy_bandwidth": energy_bandwidth(prior, fold(run.key, label)),
        }
        if with_draws:
            drawn = draw_values(run, label, prior, np.append(times, fine), study.num_draws)
            values, paths = drawn[:, : len(times)], drawn[:3, len(times) :]
            other = process.paths(fold(run.key, f"exact {label}"), len(values), times)
            statistic, p_value = ks_between(values, other)
            found |= {
                "covariance": second_moments(values),
                "statistic": statistic,
                "p_value": p_value,
                "paths": paths,
            }
        for name, value in found.items():
            rows.setdefault(name, []).append(value)
    counts = {"num_draws": study.num_draws, "labels": strings(networks)}
    return {"times": times, "fine": fine} | counts | {n: np.stack(v) for n, v in rows.items()}


def energy_bandwidth(prior: Prior, key: jax.Array, share: float = 0.9) -> int:
    """The mode below which this share of the hidden units' own energy lies."""
    (term,) = prior.terms(prior.draw_reference(key))
    mixing = eqx.filter_jit(lambda p, t: p.readout_law(t).mixing)(prior, term)
    energies = np.sum(np.square(np.asarray(mixing)), axis=1)
    return int(np.searchsorted(np.cumsum(energies), share * energies.sum())) + 1


def vary_truncation(process: Process, run: Run) -> Arrays:
    """K varies, the network and its quadrature stay."""
    network = run.settings.network
    points = process.make_spectrum(max(run.settings.study.truncations)).quadrature_points()
    networks = {
        f"K = {k}": dataclasses.replace(network, num_modes=k, num_points=points)
        for k in run.settings.study.truncations
    }
    lam = np.exp(np.asarray(process.make_spectrum(1000).log_eigenvalues))
    total = float(process.make_spectrum(1).trace)
    return compare(process, run, networks) | {"cumulative": np.cumsum(lam) / total}


def vary_width(process: Process, run: Run) -> Arrays:
    """The width varies, the modes and the scales stay."""
    widths = run.settings.study.widths
    networks = {f"W = {w}": dataclasses.replace(run.settings.network, width=w) for w in widths}
    return compare(process, run, networks)


def vary_depth(process: Process, run: Run) -> Arrays:
    """Depth at the same scales, with gentler units, and with more width: closed form."""
    network, networks = run.settings.network, {}
    gentle = {"activation": "tanh", "hidden_scale": min(2.0, network.hidden_scale)}
    for depth in run.settings.study.depths:
        deep = dataclasses.replace(network, depth=depth)
        networks[f"same units, depth {depth}"] = deep
        networks[f"gentle units, depth {depth}"] = dataclasses.replace(deep, **gentle)
        networks[f"twice the width, depth {depth}"] = dataclasses.replace(
            deep, width=2 * network.width
        )
    return compare(process, run, networks, with_draws=False) | {"width": network.width}


def vary_factor(process: Process, run: Run) -> Arrays:
    """The paper's boundary factor and others, where the process leaves its zero."""
    network = run.settings.network
    plain = dataclasses.replace(
        network, saturation=None, frequency_scale=10.0, hidden_scale=4.0, readout_scale=30.0,
        num_frequencies=32,
    )  # fmt: skip
    name = "t(1 − t)" if process.pinned else "t"
    networks = {
        f"{name}, readout scale 30": plain,
        f"{name}, readout scale 300": dataclasses.replace(plain, readout_scale=300.0),
        "saturating at 0.01, readout scale 30": dataclasses.replace(plain, saturation=0.01),
        f"ours: saturating at {network.saturation:g}": network,
    }
    times = np.geomspace(1e-3, NEAR_ZERO, 50)
    variance, p_values = [], []
    for label, each in networks.items():
        run.tell(f"      {label}")
        prior = each.prior(process, fold(run.shared, "network"))
        _, mean = closed_form(prior, fold(run.key, label), times, run.settings.study.num_hidden)
        values = draw_values(run, f"draws of {label}", prior, times, run.settings.study.num_draws)
        variance.append(np.diag(mean) / process.variance(times))
        p_values.append(ks_along(values, np.sqrt(process.variance(times)))[1])
    return {
        "times": times,
        "labels": strings(networks),
        "ratio": np.stack(variance),
        "p_value": np.stack(p_values),
        "num_draws": run.settings.study.num_draws,
    }


def stages_of(process: Process, names: tuple[str, ...]) -> list[tuple[str, str, partial]]:
    """(name, title, function) of the chosen stages."""
    known = {
        "samples": ("paths on a fine grid", draw_samples),
        "fidelity": ("fidelity in closed form", measure_fidelity),
        "exact": ("independent exact draws", draw_exactly),
        "chain": ("HMC over every parameter", run_chain),
        "truncation": ("the number of modes", vary_truncation),
        "width": ("the width", vary_width),
        "depth": ("the depth", vary_depth),
        "factor": ("the boundary factor, near zero", vary_factor),
    }
    return [(name, known[name][0], partial(known[name][1], process)) for name in names]
