"""The figures of the case study, from arrays alone."""

from functools import partial

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

from ..diagnostics import ks_critical
from ..plots import ACCENT, COLOURS, INK, covariance, marginals, paths
from .case_study import LEVEL, MARGINAL_TIMES
from .experiment import Arrays, Picture, Results
from .processes import Process


def draw_samples(process: Process, results: Results) -> Figure:
    """Exact paths beside networks."""
    held = results["samples"]
    figure, (left, right) = plt.subplots(1, 2, figsize=(9.5, 3), sharey=True, layout="constrained")
    paths(left, held["times"], held["exact"], process.name)
    paths(right, held["times"], held["ours"], f"Networks of width {held['width']}, Mercer prior")
    return figure


def draw_covariance(process: Process, results: Results) -> Figure:
    """Exact, of the draws, and what is between them."""
    held = results["exact"]
    times, found = held["times"], held["covariance"].astype(float)
    kernel = process.kernel(times, times)
    top = float(kernel.max())
    figure, axes = plt.subplots(1, 3, figsize=(11, 3), layout="constrained")
    covariance(axes[0], figure, times, kernel, "Exact", vmin=0, vmax=top)
    covariance(axes[1], figure, times, found, f"{held['num_draws']:,} networks", vmin=0, vmax=top)
    covariance(axes[2], figure, times, np.abs(found - kernel), "Absolute error")
    return figure


def draw_marginals(process: Process, results: Results) -> Figure:
    """Values at four times against the normal law that the process has there."""
    held = results["exact"]
    times = [t for t in MARGINAL_TIMES if process.variance(np.array(t)) > 0]
    figure, axes = plt.subplots(
        1, len(times), figsize=(2.9 * len(times), 2.5), layout="constrained"
    )
    for i, (panel, t) in enumerate(zip(axes, times, strict=True)):
        variance = float(process.variance(np.array(t)))
        marginals(
            panel, held["marginals"][:, i], np.sqrt(variance), f"t = {t:g}: N(0, {variance:.3g})"
        )
    return figure


def draw_tests(process: Process, results: Results) -> Figure:
    """Kolmogorov–Smirnov tests along t, for exact draws and for the chain."""
    held, chain = results["exact"], results["chain"]
    figure, axes = plt.subplots(1, 3, figsize=(11, 2.9), layout="constrained")
    bound = np.sqrt(-0.5 * np.log(LEVEL / 2) / held["num_draws"])
    axes[0].plot(held["times"], held["statistic"], linewidth=1)
    axes[0].axhline(bound, color=ACCENT, linewidth=1, linestyle="--", label="critical at 0.05")
    axes[0].set(title="KS statistic, exact draws", xlabel="t", ylim=(0, None))
    axes[0].legend()
    axes[1].plot(held["times"], held["p_value"], linewidth=1, label="exact draws")
    axes[1].plot(
        chain["times"], chain["p_value"], linewidth=1, label="HMC, thinned", color=COLOURS[2]
    )
    axes[1].axhline(LEVEL, color=ACCENT, linewidth=1, linestyle="--")
    axes[1].set(title="p-values", xlabel="t", ylim=(0, 1))
    axes[1].legend()
    share = np.mean(held["p_value"] > LEVEL)
    axes[2].hist(held["null_share"], bins=np.linspace(0, 1, 21), color=COLOURS[0], alpha=0.35)
    axes[2].axvline(share, color=ACCENT, linewidth=1.5, label=f"networks: {share:.2f}")
    axes[2].set(title="Share of times that pass: exact paths", xlabel="share", ylabel="repetitions")
    axes[2].legend(loc="upper left")
    return figure


def draw_chain(process: Process, results: Results) -> Figure:
    """HMC beside exact draws: variance along t, error over its standard error, traces, ESS."""
    held, other = results["chain"], results["exact"]
    times, variance = held["times"], process.variance(held["times"])
    figure, axes = plt.subplots(1, 4, figsize=(13, 2.9), layout="constrained")
    axes[0].plot(other["times"], np.diag(other["covariance"]) / process.variance(other["times"]),
                 linewidth=1, label="exact draws")  # fmt: skip
    axes[0].plot(
        times, np.diag(held["covariance"]) / variance, linewidth=1, color=COLOURS[2], label="HMC"
    )
    axes[0].plot(times, np.diag(held["closed_form"]) / variance, linewidth=1, linestyle=":",
                 color=INK, label="HMC's prior, closed form")  # fmt: skip
    axes[0].axhline(1, color=ACCENT, linewidth=0.8, linestyle="--")
    axes[0].set(title="Variance over the process's", xlabel="t", ylim=(0.7, 1.3))
    axes[0].legend()
    covariance(
        axes[1], figure, times, held["error"] / held["standard_error"], "Error in s.e., HMC", vmin=0
    )
    axes[2].plot(held["trace"].T, linewidth=0.6)
    axes[2].set(title="Four chains, u at one time", xlabel="draw")
    axes[3].plot(times, held["ess"], linewidth=1, label="effective")
    axes[3].axhline(held["num_draws"], color=ACCENT, linewidth=0.8, linestyle="--", label="draws")
    axes[3].set(title="Effective draws along t", xlabel="t", ylim=(0, None))
    axes[3].legend()
    return figure


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
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.2), layout="constrained")
    for label, ratio, p_value in zip(held["labels"], held["ratio"], held["p_value"], strict=True):
        share = np.mean(p_value > LEVEL)
        left.semilogx(held["times"], ratio, linewidth=1.4, label=str(label))
        right.loglog(
            held["times"], np.maximum(p_value, 1e-12), linewidth=1, label=f"{share:.0%} pass"
        )
    left.axhline(1, color=INK, linewidth=0.8, linestyle="--")
    left.set(title="Variance over the process's, closed form", xlabel="t", ylim=(0, 1.1))
    left.legend(title="factor", loc="lower right")
    right.axhline(LEVEL, color=INK, linewidth=0.8, linestyle="--")
    right.set(title=f"KS p-value, {held['num_draws']:,} exact draws", xlabel="t")
    right.legend()
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
        panel.set_xticks(sizes, [f"{size:g}" for size in sizes])
        panel.minorticks_off()
    return figure


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


def pictures_of(process: Process) -> dict[str, Picture]:
    """Every figure by its name."""
    name = process.name
    return {
        picture.name: picture
        for picture in (
            Picture("samples", f"{name} and networks drawn from its Mercer prior, on a fine grid.",
                    ("samples",), partial(draw_samples, process)),
            Picture("covariance", "The exact covariance, that of independent exact draws of every "
                    "parameter, and their difference.", ("exact",), partial(draw_covariance, process)),
            Picture("marginals", "Draws at fixed times against the law of the process there.",
                    ("exact",), partial(draw_marginals, process)),
            Picture("tests", "One-sample Kolmogorov–Smirnov tests along t. Neighbouring times pass or fail "
                    "together, so the share that passes is spread widely even for exact paths (right).",
                    ("exact", "chain"), partial(draw_tests, process)),
            Picture("chain", "Hamiltonian Monte Carlo over every parameter beside independent exact draws.",
                    ("chain", "exact"), partial(draw_chain, process)),
            Picture("twenty", "Few modes leave the network's faster functions to the reference alone; the "
                    "cumulative eigenvalues do not tell.", ("truncation",), partial(draw_twenty, process)),
            Picture("truncation", "The same network with K modes: covariance and absolute error.",
                    ("truncation",), partial(draw_panels, "truncation", process)),
            Picture("truncation_tests", "Two-sample Kolmogorov–Smirnov tests against exact paths, by K; "
                    "dashed: critical at 0.05.", ("truncation",),
                    partial(draw_study_tests, "truncation", process)),
            Picture("widths", "Paths of networks of growing width.", ("width",),
                    partial(draw_widths, process)),
            Picture("width", "The same scales and modes at growing width: covariance and absolute error.",
                    ("width",), partial(draw_panels, "width", process)),
            Picture("width_tests", "Two-sample Kolmogorov–Smirnov tests against exact paths, by width.",
                    ("width",), partial(draw_study_tests, "width", process)),
            Picture("depth", "Depth with the same units, with twice the width, and with gentler units (tanh of "
                    "slope at most 2): steep layers sharpen what the ones before made.",
                    ("depth",), partial(draw_depth, process)),
            Picture("factor", "Near zero: the paper's factor keeps the network too small; one that saturates "
                    "does not.",
                    ("factor",), partial(draw_factor, process)),
            Picture("convergence", "Errors in closed form against width, modes and readout scale.",
                    ("convergence",), partial(draw_convergence, process)),
            Picture("recipe", "The recipe as printed: SGLD on the Monte Carlo energy of the improper density.",
                    ("recipe", "chain"), partial(draw_recipe, process)),
        )
    }  # fmt: skip
