"""Brownian motion and the Brownian bridge from networks: the case study, section 4 of the paper."""

from dataclasses import replace
from functools import partial
from types import SimpleNamespace

from . import case_study, recipe, studies
from .case_figures import pictures_of
from .experiment import Chains, Experiment, Stage
from .measures import estimate, measure_case, quantities_of
from .processes import BRIDGE, MOTION, Network, Process

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
