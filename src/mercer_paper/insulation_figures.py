"""The figures of the insulation and of Darcy flow, from arrays alone."""

import numpy as np
from matplotlib.figure import Figure

from mercer import data
from mercer.plots import ACCENT, COLOURS, INK

from .experiment import Arrays, Picture, Results
from .panels import draw_band, panels

KELVIN = "temperature T (K)"
TITLES = {
    "paper": "Dirichlet on [300, 1900], the paper's",
    "neumann": "Neumann on [300, 1900]",
    "wider": "Dirichlet on [−500, 2700]",
}
TRUTH = {"color": ACCENT, "linewidth": 1.4, "linestyle": "--"}


def _curves(arrays: Arrays, i: int, percent: bool = False) -> tuple[np.ndarray, ...]:
    """Lower end, mean and upper end of κ for a prior, or their deviation from the truth in %."""
    curves = [arrays[name][i] for name in ("lower", "mean", "upper")]
    return tuple(100 * (c / arrays["truth"] - 1) if percent else c for c in curves)


def draw_prior_curves(results: Results) -> Figure:
    """κ over its mean, of networks drawn from each prior."""
    prior, count = results["prior"], len(results["prior"]["names"])
    figure, axes = panels(count, max(3.6 * count, 4.8), sharey=True)
    for panel, name, curves in zip(axes, prior["names"], prior["curves"], strict=True):
        panel.semilogy(prior["grid"], curves.T, color=COLOURS[0], linewidth=0.7, alpha=0.5)
        panel.semilogy(prior["grid"], prior["truth"], label="truth", **TRUTH)
        panel.set(title=TITLES[str(name)], xlabel=KELVIN)
    axes[0].set_ylabel("κ / mean(κ)")
    axes[0].legend(loc="lower right")
    return figure


def draw_posterior_curves(results: Results) -> Figure:
    """Bands of κ over its mean, and how far they are from the truth."""
    frozen, count = results["frozen"], len(results["frozen"]["names"])
    grid, options = frozen["grid"], {"rows": 2, "sharex": True, "sharey": "row"}
    figure, axes = panels(count, max(3.6 * count, 4.8), 5.2, **options)
    for i, name in enumerate(map(str, frozen["names"])):
        above, below = axes[:, i]
        above.plot(grid, frozen["paths"][i].T, color=COLOURS[2], linewidth=0.5, alpha=0.6)
        draw_band(above, grid, _curves(frozen, i), labels=("95 %", "posterior mean"), alpha=0.25)
        above.plot(grid, frozen["truth"], label="truth", **TRUTH)
        above.set_title(TITLES[name])
        draw_band(below, grid, _curves(frozen, i, percent=True), alpha=0.25)
        below.axhline(0, **TRUTH)
        below.set(xlabel=KELVIN, ylim=(-25, 25))
    axes[0, 0].set_ylabel("κ / mean(κ)")
    axes[1, 0].set_ylabel("deviation from the truth (%)")
    axes[0, 0].legend(loc="upper left")
    return figure


def draw_layers(results: Results) -> Figure:
    """One hidden layer against all: deviation from the truth, effective draws along T."""
    figure, (left, right) = panels(2, 9.5, 3)
    kinds = ("frozen", "one hidden layer, frozen"), ("every", "every parameter random")
    for colour, (kind, words) in zip((COLOURS[0], COLOURS[2]), kinds, strict=True):
        arrays = results[kind]
        i = list(arrays["names"]).index("wider")
        draw_band(left, arrays["grid"], _curves(arrays, i, percent=True), colour, (None, words))
        label = f"{words}, of {arrays['num_draws'][i]:,} draws"
        right.plot(arrays["grid"], arrays["ess"][i], color=colour, linewidth=1.4, label=label)
    left.axhline(0, **TRUTH)
    left.set(title="κ / mean(κ), deviation from the truth (%)", xlabel=KELVIN)
    right.set(title="Effective draws along T", xlabel=KELVIN, ylim=(0, None))
    left.legend()
    right.legend()
    return figure


def draw_temperatures(results: Results) -> Figure:
    """The profile, and residuals in units of the noise."""
    frozen, (stations, observed) = results["frozen"], data.insulation()
    figure, (left, right) = panels(2, 9.5, 3)
    left.plot(stations, observed, "o", markersize=3, color=INK, label="observed")
    for name, fitted, colour in zip(frozen["names"], frozen["predicted"], COLOURS, strict=False):
        left.plot(stations, fitted, linewidth=1.2, color=colour, label=TITLES[str(name)])
        residuals = (observed - fitted) / 2.5
        right.plot(stations, residuals, "o-", markersize=2.5, linewidth=0.6, color=colour)
    for level, style in ((-2, ":"), (0, "-"), (2, ":")):
        right.axhline(level, color=INK, linewidth=0.8, linestyle=style)
    left.set(title="Temperatures", xlabel="position y", ylabel="T (K)")
    right.set(title="Residuals over the noise of 2.5 K", xlabel="position y")
    left.legend()
    return figure


def draw_darcy(results: Results) -> Figure:
    """Truth, posterior mean, posterior deviation and error, with the sensors."""
    arrays = results["darcy"]
    truth, mean, sd = (arrays[name].reshape(arrays["cells"]) for name in ("truth", "mean", "sd"))
    error, bound = np.abs(mean - truth), float(np.abs(truth).max())
    top = float(max(error.max(), sd.max()))
    figure, axes = panels(4, 13, 2.9, sharey=True)
    fields = (
        ("True log permeability u", truth, -bound, bound),
        ("Posterior mean", mean, -bound, bound),
        ("Posterior deviation", sd, 0.0, top),
        ("Absolute error", error, 0.0, top),
    )
    for panel, (title, field, low, high) in zip(axes, fields, strict=True):
        image = panel.imshow(field.T, origin="lower", extent=(0, 1, 0, 1), vmin=low, vmax=high)
        figure.colorbar(image, ax=panel, shrink=0.9)
        panel.set(title=title, xlabel="x₁")
    axes[0].set_ylabel("x₂")
    axes[2].plot(*arrays["sensors"].T, ".", markersize=2, color="white")
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
