"""Hyperparameters learned in spite of the unknown normaliser: section 3.5 of the paper, carried out."""

import dataclasses
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .. import data
from ..diagnostics import ess, nlpd, rhat
from ..hyper import Joint, empirical_bayes
from ..hyper.ascent import make_step
from ..sampling import nuts, sample
from .baselines import split_rows, ten_folds
from .experiment import Arrays, Chains, Experiment, Quantity, Results, Run, Stage, fold
from .hyper_figures import PICTURES
from .hyper_model import (
    TRUTH,
    closed_form,
    draw_matern,
    heteroscedastic_family,
    learn_period,
    recovery_family,
    surface_family,
)

# Starting points of the ascents, in standard normal numbers: (variance, power).
STARTS = ((-1.5, -1.5), (1.5, -1.5), (-1.5, 1.5), (1.5, 1.5), (0.0, 0.0))
LEVELS = (0.05, 0.95)


@dataclasses.dataclass(frozen=True)
class Settings:
    """How large a run is: networks by (width, modes), chains, and how many of each thing."""

    surface: tuple[int, int]
    num_grid: int
    num_ascents: int
    max_steps: int
    joint: Chains
    recovery: tuple[int, int]
    num_rows: int
    num_seeds: int
    recovered: Chains
    learned: tuple[int, int]
    folds: int
    fold: Chains


SETTINGS = {
    "smoke": Settings(
        (16, 24), 5, 1, 50, Chains(2, 10, 10), (16, 20), 20, 1, Chains(2, 6, 0), (12, 16), 1,
        Chains(2, 6, 0),
    ),
    "quick": Settings(
        (60, 70), 41, 5, 1000, Chains(4, 150, 50), (100, 150), 200, 1, Chains(2, 60, 40), (60, 70),
        1, Chains(2, 100, 60),
    ),
    "paper": Settings(
        (60, 70), 61, 5, 2000, Chains(4, 500, 100), (100, 150), 200, 20, Chains(2, 200, 80),
        (60, 70), 10, Chains(2, 300, 120),
    ),
}  # fmt: skip


def draw_surface(run: Run) -> Arrays:
    """log p(y | variance, power) of the motorcycle data given a hidden layer, on a grid."""
    family = _surface(run)
    axis = np.linspace(-2.2, 2.2, run.settings.num_grid)
    points = jnp.stack(jnp.meshgrid(axis, axis, indexing="ij"), -1).reshape(-1, 2)
    found = jax.lax.map(closed_form(family), points, batch_size=64)
    return {"axis": axis, "values": np.asarray(found).reshape(len(axis), len(axis))}


def _surface(run: Run) -> Joint:
    return surface_family(*run.settings.surface, fold(run.shared, "surface"))


def climb_surface(run: Run) -> Arrays:
    """Empirical Bayes from several starts."""
    family, found = _surface(run), []
    for index in run.each("ascents", range(run.settings.num_ascents)):
        begin = dict(zip(family.unknowns, STARTS[index], strict=True))
        key = fold(run.key, f"ascent {index}")
        # With a frozen layer and Gaussian noise every chain tells the exact gradient: two will do.
        options = {"num_chains": 2, "max_steps": run.settings.max_steps, "progress": False}
        found.append(empirical_bayes(key, family, begin, **options))
    longest = max(len(one.path) for one in found)
    paths = np.full((len(found), longest, 2), np.nan)
    for row, one in zip(paths, found, strict=True):
        row[: len(one.path)] = one.path
    return {
        "paths": paths,
        "ends": np.array([list(one.white.values()) for one in found]),
        "errors": np.array([list(one.error.values()) for one in found]),
        "converged": np.array([one.converged for one in found]),
    }


def sample_surface(run: Run) -> Arrays:
    """The readout and both hyperparameters by NUTS."""
    family = _surface(run)
    draws = run.sample(
        "joint", family, nuts(initial_step=0.1, max_doublings=7), record=lambda p: p["hyper"],
        keep_params=False, **run.settings.joint.counts,
    )  # fmt: skip
    held = np.stack([draws.recorded[name] for name in family.unknowns], axis=-1)
    return {"draws": held, "rhat": rhat(held).max(), "ess": ess(held).min()}


def recover(seed: int, settings: Settings, key: jax.Array) -> Arrays:
    """90 % intervals of length scale, variance and noise of a process whose own are known."""
    rows = draw_matern(seed, settings.num_rows)
    network_key, sample_key = jax.random.split(jax.random.fold_in(key, seed))
    family = recovery_family(*settings.recovery, rows, network_key)
    begin = time.monotonic()
    draws = sample(
        sample_key, family, nuts(initial_step=0.1, max_doublings=6), record=lambda p: family.values(p["hyper"]),
        keep_params=False, progress=False, **settings.recovered.counts,
    ).complete()  # fmt: skip
    held = np.stack([draws.recorded[name] for name in TRUTH], axis=-1)
    truth, (low, high) = np.array(list(TRUTH.values())), np.quantile(held, LEVELS, axis=(0, 1))
    return {
        "lower": low,
        "upper": high,
        "covers": (low <= truth) & (truth <= high),
        "rhat": rhat(held).max(),
        "ess": ess(held).min(),
        "seconds_each": time.monotonic() - begin,
    }


def recover_all(run: Run) -> Arrays:
    """The same for each seed."""
    key, seeds = fold(run.shared, "recovery"), range(run.settings.num_seeds)
    return _stack(run.keep_each("seed", lambda s: recover(s, run.settings, key), seeds))


def score_learned(index: int, settings: Settings, key: jax.Array) -> Arrays:
    """Held-out NLPD of one fold of the motorcycle data, every hyperparameter learned."""
    times, values = data.motorcycle()
    split = split_rows(times, values, ten_folds(len(times))[index])
    family = heteroscedastic_family(*settings.learned, split, fold(key, "network"))
    held = jnp.asarray(split.held_inputs), jnp.asarray(split.held_targets)
    begin = time.monotonic()
    draws = sample(
        fold(key, f"fold {index}"), family, nuts(initial_step=0.1, max_doublings=7),
        record=lambda p: {"score": family.score(p, *held), "hyper": family.values(p["hyper"])},
        keep_params=False, progress=False, **settings.fold.counts,
    ).complete()  # fmt: skip
    scores = draws.recorded["score"]
    return {
        "nlpd": nlpd(scores.reshape(-1, scores.shape[-1])),
        "rhat": rhat(scores).max(),
        "ess": ess(scores).min(),
        "seconds_each": time.monotonic() - begin,
    } | {name: np.median(value) for name, value in draws.recorded["hyper"].items()}


def score_all(run: Run) -> Arrays:
    """The same for each fold."""
    folds = range(run.settings.folds)
    return _stack(
        run.keep_each("fold", lambda i: score_learned(i, run.settings, run.shared), folds)
    )


def _stack(found: list[Arrays]) -> Arrays:
    return {name: np.stack([one[name] for one in found]) for name in found[0]}


def find_period(run: Run) -> Arrays:
    """The period of the CO2 series from 15 % above and below a year."""
    found = [learn_period("four_weekly", start) for start in (0.85, 1.15)]
    longest = max(len(path) for _, path in found)
    paths = [np.pad(path, (0, longest - len(path)), mode="edge") for _, path in found]
    return {"periods": np.array([period for period, _ in found]), "paths": np.stack(paths)}


def measure_cost(run: Run) -> Arrays:
    """A step of the ascent against gradients of the posterior, of as many chains, in turn; every
    parameter of the network random."""
    family = surface_family(*run.settings.surface, fold(run.shared, "surface"), frozen=False)
    step, state = make_step(family, fold(run.key, "chains"), num_chains=16)
    keys = jax.random.split(fold(run.key, "starts"), 16)
    positions = jax.vmap(family.template.draw)(keys)
    gradient = jax.jit(lambda p: jax.vmap(jax.grad(family.template))(p))
    jax.block_until_ready((step(state, run.key), gradient(positions)))
    ratios = []
    for _ in range(15):
        begin = time.perf_counter()
        jax.block_until_ready(step(state, run.key))
        middle = time.perf_counter()
        jax.block_until_ready(gradient(positions))
        ratios.append((middle - begin) / (time.perf_counter() - middle))
    return {"ratios": np.array(ratios)}


def measure(results: Results) -> dict[str, Any]:
    """Coverage, held-out scores, the period, and where the ascents ended."""
    recovered, scores = results["recovery"], results["folds"]
    ends, joint = results["ascent"], results["joint"]
    metrics = {
        "nlpd": float(np.mean(scores["nlpd"])),
        "num_folds": len(scores["nlpd"]),
        "rhat_max_folds": float(np.max(scores["rhat"])),
        "ess_min_folds": float(np.min(scores["ess"])),
        "num_seeds": len(recovered["rhat"]),
        "rhat_max_recovery": float(np.max(recovered["rhat"])),
        "ess_min_recovery": float(np.min(recovered["ess"])),
        "seconds_a_seed": float(np.max(recovered["seconds_each"])),
        "period_error": float(np.max(np.abs(results["period"]["periods"] - 1))),
        "step_cost": float(np.median(results["cost"]["ratios"])),
        "ascent_spread": float(np.max(np.ptp(ends["ends"], axis=0))),
        "ascents_converged": int(np.sum(ends["converged"])),
        "rhat_max": float(joint["rhat"]),
        "ess_min": float(joint["ess"]),
    }
    covered = dict(zip(TRUTH, np.sum(recovered["covers"], axis=0), strict=True))
    return metrics | {f"covered_{name}": int(count) for name, count in covered.items()}


def _at_paper(limit: float) -> dict[str, float]:
    return {"paper": limit}


# What R-hat may be at most and ESS at least, for a verdict in words.
CONVERGED, ENOUGH = {"quick": 1.01, "paper": 1.01}, {"quick": 400, "paper": 400}

QUANTITIES = (
    Quantity("nlpd", "motorcycle, held-out NLPD of the folds, all hyperparameters learned", None,
             _at_paper(0.384)),
    Quantity("num_folds", "folds"),
    Quantity("rhat_max_folds", "largest R-hat of held-out densities", None, CONVERGED),
    Quantity("ess_min_folds", "smallest ESS of held-out densities", None, ENOUGH, True),
    *(
        Quantity(f"covered_{name}", f"{name}: seeds whose 90 % interval holds the truth", None,
                 _at_paper(14), at_least=True)
        for name in TRUTH
    ),
    Quantity("num_seeds", "seeds"),
    Quantity("seconds_a_seed", "seconds for a seed, at most", None, {"quick": 600, "paper": 600}),
    Quantity("rhat_max_recovery", "largest R-hat of their hyperparameters", None, CONVERGED),
    Quantity("ess_min_recovery", "smallest ESS of their hyperparameters", None, ENOUGH, True),
    Quantity("period_error", "CO2: relative error of the period from starts 15 % off", None,
             {"quick": 0.02, "paper": 0.02}),
    Quantity("step_cost", "a step of empirical Bayes over a posterior gradient, equal draws", None,
             {"quick": 3.0, "paper": 3.0}),
    Quantity("ascent_spread", "largest distance between the ends of the ascents"),
    Quantity("ascents_converged", "ascents that ended within their noise"),
    Quantity("rhat_max", "largest R-hat of variance and power", None, CONVERGED),
    Quantity("ess_min", "smallest ESS of variance and power", None, ENOUGH, True),
    Quantity("seconds", "seconds in all"),
)  # fmt: skip

EXPERIMENT = Experiment(
    name="hyper",
    title="Hyperparameters, learned although the normaliser is unknown",
    settings=SETTINGS,
    stages=(
        Stage("surface", "the evidence over variance and power", draw_surface),
        Stage("ascent", "empirical Bayes", climb_surface),
        Stage("joint", "parameters and hyperparameters by NUTS", sample_surface),
        Stage("period", "the period of the CO2 series", find_period),
        Stage("cost", "what a step costs", measure_cost),
        Stage("folds", "the motorcycle folds, everything learned", score_all),
        Stage("recovery", "hyperparameters that are known, found again", recover_all),
    ),
    pictures=PICTURES,
    quantities=QUANTITIES,
    measure=measure,
    estimate=lambda settings: 120.0 * settings.num_seeds + 90.0 * settings.folds + 100.0,
)
