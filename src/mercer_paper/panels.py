"""Panels of figures: rows of axes, labelled curves and bands on them."""

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from mercer.plots import COLOURS, INK


def panels(
    columns: int, width: float, height: float = 2.9, rows: int = 1, **options: Any
) -> tuple[Figure, np.ndarray]:
    """A figure of this size in inches, and its panels: an array of axes by row and column, or of
    one row."""
    options = {"figsize": (width, height), "layout": "constrained", "squeeze": False} | options
    figure, axes = plt.subplots(rows, columns, **options)
    return figure, axes[0] if rows == 1 else axes


def curves(
    axes: Axes,
    x: np.ndarray,
    by_label: Mapping[str, np.ndarray],
    style: str = "-",
    level: float | None = None,
    level_label: str | None = None,
    **settings: Any,
) -> None:
    """One curve a label, a dashed line at a level, and a legend; a label that begins with an
    underscore is not shown. Settings are those of `Axes.set`."""
    for label, values in by_label.items():
        axes.plot(x, values, style, linewidth=1.2, markersize=3.5, label=label)
    if level is not None:
        axes.axhline(level, color=INK, linewidth=1, linestyle="--", label=level_label)
    axes.set(**settings)
    if axes.get_legend_handles_labels()[1]:
        axes.legend()


def draw_band(
    axes: Axes, x: np.ndarray, curves: tuple[np.ndarray, ...], colour: str = COLOURS[0],
    labels: tuple[str | None, str | None] = (None, None), alpha: float = 0.2,
) -> None:  # fmt: skip
    """A band between the first and last curve, labelled first, and the middle one where given."""
    axes.fill_between(
        x, curves[0], curves[-1], color=colour, alpha=alpha, linewidth=0, label=labels[0]
    )
    if len(curves) == 3:
        axes.plot(x, curves[1], color=colour, linewidth=1.4, label=labels[1])


def tick_at(axes: Axes, sizes: Sequence[float]) -> None:
    """The sizes themselves as ticks of the horizontal axis."""
    axes.set_xticks(sizes, [f"{size:g}" for size in sizes])
    axes.xaxis.set_minor_locator(NullLocator())
