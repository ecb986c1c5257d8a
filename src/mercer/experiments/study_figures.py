"""The figures of the studies, from arrays alone."""

from collections.abc import Sequence

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from ..diagnostics import ks_critical
from ..plots import ACCENT, COLOURS, INK, covariance, paths
from .case_study import LEVEL
from .experiment import Arrays, Results
from .processes import Process


def draw_twenty(process: Process, results: Results) -> Figure:
    """The smallest K: its paths, the truncated process, and the cumulative eigenvalues."""
    held = results["truncation"]
    figure, axes = plt.subplots(1, 3, figsize=(11, 2.9), layout="constrained")
    label = str(held["labels"][0])
    paths(axes[0], held["fine"], held["paths"][0], f"Networks, {label}")
    paths(axes[1], held["fine"], held["paths"][-1], f"Networks, {held['labels'][-1]}")
    n = np.arange(1, len(held["cumulative"]) + 1)
    axes[2].semilogx(n, held["cumulative"], linewidth=1.3)
    for text in held["labels"]:
        k = int(str(text).split()[-1])
        if k <= len(n):
            axes[2].plot(k, held["cumulative"][k - 1], "o", color=ACCENT, markersize=4)
    axes[2].set(title="Cumulative share of the eigenvalues", xlabel="K", ylim=(0, 1.02))
    return figure


def draw_panels(stage: str, process: Process, results: Results) -> Figure:
    """Covariances above, absolute errors below, one column a variant."""
    held = results[stage]
    times, labels = held["times"], held["labels"]
    kernel = process.kernel(times, times)
    top = float(kernel.max())
    figure, axes = plt.subplots(
        2, len(labels), figsize=(2.6 * len(labels), 4.6), layout="constrained", squeeze=False
    )
    for column, label in enumerate(labels):
        found = held["covariance"][column]
        error = np.abs(found - kernel)
        covariance(axes[0, column], figure, times, found, str(label), vmin=0, vmax=top)
        covariance(
            axes[1, column], figure, times, error, f"error, at most {error.max():.2g}", vmin=0
        )
    for panel in axes.ravel():
        panel.set(xlabel="", ylabel="")
    return figure


def draw_study_tests(stage: str, process: Process, results: Results) -> Figure:
    """Two-sample tests along t and the errors in closed form."""
    held = results[stage]
    bound = ks_critical(int(held["num_draws"]), int(held["num_draws"]))
    figure, axes = plt.subplots(1, 3, figsize=(11, 2.9), layout="constrained")
    for label, statistic, p_value in zip(
        held["labels"], held["statistic"], held["p_value"], strict=True
    ):
        axes[0].semilogy(held["times"], statistic, linewidth=1, label=str(label))
        axes[1].plot(held["times"], p_value, linewidth=1)
    axes[0].axhline(bound, color=INK, linewidth=1, linestyle="--")
    axes[0].set(title="Two-sample KS statistic", xlabel="t")
    axes[0].legend(ncols=2)
    axes[1].axhline(LEVEL, color=INK, linewidth=1, linestyle="--")
    axes[1].set(title="p-value", xlabel="t", ylim=(0, 1))
    sizes = [int(str(label).split()[-1]) for label in held["labels"]]
    axes[2].loglog(sizes, held["closed_error"], "o-", linewidth=1.2, label="over hidden layers")
    axes[2].loglog(sizes, held["closed_error_one"], "o:", linewidth=1.2, label="one hidden layer")
    axes[2].set(title="Largest covariance error, closed form", xlabel=str(held["labels"][0])[0])
    label_sizes(axes[2], sizes)
    axes[2].legend()
    return figure


def draw_widths(process: Process, results: Results) -> Figure:
    """Paths at every width."""
    held = results["width"]
    labels = held["labels"]
    figure, axes = plt.subplots(
        1,
        len(labels),
        figsize=(2.4 * len(labels), 2.6),
        sharey=True,
        layout="constrained",
        squeeze=False,
    )
    for panel, label, values in zip(axes[0], labels, held["paths"], strict=True):
        paths(panel, held["fine"], values, str(label))
    return figure


def draw_depth(process: Process, results: Results) -> Figure:
    """Errors against depth, and the bandwidth of the hidden units' energy."""
    held = results["depth"]
    families = [str(label).rsplit(",", 1)[0] for label in held["labels"]]
    depths = np.array([int(str(label).split()[-1]) for label in held["labels"]])
    figure, (left, right) = plt.subplots(1, 2, figsize=(9.5, 3.1), layout="constrained")
    for name in dict.fromkeys(families):
        chosen = np.array([f == name for f in families])
        left.semilogy(depths[chosen], held["closed_error"][chosen], "o-", linewidth=1.2, label=name)
        right.plot(depths[chosen], held["energy_bandwidth"][chosen], "o-", linewidth=1.2)
    left.set(title="Largest covariance error, closed form", xlabel="depth")
    left.legend()
    right.set(
        title="Mode below which 90 % of the units' energy lies", xlabel="depth", ylim=(0, None)
    )
    for panel in (left, right):
        panel.set_xticks(sorted(set(depths)))
    return figure


def draw_factor(process: Process, results: Results) -> Figure:
    """Variance near zero in closed form, and tests there."""
    held = results["factor"]
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.6), layout="constrained")
    for label, ratio, p_value in zip(held["labels"], held["ratio"], held["p_value"], strict=True):
        words = f"{label}: {np.mean(p_value > LEVEL):.0%} pass"
        left.semilogx(held["times"], ratio, linewidth=1.4, label=words)
        right.loglog(held["times"], np.maximum(p_value, 1e-12), linewidth=1)
    left.axhline(1, color=INK, linewidth=0.8, linestyle="--")
    left.set(title="Variance over the process's, closed form", xlabel="t",
             ylim=(0, max(1.1, 1.05 * np.max(held["ratio"]))))  # fmt: skip
    right.axhline(LEVEL, color=INK, linewidth=0.8, linestyle="--")
    right.set(title=f"KS p-value, {held['num_draws']:,} exact draws", xlabel="t")
    figure.legend(loc="outside lower center", ncols=3)
    return figure


def draw_convergence(process: Process, results: Results) -> Figure:
    """Errors against width, modes and the reference."""
    held = results["convergence"]
    figure, axes = plt.subplots(1, 3, figsize=(11.5, 3.1), layout="constrained")
    axes[0].loglog(held["widths"], held["by_width"], "o-", linewidth=1.3, label="networks, K = 2W")
    axes[0].loglog(
        held["widths"], held["tail"], "--", color=INK, linewidth=1, label="W eigenfunctions"
    )
    axes[0].set(title=f"Width: error ~ W^{rate(held['widths'], held['by_width']):.2f}", xlabel="W",
                ylabel="largest covariance error")  # fmt: skip
    axes[0].legend()
    axes[1].loglog(held["modes"], held["by_modes"], "o-", linewidth=1.3,
                   label=f"one network, W = {int(held['fixed_width'])}")  # fmt: skip
    axes[1].loglog(held["modes"], held["tail_by_modes"], "--", color=INK, linewidth=1,
                   label="K eigenfunctions")  # fmt: skip
    axes[1].set(title="Modes: K against the bandwidth", xlabel="K")
    axes[1].legend()
    axes[2].loglog(held["scales"], held["by_scale"], "o-", linewidth=1.3)
    axes[2].set(title="Reference: the readout's scale", xlabel="readout scale")
    for panel, sizes in zip(axes, (held["widths"], held["modes"], held["scales"]), strict=True):
        label_sizes(panel, sizes)
    return figure


def label_sizes(axes: plt.Axes, sizes: Sequence[float]) -> None:
    """The sizes themselves as ticks of a logarithmic axis."""
    axes.set_xticks(sizes, [f"{size:g}" for size in sizes])
    axes.xaxis.set_minor_locator(NullLocator())


def rate(sizes: np.ndarray, errors: np.ndarray) -> float:
    """The exponent of a power law through the points."""
    return float(np.polyfit(np.log(sizes), np.log(errors), 1)[0])


def draw_recipe(process: Process, results: Results) -> Figure:
    """What the printed recipe gives: errors by step size, and the variance along t."""
    held = results["recipe"]
    labels = [str(label) for label in held["labels"]]
    figure, (left, right) = plt.subplots(1, 2, figsize=(11.5, 3.6), layout="constrained")
    ours = float(np.max(results["chain"]["error"]))
    height = np.arange(len(labels))[::-1]
    shown = np.where(np.isfinite(held["error"]), held["error"], np.nan)
    left.barh(height, shown, color=COLOURS[0], alpha=0.6)
    for y, value in zip(height, held["error"], strict=True):
        if not np.isfinite(value):
            left.text(ours, y, " diverged", va="center", fontsize=8, color=ACCENT)
    left.axvline(ours, color=ACCENT, linewidth=1.2, linestyle="--", label="HMC, this run")
    left.set(
        xscale="log",
        yticks=height,
        ylim=(-0.6, len(labels) - 0.4),
        title="Largest covariance error of SGLD as printed",
    )
    left.set_yticklabels(labels, fontsize=7)
    left.legend()
    _draw_variances(right, process, held, labels)
    return figure


def _draw_variances(axes: plt.Axes, process: Process, held: Arrays, labels: list[str]) -> None:
    for label, variance in zip(labels, held["variance"], strict=True):
        if np.all(np.isfinite(variance)):
            axes.semilogy(held["times"], variance, linewidth=0.9, label=label)
    axes.semilogy(held["times"], process.variance(held["times"]), color=INK, linewidth=1.6,
                  linestyle="--", label=process.name)  # fmt: skip
    axes.set(title="Variance along t", xlabel="t")
    axes.legend(fontsize=6, ncols=2)
