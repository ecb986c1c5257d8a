"""Brownian motion from networks, every parameter random: section 4 of the paper."""

import dataclasses
from functools import partial

from .case_figures import pictures_of
from .case_study import CaseSettings, Chain, Study
from .convergence import Convergence, measure_convergence
from .experiment import Experiment, Stage
from .measures import estimate, measure_case, quantities_of
from .processes import MOTION, Network
from .recipe import Recipe, follow_recipe
from .studies import stages_of


@dataclasses.dataclass(frozen=True)
class Settings(CaseSettings):
    """The case study, the paper's recipe and the rates of convergence."""

    recipe: Recipe
    convergence: Convergence


SMOKE = Network(32, 48, 6.0, 4.0, 50.0, 0.02)
QUICK = Network(128, 128, 14.0, 4.0, 100.0, 0.004)
MIDDLE = Network(256, 256, 20.0, 4.0, 100.0, 0.002)
PAPER = Network(1000, 1000, 80.0, 8.0, 600.0, 0.0003, num_frequencies=64)
PORTRAIT = Network(600, 800, 40.0, 8.0, 300.0, 0.001)
CHAIN = Network(64, 64, 8.0, 4.0, 50.0, 0.01)
WIDE_CHAIN = Network(1000, 1000, 10.0, 4.0, 30.0, 0.003, law="cauchy")

SETTINGS = {
    "smoke": Settings(
        network=SMOKE,
        portrait=SMOKE,
        chain=Chain(Network(12, 12, 4.0, 4.0, 30.0, 0.05), True, 4, 40, 20, 10, 0.01),
        study=Study(100, 20, (8, 48), (16, 32), (1, 2), 2),
        num_draws=400, parallel=8, num_grid=50, num_fine=2_000, num_repeats=1, num_null=5,
        recipe=Recipe(8, 8, 2, 16, 8, 2, (1e-6, 1e-5)),
        convergence=Convergence((8, 16), (4.0, 8.0), SMOKE, (16, 48), (10.0, 50.0), 2),
    ),
    "quick": Settings(
        network=QUICK,
        portrait=PORTRAIT,
        chain=Chain(CHAIN, True, 4, 660, 20, 12, 0.006),
        study=Study(200, 100, (20, 128), (32, 128), (1, 3), 2),
        num_draws=5_000, parallel=8, num_grid=100, num_fine=100_000, num_repeats=0,
        num_null=40,
        recipe=Recipe(50, 100, 10, 100, 8, 10, (1e-7, 1e-5)),
        convergence=Convergence(
            (32, 64), (8.0,), CHAIN, (16, 64), (10.0, 100.0), 2
        ),
    ),
    "paper": Settings(
        network=PAPER,
        portrait=PAPER,
        chain=Chain(WIDE_CHAIN, False, 32, 450, 40, 100, 0.003),
        study=Study(4_000, 100, (20, 100, 500, 1000), (100, 250, 500, 1000, 2500), (1, 2, 3), 4),
        num_draws=100_000, parallel=100, num_grid=1000, num_fine=100_000, num_repeats=9,
        num_null=100,
        recipe=Recipe(1000, 1000, 100, 10_000, 80, 20, (1e-9, 1e-8, 1e-7, 1e-6)),
        convergence=Convergence(
            (32, 64, 128, 256, 512), (8.0, 16.0, 32.0), MIDDLE, (16, 64, 128, 256, 512),
            (1.0, 3.0, 10.0, 30.0, 100.0, 300.0), 4,
        ),
    ),
}  # fmt: skip

CASE = ("samples", "fidelity", "exact", "tests", "chain", "truncation", "width", "depth", "factor")

EXPERIMENT = Experiment(
    name="brownian",
    title="Brownian motion from networks, every parameter random",
    settings=SETTINGS,
    stages=(
        *stages_of(MOTION, CASE),
        Stage("convergence", "rates of convergence", partial(measure_convergence, MOTION)),
        Stage("recipe", "the paper's own recipe", partial(follow_recipe, MOTION)),
    ),
    pictures=tuple(pictures_of(MOTION).values()),
    quantities=quantities_of(0.043, {"quick": 0.05, "paper": 0.02}, {"paper": 0.043}),
    measure=partial(measure_case, MOTION),
    estimate=partial(estimate, MOTION),
)
