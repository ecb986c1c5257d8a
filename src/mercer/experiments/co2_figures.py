"""The figures of the CO2 experiment, from arrays alone."""

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..data import co2
from ..plots import ACCENT, COLOURS, INK, paths
from .experiment import Arrays, Picture, Results

MODELS = {
    "ours": "Our network",
    "printed_mean": "The printed mean, 0.95 t",
    "isotropic": "Independent Gaussian weights",
}
SEEN = {"marker": "o", "markersize": 2.6, "linestyle": "none", "color": INK}
UNSEEN = SEEN | {"markersize": 3.4, "markerfacecolor": "white", "color": ACCENT}
# The natural logarithm of the smallest positive number of each type.
SMALLEST = {"float64": 744.4, "float32": 103.3}


def _rows(axes: Axes, shift: np.ndarray | float = 0.0) -> None:
    """The data, those to predict as open circles, and where they begin."""
    series = co2()
    values = series.values - shift
    axes.plot(series.times[series.train], values[series.train], label="training rows", **SEEN)
    axes.plot(series.times[~series.train], values[~series.train], label="rows to predict", **UNSEEN)
    edge = np.mean(series.times[np.flatnonzero(series.train)[-1] + np.arange(2)])
    axes.axvline(float(edge), color=INK, linewidth=0.7, linestyle=":")


def _band(axes: Axes, held: Arrays, colour: str = COLOURS[0]) -> None:
    times = held["times"]
    axes.fill_between(times, held["lower"], held["upper"], color=colour, alpha=0.2, linewidth=0,
                      label="95 % of observations")  # fmt: skip
    axes.plot(times, held["paths"].T, color=COLOURS[2], linewidth=0.5, alpha=0.55)
    axes.plot([], [], color=COLOURS[2], linewidth=0.8, label="draws")
    axes.plot(times, held["mean"], color=colour, linewidth=1.5, label="mean")


def draw_predictions(results: Results) -> Figure:
    """What each model makes of the years ahead."""
    figure, axes = plt.subplots(1, 3, figsize=(12, 3.3), sharey=True, layout="constrained")
    for panel, (stage, title) in zip(axes, MODELS.items(), strict=True):
        held = results[stage]
        _band(panel, held)
        _rows(panel)
        panel.set(title=f"{title}\nRMSE {held['rmse']:.3f}, NLPD {held['nlpd']:.2f}, "
                  f"coverage {held['coverage']:.2f}", xlabel="t", xlim=(0, 1))  # fmt: skip
    axes[0].set(ylabel="CO₂, scaled", ylim=(-0.45, 1.55))
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels))
    return figure


def draw_priors(results: Results) -> Figure:
    """Functions drawn from each prior."""
    held = results["prior"]
    figure, axes = plt.subplots(1, 3, figsize=(12, 2.9), sharey=True, layout="constrained")
    for panel, (name, title) in zip(axes, MODELS.items(), strict=True):
        paths(panel, held["times"], held[name], f"{title}, a priori")
        panel.set_xlim(0, 1)
    return figure


def draw_kernel(results: Results) -> Figure:
    """Minus the log eigenvalues in three readings, and the gram matrices' errors."""
    held = results["kernel"]
    n = held["harmonics"]
    figure, (left, right) = plt.subplots(1, 2, figsize=(9.5, 3.2), layout="constrained",
                                         width_ratios=(3, 2))  # fmt: skip
    readings = {
        "printed": "as printed, exp(−2(nπ/ρ)²)",
        "working": "with a length scale, exp(−2(nπℓ/ρ)²)",
        "product": "read as a product, exp(−2(nπρ)²)",
    }
    colours = (ACCENT, COLOURS[0], COLOURS[2])
    for colour, (name, label) in zip(colours, readings.items(), strict=True):
        left.semilogy(n, -held[f"log_{name}"], "o-", markersize=4, linewidth=1.3, color=colour,
                      label=label)  # fmt: skip
    for name, bound in SMALLEST.items():
        left.axhline(bound, color=INK, linewidth=0.8, linestyle="--")
        left.text(n[-1], bound * 0.9, f"zero in {name} above", fontsize=7, ha="right", va="top")
    left.set(title="Eigenvalues in three readings: −log λₙ", xlabel="harmonic n", xticks=n,
             ylim=(0.3, 3e5))  # fmt: skip
    left.legend(loc="upper left")
    names = ("printed,\none period", "printed,\n[0, 1]", "ours,\n[0, 1]")
    fields = ("one_period", "unit_interval", "working")
    errors = [max(float(held[f"gram_error_{field}"]), 1e-16) for field in fields]
    right.bar(names, errors, color=(COLOURS[2], ACCENT, COLOURS[0]), width=0.55)
    right.set(title="Farthest from orthonormal", yscale="log", ylim=(1e-16, 30))
    return figure


def draw_parts(results: Results) -> Figure:
    """The prediction as slow trend and season, and the line's slope."""
    held, series = results["process"], co2()
    figure, (left, right) = plt.subplots(1, 2, figsize=(9.5, 3.1), layout="constrained")
    slow = np.interp(series.times, held["times"], held["slow_mean"])
    season = np.interp(series.times, held["times"], held["season_mean"])
    for panel, name, title, shift in (
        (left, "slow", f"Line and slow trend: slope {held['slope']:.2f} ± {held['slope_sd']:.2f}",
         season),
        (right, "season", "Season", slow),
    ):  # fmt: skip
        mean, reach = held[f"{name}_mean"], 2 * held[f"{name}_sd"]
        panel.fill_between(held["times"], mean - reach, mean + reach, color=COLOURS[0], alpha=0.2,
                           linewidth=0, label="± 2 sd")  # fmt: skip
        panel.plot(held["times"], mean, color=COLOURS[0], linewidth=1.5, label="mean")
        _rows(panel, shift)
        panel.set(title=title, xlabel="t", xlim=(0, 1))
    left.plot(held["times"], 0.95 * held["times"], color=ACCENT, linewidth=1, linestyle="--",
              label="the printed mean, 0.95 t")  # fmt: skip
    left.set_ylabel("less the other part")
    left.legend(loc="lower right")
    return figure


def draw_agreement(results: Results) -> Figure:
    """The network's posterior against that of the exact process: mean, and sd."""
    process = results["process"]
    times = process["times"]
    noise = dict(zip(process["scale_names"], process["scale_values"], strict=True))["noise"]
    figure, (left, right) = plt.subplots(1, 2, figsize=(9.5, 2.9), layout="constrained")
    for stage, label in (("ours", "network, NUTS"), ("frozen", "network, frozen layer")):
        off = (results[stage]["mean"] - process["mean"]) / noise
        left.plot(times, off, linewidth=1.2, label=label)
        right.plot(times, results[stage]["sd"], linewidth=1.2, label=label)
    left.axhline(0, color=INK, linewidth=0.7)
    left.set(title="Mean less that of the process, in sd of the noise", xlabel="t", ylim=(-1, 1))
    right.plot(times, process["sd"], color=INK, linewidth=1, linestyle="--", label="exact process")
    right.set(title="Standard deviation of u(t)", xlabel="t", ylim=(0, None))
    right.legend()
    return figure


PICTURES = (
    Picture("predictions", "Two years ahead: a network whose slope is inferred, one with the paper's mean "
            "and kernel, and one with independent Gaussian weights.",
            ("ours", "printed_mean", "isotropic"), draw_predictions),
    Picture("priors", "Functions drawn from each prior.", ("prior",), draw_priors),
    Picture("kernel", "The printed eigenvalues are lost beside that of the constant, one, and the functions "
            "are orthonormal on one period only.", ("kernel",), draw_kernel),
    Picture("parts", "What the posterior says of the slow part and of the season.", ("process",), draw_parts),
    Picture("agreement", "The network against the exact process it names.",
            ("ours", "frozen", "process"), draw_agreement),
)  # fmt: skip
