"""The figures of the CO2 experiment, from arrays alone."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from mercer.data import co2
from mercer.plots import ACCENT, COLOURS, INK, paths

from .experiment import Picture, Results
from .panels import draw_band, panels

MODELS = {
    "ours": "Our network",
    "printed_mean": "The printed mean, 0.95 t",
    "isotropic": "Independent Gaussian weights",
}
READINGS = {
    "printed": ("as printed, exp(−2(nπ/ρ)²)", ACCENT),
    "working": ("with a length scale, exp(−2(nπℓ/ρ)²)", COLOURS[0]),
    "product": ("read as a product, exp(−2(nπρ)²)", COLOURS[2]),
}
GRAMS = {
    "one_period": ("printed,\none period", COLOURS[2]),
    "unit_interval": ("printed,\n[0, 1]", ACCENT),
    "working": ("ours,\n[0, 1]", COLOURS[0]),
}
# The natural logarithm of the smallest positive number of each type.
SMALLEST = {"float64": 744.4, "float32": 103.3}


def _draw_rows(axes: Axes, shift: np.ndarray | float = 0.0) -> None:
    """The data, those to predict as open circles, and where they begin."""
    series = co2()
    times, values, train = series.times, series.values - shift, series.train
    axes.plot(times[train], values[train], "o", markersize=2.6, color=INK, label="training rows")
    axes.plot(times[~train], values[~train], "o", markersize=3.4, color=ACCENT,
              markerfacecolor="white", label="rows to predict")  # fmt: skip
    edge = np.mean(times[np.flatnonzero(train)[-1] + np.arange(2)])
    axes.axvline(float(edge), color=INK, linewidth=0.7, linestyle=":")


def draw_predictions(results: Results) -> Figure:
    """What each model makes of the years ahead."""
    figure, axes = panels(3, 12, 3.3, sharey=True)
    for panel, (stage, title) in zip(axes, MODELS.items(), strict=True):
        arrays = results[stage]
        curves = tuple(arrays[name] for name in ("lower", "mean", "upper"))
        panel.plot(arrays["times"], arrays["paths"].T, color=COLOURS[2], linewidth=0.5, alpha=0.55)
        panel.plot([], [], color=COLOURS[2], linewidth=0.8, label="draws")
        draw_band(panel, arrays["times"], curves, labels=("95 % of observations", "mean"))
        _draw_rows(panel)
        panel.set(title=f"{title}\nRMSE {arrays['rmse']:.3f}, NLPD {arrays['nlpd']:.2f}, "
                  f"coverage {arrays['coverage']:.2f}", xlabel="t", xlim=(0, 1))  # fmt: skip
    axes[0].set(ylabel="CO₂, scaled", ylim=(-0.45, 1.55))
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels))
    return figure


def draw_priors(results: Results) -> Figure:
    """Functions drawn from each prior."""
    figure, axes = panels(3, 12, 2.9, sharey=True)
    for panel, (name, title) in zip(axes, MODELS.items(), strict=True):
        paths(panel, results["prior"]["times"], results["prior"][name], f"{title}, a priori")
        panel.set_xlim(0, 1)
    return figure


def draw_kernel(results: Results) -> Figure:
    """Minus the log eigenvalues in three readings, and the gram matrices' errors."""
    kernel, n = results["kernel"], results["kernel"]["harmonics"]
    figure, (left, right) = panels(2, 9.5, 3.2, width_ratios=(3, 2))
    for name, (label, colour) in READINGS.items():
        left.semilogy(n, -kernel[f"log_{name}"], "o-", markersize=4, linewidth=1.3, color=colour,
                      label=label)  # fmt: skip
    for name, bound in SMALLEST.items():
        left.axhline(bound, color=INK, linewidth=0.8, linestyle="--")
        left.text(n[-1], bound * 0.9, f"zero in {name} above", fontsize=7, ha="right", va="top")
    left.set(title="Eigenvalues in three readings: −log λₙ", xlabel="harmonic n", xticks=n,
             ylim=(0.3, 3e5))  # fmt: skip
    left.legend(loc="upper left")
    for name, (label, colour) in GRAMS.items():
        right.bar(label, max(float(kernel[f"gram_error_{name}"]), 1e-16), color=colour, width=0.55)
    right.set(title="Farthest from orthonormal", yscale="log", ylim=(1e-16, 30))
    return figure


def draw_parts(results: Results) -> Figure:
    """The prediction as slow trend and season, and the line's slope."""
    process, times = results["process"], results["process"]["times"]
    line = f"Line and slow trend: slope {process['slope']:.2f} ± {process['slope_sd']:.2f}"
    figure, axes = panels(2, 9.5, 3.1)
    parts = ("slow", line, "season"), ("season", "Season", "slow")
    for panel, (name, title, other) in zip(axes, parts, strict=True):
        mean, twice = process[f"{name}_mean"], 2 * process[f"{name}_sd"]
        draw_band(panel, times, (mean - twice, mean, mean + twice), labels=("± 2 sd", "mean"))
        _draw_rows(panel, np.interp(co2().times, times, process[f"{other}_mean"]))
        panel.set(title=title, xlabel="t", xlim=(0, 1))
    axes[0].plot(times, 0.95 * times, color=ACCENT, linewidth=1, linestyle="--",
                 label="the printed mean, 0.95 t")  # fmt: skip
    axes[0].set_ylabel("less the other part")
    axes[0].legend(loc="lower right")
    return figure


def draw_agreement(results: Results) -> Figure:
    """The network's posterior against that of the exact process: mean, and sd."""
    process, times = results["process"], results["process"]["times"]
    noise = dict(zip(process["scale_names"], process["scale_values"], strict=True))["noise"]
    figure, (left, right) = panels(2, 9.5, 2.9)
    for stage, label in (("ours", "network, every parameter"), ("frozen", "network, frozen layer")):
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
