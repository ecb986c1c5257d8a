"""The evidence of the motorcycle data over variance and power; intervals of known hyperparameters."""

import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

from .experiment import Picture, Results
from .hyper_model import SURFACE, TRUTH


def _values(white: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Variance and power at standard normal numbers (…, 2)."""
    return tuple(np.asarray(f(jnp.asarray(white[..., i]))) for i, f in enumerate(SURFACE.values()))


def draw_evidence(results: Results) -> Figure:
    """Contours of the evidence, the ways of the ascents, and draws of both."""
    held, ends, draws = results["surface"], results["ascent"], results["joint"]["draws"]
    figure, axes = plt.subplots(figsize=(6.4, 4.6))
    axis = held["axis"]
    grid = np.stack(np.meshgrid(axis, axis, indexing="ij"), -1)
    below = held["values"] - held["values"].max()
    variance, power = _values(grid)
    levels = [-200, -100, -50, -20, -10, -5, -2, -0.5]
    lines = axes.contour(variance, power, below, levels=levels, cmap="Greys", linewidths=0.8)
    axes.clabel(lines, fontsize=7, fmt="%g")
    flat = draws.reshape(-1, 2)
    shown = _values(flat[:: max(1, len(flat) // 500)])
    axes.plot(*shown, ".", ms=2.5, alpha=0.5, color="C0", label="draws of both, by NUTS")
    for index, path in enumerate(ends["paths"]):
        label = "empirical Bayes" if index == 0 else None
        axes.plot(*_values(path), lw=1.2, color="C1", label=label)
    axes.plot(*_values(ends["ends"]), "o", ms=5, color="C3", label="where it ends")
    axes.set(xscale="log", xlabel="variance", ylabel="power α")
    axes.legend(loc="upper left", fontsize=8)
    return figure


def draw_intervals(results: Results) -> Figure:
    """One interval a seed, against the truth."""
    held = results["recovery"]
    figure, rows = plt.subplots(
        1, len(TRUTH), figsize=(8.4, 3.0), sharey=True, layout="constrained"
    )
    for index, (axes, (name, truth)) in enumerate(zip(rows, TRUTH.items(), strict=True)):
        for seed, (low, high) in enumerate(
            zip(held["lower"][:, index], held["upper"][:, index], strict=True)
        ):
            colour = "C0" if low <= truth <= high else "C3"
            axes.plot([low, high], [seed, seed], color=colour, lw=1.5)
        axes.axvline(truth, color="k", lw=0.8)
        axes.set(xlabel=name)
    rows[0].set(ylabel="seed", yticks=range(0, len(held["rhat"]), 5))
    return figure


PICTURES = (
    Picture(
        "evidence",
        "Log evidence of the motorcycle data below its maximum, the hidden layer frozen and the "
        "noise constant; the ways of empirical Bayes, and draws of both hyperparameters.",
        ("surface", "ascent", "joint"),
        draw_evidence,
    ),
    Picture(
        "intervals",
        "90 % intervals for data of a known Matérn-3/2 process; gold where they miss it.",
        ("recovery",),
        draw_intervals,
    ),
)
