"""Heteroscedastic regression: section 5.1 of the paper, made quantitative.

Mean m and noise σ of the motorcycle data are two networks with Mercer priors. As printed: both are
Δ⁻² with unit variance on [0, 1], by SGLD. Here: Matérn-3/2 priors on standardised data.
"""

import dataclasses
import time
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import mercer
from mercer import diagnostics

from . import baselines
from .experiment import Arrays, Chains, Experiment, Quantity, Results, Run, Stage, fold, strings
from .motorcycle_figures import PICTURES
from .motorcycle_model import (
    LEVELS,
    baseline_prior,
    fourier_prior,
    posterior_of,
    spectra,
    standardised,
    times_along,
    two_keys,
)  # fmt: skip
from .summaries import asked, bands, by_name, converged, convergence, numbers, stack, values_at

NUTS = mercer.nuts(max_doublings=8, initial_step=0.1)
# Points of a prediction that are computed at once.
BLOCK = 65_536


@dataclasses.dataclass(frozen=True)
class Settings:
    """Sizes of a run: our networks, those of the recipe as printed, chains, and numbers of folds."""

    width: int
    num_modes: int
    frozen: Chains
    whole: Chains
    fold: Chains
    folds: int
    baseline_folds: int
    printed_width: int
    printed_steps: int
    printed_thin: int
    printed_step_sizes: tuple[float, ...]
    num_points: int


PAPER = Settings(
    width=100, num_modes=100, frozen=Chains(4, 4000, 600), whole=Chains(4, 2400, 400),
    fold=Chains(4, 1000, 300), folds=10, baseline_folds=10, printed_width=1500,
    printed_steps=20_000, printed_thin=20, printed_step_sizes=(1e-3, 1e-4, 1e-5, 1e-6),
    num_points=1_000_000,
)  # fmt: skip
QUICK = dataclasses.replace(
    PAPER, frozen=Chains(4, 1500, 400), whole=Chains(2, 400, 240), fold=Chains(2, 1000, 200),
    baseline_folds=0, printed_steps=500, printed_thin=5, printed_step_sizes=(1e-3, 1e-6),
    num_points=100_000,
)  # fmt: skip
SMOKE = dataclasses.replace(
    QUICK, width=24, num_modes=24, frozen=Chains(2, 40, 40), whole=Chains(2, 16, 0),
    fold=Chains(2, 30, 30), folds=1, printed_width=20, printed_steps=40, printed_thin=2,
    printed_step_sizes=(1e-6,), num_points=2_000,
)  # fmt: skip


def curves(networks: dict[str, Any]) -> dict[str, jax.Array]:
    """m and log σ along t."""
    mean, log_scale = (values_at(networks[name], times_along()) for name in LEVELS)
    return {"mean": mean, "log_scale": log_scale}


def _prior(run: Run, frozen: bool = False) -> mercer.Prior:
    """The prior of our networks, whose hidden layers all stages share."""
    sizes = run.settings.width, run.settings.num_modes
    return fourier_prior(*sizes, fold(run.shared, "network"), frozen)


def draw_prior(run: Run) -> Arrays:
    """Draws of m and log σ from the prior."""
    prior = _prior(run)
    draw = jax.jit(lambda key: curves(prior.network(prior.draw(key))))
    return {"times": times_along()} | stack([draw(key) for key in jax.random.split(run.key, 6)])


def follow_print(run: Run) -> Arrays:
    """As printed: K = 100, N = 10 modes, 64 points, 24 rows, step sizes from 1e-3 down."""
    settings: Settings = run.settings
    x, y = map(jnp.asarray, standardised()[:2])
    x = (x - x.min()) / (x.max() - x.min())
    spectrum = (mercer.Laplacian(mercer.Interval(0, 1), 100) ** 2).with_variance(1.0)
    options = {"boundary": "dirichlet", "readout_scale": 1.0}
    networks = {n: mercer.FourierMLP(1, settings.printed_width, key=k, **options)
                for n, k in two_keys(fold(run.shared, "printed")).items()}  # fmt: skip
    prior = mercer.Prior(mercer.MonteCarlo(spectrum, 64, 10), networks)
    posterior = mercer.Posterior(prior, mercer.Heteroscedastic(), (x, y), batch_size=24)
    scored = [_try_step(run, posterior, step, x, y) for step in settings.printed_step_sizes]
    labels = [f"h = {step:.0e}" for step in settings.printed_step_sizes]
    return {"labels": strings(labels)} | stack(scored)


def _try_step(run: Run, posterior: mercer.Posterior, step: float, x: Any, y: Any) -> Arrays:
    """How far SGLD came with a step size: NLPD of the data themselves, R-hat, ESS a second."""
    settings, begin = run.settings, time.monotonic()
    num_draws = settings.printed_steps // settings.printed_thin
    algorithm = mercer.sgld(lambda count: step * (1 + count / 1000) ** -0.33)
    starts = jax.vmap(posterior.init)(jax.random.split(fold(run.key, "start"), 2))
    try:
        draws = mercer.sample(
            fold(run.key, f"{step}"), posterior, algorithm, num_draws=num_draws, num_warmup=0,
            num_chains=2, thin=settings.printed_thin, keep_params=False, init=starts,
            record=lambda p: posterior.score(p, x, y), progress=run.progress,
        ).complete()  # fmt: skip
    except mercer.sampling.SamplingError:
        return {"in_sample_nlpd": np.inf, "rhat": np.inf, "ess_per_second": 0.0}
    seconds = time.monotonic() - begin
    later = draws.recorded[:, num_draws // 2 :]
    # Rows at the sides, where the printed networks vanish, never change.
    moving = convergence(later[..., np.ptp(later, axis=1).min(0) > 0])
    return {
        "in_sample_nlpd": diagnostics.nlpd(later.reshape(-1, len(y))),
        "rhat": moving["rhat_max"],
        "ess_per_second": moving["ess_min"] * 2 / seconds,
    }


def sample_all(kind: str, run: Run) -> Arrays:
    """The posterior given all rows, frozen or whole: bands of m, σ and new observations along t, in
    g, and their convergence."""
    (x, y, centre, scale), frozen = standardised(), kind == "frozen"
    posterior = posterior_of(_prior(run, frozen), x, y)
    density, algorithm = (mercer.Frozen(posterior), NUTS) if frozen else (posterior, None)

    def record(params: Any) -> dict[str, jax.Array]:
        return curves(posterior.network(params)) | {"fit": posterior.row_terms(params)}

    begin = time.monotonic()
    options = {"record": record, "keep_params": frozen} | getattr(run.settings, kind).counts
    draws = run.sample(kind, density, algorithm, **options)
    recorded, seconds = draws.recorded, time.monotonic() - begin
    mean, log_scale = recorded["mean"], recorded["log_scale"]
    white = np.asarray(jax.random.normal(run.key, mean.shape))
    tail: Any = posterior.tail_variances(jnp.asarray(times_along())[:, None])
    seen = mean + np.sqrt(np.exp(2 * log_scale) + np.asarray(tail["mean"])) * white
    arrays = convergence(np.concatenate(list(recorded.values()), axis=-1))
    for name, values in {"mean": mean, "scale": log_scale, "seen": seen}.items():
        band = np.stack([bands(values)[level] for level in ("lower", "median", "upper")])
        arrays[name] = scale[1] * np.exp(band) if name == "scale" else centre[1] + scale[1] * band
    arrays["ess_per_second"] = arrays["ess_min"] / seconds
    arrays["in_sample_nlpd"] = diagnostics.nlpd(recorded["fit"].reshape(-1, len(y)))
    arrays["times"] = times_along() * scale[0] + centre[0]
    return arrays | (_predict_many(draws, run.settings.num_points) if frozen else {})


def _predict_many(draws: mercer.draws.Draws, num_points: int) -> Arrays:
    """Mean and sd of both networks at very many points, a block at a time."""
    begin, points = time.monotonic(), times_along(num_points)[:, None]
    predicted = draws.predict(points, (), num_draws=100, chunk=min(BLOCK, num_points))
    return {
        "predicted_points": num_points,
        "predicting_seconds": time.monotonic() - begin,
        "highest_mean": np.max(predicted.mean["mean"]),
    }


def score_nuts(
    make_prior: Callable[[], Any], chains: Chains, split: baselines.Split, key: jax.Array
) -> np.ndarray:
    """Log densities of held-out rows, by NUTS: over white readouts where the prior has an energy."""
    posterior = posterior_of(make_prior(), split.inputs, split.targets)
    isotropic = isinstance(posterior.prior, mercer.IsotropicPrior)
    density = posterior if isotropic else mercer.Frozen(posterior)
    draws = mercer.sample(key, density, NUTS, progress=False, **chains.counts).complete()
    return draws.log_densities(split.test_inputs, split.test_targets)


def cross_validate(run: Run) -> Arrays:
    """Held-out NLPD of ours and of each baseline, fold by fold, each fold fitted alone."""
    settings: Settings = run.settings
    key, num_modes = fold(run.shared, "network"), settings.num_modes

    def by_nuts(make_prior: Callable[..., Any], *arguments: Any) -> Callable:
        make = cache(lambda: make_prior(*arguments))
        return partial(score_nuts, make, settings.fold)

    methods = {
        "frozen network": by_nuts(fourier_prior, settings.width, num_modes, key, True),
        "exact process, constant noise": lambda split, _: baselines.score_process(
            split, spectra(num_modes)["mean"]
        ),
        "truncated process, NUTS": by_nuts(baseline_prior, "expansion", num_modes, key),
        "deep ensemble": baselines.score_ensemble,
        "independent weights, NUTS": by_nuts(baseline_prior, "isotropic", num_modes, key),
        "ridgelet prior, NUTS": by_nuts(baseline_prior, "ridgelet", num_modes, key),
    }
    scores, seconds = np.full((len(methods), 10), np.nan), np.zeros(len(methods))
    for row, (label, score) in enumerate(methods.items()):
        num_folds = settings.folds if row < 2 else settings.baseline_folds
        if num_folds > 0:
            run.tell(f"      {label}")

        def judge(index: int, label: str = label, score: Callable = score) -> Arrays:
            begin, fold_key = time.monotonic(), fold(run.key, f"{label} {index}")
            nlpd = diagnostics.nlpd(score(baselines.motorcycle_fold(index), fold_key))
            return {"nlpd": nlpd, "seconds": time.monotonic() - begin}

        judged = run.keep_each(label, judge, range(num_folds))
        scores[row, :num_folds] = [of_fold["nlpd"] for of_fold in judged]
        seconds[row] = sum(of_fold["seconds"] for of_fold in judged)
    return {"labels": strings(methods), "scores": scores, "seconds_each": seconds}


def measure(results: Results) -> dict[str, Any]:
    """Held-out scores and their time, convergence, the noise against the strata, speed."""
    folds, frozen, printed = (results[name] for name in ("folds", "frozen", "printed"))
    scored = np.isfinite(folds["scores"]).any(axis=1)
    by_method = by_name(folds["labels"][scored], np.nanmean(folds["scores"][scored], axis=1))
    times, variances = mercer.data.motorcycle_strata()
    learned = np.interp(times, frozen["times"], frozen["scale"][1])
    strata = np.unique(variances)
    ratios = [np.mean(learned[variances == v]) / np.sqrt(v) for v in strata]
    metrics = {
        "nlpd": by_method["frozen network"],
        "nlpd_by_method": by_method,
        "fold_seconds": float(folds["seconds_each"][0]),
        "noise_ratio": by_name([f"{v:g} g²" for v in strata], ratios),
        "printed_in_sample_nlpd": by_name(printed["labels"], printed["in_sample_nlpd"]),
    }
    metrics |= numbers(frozen, "rhat_max", "ess_min", "ess_per_second")
    metrics |= numbers(frozen, "predicted_points", "predicting_seconds")
    metrics |= numbers(results["whole"], "rhat_max", "ess_min", suffix="_whole")
    fastest = float(np.max(printed["ess_per_second"]))
    return metrics | ({"speedup": metrics["ess_per_second"] / fastest} if fastest > 0 else {})


def estimate(settings: Settings) -> float:
    """Seconds on one core, from what a step as printed, a draw and a fold take there."""
    steps = settings.printed_steps * len(settings.printed_step_sizes)
    draws = settings.whole.num_chains * (settings.whole.num_draws + settings.whole.num_warmup)
    folds = 14 * settings.folds + 120 * settings.baseline_folds
    return 60 + 3e-5 * settings.printed_width * steps + 0.0008 * settings.width * draws + folds


EXPERIMENT = Experiment(
    name="motorcycle",
    title="Heteroscedastic regression: the motorcycle data",
    settings={"smoke": SMOKE, "quick": QUICK, "paper": PAPER},
    stages=(
        Stage("prior", "draws of the prior", draw_prior),
        Stage("printed", "SGLD as printed", follow_print),
        Stage("frozen", "NUTS with a frozen hidden layer", partial(sample_all, "frozen")),
        Stage("whole", "HMC over every parameter", partial(sample_all, "whole")),
        Stage("folds", "ten folds, and the baselines", cross_validate),
    ),
    pictures=PICTURES,
    quantities=(
        Quantity("nlpd", "mean held-out NLPD of ten folds, frozen hidden layer", None, asked(0.40)),
        Quantity("fold_seconds", "seconds for those folds", None, {"quick": 212, "paper": 424}),
        *converged(", frozen hidden layer"),
        *converged(", every parameter", "_whole"),
        Quantity("speedup", "effective draws a second, over SGLD as printed", None, asked(100),
                 at_least=True),
        Quantity("predicted_points", "points of one prediction"),
        Quantity("predicting_seconds", "seconds for that, 100 draws"),
        Quantity("seconds", "seconds in all"),
    ),
    measure=measure,
    estimate=estimate,
)  # fmt: skip
