"""The metrics of the case study, the rows of its report, and how long a run takes."""

import time
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from .experiment import Arrays, Quantity, Results
from .processes import Process

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


def measure_case(results: Results) -> dict[str, Any]:
    """Errors with their Monte Carlo errors, shares of passed tests, convergence, and studies."""
    numbers = {name: results[stage][array].item() for name, (stage, array) in NUMBERS.items()}
    tests, factor = results["tests"], results["factor"]
    shares, near_zero = np.vstack([results["exact"]["shares"], tests["shares"]]).T
    exact_paths = tests["null_shares"].mean(axis=0)
    tables = {
        name: _by_label(results[stage], results[stage][array])
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
        "near_zero_pass_fraction": _by_label(factor, factor["shares"][:, 0]),
    }  # fmt: skip


def _by_label(arrays: Arrays, values: np.ndarray) -> dict[str, float | None]:
    """The values by the labels of a stage; None where a chain diverged."""
    pairs = zip(arrays["labels"], values, strict=True)
    return {str(label): float(v) if np.isfinite(v) else None for label, v in pairs}


def quantities_of(
    paper: float, exact: dict[str, float], mcmc: dict[str, float]
) -> tuple[Quantity, ...]:
    """The rows of the report: words, the paper's number, and what is asked at each scale."""
    converged, enough = {"quick": 1.01, "paper": 1.01}, {"quick": 400, "paper": 400}
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
