"""Summaries of draws, and how the applications report and draw them."""

from typing import Any

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import optax
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from mercer import diagnostics, plots

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


def adam(value: Any, params: Any, num_steps: int, learning_rate: float) -> Any:
    """Parameters after steps of Adam up value(params), its rate falling to zero along a cosine."""
    optimiser = optax.adam(optax.cosine_decay_schedule(learning_rate, num_steps))

    def step(carry: Any, _: None) -> tuple[Any, None]:
        params, state = carry
        updates, state = optimiser.update(jax.grad(lambda p: -value(p))(params), state, params)
        return (optax.apply_updates(params, updates), state), None

    return jax.lax.scan(step, (params, optimiser.init(params)), None, length=num_steps)[0][0]


def values_at(network: Any, points: np.ndarray) -> jax.Array:
    """A network of one input at a vector of points."""
    return jax.vmap(network)(jnp.asarray(points)[:, None])


def panels(columns: int, width: float, height: float, **options: Any) -> tuple[Figure, Any]:
    """A row of axes, or as many `nrows` as are asked for."""
    size = (width, height)
    return plt.subplots(ncols=columns, figsize=size, layout="constrained", **options)


def draw_band(
    axes: Axes, x: np.ndarray, curves: tuple[np.ndarray, ...], colour: str = plots.COLOURS[0],
    labels: tuple[str | None, str | None] = (None, None), alpha: float = 0.2,
) -> None:  # fmt: skip
    """A band between the first and last curve, labelled first, and the middle one where given."""
    axes.fill_between(
        x, curves[0], curves[-1], color=colour, alpha=alpha, linewidth=0, label=labels[0]
    )
    if len(curves) == 3:
        axes.plot(x, curves[1], color=colour, linewidth=1.4, label=labels[1])
