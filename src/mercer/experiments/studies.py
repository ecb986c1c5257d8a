"""Networks beside one another: the number of modes, the width, the depth, the boundary factor."""

import dataclasses
from functools import partial

import equinox as eqx
import jax
import numpy as np

from ..density import Prior
from ..diagnostics import ks_along, ks_between
from .case_study import (
    NEAR_ZERO,
    Study,
    closed_form,
    draw_exactly,
    draw_samples,
    grid_of,
    measure_fidelity,
    repeat_tests,
    run_chain,
    second_moments,
    value_drawer,
)
from .experiment import Arrays, Run, Stage, fold, strings
from .processes import Network, Process


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
            drawn = value_drawer(run, prior, np.append(times, fine), study.num_draws)(label)
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
        draw = value_drawer(run, prior, times, run.settings.study.num_draws)
        values = draw(f"draws of {label}")
        variance.append(np.diag(mean) / process.variance(times))
        p_values.append(ks_along(values, np.sqrt(process.variance(times)))[1])
    return {
        "times": times,
        "labels": strings(networks),
        "ratio": np.stack(variance),
        "p_value": np.stack(p_values),
        "num_draws": run.settings.study.num_draws,
    }


def stages_of(process: Process, names: tuple[str, ...]) -> list[Stage]:
    """The chosen stages of the case study of a process."""
    known = {
        "samples": ("paths on a fine grid", draw_samples),
        "fidelity": ("fidelity in closed form", measure_fidelity),
        "exact": ("independent exact draws", draw_exactly),
        "tests": ("tests along t, repeated", repeat_tests),
        "chain": ("HMC over every parameter", run_chain),
        "truncation": ("the number of modes", vary_truncation),
        "width": ("the width", vary_width),
        "depth": ("the depth", vary_depth),
        "factor": ("the boundary factor, near zero", vary_factor),
    }
    return [Stage(name, known[name][0], partial(known[name][1], process)) for name in names]
