"""Summaries of draws, and how experiments report them."""

import time
from collections.abc import Callable, Iterable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from mercer import diagnostics

from .experiment import Arrays, Quantity

LEVELS = (0.025, 0.5, 0.975)


def bands(values: np.ndarray) -> Arrays:
    """Mean, sd and 95 % band of draws (chain, draw, entry), and a few of the draws themselves."""
    flat = values.reshape(-1, values.shape[-1])
    lower, median, upper = np.quantile(flat, LEVELS, axis=0)
    return {
        "mean": flat.mean(axis=0), "sd": flat.std(axis=0),
        "lower": lower, "median": median, "upper": upper,
        "paths": flat[:: max(1, len(flat) // 8)][:8], "num_draws": len(flat),
    }  # fmt: skip


def convergence(values: np.ndarray, statistics: dict[str, np.ndarray] | None = None) -> Arrays:
    """R-hat and ESS of each entry (chain, draw, entry); divergences and gradients of the chains."""
    rhat, ess = diagnostics.rhat(values), diagnostics.ess(values)
    arrays = {"rhat": rhat, "rhat_max": np.max(rhat), "ess": ess, "ess_min": np.min(ess)}
    if statistics is not None:
        arrays["divergences"] = statistics["divergent"].sum().astype(int)
        arrays["gradients_per_draw"] = statistics["num_gradients"].mean()
    return arrays


def converged(stage: str, of: str, suffix: str = "", prefix: str = "") -> tuple[Quantity, Quantity]:
    """The rows of a report for `convergence` of a stage: R-hat at most 1.01, ESS at least 400."""
    return (
        Quantity(f"{prefix}rhat_max{suffix}", f"largest R-hat{of}",
                 lambda results: np.max(results[stage]["rhat_max"]), at_most=1.01),
        Quantity(f"{prefix}ess_min{suffix}", f"smallest ESS{of}",
                 lambda results: np.min(results[stage]["ess_min"]), at_least=400),
    )  # fmt: skip


def by_name(names: Iterable[Any], values: Iterable[Any]) -> dict[str, float | None]:
    """A table of numbers by name, None where a number is not finite."""
    pairs = zip(names, values, strict=True)
    return {str(name): np.asarray(v).item() if np.isfinite(v) else None for name, v in pairs}


def strings(values: Iterable[Any]) -> np.ndarray:
    """Labels as an array of strings that npz stores without pickling."""
    return np.array([str(value) for value in values])


def stack(rows: list[Arrays]) -> Arrays:
    """Arrays of equal names as one, with a leading axis."""
    return {name: np.stack([row[name] for row in rows]) for name in rows[0]}


def rms(values: np.ndarray) -> float:
    """Root mean square."""
    return float(np.sqrt(np.mean(np.square(values))))


def values_at(network: Any, points: np.ndarray) -> jax.Array:
    """A network of one input at a vector of points."""
    return jax.vmap(network)(jnp.asarray(points)[:, None])


def timed(function: Callable[..., Any], *arguments: Any, **options: Any) -> tuple[Any, float]:
    """What a function returns, and the seconds it took."""
    begin = time.monotonic()
    return function(*arguments, **options), time.monotonic() - begin
