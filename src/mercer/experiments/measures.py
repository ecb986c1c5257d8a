"""The numbers that a case study comes to, and how long one would take."""

import time
from typing import Any

import jax
import numpy as np

from ..checks import Real
from .case_study import LEVEL, CaseSettings, shares_of
from .experiment import Arrays, Quantity, Results
from .processes import Process


def measure_case(process: Process, results: Results) -> dict[str, Any]:
    """Errors with their Monte Carlo error, tests, convergence, and a line for each study."""
    held, chain, closed = results["exact"], results["chain"], results["fidelity"]
    times, count = held["times"], int(held["num_draws"])
    kernel = process.kernel(times, times)
    error = np.abs(held["covariance"] - kernel)
    standard = np.sqrt((np.outer(np.diag(kernel), np.diag(kernel)) + kernel**2) / count)
    shares, near_zero, null = _shares(held, results["tests"])
    worst = np.unravel_index(np.argmax(chain["error"]), chain["error"].shape)
    metrics: dict[str, Any] = {
        "covariance_max_error": float(error.max()),
        "covariance_max_error_se": float(standard.flat[np.argmax(error)]),
        "covariance_max_z": float(np.max(error / standard)),
        "covariance_max_error_mcmc": float(chain["error"].max()),
        "covariance_max_error_mcmc_se": float(chain["standard_error"][worst]),
        "fidelity_max_error": float(closed["max_error"]),
        "fidelity_max_error_one_layer": float(closed["max_error_one"]),
        "ks_pass_fraction": float(shares.mean()),
        "ks_pass_fraction_near_zero": float(near_zero.mean()),
        "ks_pass_fraction_by_set": shares.tolist(),
        "ks_pass_fraction_near_zero_by_set": near_zero.tolist(),
        "ks_pass_fraction_exact_paths": float(null[:, 0].mean()),
        "ks_pass_fraction_near_zero_exact_paths": float(null[:, 1].mean()),
        "ks_pass_fraction_mcmc": float(np.mean(chain["p_value"] > LEVEL)),
        "num_draws": count,
        "num_draws_mcmc": int(chain["num_draws"]),
        "rhat_max": float(chain["rhat"].max()),
        "ess_min": float(chain["ess"].min()),
        "acceptance": float(chain["acceptance"]),
        "exact_draws_per_second": count / float(held["drawing_seconds"]),
        "effective_draws_per_second": float(chain["ess"].min()) / float(chain["sampling_seconds"]),
    }
    for name in ("truncation", "width", "depth"):
        if name in results:
            metrics[f"{name}_closed_form_error"] = _by_label(results[name], "closed_error")
    metrics["near_zero_pass_fraction"] = {
        str(label): float(np.mean(p > LEVEL))
        for label, p in zip(results["factor"]["labels"], results["factor"]["p_value"], strict=True)
    }
    if "recipe" in results:
        metrics["recipe_covariance_error"] = _by_label(results["recipe"], "error")
        metrics["recipe_rhat"] = _by_label(results["recipe"], "rhat")
    return metrics


def _shares(held: Arrays, tests: Arrays) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Shares of passed tests: all times and near zero, by set of draws; and of exact paths."""
    ours = np.vstack([shares_of(held["times"], held["p_value"]), tests["shares"]])
    return ours[:, 0], ours[:, 1], tests["null_shares"]


def _by_label(held: Any, name: str) -> dict[str, float | None]:
    pairs = zip(held["labels"], held[name], strict=True)
    return {str(label): float(v) if np.isfinite(v) else None for label, v in pairs}


def quantities_of(
    paper: Real, exact: dict[str, float], mcmc: dict[str, float]
) -> tuple[Quantity, ...]:
    """The rows of the report: words, the paper's number, and what is asked at each scale."""
    converged = {"quick": 1.01, "paper": 1.01}
    enough = {"quick": 400, "paper": 400}
    return (
        Quantity("covariance_max_error", "largest covariance error, exact draws", paper, exact),
        Quantity("covariance_max_error_se", "its standard error"),
        Quantity("fidelity_max_error", "in closed form, averaged over hidden layers"),
        Quantity("fidelity_max_error_one_layer", "in closed form, one hidden layer, on average"),
        Quantity("covariance_max_error_mcmc", "largest covariance error, HMC", paper, mcmc),
        Quantity("covariance_max_error_mcmc_se", "its standard error"),
        Quantity("rhat_max", "largest R-hat of HMC along t", None, converged),
        Quantity("ess_min", "smallest ESS of HMC along t", None, enough, at_least=True),
        Quantity("ks_pass_fraction", "share of times that pass a KS test at 0.05, mean over sets",
                 None, {"paper": 0.93}, at_least=True),
        Quantity("ks_pass_fraction_near_zero", "the same for t < 0.05, where the paper's fail",
                 None, {"paper": 0.85}, at_least=True),
        Quantity("ks_pass_fraction_exact_paths", "the same for exact paths, all times"),
        Quantity("ks_pass_fraction_near_zero_exact_paths", "the same for exact paths, t < 0.05"),
        Quantity("num_draws", "independent exact draws"),
        Quantity("num_draws_mcmc", "draws of HMC"),
        Quantity("exact_draws_per_second", "exact draws a second"),
        Quantity("effective_draws_per_second", "effective draws of HMC a second, everything counted"),
        Quantity("seconds", "seconds in all", None, {"quick": 120, "paper": 900}),
    )  # fmt: skip


def estimate(process: Process, settings: CaseSettings) -> float:
    """Seconds that a run would take here, from a few draws and gradients that are timed."""
    prior = settings.network.prior(process, jax.random.key(0))
    chain = settings.chain
    target = chain.network.prior(process, jax.random.key(0), normalised=chain.normalised)
    draw = _time(jax.jit(lambda seed: prior.draw(jax.random.key(seed))), 1)
    slope = _time(jax.jit(jax.grad(target)), target.params)
    study = settings.study
    variants = len(study.truncations) + len(study.widths) + 4
    gradients = (chain.num_draws + chain.num_warmup) * chain.num_chains * chain.num_steps
    sets = (1 + settings.num_repeats) * settings.num_draws
    return draw * (sets + variants * study.num_draws) + slope * gradients


def _time(function: Any, argument: Any, repetitions: int = 3) -> float:
    jax.block_until_ready(function(argument))
    begin = time.monotonic()
    for _ in range(repetitions):
        jax.block_until_ready(function(argument))
    return (time.monotonic() - begin) / repetitions
