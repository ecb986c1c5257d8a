"""The figures of the case study, from arrays alone."""

from dataclasses import replace

import numpy as np
from matplotlib.figure import Figure

from mercer.diagnostics import ks_critical
from mercer.plots import ACCENT, COLOURS, INK, covariance, marginals, paths

from .case_study import LEVEL, MARGINAL_TIMES
from .experiment import Arrays, Picture
from .panels import DASHED, LOG, curves, panels
from .processes import Process


def draw_samples(process: Process, figure: Figure, samples: Arrays) -> None:
    """Exact paths and networks drawn from the Mercer prior, on a fine grid."""
    left, right = panels(figure, 2, 9.5, sharey=True)
    paths(left, samples["times"], samples["exact"], process.name)
    ours = f"Networks of width {samples['width']}, Mercer prior"
    paths(right, samples["times"], samples["ours"], ours)


def draw_widths(process: Process, figure: Figure, width: Arrays) -> None:
    """Paths of networks of growing width."""
    axes = panels(figure, len(width["labels"]), max(9.5, 2.4 * len(width["labels"])), sharey=True)
    for panel, title, drawn in zip(axes, width["labels"], width["paths"], strict=True):
        paths(panel, width["fine"], drawn, title)


def draw_covariance(process: Process, figure: Figure, exact: Arrays) -> None:
    """The exact covariance, that of exact draws of every parameter, and their difference."""
    times, sampled = exact["times"], exact["covariance"]
    kernel, count = process.kernel(times, times), f"{exact['num_draws']:,} networks"
    left, middle, right = panels(figure, 3, 11, 3)
    limits = {"vmin": 0, "vmax": float(kernel.max())}
    covariance(left, figure, times, kernel, "Exact", **limits)
    covariance(middle, figure, times, sampled, count, **limits)
    covariance(right, figure, times, np.abs(sampled - kernel), "Absolute error")


def draw_marginals(process: Process, figure: Figure, exact: Arrays) -> None:
    """Draws at fixed times against the law of the process there."""
    variances = process.variance(np.array(MARGINAL_TIMES))
    shown = np.flatnonzero(variances > 0)
    for panel, i in zip(panels(figure, len(shown), 2.9 * len(shown), 2.5), shown, strict=True):
        title = f"t = {MARGINAL_TIMES[i]:g}: N(0, {variances[i]:.3g})"
        marginals(panel, exact["marginals"][:, i], np.sqrt(variances[i]), title)


def draw_tests(_: Process, figure: Figure, exact: Arrays, tests: Arrays, chain: Arrays) -> None:
    """One-sample Kolmogorov–Smirnov tests along t. Neighbouring times pass or fail together, so the
    share that passes is spread widely even for exact paths (right)."""
    left, middle, right = panels(figure, 3, 11)
    # Room for a legend above shares that may stand anywhere.
    roomy = {"ylim": (0, 1.35), "yticks": np.linspace(0, 1, 6)}
    critical = np.sqrt(-0.5 * np.log(LEVEL / 2) / exact["num_draws"])
    curves(left, exact["times"], {"_": exact["statistic"]}, level=critical, xlabel="t",
           level_label="critical at 0.05",
           title="KS statistic, exact draws", ylim=(0, None))  # fmt: skip
    curves(middle, exact["times"], {"exact draws": exact["p_value"]})
    curves(middle, chain["times"], {"HMC, thinned": chain["p_value"]}, level=LEVEL,
           title="p-values", xlabel="t", **roomy)  # fmt: skip
    networks = np.append(exact["shares"][1], tests["shares"][:, 1])
    for label, shares in {"exact paths": tests["null_shares"][:, 1], "networks": networks}.items():
        right.hist(shares, np.linspace(0, 1, 21), weights=np.full(len(shares), 1 / len(shares)),
                   alpha=0.4, label=f"{label}, mean {shares.mean():.2f}")  # fmt: skip
    right.set(title="Share that passes, t < 0.05", xlabel="share", ylabel="sets", **roomy)
    right.legend(loc="upper left")


def draw_chain(process: Process, figure: Figure, chain: Arrays, exact: Arrays) -> None:
    """Hamiltonian Monte Carlo over every parameter beside independent exact draws."""
    times, variance = chain["times"], process.variance(chain["times"])
    ours = {"HMC": chain["covariance"], "HMC's prior, closed form": chain["closed_form"]}
    ratio, errors, traces, counts = panels(figure, 4, 13)
    of_exact = np.diag(exact["covariance"]) / process.variance(exact["times"])
    curves(ratio, exact["times"], {"exact draws": of_exact})
    curves(ratio, times, {label: np.diag(c) / variance for label, c in ours.items()}, level=1,
           title="Variance over the process's", xlabel="t", ylim=(0.7, 1.3))  # fmt: skip
    covariance(errors, figure, times, chain["z"], "Error in s.e., HMC", vmin=0)
    traces.plot(chain["trace"].T, linewidth=0.6)
    traces.set(title="Four chains, u at one time", xlabel="draw")
    curves(counts, times, {"effective": chain["ess"]}, level=chain["num_draws"], xlabel="t",
           level_label="draws", title="Effective draws along t", ylim=(0, None))  # fmt: skip


def draw_twenty(process: Process, figure: Figure, truncation: Arrays) -> None:
    """Few modes leave faster functions to the reference alone; eigenvalues do not show it."""
    *drawn, cumulative = panels(figure, 3, 11)
    for panel, i in zip(drawn, (0, -1), strict=True):
        title = f"Networks, {truncation['labels'][i]}"
        paths(panel, truncation["fine"], truncation["paths"][i], title)
    shares = np.asarray(process.make_spectrum(1000).cumulative_ratio)
    curves(cumulative, np.arange(1, len(shares) + 1), {"_": shares}, xscale="log", xlabel="K",
           title="Cumulative share of the eigenvalues", ylim=(0, 1.02))  # fmt: skip
    counts = np.array(_sizes(truncation))
    cumulative.plot(counts, shares[counts - 1], "o", color=ACCENT, markersize=4)


def _sizes(arrays: Arrays) -> list[int]:
    """The numbers at the ends of the labels."""
    return [int(str(label).split()[-1]) for label in arrays["labels"]]


def draw_sweep(process: Process, figure: Figure, sweep: Arrays) -> None:
    """Covariance and absolute error."""
    times, labels = sweep["times"], sweep["labels"]
    kernel = process.kernel(times, times)
    axes = panels(figure, len(labels), 2.6 * len(labels), 4.6, rows=2)
    for (top, bottom), label, sampled in zip(axes.T, labels, sweep["covariance"], strict=True):
        error = np.abs(sampled - kernel)
        covariance(top, figure, times, sampled, str(label), vmin=0, vmax=float(kernel.max()))
        covariance(bottom, figure, times, error, f"error, at most {error.max():.2g}", vmin=0)
    for panel in axes.flat:
        panel.set(xlabel="", ylabel="")


def draw_sweep_tests(process: Process, figure: Figure, sweep: Arrays) -> None:
    """Two-sample KS tests against exact paths, critical at 0.05 where dashed; closed form."""
    times, labels = sweep["times"], sweep["labels"]
    critical = ks_critical(*2 * (int(sweep["num_draws"][0]),))
    left, middle, right = panels(figure, 3, 11)
    statistics = dict(zip(labels, sweep["statistic_two_sample"], strict=True))
    errors = {"over hidden layers": "closed_error", "one hidden layer": "closed_error_one"}
    curves(left, times, statistics, level=critical, yscale="log", xlabel="t",
           title="Two-sample KS statistic")  # fmt: skip
    curves(middle, times, {"_": sweep["p_value_two_sample"]}, level=LEVEL, title="p-value",
           xlabel="t", ylim=(0, 1))  # fmt: skip
    sizes, errors = _sizes(sweep), {label: sweep[name] for label, name in errors.items()}
    curves(right, sizes, errors, "o-", at=sizes, title="Largest covariance error, closed form",
           xlabel=str(labels[0])[0], **LOG)  # fmt: skip


def draw_depth(process: Process, figure: Figure, depth: Arrays) -> None:
    """Depth with the same units, with twice the width, and with gentler units (tanh of slope at
    most 2): steep layers sharpen what the ones before made."""
    left, right = panels(figure, 2, 9.5, 3.1)
    for family in dict.fromkeys(depth["family"]):
        rows = depth["family"] == family
        for panel, name in ((left, "closed_error"), (right, "energy_bandwidth")):
            curves(panel, depth["depth"][rows], {family: depth[name][rows]}, "o-", xlabel="depth",
                   xticks=np.unique(depth["depth"]))  # fmt: skip
    left.set(title="Largest covariance error, closed form", yscale="log")
    right.set(title="Mode below which 90 % of the units' energy lies", ylim=(0, None))


def draw_factor(process: Process, figure: Figure, factor: Arrays) -> None:
    """Near zero: the paper's factor keeps the network too small; one that saturates does not."""
    times, shares = factor["times"], factor["shares"][:, 0]
    variances = np.diagonal(factor["closed_form"], axis1=1, axis2=2)
    left, right = panels(figure, 2, 10, 3.6)
    for label, share, variance in zip(factor["labels"], shares, variances, strict=True):
        ratio = variance / process.variance(times)
        left.plot(times, ratio, linewidth=1.4, label=f"{label}: {share:.0%} pass")
    top = max(1.1, 1.05 * left.dataLim.ymax)
    figure.legend(loc="outside lower center", ncols=3)
    left.axhline(1, **DASHED | {"linewidth": 0.8})
    left.set(title="Variance over the process's, closed form", xlabel="t", ylim=(0, top),
             xscale="log")  # fmt: skip
    curves(right, times, {"_": np.maximum(factor["p_value"], 1e-12)}, level=LEVEL, xlabel="t",
           title=f"KS p-value, {factor['num_draws'][0]:,} exact draws", **LOG)  # fmt: skip


def draw_convergence(process: Process, figure: Figure, convergence: Arrays) -> None:
    """Errors in closed form against width, modes and readout scale."""
    widths, modes, scales = (convergence[name] for name in ("widths", "modes", "scales"))
    exponent = np.polyfit(np.log(widths), np.log(convergence["by_width"]), 1)[0]
    one_network = f"one network, W = {int(convergence['fixed_width'])}"
    left, middle, right = panels(figure, 3, 11.5, 3.1)
    curves(left, widths, {"W eigenfunctions": convergence["tail"]}, "--")
    curves(left, widths, {"networks, K = 2W": convergence["by_width"]}, "o-", xlabel="W", **LOG,
           at=widths, title=f"Width: error ~ W^{exponent:.2f}",
           ylabel="largest covariance error")  # fmt: skip
    curves(middle, modes, {"K eigenfunctions": convergence["tail_by_modes"]}, "--")
    curves(middle, modes, {one_network: convergence["by_modes"]}, "o-", xlabel="K", **LOG,
           at=modes, title="Modes: K against the bandwidth")  # fmt: skip
    curves(right, scales, {"_": convergence["by_scale"]}, "o-", xlabel="readout scale", **LOG,
           at=scales, title="Reference: the readout's scale")  # fmt: skip


def draw_recipe(process: Process, figure: Figure, recipe: Arrays, chain: Arrays) -> None:
    """The recipe as printed: SGLD on the Monte Carlo energy of the improper density."""
    ours, labels, times = float(chain["max_error"]), recipe["labels"], recipe["times"]
    left, right = panels(figure, 2, 11.5, 3.6)
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


FIGURES = (
    draw_samples, draw_covariance, draw_marginals, draw_tests, draw_chain, draw_factor,
    draw_twenty, draw_widths, draw_depth, draw_convergence, draw_recipe,
)  # fmt: skip
SWEEPS = {
    "truncation": "The same network with K modes",
    "width": "The same scales and modes at growing width",
}


def pictures_of(process: Process, stages: tuple[str, ...]) -> tuple[Picture, ...]:
    """The figures that the stages of a process allow."""
    pictures = [Picture.of(draw, process) for draw in FIGURES]
    for stage, words in SWEEPS.items():
        for suffix, draw in (("", draw_sweep), ("_tests", draw_sweep_tests)):
            drawn = Picture.of(draw, process)
            caption = f"{words}. {drawn.caption}"
            pictures.append(replace(drawn, name=stage + suffix, caption=caption, needs=(stage,)))
    return tuple(picture for picture in pictures if set(picture.needs) <= set(stages))
