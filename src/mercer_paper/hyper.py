"""Hyperparameters learned in spite of the unknown normaliser: section 3.5 of the paper, carried out."""

import dataclasses
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure

import mercer
from mercer import diagnostics

from .baselines import motorcycle_fold
from .co2_model import LEARNED, maximise_evidence
from .experiment import (
    Arrays,
    Chains,
    Experiment,
    Picture,
    Quantity,
    Results,
    Run,
    Stage,
    fold,
)  # fmt: skip
from .hyper_model import (
    SURFACE,
    TRUTH,
    closed_form,
    draw_matern,
    heteroscedastic_family,
    recovery_family,
    surface_family,
)  # fmt: skip
from .panels import panels
from .summaries import asked, converged, convergence, stack

# Starting points of the ascents, in standard normal numbers: (variance, power).
STARTS = ((-1.5, -1.5), (1.5, -1.5), (-1.5, 1.5), (1.5, 1.5), (0.0, 0.0))


@dataclasses.dataclass(frozen=True)
class Settings:
    """Sizes of a run: networks by (width, modes), chains, and how many of each thing."""

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


PAPER = Settings(
    surface=(60, 70), num_grid=61, num_ascents=5, max_steps=2000, joint=Chains(4, 500, 100),
    recovery=(100, 150), num_rows=200, num_seeds=20, recovered=Chains(2, 200, 80),
    learned=(60, 70), folds=10, fold=Chains(2, 300, 120),
)  # fmt: skip
QUICK = dataclasses.replace(
    PAPER, num_grid=41, max_steps=1000, joint=Chains(4, 150, 50), num_seeds=1,
    recovered=Chains(2, 60, 40), folds=1, fold=Chains(2, 100, 60),
)  # fmt: skip
SMOKE = dataclasses.replace(
    QUICK, surface=(16, 24), num_grid=5, num_ascents=1, max_steps=50, joint=Chains(2, 10, 10),
    recovery=(16, 20), num_rows=20, recovered=Chains(2, 6, 0), learned=(12, 16),
    fold=Chains(2, 6, 0),
)  # fmt: skip


def surface_of(run: Run, frozen: bool = True) -> mercer.hyper.Joint:
    """The motorcycle data with a variance and a power to be learned."""
    return surface_family(*run.settings.surface, fold(run.shared, "surface"), frozen)


def draw_surface(run: Run) -> Arrays:
    """log p(y | variance, power) of the motorcycle data given a hidden layer, on a grid."""
    axis = np.linspace(-2.2, 2.2, run.settings.num_grid)
    grid = jnp.stack(jnp.meshgrid(axis, axis, indexing="ij"), -1)
    values = jax.lax.map(closed_form(surface_of(run)), grid.reshape(-1, 2), batch_size=64)
    return {"grid": np.asarray(grid), "values": np.asarray(values).reshape(grid.shape[:2])}


def climb_surface(run: Run) -> Arrays:
    """Empirical Bayes from several starts."""
    family, ascents = surface_of(run), []
    for index in run.each("ascents", range(run.settings.num_ascents)):
        start = dict(zip(family.hyperpriors, STARTS[index], strict=True))
        # With a frozen layer and Gaussian noise every chain tells the exact gradient: two will do.
        options = {"num_chains": 2, "max_steps": run.settings.max_steps, "progress": False}
        key = fold(run.key, f"ascent {index}")
        ascents.append(mercer.hyper.empirical_bayes(key, family, start, **options))
    return {
        "paths": pad([ascent.path for ascent in ascents]),
        "ends": np.array([list(ascent.white.values()) for ascent in ascents]),
        "errors": np.array([list(ascent.error.values()) for ascent in ascents]),
        "converged": np.array([ascent.converged for ascent in ascents]),
    }


def pad(paths: list[np.ndarray]) -> np.ndarray:
    """Paths of unequal length as one array, each resting where it ends."""
    longest = max(map(len, paths))
    return np.stack([np.concatenate([p, np.repeat(p[-1:], longest - len(p), 0)]) for p in paths])


def sample_joint(
    key: jax.Array, family: mercer.hyper.Joint, chains: Chains, max_doublings: int, **options: Any
) -> tuple[mercer.draws.Draws, float]:
    """Draws of parameters and hyperparameters by NUTS, and the seconds they took."""
    algorithm, begin = mercer.nuts(initial_step=0.1, max_doublings=max_doublings), time.monotonic()
    options = {"progress": False} | chains.counts | options
    draws = mercer.sample(key, family, algorithm, **options).complete()
    return draws, time.monotonic() - begin


def sample_surface(run: Run) -> Arrays:
    """The readout and both hyperparameters by NUTS."""
    family = surface_of(run)
    algorithm, counts = mercer.nuts(initial_step=0.1, max_doublings=7), run.settings.joint.counts
    draws = run.sample("joint", family, algorithm, record=lambda p: p["hyper"], keep_params=False,
                       **counts)  # fmt: skip
    values = np.stack([draws.recorded[name] for name in family.hyperpriors], axis=-1)
    return {"draws": values} | convergence(values)


def recover(run: Run) -> Arrays:
    """90 % intervals of length scale, variance and noise of a process whose own are known, for each
    seed of the data."""
    settings, key = run.settings, fold(run.shared, "recovery")
    truth = np.array(list(TRUTH.values()))

    def of_seed(seed: int) -> Arrays:
        network_key, sample_key = jax.random.split(jax.random.fold_in(key, seed))
        rows = draw_matern(seed, settings.num_rows)
        family = recovery_family(*settings.recovery, rows, network_key)
        draws, seconds = sample_joint(sample_key, family, settings.recovered, 6,
                                      record=lambda p: family.values(p["hyper"]))  # fmt: skip
        values = np.stack([draws.recorded[name] for name in TRUTH], axis=-1)
        low, high = np.quantile(values, (0.05, 0.95), axis=(0, 1))
        covers = (low <= truth) & (truth <= high)
        intervals = {"lower": low, "upper": high, "covers": covers, "seconds_each": seconds}
        return intervals | convergence(values)

    return stack(run.keep_each("seed", of_seed, range(settings.num_seeds)))


def score_folds(run: Run) -> Arrays:
    """Held-out NLPD of folds of the motorcycle data, every hyperparameter learned."""
    settings, key = run.settings, run.shared

    def of_fold(index: int) -> Arrays:
        split = motorcycle_fold(index)
        family = heteroscedastic_family(*settings.learned, split, fold(key, "network"))
        draws, seconds = sample_joint(fold(key, f"fold {index}"), family, settings.fold, 7)
        scores = draws.log_densities(split.test_inputs, split.test_targets)
        by_chain = scores.reshape(settings.fold.num_chains, -1, scores.shape[-1])
        # Folds differ in the number of their rows: of R-hat and ESS the worst are kept.
        worst = {n: v for n, v in convergence(by_chain).items() if n in ("rhat_max", "ess_min")}
        medians = {name: np.median(value) for name, value in draws.hyper.items()}
        return {"nlpd": diagnostics.nlpd(scores), "seconds_each": seconds} | worst | medians

    return stack(run.keep_each("fold", of_fold, range(settings.folds)))


def find_period(run: Run) -> Arrays:
    """The period of the CO2 series, in years, from 15 % above and below a year; season, line and
    trend are those of the CO2 experiment, their scales learned with it."""
    learned = [{"period": (start, 0.15)} | LEARNED["ours"] for start in (0.85, 1.15)]
    ends, paths = zip(*(maximise_evidence("four_weekly", each) for each in learned), strict=True)
    periods = np.array([end["period"] for end in ends])
    return {"periods": periods, "paths": pad([path[:, 0] for path in paths])}


def measure_cost(run: Run) -> Arrays:
    """A step of the ascent against gradients of the posterior, of as many chains, in turn; every
    parameter of the network random."""
    family = surface_of(run, frozen=False)
    step, state = mercer.hyper.make_step(family, fold(run.key, "chains"), num_chains=16)
    positions = jax.vmap(family.template.init)(jax.random.split(fold(run.key, "starts"), 16))
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
    recovered, scores, ascent = (results[name] for name in ("recovery", "folds", "ascent"))
    metrics = {
        "nlpd": float(np.mean(scores["nlpd"])),
        "num_folds": len(scores["nlpd"]),
        "num_seeds": len(recovered["rhat"]),
        "seconds_a_seed": float(np.max(recovered["seconds_each"])),
        "period_error": float(np.max(np.abs(results["period"]["periods"] - 1))),
        "step_cost": float(np.median(results["cost"]["ratios"])),
        "ascent_spread": float(np.max(np.ptp(ascent["ends"], axis=0))),
        "ascents_converged": int(np.sum(ascent["converged"])),
    }
    for suffix, stage in (("", "joint"), ("_folds", "folds"), ("_recovery", "recovery")):
        metrics[f"rhat_max{suffix}"] = float(np.max(results[stage]["rhat_max"]))
        metrics[f"ess_min{suffix}"] = float(np.min(results[stage]["ess_min"]))
    covered = zip(TRUTH, np.sum(recovered["covers"], axis=0), strict=True)
    return metrics | {f"covered_{name}": int(count) for name, count in covered}


def _values(white: np.ndarray) -> tuple[np.ndarray, ...]:
    """Variance and power at standard normal numbers (…, 2)."""
    return tuple(np.asarray(f(jnp.asarray(white[..., i]))) for i, f in enumerate(SURFACE.values()))


def draw_evidence(results: Results) -> Figure:
    """Contours of the evidence, the ways of the ascents, and draws of both."""
    surface, ascent, draws = results["surface"], results["ascent"], results["joint"]["draws"]
    figure, (axes,) = panels(1, 6.4, 4.6)
    levels = [-200, -100, -50, -20, -10, -5, -2, -0.5]
    below = surface["values"] - surface["values"].max()
    lines = axes.contour(*_values(surface["grid"]), below, levels=levels, cmap="Greys",
                         linewidths=0.8)  # fmt: skip
    axes.clabel(lines, fontsize=7, fmt="%g")
    shown = draws.reshape(-1, 2)[:: max(1, draws[..., 0].size // 500)]
    axes.plot(*_values(shown), ".", ms=2.5, alpha=0.5, color="C0", label="draws of both, by NUTS")
    for index, path in enumerate(ascent["paths"]):
        label = "empirical Bayes" if index == 0 else None
        axes.plot(*_values(path), lw=1.2, color="C1", label=label)
    axes.plot(*_values(ascent["ends"]), "o", ms=5, color="C3", label="where it ends")
    axes.set(xscale="log", xlabel="variance", ylabel="power α")
    axes.legend(loc="upper left", fontsize=8)
    return figure


def draw_intervals(results: Results) -> Figure:
    """One interval a seed, against the truth."""
    recovered = results["recovery"]
    figure, axes = panels(len(TRUTH), 8.4, 3.0, sharey=True)
    for i, (panel, (name, truth)) in enumerate(zip(axes, TRUTH.items(), strict=True)):
        ends = recovered["lower"][:, i], recovered["upper"][:, i]
        colours = np.where(recovered["covers"][:, i], "C0", "C3")
        panel.hlines(np.arange(len(colours)), *ends, colors=colours, linewidth=1.5)
        panel.axvline(truth, color="k", lw=0.8)
        panel.set(xlabel=name)
    axes[0].set(ylabel="seed", yticks=range(0, len(recovered["rhat"]), 5))
    return figure


EXPERIMENT = Experiment(
    name="hyper",
    title="Hyperparameters, learned although the normaliser is unknown",
    settings={"smoke": SMOKE, "quick": QUICK, "paper": PAPER},
    stages=(
        Stage("surface", "the evidence over variance and power", draw_surface),
        Stage("ascent", "empirical Bayes", climb_surface),
        Stage("joint", "parameters and hyperparameters by NUTS", sample_surface),
        Stage("period", "the period of the CO2 series", find_period),
        Stage("cost", "what a step costs", measure_cost),
        Stage("folds", "the motorcycle folds, everything learned", score_folds),
        Stage("recovery", "hyperparameters that are known, found again", recover),
    ),
    pictures=(
        Picture("evidence", "Log evidence of the motorcycle data below its maximum, the hidden layer frozen "
                "and the noise constant; the ways of empirical Bayes, and draws of both hyperparameters.",
                ("surface", "ascent", "joint"), draw_evidence),
        Picture("intervals", "90 % intervals for data of a known Matérn-3/2 process; gold where they miss it.",
                ("recovery",), draw_intervals),
    ),
    quantities=(
        Quantity("nlpd", "motorcycle, held-out NLPD of the folds, all hyperparameters learned", None,
                 {"paper": 0.384}),
        Quantity("num_folds", "folds"),
        *converged(" of held-out densities", "_folds"),
        *(
            Quantity(f"covered_{name}", f"{name}: seeds whose 90 % interval holds the truth", None,
                     {"paper": 14}, at_least=True)
            for name in TRUTH
        ),
        Quantity("num_seeds", "seeds"),
        Quantity("seconds_a_seed", "seconds for a seed, at most", None, asked(600)),
        *converged(" of their hyperparameters", "_recovery"),
        Quantity("period_error", "CO2: relative error of the period from starts 15 % off", None,
                 asked(0.02)),
        Quantity("step_cost", "a step of empirical Bayes over a posterior gradient, equal draws", None,
                 asked(3.0)),
        Quantity("ascent_spread", "largest distance between the ends of the ascents"),
        Quantity("ascents_converged", "ascents that ended within their noise"),
        *converged(" of variance and power"),
        Quantity("seconds", "seconds in all"),
    ),
    measure=measure,
    estimate=lambda settings: 120.0 * settings.num_seeds + 90.0 * settings.folds + 100.0,
)  # fmt: skip
