"""Whether draws can be trusted: R-hat and ESS of functions, errors with their Monte Carlo error."""

import dataclasses
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import ArrayLike
from scipy import special

RHAT_LIMIT = 1.01
ESS_LIMIT = 400
TEMPERATURE_LIMIT = 1.1
# Entries of what was recorded that a summary looks at, spread evenly over all of them.
MAX_ENTRIES = 200


def rhat(values: ArrayLike) -> np.ndarray:
    """Rank-normalised split R-hat of each entry of values with shape (chain, draw, …); infinite where
    chains stand still in different places, NaN where nothing moves at all."""
    array = _as_chains(values)
    if array.shape[0] == 1:
        half = array.shape[1] // 2
        array = np.concatenate([array[:, :half], array[:, half : 2 * half]])
    with np.errstate(divide="ignore", invalid="ignore"):
        return _by_entry(load_arviz().rhat, array)


def ess(values: ArrayLike, method: str = "bulk") -> np.ndarray:
    """Effective sample size, "bulk" or "tail", of each entry of values (chain, draw, …)."""
    return _by_entry(partial(load_arviz().ess, method=method), _as_chains(values))


def _as_chains(values: ArrayLike) -> np.ndarray:
    array = np.asarray(values, dtype=float)
    if array.ndim < 2 or array.shape[1] < 4:
        raise ValueError(
            f"values must have shape (chain, draw, …) with 4 draws or more, got {array.shape}."
        )
    return array


def _by_entry(function: Callable[[np.ndarray], Any], array: np.ndarray) -> np.ndarray:
    """The function of (chain, draw) of each entry."""
    columns = array.reshape(*array.shape[:2], -1)
    results = [function(columns[..., i]) for i in range(columns.shape[-1])]
    return np.array(results, dtype=float).reshape(array.shape[2:])


def load_arviz() -> Any:
    """ArviZ, without its warning on import about its next version."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import arviz
    return arviz


def covariance_error(values: ArrayLike, exact: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    """|empirical − exact| covariance of values (chain, draw, point), and its standard error.

    The mean is known to be zero. The standard error counts effective draws of the products,
    whose correlation along a chain differs from that of the values.
    """
    array, exact = np.asarray(values, dtype=float), np.asarray(exact)
    flat = array.reshape(-1, array.shape[-1])
    error = np.abs(flat.T @ flat / len(flat) - exact)
    squares = ess(array**2, "mean") if array.shape[1] >= 4 else np.full(array.shape[-1], len(flat))
    effective = np.minimum(np.sqrt(np.outer(squares, squares)), len(flat))
    spread = np.outer(np.diag(exact), np.diag(exact)) + exact**2
    return error, np.sqrt(spread / effective)


def ks_along(values: ArrayLike, scales: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    """Kolmogorov–Smirnov statistic and p-value of each column against N(0, scale²).

    The rows must be independent: thin a chain first.
    """
    from scipy import stats

    columns = zip(np.asarray(values).T, np.asarray(scales), strict=True)
    results = [stats.kstest(column / sd, "norm", method="exact") for column, sd in columns]
    return _as_arrays(results)


def ks_between(values: ArrayLike, others: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    """Two-sample Kolmogorov–Smirnov statistic and p-value of each column, rows independent.

    They pass at level 0.05 where the statistic is below `ks_critical` of the numbers of rows.
    """
    from scipy import stats

    columns = zip(np.asarray(values).T, np.asarray(others).T, strict=True)
    results = [stats.ks_2samp(first, second, method="asymp") for first, second in columns]
    return _as_arrays(results)


def _as_arrays(results: list[Any]) -> tuple[np.ndarray, np.ndarray]:
    return np.array([r.statistic for r in results]), np.array([r.pvalue for r in results])


def ks_critical(first: int, second: int, level: float = 0.05) -> float:
    """c(α) √((n₁ + n₂)/(n₁n₂)), c(α) = √(−½ log(α/2))."""
    return float(np.sqrt(-0.5 * np.log(level / 2) * (first + second) / (first * second)))


def independent_stride(values: ArrayLike, largest: float = 0.05) -> int:
    """The stride at which draws of (chain, draw, entry) are independent: the first lag at which
    every entry's autocorrelation is small.

    A ratio of draws to ESS is no such stride where neighbours are negatively correlated, as those
    of Hamiltonian samplers are: every other draw may be positively correlated all the same.
    """
    array = np.asarray(values, dtype=float)
    centred = array - array.mean(axis=(0, 1))
    power = np.mean(centred**2, axis=(0, 1))
    for lag in range(1, array.shape[1] // 2):
        product = np.mean(centred[:, lag:] * centred[:, :-lag], axis=(0, 1))
        if np.all(np.abs(product) <= largest * power):
            return lag
    return max(1, array.shape[1] // 2)


class CoefficientSpectrum(NamedTuple):
    """Variance of each standardised coefficient, its standard error, and a p-value of N(0, 1)."""

    variance: np.ndarray
    standard_error: np.ndarray
    p_value: np.ndarray


def coefficient_spectrum(values: ArrayLike) -> CoefficientSpectrum:
    """Coefficients cₙ/√λₙ, shape (chain, draw, K), against N(0, 1), mode by mode.

    `prior.coefficients` gives them. The variance is about the known mean zero, its standard error
    counts effective draws of the squares, and the p-value is a Kolmogorov–Smirnov test on the
    chains thinned to independent draws.
    """
    from scipy import stats

    array = np.asarray(values, dtype=float)
    total = array.shape[0] * array.shape[1]
    effective = np.minimum(ess(array**2, "mean"), total)
    variance = np.mean(array**2, axis=(0, 1))
    p_value = [
        stats.kstest(mode[:, :: independent_stride(mode[..., None])].ravel(), "norm").pvalue
        for mode in np.moveaxis(array, 2, 0)
    ]
    return CoefficientSpectrum(variance, np.sqrt(2 / effective), np.array(p_value))


def coverage(
    targets: ArrayLike, lower: ArrayLike | list[Any], upper: ArrayLike | list[Any]
) -> float:
    """Share of targets inside their interval."""
    inside = (np.asarray(targets) >= np.asarray(lower)) & (np.asarray(targets) <= np.asarray(upper))
    return float(np.mean(inside))


def crps(samples: ArrayLike, targets: ArrayLike) -> float:
    """Mean continuous ranked probability score of predictive samples (draw, point)."""
    draws, y = np.sort(np.asarray(samples, dtype=float), axis=0), np.asarray(targets)
    n = len(draws)
    weights = (2 * np.arange(1, n + 1) - n - 1)[:, None]
    spread = np.sum(weights * draws, axis=0) / n**2
    return float(np.mean(np.mean(np.abs(draws - y), axis=0) - spread))


def nlpd(log_densities: ArrayLike) -> float:
    """Mean negative log predictive density of log p(yᵢ | θ) with shape (draw, point)."""
    array = np.asarray(log_densities, dtype=float)
    return float(-np.mean(special.logsumexp(array, axis=0) - np.log(len(array))))


def e_bfmi(energy: ArrayLike) -> np.ndarray:
    """Energy fraction of missing information of each chain, from energies (chain, draw)."""
    array = np.asarray(energy, dtype=float)
    return np.mean(np.diff(array, axis=1) ** 2, axis=1) / np.var(array, axis=1)


@dataclasses.dataclass(frozen=True)
class Summary:
    """Convergence of a run, with a verdict in words; `print` it to read it."""

    num_chains: int
    num_draws: int
    rhat_max: float
    ess_bulk_min: float
    ess_tail_min: float
    divergences: int
    acceptance: float
    e_bfmi_min: float
    temperature: float
    verdict: str

    def __str__(self) -> str:
        rows = [
            ("chains x draws", f"{self.num_chains} x {self.num_draws}"),
            ("R-hat, largest", f"{self.rhat_max:.3f}"),
            ("bulk ESS, smallest", f"{self.ess_bulk_min:.0f}"),
            ("tail ESS, smallest", f"{self.ess_tail_min:.0f}"),
            ("divergences", f"{self.divergences}"),
            ("acceptance", f"{self.acceptance:.2f}"),
            ("E-BFMI, smallest", f"{self.e_bfmi_min:.2f}"),
            ("temperature", f"{self.temperature:.3g}" if self.temperature > 1 else "nan"),
        ]
        lines = [f"{name:20s} {value}" for name, value in rows if not value.startswith("nan")]
        return "\n".join([*lines, self.verdict])


def summarise(
    recorded: Any, statistics: dict[str, np.ndarray], temperature: float = 1.0
) -> Summary:
    """R-hat and ESS over what was recorded, and what to do about them."""
    flat = _entries(recorded)
    num_chains, num_draws, _ = flat.shape
    problem = _problem(flat)
    worst_rhat = least_bulk = least_tail = least_e_bfmi = np.nan
    if problem is None:
        worst_rhat, least_bulk = float(np.nanmax(rhat(flat))), float(np.nanmin(ess(flat)))
        least_tail = float(np.nanmin(ess(flat, "tail")))
        energy = statistics["energy"]
        if np.all(np.isfinite(energy)):
            least_e_bfmi = float(e_bfmi(energy).min())
    divergences = int(np.nansum(statistics["divergent"]))
    acceptance = statistics["acceptance"]
    accepted = float(np.nanmean(acceptance)) if np.any(np.isfinite(acceptance)) else np.nan
    verdict = problem or _verdict(worst_rhat, least_bulk, divergences, least_e_bfmi, temperature)
    return Summary(
        num_chains=num_chains,
        num_draws=num_draws,
        rhat_max=worst_rhat,
        ess_bulk_min=least_bulk,
        ess_tail_min=least_tail,
        divergences=divergences,
        acceptance=accepted,
        e_bfmi_min=least_e_bfmi,
        temperature=temperature,
        verdict=verdict,
    )


def _entries(recorded: Any) -> np.ndarray:
    """(chain, draw, entry) of what was recorded, at most MAX_ENTRIES, without what never moves."""
    leaves = [np.asarray(leaf, float) for leaf in jax.tree.leaves(recorded)]
    leaves = [leaf.reshape(*leaf.shape[:2], int(np.prod(leaf.shape[2:]))) for leaf in leaves]
    each = -(-MAX_ENTRIES // len(leaves))
    chosen = [x[..., :: -(-x.shape[-1] // each)] for x in leaves if x.shape[-1]]
    flat = np.concatenate(chosen, axis=-1)
    return flat[..., np.ptp(flat, axis=(0, 1)) != 0] if flat.shape[1] else flat


def _problem(flat: np.ndarray) -> str | None:
    """Why nothing can be said of these draws, or None."""
    if flat.shape[1] < 4:
        return "Too few draws to judge: take four or more."
    if flat.shape[-1] == 0:
        return "Nothing that was recorded ever moved: use a smaller step size."
    if not np.all(np.isfinite(flat)):
        return "Something that was recorded is not finite, so nothing can be said of convergence."
    return None


def _verdict(
    worst_rhat: float, least_ess: float, divergences: int, least_e_bfmi: float, temperature: float
) -> str:
    if temperature > TEMPERATURE_LIMIT:
        return (
            f"Too hot: the gradient's own noise runs the chain at temperature {temperature:.3g} "
            "instead of 1; use a smaller step, larger batches, or the Lattice energy."
        )
    if worst_rhat > RHAT_LIMIT:
        return (
            f"Not converged: R-hat {worst_rhat:.3f} is over {RHAT_LIMIT}; run longer, or with more "
            "warm-up."
        )
    if least_ess < ESS_LIMIT:
        return f"Converged but short: the smallest ESS is {least_ess:.0f}, below {ESS_LIMIT}; run longer."
    if divergences:
        return f"{divergences} steps diverged: raise target_acceptance."
    if least_e_bfmi < 0.3:
        return "Energies mix slowly (E-BFMI below 0.3): run longer, or reparametrise."
    return "Converged."
