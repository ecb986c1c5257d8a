"""How well the years after the training rows are predicted, and the parts of a prediction."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy.stats import norm

from ..checks import Real
from ..data import Series
from ..diagnostics import coverage, ess, nlpd, rhat
from ..draws import Draws
from ..reference import GaussianProcess
from .co2_model import PRINTED_SLOPE, Scales, components, training_rows
from .experiment import Arrays, Quantity, Results

LEVELS = (0.025, 0.975)
NUM_SHOWN = 8
SCORES = ("rmse", "nlpd", "coverage")


def test_rows(series: Series) -> tuple[np.ndarray, np.ndarray]:
    """Times and values of the rows to predict."""
    return series.times[~series.train], series.values[~series.train]


def score_draws(
    key: jax.Array, recorded: np.ndarray, noise: float, grid: np.ndarray, targets: np.ndarray
) -> Arrays:
    """Scores of draws (chain, draw, test rows and grid), and their band along the grid.

    Intervals are those of new observations, noise and all.
    """
    flat = recorded.reshape(-1, recorded.shape[-1]).astype(float)
    white = np.asarray(jax.random.normal(key, flat.shape))
    lower, upper = np.quantile(flat + noise * white, LEVELS, axis=0)
    mean, count = flat.mean(axis=0), len(targets)
    return {
        "times": grid,
        "mean": mean[count:],
        "sd": flat[:, count:].std(axis=0),
        "lower": lower[count:],
        "upper": upper[count:],
        "paths": flat[:: max(1, len(flat) // NUM_SHOWN), count:][:NUM_SHOWN],
        "rmse": np.sqrt(np.mean((mean[:count] - targets) ** 2)),
        "nlpd": nlpd(norm.logpdf(targets, flat[:, :count], noise)),
        "coverage": coverage(targets, lower[:count], upper[:count]),
        "num_draws": len(flat),
    }


def judge_chains(draws: Draws, num_rows: int) -> Arrays:
    """R-hat and ESS of the predictions on the test rows, and what the chains took."""
    rows = draws.recorded[..., :num_rows].astype(float)
    return {
        "rhat": rhat(rows),
        "ess": ess(rows),
        "num_gradients": draws.statistics["num_gradients"].mean(),
        "divergences": draws.statistics["divergent"].sum(),
    }


def score_process(
    process: GaussianProcess, noise: float, series: Series, grid: np.ndarray
) -> Arrays:
    """The same scores of the exact process, in closed form."""
    times, targets = test_rows(series)
    points = jnp.asarray(np.concatenate([times, grid]))[:, None]
    rows = tuple(jnp.asarray(a) for a in training_rows(series))
    known = [np.asarray(a) for a in _condition(process, rows, jnp.asarray(noise), points)]
    (mean, along), (variance, spread) = (np.split(a, [len(times)]) for a in known[:2])
    sd = np.sqrt(variance + noise**2)
    reach = norm.ppf(LEVELS[1]) * sd
    return {
        "times": grid,
        "mean": along,
        "sd": np.sqrt(spread),
        "rmse": np.sqrt(np.mean((mean - targets) ** 2)),
        "nlpd": nlpd(norm.logpdf(targets, mean, sd)[None]),
        "coverage": coverage(targets, mean - reach, mean + reach),
        "log_evidence": float(known[2]),
    }


@eqx.filter_jit
def _condition(process: GaussianProcess, rows: tuple, noise: Array, points: Float[Array, "p d"]):
    """Mean and variance at the points given the rows, and the log evidence, as one program."""
    known = process.condition(*rows, noise)
    return known.mean(points), known.variance(points), known.log_evidence


def decompose(scales: Scales, series: Series, grid: np.ndarray, num_modes: int) -> Arrays:
    """Mean and sd along the grid of the season about its average, and of all else; and the slope.

    The data do not tell the level of the season from that of the line, so that it goes with the line.
    """
    inputs, targets = training_rows(series)
    parts = components(scales, series.year, num_modes)
    count, size = len(inputs), len(grid)
    points = jnp.asarray(np.concatenate([inputs[:, 0], grid]))[:, None]
    prior = {n: np.asarray(GaussianProcess(p).covariance(points)) for n, p in parts.items()}
    whole_years = grid < series.year * np.floor(1 / series.year)
    average = np.tile(whole_years / whole_years.sum(), (size, 1))
    maps = {
        "season": {"season": np.eye(size) - average},
        "slow": {"season": average, "line": np.eye(size), "trend": np.eye(size)},
        "slope": {"line": (np.eye(size)[-1:] - np.eye(size)[:1]) / (grid[-1] - grid[0])},
    }
    total = sum(k[:count, :count] for k in prior.values()) + scales.noise**2 * np.eye(count)
    residual = targets - PRINTED_SLOPE * inputs[:, 0]
    found: Arrays = {}
    for name, of in maps.items():
        cross = sum(a @ prior[part][count:, :count] for part, a in of.items())
        own = sum(a @ prior[part][count:, count:] @ a.T for part, a in of.items())
        gain = np.linalg.solve(total, np.transpose(cross)).T
        found[f"{name}_mean"] = gain @ residual
        found[f"{name}_sd"] = np.sqrt(np.maximum(np.diag(own - gain @ np.transpose(cross)), 0))
    found["slow_mean"] = found["slow_mean"] + PRINTED_SLOPE * grid
    slope = PRINTED_SLOPE + found.pop("slope_mean")[0]
    return found | {"slope": slope, "slope_sd": found["slope_sd"][0]}


def measure(results: Results) -> dict[str, Any]:
    """Scores of each model, by window, convergence, and what the printed kernel comes to."""
    ours, plain, kernel = results["ours"], results["isotropic"], results["kernel"]
    process = results["process"]
    stages = {"": "ours", "_frozen": "frozen", "_gp": "process"}
    stages |= {"_printed_mean": "printed_mean", "_isotropic": "isotropic"}
    metrics: dict[str, Any] = {}
    for suffix, stage in stages.items():
        metrics |= {score + suffix: float(results[stage][score]) for score in SCORES}
    metrics |= {
        "rmse_mode": float(results["mode"]["rmse"]),
        "rhat_max": float(ours["rhat"].max()),
        "ess_min": float(ours["ess"].min()),
        "rhat_max_isotropic": float(plain["rhat"].max()),
        "ess_min_isotropic": float(plain["ess"].min()),
        "num_draws": int(ours["num_draws"]),
        "num_draws_frozen": int(results["frozen"]["num_draws"]),
        "divergences": int(ours["divergences"]),
        "gradients_per_draw": float(ours["num_gradients"]),
        "gradients_per_draw_isotropic": float(plain["num_gradients"]),
        "slope": float(process["slope"]),
        "slope_sd": float(process["slope_sd"]),
        "fidelity_relative_error": float(process["relative_error"]),
        "fidelity_outside_share": float(process["outside_share"]),
        "gram_error_one_period": float(kernel["gram_error_one_period"]),
        "gram_error_unit_interval": float(kernel["gram_error_unit_interval"]),
        "gram_error_working": float(kernel["gram_error_working"]),
        "printed_kernel_refused": str(kernel["refusal"]),
        "scales": dict(
            zip(map(str, process["scale_names"]), map(float, process["scale_values"]), strict=True)
        ),
    }
    for name in ("printed", "working", "product"):
        pairs = zip(kernel["harmonics"], kernel[f"log_{name}"], strict=True)
        metrics[f"log_eigenvalues_{name}"] = {f"n = {n}": float(v) for n, v in pairs}
    return metrics | _by_window(results)


def _by_window(results: Results) -> dict[str, dict[str, float]]:
    """Each score by window and model."""
    held, tables = results["windows"], {}
    models = {"ours": "", "printed_mean": ", printed mean", "process": ", exact GP"}
    for score in SCORES:
        table = {f"four_weekly{words}": float(results[m][score]) for m, words in models.items()}
        for window in map(str, held["windows"]):
            table |= {window + w: float(held[f"{window}/{m}/{score}"]) for m, w in models.items()}
        tables[f"{score}_by_window"] = table
    return tables


def quantities() -> tuple[Quantity, ...]:
    """The numbers of the report."""
    rows = []
    words = {
        "": "our network, NUTS over every parameter",
        "_frozen": "our network, hidden layer frozen",
        "_gp": "the exact process",
        "_printed_mean": "the printed mean and kernel",
        "_isotropic": "independent Gaussian weights",
    }
    limits = {"rmse": 0.06, "nlpd": -1.3, "coverage": 0.85}
    for score in SCORES:
        for suffix, model in words.items():
            asked: dict[str, Real] = {"quick": limits[score], "paper": limits[score]}
            rows.append(
                Quantity(f"{score}{suffix}", f"{score} of {model}", None,
                         asked if suffix in ("", "_frozen") else {}, at_least=score == "coverage")
            )  # fmt: skip
    most: dict[str, Real] = {"quick": 1.01, "paper": 1.01}
    least: dict[str, Real] = {"quick": 400, "paper": 400}
    return (
        *rows,
        Quantity("rmse_mode", "rmse of our network at its mode, by Adam"),
        Quantity("rhat_max", "largest R-hat of predictions", None, most),
        Quantity("ess_min", "smallest ESS of predictions", None, least, True),
        Quantity("rhat_max_isotropic", "the same with independent weights, R-hat", None, most),
        Quantity("ess_min_isotropic", "the same with independent weights, ESS", None, least, True),
        Quantity("slope", "slope inferred; the paper fixes it", 0.95),
        Quantity("slope_sd", "its standard deviation"),
        Quantity("fidelity_relative_error", "covariance error of the network's prior, closed form",
                 None, {"quick": 0.05, "paper": 0.05}),
        Quantity("gram_error_unit_interval", "printed functions on [0, 1]: farthest from orthonormal"),
        Quantity("gram_error_working", "ours on [0, 1]: farthest from orthonormal"),
        Quantity("num_draws", "draws of NUTS"),
        Quantity("num_draws_frozen", "exact draws with the hidden layer frozen"),
        Quantity("seconds", "seconds in all"),
    )  # fmt: skip
