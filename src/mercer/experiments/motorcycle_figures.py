"""The figures of heteroscedastic regression, from arrays alone."""

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from .. import data
from ..plots import ACCENT, COLOURS, INK, paths
from .experiment import Picture, Results

TITLES = {
    "frozen": "Frozen hidden layer, NUTS",
    "whole": "Every parameter, HMC",
}


def draw_prior(results: Results) -> Figure:
    """Draws of mean and noise from the prior."""
    held = results["prior"]
    figure, (left, right) = plt.subplots(1, 2, figsize=(9.5, 2.8), layout="constrained")
    paths(left, held["times"], held["mean"], "m, draws of the prior")
    paths(right, held["times"], held["scale"], "σ, draws of the prior")
    for panel in (left, right):
        panel.set(xlabel="standardised time")
    return figure


def draw_posteriors(results: Results) -> Figure:
    """Data, mean and predictive band, for both ways of sampling."""
    figure, axes = plt.subplots(1, 2, figsize=(10, 3.3), sharey=True, layout="constrained")
    for panel, (stage, title) in zip(axes, TITLES.items(), strict=True):
        held = results[stage]
        _draw_band(panel, held, "seen", COLOURS[0], 0.18, "95 % of new observations")
        _draw_band(panel, held, "mean", COLOURS[0], 0.4, "95 % of the mean")
        panel.plot(held["times"], _in_g(held, held["mean"][1]), color=COLOURS[0], linewidth=1.4)
        panel.plot(*data.motorcycle(), ".", color=INK, markersize=3.5)
        panel.set(title=title, xlabel="time, ms")
    axes[0].set(ylabel="acceleration, g")
    axes[0].legend(loc="upper left")
    return figure


def draw_noise(results: Results) -> Figure:
    """The learned noise beside the published variances of the strata."""
    figure, axes = plt.subplots(figsize=(6.4, 3.1), layout="constrained")
    for (stage, title), colour in zip(TITLES.items(), (COLOURS[0], COLOURS[2]), strict=True):
        held = results[stage]
        low, middle, high = held["scale"] * held["unit"]
        axes.fill_between(held["times"], low, high, color=colour, alpha=0.2, linewidth=0)
        axes.plot(held["times"], middle, color=colour, linewidth=1.4, label=title)
    times, variances = data.motorcycle_strata()
    axes.step(times, np.sqrt(variances), where="post", color=ACCENT, linewidth=1.2,
              label="published strata")  # fmt: skip
    axes.set(title="Standard deviation of the noise", xlabel="time, ms", ylabel="g", yscale="log")
    axes.legend(loc="lower right")
    return figure


def draw_scores(results: Results) -> Figure:
    """Held-out scores, fold by fold, and their mean."""
    held = results["folds"]
    rows = [i for i, row in enumerate(held["scores"]) if np.any(np.isfinite(row))]
    figure, axes = plt.subplots(figsize=(7.5, 0.5 + 0.45 * len(rows)), layout="constrained")
    for height, i in enumerate(reversed(rows)):
        scores = held["scores"][i][np.isfinite(held["scores"][i])]
        axes.plot(scores, np.full(len(scores), height), "o", color=COLOURS[0], alpha=0.35,
                  markersize=5)  # fmt: skip
        axes.plot(scores.mean(), height, "D", color=ACCENT, markersize=6)
        axes.text(1.02, height, f"{scores.mean():.3f} ({len(scores)} folds)", fontsize=8,
                  va="center", transform=axes.get_yaxis_transform())  # fmt: skip
    axes.set_yticks(range(len(rows)), [str(held["labels"][i]) for i in reversed(rows)])
    axes.set(xlabel="negative log predictive density of held-out rows, smaller is better",
             ylim=(-0.6, len(rows) - 0.4))  # fmt: skip
    return figure


def _in_g(held, values: np.ndarray) -> np.ndarray:
    return values * held["unit"] + held["centre"]


def _draw_band(axes: Axes, held, name: str, colour: str, alpha: float, label: str) -> None:
    low, _, high = _in_g(held, held[name])
    axes.fill_between(held["times"], low, high, color=colour, alpha=alpha, linewidth=0, label=label)


PICTURES = (
    Picture("posteriors", "The motorcycle data with posterior mean and predictive band.",
            ("frozen", "whole"), draw_posteriors),
    Picture("noise", "The learned noise against the published residual variances of three strata.",
            ("frozen", "whole"), draw_noise),
    Picture("scores", "Ten folds, each fitted alone and standardised by its training rows. Dots are "
            "folds, diamonds their mean.", ("folds",), draw_scores),
    Picture("prior", "Draws of mean and noise from their Mercer priors.", ("prior",), draw_prior),
)  # fmt: skip
