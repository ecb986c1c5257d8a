"""Networks compared: number of modes, width, depth, boundary factor, and rates of convergence."""

from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import mercer
from mercer import diagnostics

from .case_study import NEAR_ZERO, closed_form, make_prior, summarise, value_drawer
from .experiment import Arrays, Run, fold, strings
from .processes import Network, Process
from .summaries import stack


def compare(
    process: Process, run: Run, networks: dict[str, Network], times: np.ndarray | None = None
) -> Arrays:
    """Networks side by side: closed form, summary of exact draws, two-sample tests, three paths."""
    settings, fine = run.settings, np.linspace(0, 1, 2000)
    times = process.grid(settings.study_grid) if times is None else times
    rows = []
    for label, network in networks.items():
        run.tell(f"      {label}")
        prior = make_prior(process, run, network)
        row = closed_form(process, prior, fold(run.key, label), settings.num_hidden, times)
        draw = value_drawer(run, prior, np.append(times, fine), settings.study_draws)
        values, paths = np.split(draw(f"draws of {label}"), [len(times)], axis=1)
        exact = process.paths(fold(run.key, f"exact {label}"), len(values), times)
        statistic, p_value = diagnostics.ks_between(values, exact)
        row |= summarise(process, times, values) | {"paths": paths[:3]}
        rows.append(row | {"statistic_two_sample": statistic, "p_value_two_sample": p_value})
    return {"fine": fine, "labels": strings(networks)} | stack(rows) | {"times": times}


def vary_truncation(process: Process, run: Run) -> Arrays:
    """The number of modes K varies; the network and its quadrature stay."""
    counts = run.settings.truncations
    points = process.make_spectrum(max(counts)).quadrature_points()
    networks = {
        f"K = {k}": replace(run.settings.network, num_modes=k, num_points=points) for k in counts
    }
    shares = process.make_spectrum(1000).cumulative_ratio
    return compare(process, run, networks) | {"cumulative": np.asarray(shares)}


def vary_width(process: Process, run: Run) -> Arrays:
    """The width varies; the number of modes and the scales stay."""
    widths = run.settings.widths
    return compare(
        process, run, {f"W = {w}": replace(run.settings.network, width=w) for w in widths}
    )


def vary_factor(process: Process, run: Run) -> Arrays:
    """The paper's boundary factor and others, where the process leaves zero."""
    network, name = run.settings.network, "t(1 − t)" if process.pinned else "t"
    plain = replace(
        network, saturation=None, frequency_scale=10.0, hidden_scale=4.0, readout_scale=30.0,
        num_frequencies=32,
    )  # fmt: skip
    networks = {
        f"{name}, readout scale 30": plain,
        f"{name}, readout scale 300": replace(plain, readout_scale=300.0),
        "saturating at 0.01, readout scale 30": replace(plain, saturation=0.01),
        f"ours: saturating at {network.saturation:g}": network,
    }
    return compare(process, run, networks, np.geomspace(1e-3, NEAR_ZERO, 50))


def vary_depth(process: Process, run: Run) -> Arrays:
    """Depth with the same units, with gentler units, and with twice the width, in closed form."""
    network, times = run.settings.network, process.grid(run.settings.study_grid)
    families = {
        "same units": {},
        "gentle units": {"activation": "tanh", "hidden_scale": min(2.0, network.hidden_scale)},
        "twice the width": {"width": 2 * network.width},
    }
    rows = []
    for depth in run.settings.depths:
        for family, changes in families.items():
            label = f"{family}, depth {depth}"
            run.tell(f"      {label}")
            key = fold(run.key, label)
            prior = make_prior(process, run, replace(network, depth=depth, **changes))
            row = closed_form(process, prior, key, run.settings.num_hidden, times)
            row |= {"labels": label, "family": family, "depth": depth}
            rows.append(row | {"energy_bandwidth": energy_bandwidth(prior, key)})
    return stack(rows)


def energy_bandwidth(prior: mercer.Prior, key: jax.Array, share: float = 0.9) -> int:
    """The mode below which this share of the hidden units' own energy lies."""
    (term,) = prior.terms(prior.draw_reference(key))
    mixing = eqx.filter_jit(lambda p, t: p.energy_rows(t).mixing)(prior, term)
    energies = np.sum(np.square(np.asarray(mixing)), axis=1)
    return int(np.searchsorted(np.cumsum(energies), share * energies.sum())) + 1


def measure_convergence(process: Process, run: Run) -> Arrays:
    """Largest closed-form covariance errors against width, number of modes and readout scale.

    Each width keeps the best of the frequency scales. The tails are the errors of as many
    eigenfunctions, the best fixed basis.
    """
    settings, times = run.settings, process.grid(100)
    fixed, widths, modes = settings.fixed_network, settings.rate_widths, settings.rate_modes

    def error(network: Network) -> float:
        prior, key = make_prior(process, run, network), fold(run.key, "hidden")
        return float(closed_form(process, prior, key, settings.num_hidden, times)["closed_error"])

    def best_error(width: int) -> float:
        run.tell(f"      width {width}")
        sizes = {"width": width, "num_modes": 2 * width, "saturation": 0.5 / width}
        scales = settings.rate_frequency_scales
        return min(error(Network(**sizes, frequency_scale=f, readout_scale=100.0)) for f in scales)

    by_width = [best_error(width) for width in widths]
    run.tell("      modes and readout scales")
    points = process.make_spectrum(max(modes)).quadrature_points()
    scales = settings.rate_readout_scales
    return {
        "widths": np.array(widths),
        "by_width": np.array(by_width),
        "tail": np.array([missing_variance(process, width, times) for width in widths]),
        "modes": np.array(modes),
        "by_modes": np.array(
            [error(replace(fixed, num_modes=k, num_points=points)) for k in modes]
        ),
        "tail_by_modes": np.array([missing_variance(process, k, times) for k in modes]),
        "scales": np.array(scales),
        "by_scale": np.array([error(replace(fixed, readout_scale=scale)) for scale in scales]),
        "fixed_width": fixed.width,
    }


def missing_variance(process: Process, num_modes: int, times: np.ndarray) -> float:
    """The largest variance that the process loses when it is cut after this many modes."""
    spectrum = process.make_spectrum(num_modes)
    values = jax.vmap(spectrum.eigenfunctions)(jnp.asarray(times)[:, None])
    kept = np.square(np.asarray(values)) @ np.exp(np.asarray(spectrum.log_eigenvalues))
    return float(np.max(process.variance(times) - kept))
