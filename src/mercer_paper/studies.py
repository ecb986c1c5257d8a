"""Networks compared by modes, width, depth, boundary factor; rates; and the paper's own recipe."""

import itertools
import warnings
from dataclasses import replace
from typing import Any

import blackjax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import mercer
from mercer import diagnostics

from .case_study import NEAR_ZERO, Case, record_at, second_moments
from .experiment import Arrays, Run
from .processes import Network, Process
from .summaries import stack, strings

# Of the paper's own recipe: chains of each attempt; steps after which a decaying step size has
# begun to fall, and the power it falls by; values beyond which chains are called diverged.
NUM_CHAINS, DELAY, POWER, DIVERGED = 4, 100.0, 0.55, 1e6


def networks_of(study: str, process: Process, settings: Any) -> dict[str, Network]:
    """The networks of a study: with more and more modes, the quadrature staying; of growing width;
    or with the paper's boundary factor and others, where the process leaves zero."""
    network, name = settings.network, "t(1 − t)" if process.pinned else "t"
    if study == "truncation":
        points = process.make_spectrum(max(settings.truncations)).quadrature_points()
        return {f"K = {k}": replace(network, num_modes=k, num_points=points)
                for k in settings.truncations}  # fmt: skip
    if study == "width":
        return {f"W = {width}": replace(network, width=width) for width in settings.widths}
    plain = Network(network.width, network.num_modes, 10.0, 30.0, None)
    return {
        f"{name}, readout scale 30": plain,
        f"{name}, readout scale 300": replace(plain, readout_scale=300.0),
        "saturating at 0.01, readout scale 30": replace(plain, saturation=0.01),
        f"ours: saturating at {network.saturation:g}": network,
    }


def compare(case: Case, study: str) -> Arrays:
    """Networks side by side: closed form, summary of exact draws, two-sample tests, three paths."""
    process, run, rows = case.process, case.run, []
    fine, near_zero = np.linspace(0, 1, 2000), np.geomspace(1e-3, NEAR_ZERO, 50)
    times = near_zero if study == "factor" else process.grid(run.settings.study_grid)
    networks, count = networks_of(study, process, run.settings), run.settings.study_draws
    for label, network in networks.items():
        run.tell(f"      {label}")
        prior = case.prior(network)
        row = case.closed_form(prior, label, times)
        (drawn,) = case.draw(prior, np.append(times, fine), count, [f"draws of {label}"])
        values, paths = np.split(drawn, [len(times)], axis=1)
        exact = process.paths(run.key_of(f"exact {label}"), len(values), times)
        statistic, p_value = diagnostics.ks_between(values, exact)
        row |= case.summarise(times, values) | {"paths": paths[:3]}
        rows.append(row | {"statistic_two_sample": statistic, "p_value_two_sample": p_value})
    return {"fine": fine, "labels": strings(networks)} | stack(rows) | {"times": times}


def vary_depth(case: Case) -> Arrays:
    """Depth with the same units, with gentler units, and with twice the width, in closed form."""
    run, network, rows = case.run, case.run.settings.network, []
    times = case.process.grid(run.settings.study_grid)
    gentle = {"activation": "tanh", "hidden_scale": min(2.0, network.hidden_scale)}
    wide = {"width": 2 * network.width}
    families = {"same units": {}, "gentle units": gentle, "twice the width": wide}
    for depth, family in itertools.product(run.settings.depths, families):
        label = f"{family}, depth {depth}"
        run.tell(f"      {label}")
        prior = case.prior(replace(network, depth=depth, **families[family]))
        row = case.closed_form(prior, label, times)
        row |= {"labels": label, "family": family, "depth": depth}
        rows.append(row | {"energy_bandwidth": energy_bandwidth(prior, run.key_of(label))})
    return stack(rows)


def energy_bandwidth(prior: mercer.Prior, key: jax.Array, share: float = 0.9) -> int:
    """The mode below which this share of the hidden units' own energy lies."""
    (term,) = prior.terms(prior.draw_reference(key))
    mixing = eqx.filter_jit(lambda p, t: p.energy_rows(t).mixing)(prior, term)
    energies = np.sum(np.square(np.asarray(mixing)), axis=1)
    return int(np.searchsorted(np.cumsum(energies), share * energies.sum())) + 1


def measure_convergence(case: Case) -> Arrays:
    """Largest closed-form covariance errors against width, number of modes and readout scale.

    Each width keeps the best of the frequency scales. The tails are the errors of as many
    eigenfunctions, the best fixed basis.
    """
    process, run, settings, times = (
        case.process,
        case.run,
        case.run.settings,
        case.process.grid(100),
    )
    fixed, counts, modes = settings.fixed_network, settings.rate_widths, settings.rate_modes
    points = process.make_spectrum(max(modes)).quadrature_points()

    def error(network: Network) -> float:
        return float(case.closed_form(case.prior(network), "hidden", times)["closed_error"])

    def best_error(width: int) -> float:
        run.tell(f"      width {width}")
        frequencies = settings.rate_frequency_scales
        return min(error(Network(width, 2 * width, f, 100.0, 0.5 / width)) for f in frequencies)

    def missing_variance(num_modes: int) -> float:
        modes = jax.vmap(process.make_spectrum(num_modes).features)(jnp.asarray(times)[:, None])
        return float(np.max(process.variance(times) - np.sum(np.square(modes), axis=1)))

    by_width = [best_error(width) for width in counts]
    run.tell("      modes and readout scales")
    scales = settings.rate_readout_scales
    arrays = {
        "widths": counts, "by_width": by_width, "tail": [missing_variance(w) for w in counts],
        "modes": modes, "tail_by_modes": [missing_variance(k) for k in modes],
        "by_modes": [error(replace(fixed, num_modes=k, num_points=points)) for k in modes],
        "scales": scales, "by_scale": [error(replace(fixed, readout_scale=s)) for s in scales],
        "fixed_width": fixed.width,
    }  # fmt: skip
    return {name: np.array(values) for name, values in arrays.items()}


def follow_recipe(case: Case) -> Arrays:
    """SGLD on the Monte Carlo energy of the improper density, as printed: constant and decaying
    step sizes, from exact draws and from random weights, side by side."""
    process, run, settings, times = case.process, case.run, case.run.settings, case.process.grid(50)
    width, num_modes, key = settings.recipe_width, settings.recipe_modes, run.key_of("network")
    energy = mercer.MonteCarlo(process.make_spectrum(num_modes), settings.recipe_points,
                               settings.recipe_sampled_modes)  # fmt: skip
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "reference=None")
        network = mercer.FourierMLP(1, width, boundary=process.boundary, key=key)
        prior = mercer.Prior(energy, network, reference=None)
    proper = Network(width, num_modes, 10.0, 30.0, None).prior(process, key)
    keys = jax.random.split(run.key_of("starts"), (2, NUM_CHAINS))
    starts = {
        "exact draws": jax.jit(lambda keys: jax.lax.map(proper.draw, keys))(keys[0]),
        "random weights": jax.vmap(proper.draw_reference)(keys[1]),
    }
    sizes = settings.recipe_step_sizes
    schedules = [(size, 0.0) for size in sizes] + [(size, POWER) for size in sizes[-2:]]
    attempts = [(start, *schedule) for start, schedule in itertools.product(starts, schedules)]
    labels = [f"from {start}, {f'{size:.0e}, decaying' if power else f'h = {size:.0e}'}"
              for start, size, power in attempts]  # fmt: skip
    init = jax.tree.map(lambda *x: jnp.concatenate(x), *[starts[start] for start, *_ in attempts])
    schedule_of_chain = jnp.repeat(jnp.array([a[1:] for a in attempts]), NUM_CHAINS, axis=0)
    values = _follow(run, prior, init, schedule_of_chain, times)
    by_attempt = values.reshape(len(attempts), NUM_CHAINS, *values.shape[1:])
    summaries = [_summarise(process, times, values) for values in by_attempt]
    return {"times": times, "labels": strings(labels)} | stack(summaries)


def _follow(
    run: Run, prior: mercer.Prior, params: Any, schedules: jax.Array, times: np.ndarray
) -> np.ndarray:
    """Values (chain, draw, time) by BlackJAX's own SGLD.

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
        return params, record(params)

    chunk = jax.jit(jax.vmap(advance, in_axes=(0, 0, 0, None)))
    keys, values = jax.random.split(run.key_of("steps"), len(schedules)), []
    for i in run.each("SGLD as printed", range(run.settings.recipe_draws)):
        params, value = chunk(params, keys, schedules, i * thin)
        values.append(np.asarray(value))
    return np.stack(values, axis=1)


def _summarise(process: Process, times: np.ndarray, values: np.ndarray) -> Arrays:
    """Errors of the second half of the draws; NaN for chains that diverged."""
    values = values[:, values.shape[1] // 2 :].astype(float)
    diverged = not np.all(np.abs(values) < DIVERGED)
    covariance = second_moments(values.reshape(-1, len(times))) + (np.nan if diverged else 0.0)
    return {
        "error": np.max(np.abs(covariance - process.kernel(times, times))),
        "rhat": np.nan if diverged else np.max(diagnostics.rhat(values)),
        "variance": np.diag(covariance),
    }
