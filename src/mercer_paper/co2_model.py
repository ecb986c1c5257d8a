"""The CO2 series as season, line and slow trend: one spectrum, its scales, and its exact posterior."""

import dataclasses
import functools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.stats import multivariate_normal
from jaxtyping import Array, Float
from scipy.optimize import minimize
from scipy.stats import norm

import mercer
from mercer import diagnostics

from .experiment import Arrays
from .summaries import rms

DOMAIN = mercer.Interval(0.0, 1.0)
PRINTED_SLOPE = 0.95
PRINTED_PERIOD = 0.18
NUM_HARMONICS = 5
LEVEL_SCALE = 0.3
NUM_NODES = 200


@dataclasses.dataclass(frozen=True)
class Scales:
    """Standard deviations and length scales, both axes in [0, 1].

    `period` is in years and `season_length` in periods. `slope` is the deviation of the slope from the mean's;
    None leaves the line out. The trend is too small to matter unless it is learned, and weighs every
    function of the network (the tail rule).
    """

    period: float = 1.0
    season: float = 0.3
    season_length: float = 0.3
    noise: float = 0.05
    slope: float | None = None
    trend: float = 0.01
    trend_length: float = 0.5


# What is learned, its median, and the spread of its logarithm.
SEASON = {"season": (0.3, 1.0), "season_length": (0.3, 0.5), "noise": (0.05, 0.7)}
LINE_AND_TREND = {"slope": (0.5, 1.0), "trend": (0.1, 1.0), "trend_length": (0.5, 0.5)}
LEARNED = {"ours": SEASON | LINE_AND_TREND, "printed_mean": SEASON}


def printed_mean(x: Float[Array, " d"]) -> Float[Array, ""]:
    """m(t) = 0.95 t."""
    return PRINTED_SLOPE * x[0]


def components(scales: Scales, year: float, num_modes: int) -> dict[str, mercer.spectra.Spectrum]:
    """The parts whose sum is the process: season, line where there is one, and slow trend."""
    period = scales.period * year
    season = mercer.Periodic(period, scales.season_length * period, DOMAIN, NUM_HARMONICS)
    trend = mercer.Matern(1.5, scales.trend_length, scales.trend**2, DOMAIN, num_modes)
    parts: dict[str, mercer.spectra.Spectrum] = {
        "season": scales.season**2 * season,
        "trend": trend,
    }
    if scales.slope is not None:
        variances = jnp.stack([jnp.asarray(LEVEL_SCALE**2), jnp.asarray(scales.slope**2)])
        parts["line"] = mercer.FiniteRank(
            lambda x: jnp.stack([jnp.ones(()), x[0]]), variances, DOMAIN, 8
        )
    return parts


def make_spectrum(scales: Scales, year: float, num_modes: int) -> mercer.spectra.Spectrum:
    """The parts as one spectrum."""
    parts = components(scales, year, num_modes).values()
    return functools.reduce(lambda first, second: first + second, parts)


def rows_of(series: mercer.data.Series, train: bool = True) -> tuple[np.ndarray, np.ndarray]:
    """(X, y) of the rows to learn from, or of those to predict."""
    rows = series.train if train else ~series.train
    return series.times[rows][:, None], series.values[rows]


def log_evidence(scales: Scales, series: mercer.data.Series, num_modes: int) -> Float[Array, ""]:
    """log p(y) of the training rows under the process, its readout and slope integrated out."""
    inputs, targets = map(jnp.asarray, rows_of(series))
    parts = components(scales, series.year, num_modes).values()
    covariance = sum(mercer.GaussianProcess(part).covariance(inputs) for part in parts)
    covariance = covariance + scales.noise**2 * jnp.eye(len(inputs))
    return multivariate_normal.logpdf(targets, jax.vmap(printed_mean)(inputs), covariance)


def maximise_evidence(
    window: str, learned: dict[str, tuple[float, float]], reach: float | None = None
) -> tuple[dict[str, float], np.ndarray]:
    """Scales of largest posterior density given the training rows, and the way there, a row a step.

    Each has a log-normal prior of the given median and spread, wide, since four years say little of
    what is slow; with a `reach`, it stays within so many spreads.
    """
    series = mercer.data.co2(window)

    def values_of(z: Any) -> dict[str, Any]:
        pairs = zip(learned.items(), z, strict=True)
        return {name: median * jnp.exp(spread * x) for (name, (median, spread)), x in pairs}

    @jax.jit
    def loss(z: Array) -> Array:
        return 0.5 * jnp.sum(z**2) - log_evidence(Scales(**values_of(z)), series, 24)

    path = [np.zeros(len(learned))]
    bounds = None if reach is None else [(-reach, reach)] * len(learned)
    best = minimize(lambda z: float(loss(jnp.asarray(z))), path[0], method="L-BFGS-B",
                    bounds=bounds, callback=lambda z: path.append(z.copy()))  # fmt: skip
    ways = [[float(value) for value in values_of(z).values()] for z in path]
    return {name: float(value) for name, value in values_of(best.x).items()}, np.array(ways)


@functools.cache
def fit_scales(window: str, model: str) -> Scales:
    """The scales of a model, "ours" or "printed_mean", by the closed-form evidence."""
    return Scales(**maximise_evidence(window, LEARNED[model], reach=3.0)[0])


def score_process(model: str, window: str, num_modes: int, grid: np.ndarray) -> Arrays:
    """Scores of the exact process on the rows to predict, and its mean and sd along the grid."""
    series, scales = mercer.data.co2(window), fit_scales(window, model)
    process = mercer.GaussianProcess(make_spectrum(scales, series.year, num_modes), printed_mean)
    inputs, targets = rows_of(series, train=False)

    @eqx.filter_jit
    def condition(process: mercer.GaussianProcess, points: Array, *data: Array) -> tuple:
        given = process.condition(*data)
        return given.mean(points), given.variance(points), given.log_evidence

    points = np.concatenate([inputs, grid[:, None]])
    given = map(jnp.asarray, (points, *rows_of(series), scales.noise))
    mean, variance, evidence = map(np.asarray, condition(process, *given))
    (mean, along), (variance, spread) = (np.split(a, [len(targets)]) for a in (mean, variance))
    sd = np.sqrt(variance + scales.noise**2)
    half_width = norm.ppf(0.975) * sd
    return {
        "times": grid,
        "mean": along,
        "sd": np.sqrt(spread),
        "rmse": rms(mean - targets),
        "nlpd": diagnostics.nlpd(norm.logpdf(targets, mean, sd)[None]),
        "coverage": diagnostics.coverage(targets, mean - half_width, mean + half_width),
        "log_evidence": float(evidence),
    }


def decompose(window: str, num_modes: int, grid: np.ndarray) -> Arrays:
    """Mean and sd along the grid of the season about its average, and of all else; and the slope.

    The data do not tell the level of the season from that of the line, so that it goes with the line.
    """
    series, scales = mercer.data.co2(window), fit_scales(window, "ours")
    inputs, targets = rows_of(series)
    count, identity = len(inputs), np.eye(len(grid))
    points = jnp.asarray(np.concatenate([inputs, grid[:, None]]))
    prior = {
        name: np.asarray(mercer.GaussianProcess(part).covariance(points))
        for name, part in components(scales, series.year, num_modes).items()
    }
    whole_years = grid < series.year * np.floor(1 / series.year)
    average = np.tile(whole_years / whole_years.sum(), (len(grid), 1))
    maps = {
        "season": {"season": identity - average},
        "slow": {"season": average, "line": identity, "trend": identity},
        "slope": {"line": (identity[-1:] - identity[:1]) / (grid[-1] - grid[0])},
    }
    total = sum(k[:count, :count] for k in prior.values()) + scales.noise**2 * np.eye(count)
    residual = targets - PRINTED_SLOPE * inputs[:, 0]
    arrays: Arrays = {}
    for name, of_parts in maps.items():
        cross = sum(a @ prior[part][count:, :count] for part, a in of_parts.items())
        own = sum(a @ prior[part][count:, count:] @ a.T for part, a in of_parts.items())
        gain = np.linalg.solve(total, np.transpose(cross)).T
        arrays[f"{name}_mean"] = gain @ residual
        arrays[f"{name}_sd"] = np.sqrt(np.maximum(np.diag(own - gain @ np.transpose(cross)), 0))
    arrays["slow_mean"] += PRINTED_SLOPE * grid
    slope = PRINTED_SLOPE + arrays.pop("slope_mean")[0]
    return arrays | {"slope": slope, "slope_sd": arrays["slope_sd"][0]}


def printed_functions(times: np.ndarray) -> np.ndarray:
    """The paper's eleven functions, orthonormal on one period; one a column."""
    angles = 2 * np.pi * np.outer(times, np.arange(1, NUM_HARMONICS + 1)) / PRINTED_PERIOD
    waves = np.sqrt(2) * np.concatenate([np.cos(angles), np.sin(angles)], axis=1)
    return np.concatenate([np.ones((len(times), 1)), waves], axis=1) / np.sqrt(PRINTED_PERIOD)


def gram_error(functions: Any, end: float) -> float:
    """max |∫ φᵢφⱼ − δᵢⱼ| of functions of a vector of times over [0, end]."""
    nodes, weights = mercer.Interval(0.0, end).quadrature(NUM_NODES)
    values = np.asarray(functions(np.asarray(nodes)[:, 0]))
    gram = values.T @ (np.asarray(weights)[:, None] * values)
    return float(np.max(np.abs(gram - np.eye(len(gram)))))


def compare_kernels() -> Arrays:
    """The paper's kernel: log eigenvalues in three readings, and how far from orthonormal it is.

    As printed, λₙ = exp(−2(nπ/ρ)²) is lost beside λ₀ = 1 in any float, and the library refuses it.
    With a length scale ℓ it is exp(−2(nπℓ/ρ)²); a product instead of a quotient, exp(−2(nπρ)²),
    decays rapidly, too.
    """
    n, period = np.arange(1, NUM_HARMONICS + 1), PRINTED_PERIOD
    length = fit_scales("four_weekly", "ours").season_length * period
    working = mercer.Periodic(period, length, DOMAIN, NUM_HARMONICS)
    eigenfunctions = jax.vmap(working.eigenfunctions)
    try:
        mercer.Periodic(period, 1.0, DOMAIN, NUM_HARMONICS)
    except ValueError as error:
        refusal = str(error)
    else:
        raise ValueError("the printed kernel was accepted, though its eigenvalues are lost.")
    return {
        "harmonics": n,
        "log_printed": -2 * (n * np.pi / period) ** 2,
        "log_working": -2 * (n * np.pi * length / period) ** 2,
        "log_product": -2 * (n * np.pi * period) ** 2,
        "log_eigenvalues": np.asarray(working.log_eigenvalues),
        "season_length": length,
        "refusal": refusal,
        "gram_error_one_period": gram_error(printed_functions, period),
        "gram_error_unit_interval": gram_error(printed_functions, 1.0),
        "gram_error_working": gram_error(lambda t: eigenfunctions(t[:, None]), 1.0),
    }
