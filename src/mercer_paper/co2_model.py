"""The CO2 series as season, line and slow trend: one spectrum, its scales, its exact posterior."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.stats import multivariate_normal
from jaxtyping import Array, Float
from scipy.optimize import minimize
from scipy.stats import norm

import mercer
from mercer import diagnostics
from mercer.data import Series, co2

from .experiment import Arrays, Run
from .summaries import rms, strings

WINDOW = "four_weekly"
DOMAIN = mercer.Interval(0.0, 1.0)
PRINTED_SLOPE, PRINTED_PERIOD = 0.95, 0.18
NUM_HARMONICS = 5
LEVEL_SCALE = 0.3
NUM_NODES = 200


@dataclasses.dataclass(frozen=True)
class Scales:
    """Standard deviations and length scales, both axes in [0, 1].

    `period` is in years and `season_length` in periods. `slope` is the deviation of the slope from
    the mean's; None leaves the line out. The trend is too small to matter unless it is learned, and
    weighs every function of the network (the tail rule).
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
    """The parts whose sum is the process: season, slow trend, and line where there is one."""
    period = scales.period * year
    season = mercer.Periodic(period, scales.season_length * period, DOMAIN, NUM_HARMONICS)
    trend = mercer.Matern(1.5, scales.trend_length, scales.trend**2, DOMAIN, num_modes)
    parts: dict[str, Any] = {"season": scales.season**2 * season, "trend": trend}
    if scales.slope is not None:
        variances = jnp.stack([jnp.asarray(LEVEL_SCALE**2), jnp.asarray(scales.slope**2)])
        line = lambda x: jnp.stack([jnp.ones(()), x[0]])  # noqa: E731
        parts["line"] = mercer.FiniteRank(line, variances, DOMAIN, 8)
    return parts


def make_spectrum(scales: Scales, year: float, num_modes: int) -> mercer.spectra.Spectrum:
    """The parts as one spectrum."""
    season, *others = components(scales, year, num_modes).values()
    return sum(others, season)


def rows_of(series: Series, train: bool = True) -> tuple[np.ndarray, np.ndarray]:
    """(X, y) of the rows to learn from, or of those to predict."""
    rows = series.train if train else ~series.train
    return series.times[rows][:, None], series.values[rows]


def log_evidence(scales: Scales, series: Series, num_modes: int) -> Float[Array, ""]:
    """log p(y) of the training rows under the process, its readout and slope integrated out."""
    inputs, targets = map(jnp.asarray, rows_of(series))
    parts = components(scales, series.year, num_modes).values()
    covariance = sum(mercer.GaussianProcess(part).covariance(inputs) for part in parts)
    covariance = covariance + scales.noise**2 * jnp.eye(len(inputs))
    return multivariate_normal.logpdf(targets, jax.vmap(printed_mean)(inputs), covariance)


def maximise_evidence(
    window: str, learned: dict[str, tuple[float, float]], reach: float | None = None
) -> dict[str, float]:
    """Scales of largest posterior density given the training rows.

    Each has a log-normal prior of the given median and spread, wide, since four years say little of
    what is slow; with a `reach`, it stays within so many spreads.
    """
    series = co2(window)

    def values_of(z: Any) -> dict[str, Any]:
        pairs = zip(learned.items(), z, strict=True)
        return {name: median * jnp.exp(spread * x) for (name, (median, spread)), x in pairs}

    @jax.jit
    def loss(z: Array) -> Array:
        return 0.5 * jnp.sum(z**2) - log_evidence(Scales(**values_of(z)), series, 24)

    bounds = None if reach is None else [(-reach, reach)] * len(learned)
    best = minimize(lambda z: float(loss(jnp.asarray(z))), np.zeros(len(learned)),
                    method="L-BFGS-B", bounds=bounds)  # fmt: skip
    return {name: float(value) for name, value in values_of(best.x).items()}


@functools.cache
def fit_scales(window: str, model: str) -> Scales:
    """The scales of a model, "ours" or "printed_mean", by the closed-form evidence."""
    return Scales(**maximise_evidence(window, LEARNED[model], reach=3.0))


def posterior_of(run: Run, model: str = "ours", window: str = WINDOW) -> mercer.Posterior:
    """A network given the training rows: with the fitted process of a model for its prior, or with
    independent Gaussian weights, "isotropic", steep enough for a season to fit."""
    settings, series = run.settings, co2(window)
    scales = fit_scales(window, "ours" if model == "isotropic" else model)
    with jax.default_device(jax.local_devices(backend="cpu")[0]):
        if model == "isotropic":
            sizes, key = (settings.plain_width, settings.plain_depth), run.shared_key_of("plain")
            prior = mercer.IsotropicPrior(
                mercer.MLP(1, *sizes, key=key, weight_scale=3.0, domain=DOMAIN)
            )
        else:
            network = mercer.FourierMLP(
                1, settings.width, num_frequencies=settings.num_frequencies, frequency_scale=20.0,
                hidden_scale=1.0, readout_scale=100.0, domain=DOMAIN,
                key=run.shared_key_of("network"),
            )  # fmt: skip
            spectrum = make_spectrum(scales, series.year, settings.num_modes)
            prior = mercer.Prior(mercer.Quadrature(spectrum), network, mean=printed_mean)
    return mercer.Posterior(prior, mercer.Gaussian(scales.noise), rows_of(series))


def condition(model: str, window: str, num_modes: int, points: np.ndarray) -> Callable:
    """A fitted model given the training rows: the function that tells mean and sd of the sum of
    matrices, by part, times the parts at the points."""
    series, scales = co2(window), fit_scales(window, model)
    inputs, targets = rows_of(series)
    n, every = len(inputs), jnp.concatenate([inputs, points[:, None]])
    parts = {name: np.asarray(mercer.GaussianProcess(part).covariance(every))
             for name, part in components(scales, series.year, num_modes).items()}  # fmt: skip
    total = sum(part[:n, :n] for part in parts.values()) + scales.noise**2 * np.eye(n)

    def posterior(**maps):
        chosen = [(matrix, parts[name]) for name, matrix in maps.items() if name in parts]
        cross = sum(matrix @ part[n:, :n] for matrix, part in chosen)
        own = sum(matrix @ part[n:, n:] @ matrix.T for matrix, part in chosen)
        gain = np.linalg.solve(total, np.transpose(cross)).T
        variance = np.diag(own - gain @ np.transpose(cross))
        return gain @ (targets - PRINTED_SLOPE * inputs[:, 0]), np.sqrt(np.maximum(variance, 0))

    return posterior


def score_process(model: str, window: str, num_modes: int, grid: np.ndarray) -> Arrays:
    """Scores of the exact process on the rows to predict, and its mean and sd along the grid."""
    inputs, targets = rows_of(co2(window), train=False)
    points, n = np.concatenate([inputs[:, 0], grid]), len(targets)
    identity = np.eye(len(points))
    posterior = condition(model, window, num_modes, points)
    mean, deviation = posterior(season=identity, trend=identity, line=identity)
    mean, sd = mean + PRINTED_SLOPE * points, np.hypot(deviation, fit_scales(window, model).noise)
    ahead, half_width = mean[:n], norm.ppf(0.975) * sd[:n]
    return {
        "times": grid, "mean": mean[n:], "sd": deviation[n:], "rmse": rms(ahead - targets),
        "nlpd": diagnostics.nlpd(norm.logpdf(targets, ahead, sd[:n])[None]),
        "coverage": diagnostics.coverage(targets, ahead - half_width, ahead + half_width),
    }  # fmt: skip


def decompose(window: str, num_modes: int, grid: np.ndarray) -> Arrays:
    """Mean and sd along the grid of the season about its average, and of the rest; slope, scales.

    Data do not tell the level of the season from that of the line, so that it goes with the line.
    """
    year, identity = co2(window).year, np.eye(len(grid))
    posterior = condition("ours", window, num_modes, grid)
    whole_years = grid < year * np.floor(1 / year)
    average = np.tile(whole_years / whole_years.sum(), (len(grid), 1))
    season, season_sd = posterior(season=identity - average)
    slow, slow_sd = posterior(season=average, line=identity, trend=identity)
    slope, slope_sd = posterior(line=(identity[-1:] - identity[:1]) / (grid[-1] - grid[0]))
    scales = dataclasses.asdict(fit_scales(window, "ours"))
    return {
        "scale_names": strings(scales), "scale_values": np.array(list(scales.values())),
        "season_mean": season, "season_sd": season_sd,
        "slow_mean": slow + PRINTED_SLOPE * grid, "slow_sd": slow_sd,
        "slope": PRINTED_SLOPE + slope[0], "slope_sd": slope_sd[0],
    }  # fmt: skip


def printed_functions(times: np.ndarray) -> np.ndarray:
    """The paper's eleven functions, orthonormal on one period; one a column."""
    angles = 2 * np.pi * np.outer(times, np.arange(1, NUM_HARMONICS + 1)) / PRINTED_PERIOD
    waves = np.sqrt(2) * np.concatenate([np.cos(angles), np.sin(angles)], axis=1)
    return np.concatenate([np.ones((len(times), 1)), waves], axis=1) / np.sqrt(PRINTED_PERIOD)


def gram_error(functions: Any, end: float) -> float:
    """max |∫ φᵢφⱼ − δᵢⱼ| of functions of a vector of times over [0, end]."""
    nodes, weights = map(np.asarray, mercer.Interval(0.0, end).quadrature(NUM_NODES))
    values = np.asarray(functions(nodes[:, 0]))
    return float(np.max(np.abs(values.T @ (weights[:, None] * values) - np.eye(values.shape[1]))))


def compare_kernels(*_: Any) -> Arrays:
    """The paper's kernel: log eigenvalues in three readings, and how far from orthonormal it is.

    As printed, λₙ = exp(−2(nπ/ρ)²) is lost beside λ₀ = 1 in any float, and the library refuses it.
    With a length scale ℓ it is exp(−2(nπℓ/ρ)²); a product for a quotient, exp(−2(nπρ)²), decays
    rapidly, too.
    """
    n, period = np.arange(1, NUM_HARMONICS + 1), PRINTED_PERIOD
    length = fit_scales(WINDOW, "ours").season_length * period
    working = mercer.Periodic(period, length, DOMAIN, NUM_HARMONICS)
    eigenfunctions = jax.vmap(working.eigenfunctions)
    try:
        mercer.Periodic(period, 1.0, DOMAIN, NUM_HARMONICS)
    except ValueError as error:
        refusal = str(error)
    else:
        raise ValueError("the printed kernel was accepted, though its eigenvalues are lost.")
    return {
        "harmonics": n, "refusal": refusal, "log_printed": -2 * (n * np.pi / period) ** 2,
        "log_working": -2 * (n * np.pi * length / period) ** 2,
        "log_product": -2 * (n * np.pi * period) ** 2,
        "gram_error_one_period": gram_error(printed_functions, period),
        "gram_error_unit_interval": gram_error(printed_functions, 1.0),
        "gram_error_working": gram_error(lambda t: eigenfunctions(t[:, None]), 1.0),
    }  # fmt: skip
