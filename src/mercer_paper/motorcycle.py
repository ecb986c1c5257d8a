"""Heteroscedastic regression: section 5.1 of the paper, made quantitative.

Mean m and noise σ of the motorcycle data are two networks with Mercer priors. As printed: both are
Δ⁻² with unit variance on [0, 1], by SGLD. Here: Matérn-3/2 priors on standardised data.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure

import mercer
from mercer import diagnostics
from mercer.plots import ACCENT, COLOURS, INK, paths

from . import motorcycle_model as model
from .baselines import Split, motorcycle_fold, score_ensemble, score_process
from .experiment import Arrays, Chains, Experiment, Picture, Quantity, Results, Run, Settings, Stage
from .panels import draw_band, panels
from .summaries import bands, by_name, converged, convergence, stack, strings, timed, values_at

NUTS = mercer.nuts(max_doublings=8, initial_step=0.1)
# Points of a prediction that are computed at once.
BLOCK = 65_536
# Our networks and their chains; folds; the recipe as printed; points of one prediction.
PAPER = Settings(
    width=100, num_modes=100, frozen=Chains(4, 4000, 600), whole=Chains(4, 2400, 400),
    fold=Chains(4, 1000, 300), folds=10, baseline_folds=10, printed_width=1500,
    printed_steps=20_000, printed_thin=20, printed_step_sizes=(1e-3, 1e-4, 1e-5, 1e-6),
    num_points=1_000_000,
)  # fmt: skip
QUICK = PAPER.but(
    frozen=Chains(4, 1500, 400), whole=Chains(2, 400, 240), fold=Chains(2, 1000, 200),
    baseline_folds=0, printed_steps=500, printed_thin=5, printed_step_sizes=(1e-3, 1e-6),
    num_points=100_000,
)  # fmt: skip
SMOKE = QUICK.but(
    width=24, num_modes=24, frozen=Chains(2, 40, 40), whole=Chains(2, 16, 0),
    fold=Chains(2, 30, 30), folds=1, printed_width=20, printed_steps=40, printed_thin=2,
    printed_step_sizes=(1e-6,), num_points=2_000,
)  # fmt: skip


def times_along(count: int = 300) -> np.ndarray:
    """Standardised times, evenly spread over those of the data."""
    x = model.standardised()[0]
    return np.linspace(x.min(), x.max(), count)


def curves(networks: dict[str, Any]) -> dict[str, jax.Array]:
    """m and log σ along t."""
    mean, log_scale = (values_at(networks[name], times_along()) for name in model.LEVELS)
    return {"mean": mean, "log_scale": log_scale}


def make_prior(run: Run, frozen: bool = False) -> mercer.Prior:
    """The prior of our networks, whose hidden layers all stages share."""
    sizes = run.settings.width, run.settings.num_modes
    return model.fourier_prior(*sizes, run.shared_key_of("network"), frozen)


def sample_prior(run: Run) -> Arrays:
    """Draws of m and log σ from the prior."""
    prior = make_prior(run)
    draw = jax.jit(lambda key: curves(prior.network(prior.draw(key))))
    return {"times": times_along()} | stack([draw(key) for key in jax.random.split(run.key, 6)])


def follow_print(run: Run) -> Arrays:
    """As printed: K = 100, N = 10 modes, 64 points, 24 rows, step sizes from 1e-3 down."""
    sizes, (x, y) = run.settings.printed_step_sizes, map(jnp.asarray, model.standardised()[:2])
    x = (x - x.min()) / (x.max() - x.min())
    spectrum = (mercer.Laplacian(mercer.Interval(0, 1), 100) ** 2).with_variance(1.0)
    networks = model.two_networks(run.settings.printed_width, run.shared_key_of("printed"),
                                  boundary="dirichlet", readout_scale=1.0)  # fmt: skip
    prior = mercer.Prior(mercer.MonteCarlo(spectrum, 64, 10), networks)
    posterior = mercer.Posterior(prior, mercer.Heteroscedastic(), (x, y), batch_size=24)
    tried = stack([_try_step(run, posterior, step) for step in sizes])
    return {"labels": strings(f"h = {step:.0e}" for step in sizes)} | tried


def _try_step(run: Run, posterior: mercer.Posterior, step: float) -> Arrays:
    """How far SGLD came with a step size: NLPD of the data themselves, R-hat, ESS a second."""
    thin, rows = run.settings.printed_thin, (posterior.inputs, posterior.targets)
    num_draws = run.settings.printed_steps // thin
    algorithm = mercer.sgld(lambda count: step * (1 + count / 1000) ** -0.33)
    options = {
        "num_draws": num_draws, "num_warmup": 0, "num_chains": 2, "thin": thin,
        "init": jax.vmap(posterior.init)(jax.random.split(run.key_of("start"), 2)),
        "record": lambda params: posterior.score(params, *rows), "keep_params": False,
        "progress": run.progress,
    }  # fmt: skip
    try:
        draws, seconds = timed(
            mercer.sample, run.key_of(f"{step}"), posterior, algorithm, **options
        )
        later = draws.complete().recorded[:, num_draws // 2 :]
    except mercer.sampling.SamplingError:
        return {"in_sample_nlpd": np.inf, "rhat": np.inf, "ess_per_second": 0.0}
    # Rows at the sides, where the printed networks vanish, never change.
    moving = convergence(later[..., np.ptp(later, axis=1).min(0) > 0])
    nlpd = diagnostics.nlpd(later.reshape(-1, later.shape[-1]))
    return {"in_sample_nlpd": nlpd, "rhat": moving["rhat_max"],
            "ess_per_second": moving["ess_min"] * 2 / seconds}  # fmt: skip


def sample_all(run: Run, kind: str) -> Arrays:
    """The posterior given all rows: bands of m, σ and new observations along t, in g."""
    (x, y, centre, scale), frozen = model.standardised(), kind == "frozen"
    posterior = model.posterior_of(make_prior(run, frozen), x, y)
    density, algorithm = (mercer.Frozen(posterior), NUTS) if frozen else (posterior, None)

    def record(params: Any) -> dict[str, jax.Array]:
        return curves(posterior.network(params)) | {"fit": posterior.row_terms(params)}

    options = {"record": record, "keep_params": frozen} | vars(getattr(run.settings, kind))
    draws, seconds = timed(run.sample, kind, density, algorithm, **options)
    mean, log_scale, fit = (draws.recorded[name] for name in ("mean", "log_scale", "fit"))
    white = np.asarray(jax.random.normal(run.key, mean.shape))
    tail: Any = posterior.tail_variances(jnp.asarray(times_along())[:, None])
    seen = mean + np.sqrt(np.exp(2 * log_scale) + np.asarray(tail["mean"])) * white
    band = [np.stack([bands(values)[level] for level in ("lower", "median", "upper")])
            for values in (mean, log_scale, seen)]  # fmt: skip
    arrays = convergence(np.concatenate([mean, log_scale, fit], axis=-1)) | {
        "times": times_along() * scale[0] + centre[0], "mean": centre[1] + scale[1] * band[0],
        "scale": scale[1] * np.exp(band[1]), "seen": centre[1] + scale[1] * band[2],
        "in_sample_nlpd": diagnostics.nlpd(fit.reshape(-1, len(y))),
    }  # fmt: skip
    arrays["ess_per_second"] = arrays["ess_min"] / seconds
    if not frozen:
        return arrays
    # Mean and sd of both networks at very many points, a block at a time.
    count = run.settings.num_points
    points, options = times_along(count)[:, None], {"num_draws": 100, "chunk": min(BLOCK, count)}
    predicted, seconds = timed(draws.predict, points, (), **options)
    return arrays | {"predicted_points": count, "predicting_seconds": seconds,
                     "highest_mean": np.max(predicted.mean["mean"])}  # fmt: skip


def score_nuts(prior: Any, chains: Chains, split: Split, key: jax.Array) -> np.ndarray:
    """Log densities of held-out rows, by NUTS: of white readouts where the prior has an energy."""
    posterior = model.posterior_of(prior, split.inputs, split.targets)
    isotropic = isinstance(prior, mercer.IsotropicPrior)
    density = posterior if isotropic else mercer.Frozen(posterior)
    draws = mercer.sample(key, density, NUTS, progress=False, **vars(chains)).complete()
    return draws.log_densities(split.test_inputs, split.test_targets)


def cross_validate(run: Run) -> Arrays:
    """Held-out NLPD of ours and of each baseline, fold by fold, each fold fitted alone."""
    settings = run.settings
    process = model.spectra(settings.num_modes)["mean"]

    def by_nuts(prior: Any) -> Callable:
        return partial(score_nuts, prior, settings.fold)

    def baseline(kind: str) -> Callable:
        key = run.shared_key_of("network")
        return by_nuts(model.baseline_prior(kind, settings.num_modes, key))

    methods: dict[str, Callable] = {
        "frozen network": by_nuts(make_prior(run, frozen=True)),
        "exact process, constant noise": lambda split, _: score_process(split, process),
    }
    if settings.baseline_folds:
        methods |= {
            "truncated process, NUTS": baseline("expansion"), "deep ensemble": score_ensemble,
            "independent weights, NUTS": baseline("isotropic"),
            "ridgelet prior, NUTS": baseline("ridgelet"),
        }  # fmt: skip
    scores, seconds = np.full((len(methods), 10), np.nan), np.zeros(len(methods))
    for row, (label, score) in enumerate(methods.items()):
        num_folds = settings.folds if row < 2 else settings.baseline_folds
        run.tell(f"      {label}")

        def judge(index: int, label: str = label, score: Callable = score) -> Arrays:
            key = run.key_of(f"{label} {index}")
            log_densities, seconds = timed(score, motorcycle_fold(index), key)
            return {"nlpd": diagnostics.nlpd(log_densities), "seconds": seconds}

        judged = stack(run.keep_each(label, judge, range(num_folds)))
        scores[row, :num_folds], seconds[row] = judged["nlpd"], judged["seconds"].sum()
    return {"labels": strings(methods), "scores": scores, "seconds_each": seconds}


def measure(results: Results) -> dict[str, Any]:
    """Held-out scores, the noise against the strata, and speed over the recipe as printed."""
    folds, frozen, printed = (results[name] for name in ("folds", "frozen", "printed"))
    by_method = by_name(folds["labels"], np.nanmean(folds["scores"], axis=1))
    times, variances = mercer.data.motorcycle_strata()
    learned, strata = np.interp(times, frozen["times"], frozen["scale"][1]), np.unique(variances)
    ratios = [np.mean(learned[variances == v]) / np.sqrt(v) for v in strata]
    fastest = float(np.max(printed["ess_per_second"]))
    return {
        "nlpd": by_method["frozen network"],
        "nlpd_by_method": by_method,
        "noise_ratio": by_name([f"{v:g} g²" for v in strata], ratios),
        "printed_in_sample_nlpd": by_name(printed["labels"], printed["in_sample_nlpd"]),
    } | ({"speedup": float(frozen["ess_per_second"]) / fastest} if fastest > 0 else {})


def estimate(settings: Settings) -> float:
    """Seconds on one core, from what a step as printed, a draw and a fold take there."""
    steps = settings.printed_steps * len(settings.printed_step_sizes)
    folds = 14 * settings.folds + 120 * settings.baseline_folds
    draws = 0.0008 * settings.width * settings.whole.num_steps
    return 60 + 3e-5 * settings.printed_width * steps + draws + folds


TITLES = ("Frozen hidden layer, NUTS", "Every parameter, HMC")


def draw_posteriors(figure: Figure, frozen: Arrays, whole: Arrays) -> None:
    """The motorcycle data with posterior mean and predictive band."""
    axes = panels(figure, 2, 10, 3.3, sharey=True)
    for panel, title, arrays in zip(axes, TITLES, (frozen, whole), strict=True):
        times, new = arrays["times"], arrays["seen"][::2]
        draw_band(panel, times, new, labels=("95 % of new observations", None), alpha=0.18)
        draw_band(panel, times, arrays["mean"], labels=("95 % of the mean", None), alpha=0.4)
        panel.plot(*mercer.data.motorcycle(), ".", color=INK, markersize=3.5)
        panel.set(title=title, xlabel="time, ms")
    axes[0].set(ylabel="acceleration, g")
    axes[0].legend(loc="upper left")


def draw_noise(figure: Figure, frozen: Arrays, whole: Arrays) -> None:
    """The learned noise against the published residual variances of three strata."""
    (axes,) = panels(figure, 1, 6.4, 3.1)
    for title, arrays, colour in zip(TITLES, (frozen, whole), COLOURS[::2], strict=False):
        draw_band(axes, arrays["times"], arrays["scale"], colour, (None, title))
    times, variances = mercer.data.motorcycle_strata()
    axes.step(times, np.sqrt(variances), where="post", color=ACCENT, linewidth=1.2,
              label="published strata")  # fmt: skip
    axes.set(title="Standard deviation of the noise", xlabel="time, ms", ylabel="g", yscale="log")
    axes.legend(loc="lower right")


def draw_scores(figure: Figure, folds: Arrays) -> None:
    """Ten folds, each fitted and standardised alone. Dots are folds, diamonds their mean."""
    labels, means = folds["labels"][::-1], np.nanmean(folds["scores"][::-1], axis=1)
    (axes,) = panels(figure, 1, 7.5, 0.5 + 0.45 * len(labels))
    for height, (mean, scores) in enumerate(zip(means, folds["scores"][::-1], strict=True)):
        axes.plot(scores, np.full(10, height), "o", color=COLOURS[0], alpha=0.35, markersize=5)
        axes.plot(mean, height, "D", color=ACCENT, markersize=6)
        axes.text(1.02, height, f"{mean:.3f} ({np.isfinite(scores).sum()} folds)", fontsize=8,
                  va="center", transform=axes.get_yaxis_transform())  # fmt: skip
    axes.set_yticks(range(len(labels)), labels)
    axes.set(xlabel="negative log predictive density of held-out rows, smaller is better",
             ylim=(-0.6, len(labels) - 0.4))  # fmt: skip


def draw_prior(figure: Figure, prior: Arrays) -> None:
    """Draws of mean and noise from their Mercer priors."""
    axes = panels(figure, 2, 9.5, 2.8)
    paths(axes[0], prior["times"], prior["mean"], "m, draws of the prior")
    paths(axes[1], prior["times"], np.exp(prior["log_scale"]), "σ, draws of the prior")
    for panel in axes:
        panel.set(xlabel="standardised time")


FIGURES = draw_posteriors, draw_noise, draw_scores, draw_prior
EXPERIMENT = Experiment(
    name="motorcycle", title="Heteroscedastic regression: the motorcycle data",
    settings={"smoke": SMOKE, "quick": QUICK, "paper": PAPER},
    stages=(
        Stage("prior", "draws of the prior", sample_prior),
        Stage("printed", "SGLD as printed", follow_print),
        Stage("frozen", "NUTS with a frozen hidden layer", partial(sample_all, kind="frozen")),
        Stage("whole", "HMC over every parameter", partial(sample_all, kind="whole")),
        Stage("folds", "ten folds, and the baselines", cross_validate),
    ),
    pictures=tuple(map(Picture.of, FIGURES)),
    quantities=(
        Quantity("nlpd", "mean held-out NLPD of ten folds, frozen hidden layer", at_most=0.40),
        Quantity("fold_seconds", "seconds for those folds",
                 lambda results: results["folds"]["seconds_each"][0],
                 at_most={"quick": 212, "paper": 424}),
        *converged("frozen", ", frozen hidden layer"),
        *converged("whole", ", every parameter", "_whole"),
        Quantity("ess_per_second", source="frozen.ess_per_second"),
        Quantity("speedup", "effective draws a second, over SGLD as printed", at_least=100),
        Quantity("predicted_points", "points of one prediction", "frozen.predicted_points"),
        Quantity("predicting_seconds", "seconds for that, 100 draws", "frozen.predicting_seconds"),
        Quantity("seconds", "seconds in all"),
    ),
    measure=measure, estimate=estimate,
)  # fmt: skip
