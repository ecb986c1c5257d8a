"""Summaries of draws, and how experiments report them."""

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
        "mean": flat.mean(axis=0),
        "sd": flat.std(axis=0),
        "lower": lower,
        "median": median,
        "upper": upper,
        "paths": flat[:: max(1, len(flat) // 8)][:8],
        "num_draws": len(flat),
    }


def convergence(values: np.ndarray, statistics: dict[str, np.ndarray] | None = None) -> Arrays:
    """R-hat and ESS of each entry (chain, draw, entry); divergences and gradients of the chains."""
    rhat, ess = diagnostics.rhat(values), diagnostics.ess(values)
    arrays = {"rhat": rhat, "rhat_max": np.max(rhat), "ess": ess, "ess_min": np.min(ess)}
    if statistics is not None:
        arrays["divergences"] = statistics["divergent"].sum().astype(int)
        arrays["gradients_per_draw"] = statistics["num_gradients"].mean()
    return arrays


def numbers(arrays: Arrays, *names: str, prefix: str = "", suffix: str = "") -> dict[str, Any]:
    """Numbers of a stage as metrics, by their names there."""
    return {f"{prefix}{name}{suffix}": np.asarray(arrays[name]).item() for name in names}


def by_name(names: Any, values: Any) -> dict[str, float | None]:
    """A table of numbers by name, None where a number is not finite."""
    pairs = zip(names, values, strict=True)
    return {str(name): np.asarray(v).item() if np.isfinite(v) else None for name, v in pairs}


def stack(rows: list[Arrays]) -> Arrays:
    """Arrays of equal names as one, with a leading axis."""
    return {name: np.stack([row[name] for row in rows]) for name in rows[0]}


def rms(values: np.ndarray) -> float:
    """Root mean square."""
    return float(np.sqrt(np.mean(np.square(values))))


def asked(limit: float) -> dict[str, float]:
    """The same limit at the scales that are judged."""
    return {"quick": limit, "paper": limit}


def converged(of: str, suffix: str = "", prefix: str = "") -> tuple[Quantity, Quantity]:
    """The rows of a report for `convergence`: R-hat at most 1.01, ESS at least 400."""
    return (
        Quantity(f"{prefix}rhat_max{suffix}", f"largest R-hat{of}", None, asked(1.01)),
        Quantity(f"{prefix}ess_min{suffix}", f"smallest ESS{of}", None, asked(400), at_least=True),
    )


def values_at(network: Any, points: np.ndarray) -> jax.Array:
    """A network of one input at a vector of points."""
    return jax.vmap(network)(jnp.asarray(points)[:, None])
