"""The figures of the insulation and of Darcy flow, from arrays alone."""

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

from .. import data
from ..plots import ACCENT, COLOURS, INK
from .conductivity import CHOICES, HEADLINE, NOISE, truth_at
from .experiment import Arrays, Picture, Results

KELVIN = "temperature T (K)"


def _panels(held: Arrays, rows: int, height: float, **options) -> tuple[Figure, np.ndarray]:
    count = len(held["names"])
    size = (max(3.6 * count, 4.8), height)
    return plt.subplots(rows, count, figsize=size, layout="constrained", squeeze=False, **options)


def _title(name: str) -> str:
    return CHOICES[str(name)].title


def draw_prior_curves(results: Results) -> Figure:
    """κ over its mean, of networks drawn from each prior."""
    held = results["prior"]
    figure, axes = _panels(held, 1, 2.9, sharey=True)
    for panel, name, curves in zip(axes[0], held["names"], held["curves"], strict=True):
        panel.semilogy(held["grid"], curves.T, color=COLOURS[0], linewidth=0.7, alpha=0.5)
        panel.semilogy(held["grid"], truth_at(held["grid"]), color=ACCENT, linewidth=1.6,
                       linestyle="--", label="truth")  # fmt: skip
        panel.set(title=_title(name), xlabel=KELVIN)
    axes[0, 0].set_ylabel("κ / mean(κ)")
    axes[0, 0].legend(loc="lower right")
    return figure


def draw_posterior_curves(results: Results) -> Figure:
    """Bands of κ over its mean, and how far they are from the truth."""
    held = results["frozen"]
    grid, truth = held["grid"], truth_at(held["grid"])
    figure, axes = _panels(held, 2, 5.2, sharex=True, sharey="row")
    for i, name in enumerate(held["names"]):
        above, below = axes[:, i]
        above.plot(grid, held["samples"][i][:8].T, color=COLOURS[2], linewidth=0.5, alpha=0.6)
        _band(above, grid, held, i, np.zeros_like(truth), np.ones_like(truth))
        above.plot(grid, truth, color=ACCENT, linewidth=1.4, linestyle="--", label="truth")
        above.set_title(_title(name))
        _band(below, grid, held, i, truth, truth / 100)
        below.axhline(0, color=ACCENT, linewidth=1.4, linestyle="--")
        below.set(xlabel=KELVIN, ylim=(-25, 25))
    axes[0, 0].set_ylabel("κ / mean(κ)")
    axes[1, 0].set_ylabel("deviation from the truth (%)")
    axes[0, 0].legend(loc="upper left")
    return figure


def _band(axes: plt.Axes, grid: np.ndarray, held: Arrays, i: int, centre, unit) -> None:
    lower, mean, upper = ((held[k][i] - centre) / unit for k in ("lower", "mean", "upper"))
    axes.fill_between(grid, lower, upper, color=COLOURS[0], alpha=0.25, linewidth=0, label="95 %")
    axes.plot(grid, mean, color=COLOURS[0], linewidth=1.4, label="posterior mean")


def draw_layers(results: Results) -> Figure:
    """One hidden layer against all: deviation from the truth, effective draws along T."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(9.5, 3), layout="constrained")
    kinds = (("frozen", "one hidden layer, frozen"), ("every", "every parameter random"))
    for colour, (kind, words) in zip((COLOURS[0], COLOURS[2]), kinds, strict=True):
        held = results[kind]
        i = list(map(str, held["names"])).index(HEADLINE)
        grid, truth = held["grid"], truth_at(held["grid"])
        lower, mean, upper = (100 * (held[k][i] / truth - 1) for k in ("lower", "mean", "upper"))
        left.fill_between(grid, lower, upper, color=colour, alpha=0.2, linewidth=0)
        left.plot(grid, mean, color=colour, linewidth=1.4, label=words)
        right.plot(grid, held["ess"][i], color=colour, linewidth=1.4,
                   label=f"{words}, of {held['num_draws'][i]:,} draws")  # fmt: skip
    left.axhline(0, color=ACCENT, linewidth=1.2, linestyle="--")
    left.set(title="κ / mean(κ), deviation from the truth (%)", xlabel=KELVIN)
    right.set(title="Effective draws along T", xlabel=KELVIN, ylim=(0, None))
    left.legend()
    right.legend()
    return figure


def draw_temperatures(results: Results) -> Figure:
    """The profile, and residuals in units of the noise."""
    held = results["frozen"]
    stations, observed = data.insulation()
    figure, (left, right) = plt.subplots(1, 2, figsize=(9.5, 3), layout="constrained")
    left.plot(stations, observed, "o", markersize=3, color=INK, label="observed")
    for i, name in enumerate(map(str, held["names"])):
        fitted = held["temperatures"][i]
        left.plot(stations, fitted, linewidth=1.2, color=COLOURS[i], label=_title(name))
        right.plot(stations, (observed - fitted) / NOISE, "o-", markersize=2.5, linewidth=0.6,
                   color=COLOURS[i])  # fmt: skip
    for level in (-2, 2):
        right.axhline(level, color=INK, linewidth=0.8, linestyle=":")
    right.axhline(0, color=INK, linewidth=0.8)
    left.set(title="Temperatures", xlabel="position y", ylabel="T (K)")
    right.set(title="Residuals over the noise of 2.5 K", xlabel="position y")
    left.legend()
    return figure


def draw_darcy(results: Results) -> Figure:
    """Truth, posterior mean, posterior deviation and error, with the sensors."""
    held = results["darcy"]
    error = np.abs(held["mean"] - held["truth"])
    bound = float(np.abs(held["truth"]).max())
    top = float(max(error.max(), held["sd"].max()))
    figure, axes = plt.subplots(1, 4, figsize=(13, 2.9), layout="constrained", sharey=True)
    panels = (
        ("True log permeability u", held["truth"], -bound, bound),
        ("Posterior mean", held["mean"], -bound, bound),
        ("Posterior deviation", held["sd"], 0.0, top),
        ("Absolute error", error, 0.0, top),
    )
    for panel, (title, field, low, high) in zip(axes, panels, strict=True):
        image = panel.imshow(field.T, origin="lower", extent=(0, 1, 0, 1), vmin=low, vmax=high)
        figure.colorbar(image, ax=panel, shrink=0.9)
        panel.set(title=title, xlabel="x₁")
    axes[0].set_ylabel("x₂")
    axes[2].plot(*held["sensors"].T, ".", markersize=2, color="white")
    return figure


FACTOR = "Temperatures tell κ up to a constant factor only, so κ over its mean is compared."
PICTURES = (
    Picture("prior_curves", f"Conductivities of networks drawn from each prior. {FACTOR}", ("prior",),
            draw_prior_curves),
    Picture("posterior_curves", f"Posterior of κ, hidden layer frozen, for each prior. {FACTOR} The paper's "
            "sides force equal values at both ends, Neumann sides a slope of zero; the wider domain forces "
            "nothing where there are data.", ("frozen",), draw_posterior_curves),
    Picture("layers", "The wider domain's posterior with one hidden layer and with every parameter random.",
            ("frozen", "every"), draw_layers),
    Picture("temperatures", "The 51 temperatures, the posterior mean of the profile, and residuals.",
            ("frozen",), draw_temperatures),
    Picture("darcy", "A log permeability drawn from the exact process, inferred from noisy pressures at the "
            "dots: posterior mean, deviation and error.", ("darcy",), draw_darcy),
)  # fmt: skip
