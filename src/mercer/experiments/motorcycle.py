"""Heteroscedastic regression: section 5.1 of the paper, made quantitative.

Mean m and noise σ of the motorcycle data are two networks with Mercer priors. As printed: both are
Δ⁻² with unit variance on [0, 1], by SGLD. Here: Matérn-3/2 priors on standardised data, m with
length scale ½, log σ with length scale 1 about −1, chosen before any row was held out.
"""

import dataclasses
import time
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .. import data
from ..conditioned import Conditioned
from ..density import Prior
from ..diagnostics import ess, nlpd, rhat
from ..domains import Interval
from ..energy import MonteCarlo
from ..likelihoods import Heteroscedastic
from ..networks import FourierMLP
from ..posterior import Posterior
from ..sampling import SamplingError, hmc, sample, schedules, sgld
from ..spectra import Laplacian
from ..whitened import Whitened
from .experiment import Arrays, Chains, Experiment, Quantity, Results, Run, Stage, fold, strings
from .motorcycle_figures import PICTURES
from .motorcycle_folds import cross_validate
from .motorcycle_model import SAMPLER, fourier_prior, shown_times, standardised

BLOCK = 65_536
# Over every parameter: about a quarter of a period of N(0, I), after which draws are independent. What
# hidden layers do to the fit is rough, and makes the steps short.
TRAJECTORIES = hmc(40, 0.8, adaptation="step", initial_step=0.05)


@dataclasses.dataclass(frozen=True)
class Printed:
    """The recipe's sizes, how many steps are taken at each step size, and where it starts."""

    width: int
    num_steps: int
    thin: int
    step_sizes: tuple[float, ...]


@dataclasses.dataclass(frozen=True)
class Settings:
    """How large a run is; `whole` is NUTS over every parameter."""

    width: int
    num_modes: int
    frozen: Chains
    whole: Chains
    fold: Chains
    folds: int
    baseline_folds: int
    isotropic_folds: int
    printed: Printed
    num_points: int


def draw_prior(run: Run) -> Arrays:
    """Draws of m and σ from the prior."""
    prior = fourier_prior(run.settings.width, run.settings.num_modes, fold(run.shared, "network"))
    times = jnp.asarray(shown_times())[:, None]

    def values(key):
        networks = prior.network(prior.draw(key))
        return jax.vmap(networks["mean"])(times), jnp.exp(jax.vmap(networks["scale"])(times))

    drawn = [jax.jit(values)(key) for key in jax.random.split(run.key, 6)]
    mean, scale = (np.stack([np.asarray(d[i]) for d in drawn]) for i in range(2))
    return {"times": shown_times(), "mean": mean, "scale": scale}


def follow_print(run: Run) -> Arrays:
    """As printed: K = 100, N = 10 modes, 64 points, 24 rows, step sizes from 1e-3 down."""
    printed: Printed = run.settings.printed
    x, y = standardised()[:2]
    unit, y = jnp.asarray((x - x.min()) / (x.max() - x.min())), jnp.asarray(y)
    spectrum = (Laplacian(Interval(0, 1), 100) ** 2).with_variance(1.0)
    keys = jax.random.split(fold(run.shared, "printed"))
    networks = {
        name: FourierMLP(1, printed.width, boundary="dirichlet", readout_scale=1.0, key=key)
        for name, key in zip(("mean", "scale"), keys, strict=True)
    }
    prior = Prior(MonteCarlo(spectrum, 64, 10), networks)
    posterior = Posterior(prior, Heteroscedastic(), (unit, y), batch_size=24)
    rows = [_try_step(run, posterior, printed, step, unit, y) for step in printed.step_sizes]
    labels = [f"h = {step:.0e}" for step in printed.step_sizes]
    return {"labels": strings(labels)} | {
        name: np.array([row[name] for row in rows]) for name in rows[0]
    }


def _try_step(run: Run, posterior: Posterior, printed: Printed, step: float, x, y) -> Arrays:
    """How far SGLD came with a step size: NLPD of the data themselves, R-hat, ESS a second."""
    begin = time.monotonic()
    num_draws = printed.num_steps // printed.thin
    try:
        draws = sample(
            fold(run.key, f"{step}"), posterior, sgld(schedules.polynomial(step, 1000.0, 0.33)),
            num_draws=num_draws, num_warmup=0, num_chains=2, thin=printed.thin, keep_params=False,
            record=lambda p: posterior.score(p, x, y), progress=run.progress,
            init=jax.vmap(posterior.draw_reference)(jax.random.split(fold(run.key, "start"), 2)),
        ).complete()  # fmt: skip
    except SamplingError:
        return {"in_sample_nlpd": np.inf, "rhat": np.inf, "ess_per_second": 0.0}
    seconds = time.monotonic() - begin
    later = draws.recorded[:, num_draws // 2 :]
    # Rows at the sides, where the printed networks vanish, never change.
    moving = later[..., np.ptp(later, axis=1).min(0) > 0]
    return {
        "in_sample_nlpd": nlpd(later.reshape(-1, len(y))),
        "rhat": np.max(rhat(moving)),
        "ess_per_second": np.min(ess(moving)) * 2 / seconds,
    }


def sample_all(kind: str, run: Run) -> Arrays:
    """The posterior given all rows, frozen or whole: m and σ along t, with their convergence."""
    settings: Settings = run.settings
    x, y, centre, scale = standardised()
    prior = fourier_prior(settings.width, settings.num_modes, fold(run.shared, "network"))
    posterior = Posterior(prior, Heteroscedastic(jnp.exp), (x, y))
    density = Whitened(posterior) if kind == "frozen" else Conditioned(posterior)
    x, y = jnp.asarray(x), jnp.asarray(y)
    times = jnp.asarray(shown_times())[:, None]

    def record(params):
        networks = density.network(params)
        mean, noise = jax.vmap(networks["mean"])(times), jax.vmap(networks["scale"])(times)
        return {"mean": mean, "log_scale": noise, "fit": density.score(params, x, y)}

    begin = time.monotonic()
    if kind == "frozen":
        draws = run.sample(
            kind, density, SAMPLER, record=record, keep_params=True, **settings.frozen.counts
        )
    else:
        draws = run.sample_white(kind, density, settings.whole, record, TRAJECTORIES)
    found = summarise_curves(draws.recorded, time.monotonic() - begin, run.key)
    found |= {"times": shown_times() * scale[0] + centre[0], "unit": scale[1], "centre": centre[1]}
    if kind == "frozen":
        found |= _predict_many(draws, settings.num_points)
    return found


def summarise_curves(recorded: dict, seconds: float, key: jax.Array) -> Arrays:
    """Bands of m, σ and of new observations; R-hat and ESS of the curves and of the data's fit."""
    flat = {name: v.reshape(-1, v.shape[-1]) for name, v in recorded.items()}
    noise = np.asarray(jax.random.normal(key, flat["mean"].shape))
    levels = (0.025, 0.5, 0.975)
    seen = flat["mean"] + np.exp(flat["log_scale"]) * noise
    smallest = min(float(np.min(ess(v))) for v in recorded.values())
    return {
        "mean": np.quantile(flat["mean"], levels, axis=0),
        "scale": np.exp(np.quantile(flat["log_scale"], levels, axis=0)),
        "seen": np.quantile(seen, levels, axis=0),
        "rhat": max(float(np.max(rhat(v))) for v in recorded.values()),
        "ess": smallest,
        "ess_per_second": smallest / seconds,
        "in_sample_nlpd": nlpd(flat["fit"]),
    }


def _predict_many(draws: Any, num_points: int) -> Arrays:
    """Mean and sd of both networks at very many points, a block at a time."""
    x = standardised()[0]
    points = np.linspace(x.min(), x.max(), num_points)[:, None]
    begin = time.monotonic()
    found = draws.predict(points, (), num_draws=100, chunk=min(BLOCK, num_points))
    return {
        "num_points": num_points,
        "predicting_seconds": time.monotonic() - begin,
        "highest_mean": np.max(found.mean["mean"]),
    }


SETTINGS = {
    "smoke": Settings(
        width=24, num_modes=24, frozen=Chains(2, 40, 40), whole=Chains(2, 4, 0), fold=Chains(2, 30, 30),
        folds=1, baseline_folds=0, isotropic_folds=0, printed=Printed(20, 40, 2, (1e-6,)),
        num_points=2_000,
    ),
    "quick": Settings(
        width=100, num_modes=100, frozen=Chains(4, 1500, 400), whole=Chains(2, 100, 60),
        fold=Chains(2, 1000, 200), folds=10, baseline_folds=0, isotropic_folds=0,
        printed=Printed(1500, 500, 5, (1e-3, 1e-6)), num_points=100_000,
    ),
    "paper": Settings(
        width=100, num_modes=100, frozen=Chains(4, 4000, 600), whole=Chains(4, 600, 100),
        fold=Chains(4, 1000, 300), folds=10, baseline_folds=10, isotropic_folds=10,
        printed=Printed(1500, 20_000, 20, (1e-3, 1e-4, 1e-5, 1e-6)), num_points=1_000_000,
    ),
}  # fmt: skip


def measure(results: Results) -> dict[str, Any]:
    """Held-out scores and their time, convergence, the noise against the strata, speed."""
    folds, frozen, whole, printed = (results[n] for n in ("folds", "frozen", "whole", "printed"))
    by_method = {
        str(label): float(np.nanmean(row))
        for label, row in zip(folds["labels"], folds["scores"], strict=True)
        if np.any(np.isfinite(row))
    }
    metrics = {
        "nlpd": by_method["frozen network"],
        "nlpd_by_method": by_method,
        "fold_seconds": float(folds["seconds_each"][0]),
        "rhat_max": float(frozen["rhat"]),
        "ess_min": float(frozen["ess"]),
        "rhat_max_whole": float(whole["rhat"]),
        "ess_min_whole": float(whole["ess"]),
        "noise_ratio": _noise_ratios(frozen),
        "predicted_points": int(frozen["num_points"]),
        "predicting_seconds": float(frozen["predicting_seconds"]),
        "ess_per_second": float(frozen["ess_per_second"]),
        "printed_in_sample_nlpd": {
            str(label): float(v) if np.isfinite(v) else None
            for label, v in zip(printed["labels"], printed["in_sample_nlpd"], strict=True)
        },
    }
    best = float(np.max(printed["ess_per_second"]))
    return metrics | ({"speedup": metrics["ess_per_second"] / best} if best > 0 else {})


def _noise_ratios(frozen: Arrays) -> dict[str, float]:
    """The learned standard deviation over the published one, mean over each stratum's times."""
    times, variances = data.motorcycle_strata()
    learned = np.interp(times, frozen["times"], frozen["scale"][1] * frozen["unit"])
    return {
        f"{v:g} g²": float(np.mean(learned[variances == v]) / np.sqrt(v))
        for v in np.unique(variances)
    }


def estimate(settings: Settings) -> float:
    """Seconds on one core, from what a step as printed, a draw and a fold take there."""
    printed, whole = settings.printed, settings.whole
    steps = printed.num_steps * len(printed.step_sizes)
    draws = whole.num_chains * (whole.num_draws + whole.num_warmup)
    folds = 14 * settings.folds + 60 * settings.baseline_folds + 60 * settings.isotropic_folds
    return 60 + 3e-5 * printed.width * steps + 0.003 * settings.width * draws + folds


LIMIT = {"quick": 0.40, "paper": 0.40}
QUANTITIES = (
    Quantity("nlpd", "mean held-out NLPD of ten folds, frozen hidden layer", None, LIMIT),
    Quantity("fold_seconds", "seconds for those folds", None, {"quick": 212, "paper": 424}),
    Quantity("rhat_max", "largest R-hat, frozen hidden layer", None, {"quick": 1.01, "paper": 1.01}),
    Quantity("ess_min", "smallest ESS, frozen hidden layer", None, {"quick": 400, "paper": 400},
             at_least=True),
    Quantity("rhat_max_whole", "largest R-hat, every parameter", None,
             {"quick": 1.01, "paper": 1.01}),
    Quantity("ess_min_whole", "smallest ESS, every parameter", None, {"quick": 400, "paper": 400},
             at_least=True),
    Quantity("speedup", "effective draws a second, over SGLD as printed", None,
             {"quick": 100, "paper": 100}, at_least=True),
    Quantity("predicted_points", "points of one prediction"),
    Quantity("predicting_seconds", "seconds for that, 100 draws"),
    Quantity("seconds", "seconds in all"),
)  # fmt: skip

EXPERIMENT = Experiment(
    name="motorcycle",
    title="Heteroscedastic regression: the motorcycle data",
    settings=SETTINGS,
    stages=(
        Stage("prior", "draws of the prior", draw_prior),
        Stage("printed", "SGLD as printed", follow_print),
        Stage("frozen", "NUTS with a frozen hidden layer", partial(sample_all, "frozen")),
        Stage("whole", "HMC over every parameter", partial(sample_all, "whole")),
        Stage("folds", "ten folds, and the baselines", cross_validate),
    ),
    pictures=PICTURES,
    quantities=QUANTITIES,
    measure=measure,
    estimate=estimate,
)
