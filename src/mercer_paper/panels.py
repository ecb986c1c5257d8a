"""Panels of figures: rows of axes, labelled curves and bands on them."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from mercer.plots import COLOURS, INK

LOG = {"xscale": "log", "yscale": "log"}
DASHED = {"color": INK, "linewidth": 1, "linestyle": "--"}


def panels(
    figure: Figure, columns: int, width: float, height: float = 2.9, rows: int = 1, **options: Any
) -> np.ndarray:
    """Panels of a figure of this size in inches, by column, or by row and column."""
    figure.set_size_inches(width, height)
    axes = figure.subplots(rows, columns, squeeze=False, **options)
    return axes[0] if rows == 1 else axes


def curves(
    axes: Axes, x: Any, by_label: Mapping[str, np.ndarray], style: str = "-",
    level: float | None = None, level_label: str | None = None,
    at: Sequence[float] | None = None, **settings: Any,
) -> None:  # fmt: skip
    """A curve, or one a row, for each label, a dashed line at a level, a legend, and ticks `at`.

    A label that begins with an underscore is not shown. Settings are those of `Axes.set`.
    """
    for label, values in by_label.items():
        axes.plot(x, np.transpose(values), style, linewidth=1.2, markersize=3.5, label=label)
    if level is not None:
        axes.axhline(level, label=level_label, **DASHED)
    axes.set(**settings)
    if at is not None:
        axes.set_xticks(at, [f"{size:g}" for size in at])
        axes.xaxis.set_minor_locator(NullLocator())
    if axes.get_legend_handles_labels()[1]:
        axes.legend()


def draw_band(
    axes: Axes, x: np.ndarray, curves: Sequence[np.ndarray], colour: str = COLOURS[0],
    labels: tuple[str | None, str | None] = (None, None), alpha: float = 0.2,
) -> None:  # fmt: skip
    """A band between the first and last curve, labelled first, and the middle one where given."""
    style = {"color": colour, "alpha": alpha, "linewidth": 0, "label": labels[0]}
    axes.fill_between(x, curves[0], curves[-1], **style)
    if len(curves) == 3:
        axes.plot(x, curves[1], color=colour, linewidth=1.4, label=labels[1])
