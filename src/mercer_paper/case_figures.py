"""The figures of the case study, from arrays alone."""

import inspect
from collections.abc import Callable

import numpy as np
from matplotlib.figure import Figure

from mercer.diagnostics import ks_critical
from mercer.plots import ACCENT, COLOURS, INK, covariance, marginals, paths

from .case_study import LEVEL, MARGINAL_TIMES
from .experiment import Arrays, Picture
from .panels import curves, panels, tick_at
from .processes import Process

LOG = {"xscale": "log", "yscale": "log"}


def draw_samples(process: Process, samples: Arrays) -> Figure:
    """Exact paths and networks drawn from the Mercer prior, on a fine grid."""
    networks = f"Networks of width {samples['width']}, Mercer prior"
    return _draw_paths(
        samples["times"], {process.name: samples["exact"], networks: samples["ours"]}
    )


def _draw_paths(times: np.ndarray, by_title: dict[str, np.ndarray]) -> Figure:
    """Paths side by side, one panel a title."""
    figure, axes = panels(len(by_title), max(9.5, 2.4 * len(by_title)), sharey=True)
    for panel, (title, values) in zip(axes, by_title.items(), strict=True):
        paths(panel, times, values, title)
    return figure


def draw_covariance(process: Process, exact: Arrays) -> Figure:
    """The exact covariance, that of independent exact draws of every parameter, and their
    difference."""
    times, kernel = exact["times"], process.kernel(exact["times"], exact["times"])
    figure, axes = panels(3, 11, 3)
    limits = {"vmin": 0, "vmax": float(kernel.max())}
    networks = f"{exact['num_draws']:,} networks"
    covariance(axes[0], figure, times, kernel, "Exact", **limits)
    covariance(axes[1], figure, times, exact["covariance"], networks, **limits)
    covariance(axes[2], figure, times, np.abs(exact["covariance"] - kernel), "Absolute error")
    return figure


def draw_marginals(process: Process, exact: Arrays) -> Figure:
    """Draws at fixed times against the law of the process there."""
    variances = [float(process.variance(np.array(t))) for t in MARGINAL_TIMES]
    shown = [i for i, variance in enumerate(variances) if variance > 0]
    figure, axes = panels(len(shown), 2.9 * len(shown), 2.5)
    for panel, i in zip(axes, shown, strict=True):
        title = f"t = {MARGINAL_TIMES[i]:g}: N(0, {variances[i]:.3g})"
        marginals(panel, exact["marginals"][:, i], np.sqrt(variances[i]), title)
    return figure


def draw_tests(process: Process, exact: Arrays, tests: Arrays, chain: Arrays) -> Figure:
    """One-sample Kolmogorov–Smirnov tests along t. Neighbouring times pass or fail together, so the
    share that passes is spread widely even for exact paths (right)."""
    figure, axes = panels(3, 11)
    # Room for a legend above shares that may stand anywhere.
    roomy = {"ylim": (0, 1.35), "yticks": np.linspace(0, 1, 6)}
    critical = np.sqrt(-0.5 * np.log(LEVEL / 2) / exact["num_draws"])
    curves(axes[0], exact["times"], {"_": exact["statistic"]}, level=critical, xlabel="t",
           level_label="critical at 0.05",
           title="KS statistic, exact draws", ylim=(0, None))  # fmt: skip
    curves(axes[1], exact["times"], {"exact draws": exact["p_value"]})
    curves(axes[1], chain["times"], {"HMC, thinned": chain["p_value"]}, level=LEVEL,
           title="p-values", xlabel="t", **roomy)  # fmt: skip
    networks = np.append(exact["shares"][1], tests["shares"][:, 1])
    bins = np.linspace(0, 1, 21)
    for label, shares in {"exact paths": tests["null_shares"][:, 1], "networks": networks}.items():
        axes[2].hist(shares, bins, weights=np.full(len(shares), 1 / len(shares)), alpha=0.4,
                     label=f"{label}, mean {shares.mean():.2f}")  # fmt: skip
    axes[2].set(title="Share that passes, t < 0.05", xlabel="share", ylabel="sets", **roomy)
    axes[2].legend(loc="upper left")
    return figure


def draw_chain(process: Process, chain: Arrays, exact: Arrays) -> Figure:
    """Hamiltonian Monte Carlo over every parameter beside independent exact draws."""
    times, variance = chain["times"], process.variance(chain["times"])
    ours = {"HMC": chain["covariance"], "HMC's prior, closed form": chain["closed_form"]}
    figure, axes = panels(4, 13)
    ratio = np.diag(exact["covariance"]) / process.variance(exact["times"])
    curves(axes[0], exact["times"], {"exact draws": ratio})
    curves(axes[0], times, {label: np.diag(c) / variance for label, c in ours.items()}, level=1,
           title="Variance over the process's", xlabel="t", ylim=(0.7, 1.3))  # fmt: skip
    covariance(axes[1], figure, times, chain["z"], "Error in s.e., HMC", vmin=0)
    axes[2].plot(chain["trace"].T, linewidth=0.6)
    axes[2].set(title="Four chains, u at one time", xlabel="draw")
    curves(axes[3], times, {"effective": chain["ess"]}, level=chain["num_draws"],
           level_label="draws",
           title="Effective draws along t", xlabel="t", ylim=(0, None))  # fmt: skip
    return figure


def draw_twenty(process: Process, truncation: Arrays) -> Figure:
    """Few modes leave the network's faster functions to the reference alone; the cumulative
    eigenvalues do not show it."""
    figure, axes = panels(3, 11)
    for panel, i in zip(axes, (0, -1), strict=False):
        paths(
            panel,
            truncation["fine"],
            truncation["paths"][i],
            f"Networks, {truncation['labels'][i]}",
        )
    shares = truncation["cumulative"]
    curves(axes[2], np.arange(1, len(shares) + 1), {"_": shares}, xscale="log", xlabel="K",
           title="Cumulative share of the eigenvalues", ylim=(0, 1.02))  # fmt: skip
    counts = np.array([k for k in _sizes(truncation) if k <= len(shares)])
    axes[2].plot(counts, shares[counts - 1], "o", color=ACCENT, markersize=4)
    return figure


def _sizes(arrays: Arrays) -> list[int]:
    """The numbers at the ends of the labels."""
    return [int(str(label).split()[-1]) for label in arrays["labels"]]


def draw_truncation(process: Process, truncation: Arrays) -> Figure:
    """The same network with K modes: covariance and absolute error."""
    return _draw_panels(process, truncation)


def draw_width(process: Process, width: Arrays) -> Figure:
    """The same scales and modes at growing width: covariance and absolute error."""
    return _draw_panels(process, width)


def _draw_panels(process: Process, arrays: Arrays) -> Figure:
    """Covariances above, absolute errors below, one column for each network."""
    times, labels = arrays["times"], arrays["labels"]
    kernel = process.kernel(times, times)
    figure, axes = panels(len(labels), 2.6 * len(labels), 4.6, rows=2)
    for (top, bottom), label, sampled in zip(axes.T, labels, arrays["covariance"], strict=True):
        error = np.abs(sampled - kernel)
        covariance(top, figure, times, sampled, str(label), vmin=0, vmax=float(kernel.max()))
        covariance(bottom, figure, times, error, f"error, at most {error.max():.2g}", vmin=0)
    for panel in axes.flat:
        panel.set(xlabel="", ylabel="")
    return figure


def draw_truncation_tests(process: Process, truncation: Arrays) -> Figure:
    """Two-sample Kolmogorov–Smirnov tests against exact paths, by K; dashed: critical at 0.05."""
    return _draw_study_tests(truncation)


def draw_width_tests(process: Process, width: Arrays) -> Figure:
    """Two-sample Kolmogorov–Smirnov tests against exact paths, by width."""
    return _draw_study_tests(width)


def _draw_study_tests(arrays: Arrays) -> Figure:
    """Two-sample tests along t, and the errors in closed form."""
    times, labels, sizes = arrays["times"], arrays["labels"], _sizes(arrays)
    count = int(arrays["num_draws"][0])
    figure, axes = panels(3, 11)
    statistics = dict(zip(labels, arrays["statistic_two_sample"], strict=True))
    curves(axes[0], times, statistics, level=ks_critical(count, count), yscale="log", xlabel="t",
           title="Two-sample KS statistic")  # fmt: skip
    axes[1].plot(times, arrays["p_value_two_sample"].T, linewidth=1.2)
    curves(axes[1], times, {}, level=LEVEL, title="p-value", xlabel="t", ylim=(0, 1))
    errors = {
        "over hidden layers": arrays["closed_error"],
        "one hidden layer": arrays["closed_error_one"],
    }
    curves(axes[2], sizes, errors, "o-", title="Largest covariance error, closed form",
           xlabel=str(labels[0])[0], **LOG)  # fmt: skip
    tick_at(axes[2], sizes)
    return figure


def draw_widths(process: Process, width: Arrays) -> Figure:
    """Paths of networks of growing width."""
    return _draw_paths(width["fine"], dict(zip(width["labels"], width["paths"], strict=True)))


def draw_depth(process: Process, depth: Arrays) -> Figure:
    """Depth with the same units, with twice the width, and with gentler units (tanh of slope at
    most 2): steep layers sharpen what the ones before made."""
    titles = {
        "closed_error": "Largest covariance error, closed form",
        "energy_bandwidth": "Mode below which 90 % of the units' energy lies",
    }
    figure, axes = panels(2, 9.5, 3.1)
    for panel, (name, title) in zip(axes, titles.items(), strict=True):
        for family in dict.fromkeys(depth["family"]):
            rows = depth["family"] == family
            curves(panel, depth["depth"][rows], {family: depth[name][rows]}, "o-")
        panel.set(title=title, xlabel="depth", xticks=np.unique(depth["depth"]))
    axes[0].set_yscale("log")
    axes[1].set_ylim(0, None)
    return figure


def draw_factor(process: Process, factor: Arrays) -> Figure:
    """Near zero: the paper's factor keeps the network too small; one that saturates does not."""
    times, shares = factor["times"], factor["shares"][:, 0]
    figure, (left, right) = panels(2, 10, 3.6)
    for label, share, closed_form, p_value in zip(
        factor["labels"], shares, factor["closed_form"], factor["p_value"], strict=True
    ):
        ratio = np.diag(closed_form) / process.variance(times)
        left.plot(times, ratio, linewidth=1.4, label=f"{label}: {share:.0%} pass")
        right.plot(times, np.maximum(p_value, 1e-12), linewidth=1)
    top = max(1.1, 1.05 * left.dataLim.ymax)
    figure.legend(loc="outside lower center", ncols=3)
    title = f"KS p-value, {factor['num_draws'][0]:,} exact draws"
    left.axhline(1, color=INK, linewidth=0.8, linestyle="--")
    left.set(title="Variance over the process's, closed form", xlabel="t", ylim=(0, top),
             xscale="log")  # fmt: skip
    curves(right, times, {}, level=LEVEL, title=title, xlabel="t", **LOG)
    return figure


def draw_convergence(process: Process, convergence: Arrays) -> Figure:
    """Errors in closed form against width, modes and readout scale."""
    widths, errors = convergence["widths"], convergence["by_width"]
    exponent = np.polyfit(np.log(widths), np.log(errors), 1)[0]
    figure, axes = panels(3, 11.5, 3.1)
    one_network = f"one network, W = {int(convergence['fixed_width'])}"
    curves(axes[0], widths, {"W eigenfunctions": convergence["tail"]}, "--")
    curves(axes[0], widths, {"networks, K = 2W": errors}, "o-", xlabel="W", **LOG,
           title=f"Width: error ~ W^{exponent:.2f}", ylabel="largest covariance error")  # fmt: skip
    curves(axes[1], convergence["modes"], {"K eigenfunctions": convergence["tail_by_modes"]}, "--")
    curves(axes[1], convergence["modes"], {one_network: convergence["by_modes"]}, "o-", **LOG,
           title="Modes: K against the bandwidth", xlabel="K")  # fmt: skip
    curves(axes[2], convergence["scales"], {"_": convergence["by_scale"]}, "o-", **LOG,
           title="Reference: the readout's scale", xlabel="readout scale")  # fmt: skip
    for panel, name in zip(axes, ("widths", "modes", "scales"), strict=True):
        tick_at(panel, convergence[name])
    return figure


def draw_recipe(process: Process, recipe: Arrays, chain: Arrays) -> Figure:
    """The recipe as printed: SGLD on the Monte Carlo energy of the improper density."""
    ours = float(chain["max_error"])
    labels, times = recipe["labels"], recipe["times"]
    figure, (left, right) = panels(2, 11.5, 3.6)
    heights = np.arange(len(labels))[::-1]
    left.barh(heights, recipe["error"], color=COLOURS[0], alpha=0.6)
    left.axvline(ours, color=ACCENT, linewidth=1.2, linestyle="--", label="HMC, this run")
    left.set(xscale="log", ylim=(-0.6, len(labels) - 0.4),
             title="Largest covariance error of SGLD as printed")  # fmt: skip
    left.set_yticks(heights, labels, fontsize=7)
    left.legend()
    for height, label, variance in zip(heights, labels, recipe["variance"], strict=True):
        if np.all(np.isfinite(variance)):
            right.plot(times, variance, linewidth=0.9, label=label)
        else:
            left.text(ours, height, " diverged", va="center", fontsize=8, color=ACCENT)
    right.plot(times, process.variance(times), "--", color=INK, label=process.name)
    right.set(title="Variance along t", xlabel="t", yscale="log")
    right.legend(fontsize=6, ncols=2)
    return figure


FIGURES = (
    draw_samples, draw_covariance, draw_marginals, draw_tests, draw_chain, draw_twenty,
    draw_truncation, draw_truncation_tests, draw_widths, draw_width, draw_width_tests, draw_depth,
    draw_factor, draw_convergence, draw_recipe,
)  # fmt: skip


def pictures_of(process: Process, stages: tuple[str, ...]) -> tuple[Picture, ...]:
    """The figures that the stages of a process allow.

    A figure is a function of the process and of the stages that its parameters name; its docstring
    is the caption.
    """
    pictures = [_picture(process, draw) for draw in FIGURES]
    return tuple(picture for picture in pictures if set(picture.needs) <= set(stages))


def _picture(process: Process, draw: Callable[..., Figure]) -> Picture:
    """A figure function as an entry of the experiment."""
    _, *needs = inspect.signature(draw).parameters
    name, caption = draw.__name__.removeprefix("draw_"), " ".join(draw.__doc__.split())
    return Picture(name, caption, tuple(needs), lambda r: draw(process, *[r[n] for n in needs]))
