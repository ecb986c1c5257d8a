"""Brownian motion and the Brownian bridge from networks: the case study, section 4 of the paper."""

import timeit
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import numpy as np

from . import case_study, studies
from .case_figures import pictures_of
from .case_study import Case
from .experiment import Chains, Experiment, Quantity, Results, Settings, Stage
from .processes import BRIDGE, MOTION, Network, Process
from .summaries import by_name, converged

# Width, modes, scales of frequencies and readouts, saturation.
SMALL = Network(12, 12, 4, 30, 0.05)
SMOKE_NETWORK = Network(32, 48, 6, 50, 0.02)
CHAIN = Network(64, 64, 8, 50, 0.01)
QUICK_NETWORK = Network(128, 128, 14, 100, 0.004)
MIDDLE = Network(256, 256, 20, 100, 0.002)
PORTRAIT = Network(600, 800, 40, 300, 0.001, hidden_scale=8)
WIDEST = Network(1000, 1000, 80, 600, 0.0003, hidden_scale=8, num_frequencies=64)
WIDE_CHAIN = Network(1000, 1000, 10, 30, 0.003, law="cauchy")

# `portrait` is the network whose paths are shown, on `num_fine` times. `parallel` exact draws are
# made at once. Tests are repeated with `num_repeats` further sets of `num_draws` networks and with
# `num_null` sets of exact paths. Closed forms average over `num_hidden` hidden layers.
PAPER = Settings(
    network=WIDEST, portrait=WIDEST, num_draws=100_000, parallel=100, num_grid=1000,
    num_fine=100_000, num_repeats=9, num_null=100, num_hidden=4, chain_network=WIDE_CHAIN,
    chain_normalised=False, chain_steps=100, chain_step_size=0.003, chains=Chains(32, 450, 40),
    study_draws=4_000, study_grid=100, truncations=(20, 100, 500, 1000),
    widths=(100, 250, 500, 1000, 2500), depths=(1, 2, 3), rate_widths=(32, 64, 128, 256, 512),
    rate_frequency_scales=(8.0, 16.0, 32.0), fixed_network=MIDDLE,
    rate_modes=(16, 64, 128, 256, 512), rate_readout_scales=(1.0, 3.0, 10.0, 30.0, 100.0, 300.0),
    recipe_width=1000, recipe_modes=1000, recipe_sampled_modes=100, recipe_points=10_000,
    recipe_draws=80, recipe_thin=20, recipe_step_sizes=(1e-9, 1e-8, 1e-7, 1e-6),
)  # fmt: skip
QUICK = PAPER.but(
    network=QUICK_NETWORK, portrait=PORTRAIT, num_draws=5_000, parallel=8, num_grid=100,
    num_repeats=0, num_null=40, num_hidden=2, chain_network=CHAIN, chain_normalised=True,
    chain_steps=12, chain_step_size=0.006, chains=Chains(4, 660, 20), study_draws=200,
    truncations=(20, 128), widths=(32, 128), depths=(1, 3), rate_widths=(32, 64),
    rate_frequency_scales=(8.0,), fixed_network=CHAIN, rate_modes=(16, 64),
    rate_readout_scales=(10.0, 100.0), recipe_width=50, recipe_modes=100, recipe_sampled_modes=10,
    recipe_points=100, recipe_draws=8, recipe_thin=10, recipe_step_sizes=(1e-7, 1e-5),
)  # fmt: skip
SMOKE = QUICK.but(
    network=SMOKE_NETWORK, portrait=SMOKE_NETWORK, num_draws=400, num_grid=50, num_fine=2_000,
    num_repeats=1, num_null=5, chain_network=SMALL, chain_steps=10, chain_step_size=0.01,
    chains=Chains(4, 40, 20), study_draws=100, study_grid=20, truncations=(8, 48), widths=(16, 32),
    depths=(1, 2), rate_widths=(8, 16), rate_frequency_scales=(4.0, 8.0),
    fixed_network=SMOKE_NETWORK, rate_modes=(16, 48), rate_readout_scales=(10.0, 50.0),
    recipe_width=8, recipe_modes=8, recipe_sampled_modes=2, recipe_points=16, recipe_thin=2,
    recipe_step_sizes=(1e-6, 1e-5),
)  # fmt: skip
SETTINGS = {"smoke": SMOKE, "quick": QUICK, "paper": PAPER}

STAGES = {
    "samples": ("paths on a fine grid", case_study.draw_samples),
    "fidelity": ("fidelity in closed form", case_study.measure_fidelity),
    "exact": ("independent exact draws", case_study.draw_exactly),
    "tests": ("tests along t, repeated", case_study.repeat_tests),
    "chain": ("HMC over every parameter", case_study.run_chain),
    "truncation": ("the number of modes", partial(studies.compare, study="truncation")),
    "width": ("the width", partial(studies.compare, study="width")),
    "depth": ("the depth", studies.vary_depth),
    "factor": ("the boundary factor, near zero", partial(studies.compare, study="factor")),
    "convergence": ("rates of convergence", studies.measure_convergence),
    "recipe": ("the paper's own recipe", studies.follow_recipe),
}
# Metrics with a number for each label of a stage.
BY_LABEL = {
    "truncation_closed_form_error": ("truncation", "closed_error"),
    "width_closed_form_error": ("width", "closed_error"),
    "depth_closed_form_error": ("depth", "closed_error"),
    "recipe_covariance_error": ("recipe", "error"),
    "recipe_rhat": ("recipe", "rhat"),
}


def bridge_settings(settings: Settings) -> Settings:
    """Half the readout scales, as the bridge's deviation is half, and fewer repeated tests."""
    networks = {n: getattr(settings, n) for n in ("network", "portrait", "chain_network")}
    halved = {n: replace(net, readout_scale=net.readout_scale / 2) for n, net in networks.items()}
    return settings.but(num_repeats=settings.num_repeats // 4, **halved)


def measure(results: Results) -> dict[str, Any]:
    """Shares of passed tests, by set of draws, and tables of the studies."""
    tests, factor = results["tests"], results["factor"]
    shares, near_zero = np.vstack([results["exact"]["shares"], tests["shares"]]).T
    exact_paths, exact_near_zero = tests["null_shares"].mean(axis=0).tolist()
    tables = {
        name: by_name(results[stage]["labels"], results[stage][array])
        for name, (stage, array) in BY_LABEL.items()
        if stage in results
    }
    return tables | {
        "ks_pass_fraction": float(shares.mean()),
        "ks_pass_fraction_near_zero": float(near_zero.mean()),
        "ks_pass_fraction_by_set": shares.tolist(),
        "ks_pass_fraction_near_zero_by_set": near_zero.tolist(),
        "ks_pass_fraction_exact_paths": exact_paths,
        "ks_pass_fraction_near_zero_exact_paths": exact_near_zero,
        "near_zero_pass_fraction": by_name(factor["labels"], factor["shares"][:, 0]),
    }


def quantities_of(paper: float, exact: dict[str, float]) -> tuple[Quantity, ...]:
    """The numbers of a case study, by the paper's covariance error and what is asked of ours."""
    return (
        Quantity("covariance_max_error", "largest covariance error, exact draws",
                 "exact.max_error", paper, exact),
        Quantity("covariance_max_error_se", "its standard error", "exact.max_error_se"),
        Quantity("covariance_max_z", source=lambda results: results["exact"]["z"].max()),
        Quantity("fidelity_max_error", "in closed form, averaged over hidden layers",
                 "fidelity.closed_error"),
        Quantity("fidelity_max_error_one_layer", "in closed form, one hidden layer, on average",
                 "fidelity.closed_error_one"),
        Quantity("covariance_max_error_mcmc", "largest covariance error, HMC", "chain.max_error",
                 paper, {"paper": paper}),
        Quantity("covariance_max_error_mcmc_se", "its standard error", "chain.max_error_se"),
        *converged("chain", " of HMC along t"),
        Quantity("acceptance", source="chain.acceptance"),
        Quantity("ks_pass_fraction", "share of times that pass a KS test at 0.05, mean over sets",
                 at_least={"paper": 0.93}),
        Quantity("ks_pass_fraction_near_zero", "the same for t < 0.05, where the paper's fail",
                 at_least={"paper": 0.85}),
        Quantity("ks_pass_fraction_exact_paths", "the same for exact paths, all times"),
        Quantity("ks_pass_fraction_near_zero_exact_paths", "the same for exact paths, t < 0.05"),
        Quantity("ks_pass_fraction_mcmc", source=lambda results: results["chain"]["shares"][0]),
        Quantity("num_draws", "independent exact draws", "exact.num_draws"),
        Quantity("num_draws_mcmc", "draws of HMC", "chain.num_draws"),
        Quantity("exact_draws_per_second", "exact draws a second", "exact.draws_per_second"),
        Quantity("effective_draws_per_second", "effective draws of HMC a second, all included",
                 "chain.ess_per_second"),
        Quantity("seconds", "seconds in all", at_most={"quick": 120, "paper": 900}),
    )  # fmt: skip


def estimate(process: Process, settings: Settings) -> float:
    """Seconds that a run would take on this machine, from a few timed draws and gradients."""
    keys = jax.random.split(jax.random.key(0))
    prior = settings.network.prior(process, keys[0])
    target = settings.chain_network.prior(process, keys[1], normalised=settings.chain_normalised)

    def seconds(function: Any, argument: Any) -> float:
        call = lambda: jax.block_until_ready(function(argument))  # noqa: E731
        return min(timeit.repeat(call, call, number=1, repeat=3))

    draw = seconds(jax.jit(lambda seed: prior.draw(jax.random.key(seed))), 1)
    gradient = seconds(jax.jit(jax.grad(target)), target.params)
    num_networks = len(settings.truncations) + len(settings.widths) + 4
    draws = (1 + settings.num_repeats) * settings.num_draws + num_networks * settings.study_draws
    return draw * draws + gradient * settings.chains.num_steps * settings.chain_steps


def case_study_of(process: Process, stages: tuple[str, ...], **rest: Any) -> Experiment:
    """The chosen stages of the case study for a process."""
    return Experiment(
        stages=tuple(Stage(name, title, lambda run, compute=compute: compute(Case(process, run)))
                     for name, (title, compute) in STAGES.items() if name in stages),
        pictures=pictures_of(process, stages), measure=measure,
        estimate=partial(estimate, process), **rest,
    )  # fmt: skip


MOTION_STUDY = case_study_of(
    MOTION, tuple(STAGES), name="brownian", settings=SETTINGS,
    title="Brownian motion from networks, every parameter random",
    quantities=quantities_of(0.043, {"quick": 0.05, "paper": 0.02}),
)  # fmt: skip
BRIDGE_STUDY = case_study_of(
    BRIDGE, ("samples", "fidelity", "exact", "tests", "chain", "factor"), name="bridge",
    title="The Brownian bridge from networks, every parameter random",
    settings={scale: bridge_settings(settings) for scale, settings in SETTINGS.items()},
    quantities=quantities_of(0.024, {"quick": 0.02, "paper": 0.006}),
)  # fmt: skip
