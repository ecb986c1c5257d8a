"""The figures of heteroscedastic regression, from arrays alone."""

import numpy as np
from matplotlib.figure import Figure

from mercer import data
from mercer.plots import ACCENT, COLOURS, INK, paths

from .experiment import Picture, Results
from .panels import draw_band, panels

TITLES = {"frozen": "Frozen hidden layer, NUTS", "whole": "Every parameter, HMC"}


def draw_prior(results: Results) -> Figure:
    """Draws of mean and noise from the prior."""
    prior = results["prior"]
    figure, axes = panels(2, 9.5, 2.8)
    paths(axes[0], prior["times"], prior["mean"], "m, draws of the prior")
    paths(axes[1], prior["times"], np.exp(prior["log_scale"]), "σ, draws of the prior")
    for panel in axes:
        panel.set(xlabel="standardised time")
    return figure


def draw_posteriors(results: Results) -> Figure:
    """Data, mean and predictive band, for both ways of sampling."""
    figure, axes = panels(2, 10, 3.3, sharey=True)
    for panel, (stage, title) in zip(axes, TITLES.items(), strict=True):
        times, seen, mean = (results[stage][name] for name in ("times", "seen", "mean"))
        draw_band(panel, times, seen[::2], labels=("95 % of new observations", None), alpha=0.18)
        draw_band(panel, times, mean, labels=("95 % of the mean", None), alpha=0.4)
        panel.plot(*data.motorcycle(), ".", color=INK, markersize=3.5)
        panel.set(title=title, xlabel="time, ms")
    axes[0].set(ylabel="acceleration, g")
    axes[0].legend(loc="upper left")
    return figure


def draw_noise(results: Results) -> Figure:
    """The learned noise beside the published variances of the strata."""
    figure, (axes,) = panels(1, 6.4, 3.1)
    for (stage, title), colour in zip(TITLES.items(), (COLOURS[0], COLOURS[2]), strict=True):
        draw_band(axes, results[stage]["times"], results[stage]["scale"], colour, (None, title))
    times, variances = data.motorcycle_strata()
    axes.step(times, np.sqrt(variances), where="post", color=ACCENT, linewidth=1.2,
              label="published strata")  # fmt: skip
    axes.set(title="Standard deviation of the noise", xlabel="time, ms", ylabel="g", yscale="log")
    axes.legend(loc="lower right")
    return figure


def draw_scores(results: Results) -> Figure:
    """Held-out scores, fold by fold, and their mean."""
    folds = results["folds"]
    rows = np.flatnonzero(np.isfinite(folds["scores"]).any(axis=1))[::-1]
    figure, (axes,) = panels(1, 7.5, 0.5 + 0.45 * len(rows))
    for height, row in enumerate(rows):
        scores = folds["scores"][row][np.isfinite(folds["scores"][row])]
        level, mean = np.full(len(scores), height), scores.mean()
        axes.plot(scores, level, "o", color=COLOURS[0], alpha=0.35, markersize=5)
        axes.plot(mean, height, "D", color=ACCENT, markersize=6)
        axes.text(1.02, height, f"{mean:.3f} ({len(scores)} folds)", fontsize=8, va="center",
                  transform=axes.get_yaxis_transform())  # fmt: skip
    axes.set_yticks(range(len(rows)), folds["labels"][rows])
    axes.set(xlabel="negative log predictive density of held-out rows, smaller is better",
             ylim=(-0.6, len(rows) - 0.4))  # fmt: skip
    return figure


PICTURES = (
    Picture("posteriors", "The motorcycle data with posterior mean and predictive band.",
            ("frozen", "whole"), draw_posteriors),
    Picture("noise", "The learned noise against the published residual variances of three strata.",
            ("frozen", "whole"), draw_noise),
    Picture("scores", "Ten folds, each fitted alone and standardised by its training rows. Dots are "
            "folds, diamonds their mean.", ("folds",), draw_scores),
    Picture("prior", "Draws of mean and noise from their Mercer priors.", ("prior",), draw_prior),
)  # fmt: skip
