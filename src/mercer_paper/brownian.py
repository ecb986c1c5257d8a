"""Brownian motion and the Brownian bridge from networks: the case study, section 4 of the paper."""

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np

from . import case_study, recipe, studies
from .case_figures import pictures_of
from .experiment import Chains, Experiment, Quantity, Results, Stage
from .processes import BRIDGE, MOTION, Network, Process
from .summaries import by_name, converged

SMALL = Network(width=12, num_modes=12, frequency_scale=4, readout_scale=30, saturation=0.05)
SMOKE = Network(width=32, num_modes=48, frequency_scale=6, readout_scale=50, saturation=0.02)
CHAIN = Network(width=64, num_modes=64, frequency_scale=8, readout_scale=50, saturation=0.01)
QUICK = Network(width=128, num_modes=128, frequency_scale=14, readout_scale=100, saturation=0.004)
MIDDLE = Network(width=256, num_modes=256, frequency_scale=20, readout_scale=100, saturation=0.002)
PORTRAIT = Network(width=600, num_modes=800, frequency_scale=40, readout_scale=300,
                   saturation=0.001, hidden_scale=8)  # fmt: skip
PAPER = Network(width=1000, num_modes=1000, frequency_scale=80, readout_scale=600,
                saturation=0.0003, hidden_scale=8, num_frequencies=64)  # fmt: skip
WIDE_CHAIN = Network(width=1000, num_modes=1000, frequency_scale=10, readout_scale=30,
                     saturation=0.003, law="cauchy")  # fmt: skip

# `portrait` is the network whose paths are shown, on `num_fine` times. `parallel` exact draws are
# made at once. Tests are repeated with `num_repeats` further sets of `num_draws` networks and with
# `num_null` sets of exact paths. Closed forms average over `num_hidden` hidden layers.
SETTINGS = {
    "smoke": SimpleNamespace(
        network=SMOKE, portrait=SMOKE, num_draws=400, parallel=8, num_grid=50, num_fine=2_000,
        num_repeats=1, num_null=5, num_hidden=2,
        chain_network=SMALL, chain_normalised=True, chain_steps=10, chain_step_size=0.01,
        chains=Chains(num_chains=4, num_draws=40, num_warmup=20),
        study_draws=100, study_grid=20, truncations=(8, 48), widths=(16, 32), depths=(1, 2),
        rate_widths=(8, 16), rate_frequency_scales=(4.0, 8.0), fixed_network=SMOKE,
        rate_modes=(16, 48), rate_readout_scales=(10.0, 50.0),
        recipe_width=8, recipe_modes=8, recipe_sampled_modes=2, recipe_points=16,
        recipe_draws=8, recipe_thin=2, recipe_step_sizes=(1e-6, 1e-5),
    ),
    "quick": SimpleNamespace(
        network=QUICK, portrait=PORTRAIT, num_draws=5_000, parallel=8, num_grid=100,
        num_fine=100_000, num_repeats=0, num_null=40, num_hidden=2,
        chain_network=CHAIN, chain_normalised=True, chain_steps=12, chain_step_size=0.006,
        chains=Chains(num_chains=4, num_draws=660, num_warmup=20),
        study_draws=200, study_grid=100, truncations=(20, 128), widths=(32, 128), depths=(1, 3),
        rate_widths=(32, 64), rate_frequency_scales=(8.0,), fixed_network=CHAIN,
        rate_modes=(16, 64), rate_readout_scales=(10.0, 100.0),
        recipe_width=50, recipe_modes=100, recipe_sampled_modes=10, recipe_points=100,
        recipe_draws=8, recipe_thin=10, recipe_step_sizes=(1e-7, 1e-5),
    ),
    "paper": SimpleNamespace(
        network=PAPER, portrait=PAPER, num_draws=100_000, parallel=100, num_grid=1000,
        num_fine=100_000, num_repeats=9, num_null=100, num_hidden=4,
        chain_network=WIDE_CHAIN, chain_normalised=False, chain_steps=100, chain_step_size=0.003,
        chains=Chains(num_chains=32, num_draws=450, num_warmup=40),
        study_draws=4_000, study_grid=100, truncations=(20, 100, 500, 1000),
        widths=(100, 250, 500, 1000, 2500), depths=(1, 2, 3),
        rate_widths=(32, 64, 128, 256, 512), rate_frequency_scales=(8.0, 16.0, 32.0),
        fixed_network=MIDDLE, rate_modes=(16, 64, 128, 256, 512),
        rate_readout_scales=(1.0, 3.0, 10.0, 30.0, 100.0, 300.0),
        recipe_width=1000, recipe_modes=1000, recipe_sampled_modes=100, recipe_points=10_000,
        recipe_draws=80, recipe_thin=20, recipe_step_sizes=(1e-9, 1e-8, 1e-7, 1e-6),
    ),
}  # fmt: skip

STAGES = {
    "samples": ("paths on a fine grid", case_study.draw_samples),
    "fidelity": ("fidelity in closed form", case_study.measure_fidelity),
    "exact": ("independent exact draws", case_study.draw_exactly),
    "tests": ("tests along t, repeated", case_study.repeat_tests),
    "chain": ("HMC over every parameter", case_study.run_chain),
    "truncation": ("the number of modes", studies.vary_truncation),
    "width": ("the width", studies.vary_width),
    "depth": ("the depth", studies.vary_depth),
    "factor": ("the boundary factor, near zero", studies.vary_factor),
    "convergence": ("rates of convergence", studies.measure_convergence),
    "recipe": ("the paper's own recipe", recipe.follow_recipe),
}
BRIDGE_STAGES = ("samples", "fidelity", "exact", "tests", "chain", "factor")
# Metrics that are single numbers: the stage that made each, and its name there.
NUMBERS = {
    "covariance_max_error": ("exact", "max_error"),
    "covariance_max_error_se": ("exact", "max_error_se"),
    "covariance_max_error_mcmc": ("chain", "max_error"),
    "covariance_max_error_mcmc_se": ("chain", "max_error_se"),
    "fidelity_max_error": ("fidelity", "closed_error"),
    "fidelity_max_error_one_layer": ("fidelity", "closed_error_one"),
    "num_draws": ("exact", "num_draws"),
    "num_draws_mcmc": ("chain", "num_draws"),
    "rhat_max": ("chain", "rhat_max"),
    "ess_min": ("chain", "ess_min"),
    "acceptance": ("chain", "acceptance"),
    "exact_draws_per_second": ("exact", "draws_per_second"),
    "effective_draws_per_second": ("chain", "ess_per_second"),
}
# Metrics with a number for each label of a stage.
BY_LABEL = {
    "truncation_closed_form_error": ("truncation", "closed_error"),
    "width_closed_form_error": ("width", "closed_error"),
    "depth_closed_form_error": ("depth", "closed_error"),
    "recipe_covariance_error": ("recipe", "error"),
    "recipe_rhat": ("recipe", "rhat"),
}


def bridge_settings(settings: SimpleNamespace) -> SimpleNamespace:
    """The settings of Brownian motion with half the readout scales, as the bridge's standard
    deviation is half, and a quarter of the repeated tests."""
    networks = {
        name: replace(network, readout_scale=network.readout_scale / 2)
        for name in ("network", "portrait", "chain_network")
        for network in (getattr(settings, name),)
    }
    tests = {"num_repeats": settings.num_repeats // 4}
    return SimpleNamespace(**vars(settings) | networks | tests)


def stages_of(process: Process, names: tuple[str, ...]) -> tuple[Stage, ...]:
    """The chosen stages for a process."""
    return tuple(Stage(name, STAGES[name][0], partial(STAGES[name][1], process)) for name in names)


def measure_case(results: Results) -> dict[str, Any]:
    """Errors with their Monte Carlo errors, shares of passed tests, convergence, and studies."""
    numbers = {name: results[stage][array].item() for name, (stage, array) in NUMBERS.items()}
    tests, factor = results["tests"], results["factor"]
    shares, near_zero = np.vstack([results["exact"]["shares"], tests["shares"]]).T
    exact_paths = tests["null_shares"].mean(axis=0)
    tables = {
        name: by_name(results[stage]["labels"], results[stage][array])
        for name, (stage, array) in BY_LABEL.items()
        if stage in results
    }
    return numbers | tables | {
        "covariance_max_z": float(results["exact"]["z"].max()),
        "ks_pass_fraction": float(shares.mean()),
        "ks_pass_fraction_near_zero": float(near_zero.mean()),
        "ks_pass_fraction_by_set": shares.tolist(),
        "ks_pass_fraction_near_zero_by_set": near_zero.tolist(),
        "ks_pass_fraction_exact_paths": float(exact_paths[0]),
        "ks_pass_fraction_near_zero_exact_paths": float(exact_paths[1]),
        "ks_pass_fraction_mcmc": float(results["chain"]["shares"][0]),
        "near_zero_pass_fraction": by_name(factor["labels"], factor["shares"][:, 0]),
    }  # fmt: skip


def quantities_of(
    paper: float, exact: dict[str, float], mcmc: dict[str, float]
) -> tuple[Quantity, ...]:
    """The rows of the report: words, the paper's number, and what is asked at each scale."""
    return (
        Quantity("covariance_max_error", "largest covariance error, exact draws", paper, exact),
        Quantity("covariance_max_error_se", "its standard error"),
        Quantity("fidelity_max_error", "in closed form, averaged over hidden layers"),
        Quantity("fidelity_max_error_one_layer", "in closed form, one hidden layer, on average"),
        Quantity("covariance_max_error_mcmc", "largest covariance error, HMC", paper, mcmc),
        Quantity("covariance_max_error_mcmc_se", "its standard error"),
        *converged(" of HMC along t"),
        Quantity("ks_pass_fraction", "share of times that pass a KS test at 0.05, mean over sets",
                 None, {"paper": 0.93}, at_least=True),
        Quantity("ks_pass_fraction_near_zero", "the same for t < 0.05, where the paper's fail",
                 None, {"paper": 0.85}, at_least=True),
        Quantity("ks_pass_fraction_exact_paths", "the same for exact paths, all times"),
        Quantity("ks_pass_fraction_near_zero_exact_paths", "the same for exact paths, t < 0.05"),
        Quantity("num_draws", "independent exact draws"),
        Quantity("num_draws_mcmc", "draws of HMC"),
        Quantity("exact_draws_per_second", "exact draws a second"),
        Quantity("effective_draws_per_second", "effective draws of HMC a second, all included"),
        Quantity("seconds", "seconds in all", None, {"quick": 120, "paper": 900}),
    )  # fmt: skip


def estimate(process: Process, settings: Any) -> float:
    """Seconds that a run would take on this machine, from a few timed draws and gradients."""
    keys, chains = jax.random.split(jax.random.key(0)), settings.chains
    prior = settings.network.prior(process, keys[0])
    target = settings.chain_network.prior(process, keys[1], normalised=settings.chain_normalised)
    draw = _time(jax.jit(lambda seed: prior.draw(jax.random.key(seed))), 1)
    gradient = _time(jax.jit(jax.grad(target)), target.params)
    num_networks = len(settings.truncations) + len(settings.widths) + 4
    draws = (1 + settings.num_repeats) * settings.num_draws + num_networks * settings.study_draws
    steps = (chains.num_draws + chains.num_warmup) * chains.num_chains * settings.chain_steps
    return draw * draws + gradient * steps


def _time(function: Callable[[Any], Any], argument: Any, repetitions: int = 3) -> float:
    """Seconds of one call of a compiled function."""
    jax.block_until_ready(function(argument))
    begin = time.monotonic()
    for _ in range(repetitions):
        jax.block_until_ready(function(argument))
    return (time.monotonic() - begin) / repetitions


MOTION_STUDY = Experiment(
    name="brownian",
    title="Brownian motion from networks, every parameter random",
    settings=SETTINGS,
    stages=stages_of(MOTION, tuple(STAGES)),
    pictures=pictures_of(MOTION, tuple(STAGES)),
    quantities=quantities_of(0.043, {"quick": 0.05, "paper": 0.02}, {"paper": 0.043}),
    measure=measure_case,
    estimate=partial(estimate, MOTION),
)
BRIDGE_STUDY = Experiment(
    name="bridge",
    title="The Brownian bridge from networks, every parameter random",
    settings={scale: bridge_settings(settings) for scale, settings in SETTINGS.items()},
    stages=stages_of(BRIDGE, BRIDGE_STAGES),
    pictures=pictures_of(BRIDGE, BRIDGE_STAGES),
    quantities=quantities_of(0.024, {"quick": 0.02, "paper": 0.006}, {"paper": 0.024}),
    measure=measure_case,
    estimate=partial(estimate, BRIDGE),
)
