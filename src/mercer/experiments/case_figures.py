"""The figures of the case study, from arrays alone."""

from collections.abc import Sequence
from functools import partial

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

from ..plots import ACCENT, COLOURS, INK, covariance, marginals, paths
from .case_study import LEVEL, MARGINAL_TIMES, shares_of
from .experiment import Picture, Results
from .processes import Process
from .study_figures import (
    draw_convergence,
    draw_depth,
    draw_factor,
    draw_panels,
    draw_recipe,
    draw_study_tests,
    draw_twenty,
    draw_widths,
)

# An axis of shares, with room for a legend above what may stand anywhere.
ROOMY = {"ylim": (0, 1.35), "yticks": np.linspace(0, 1, 6)}


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
    axes[1].set(title="p-values", xlabel="t", **ROOMY)
    axes[1].legend()
    ours = [shares_of(held["times"], held["p_value"])[1], *results["tests"]["shares"][:, 1]]
    draw_shares(axes[2], ours, results["tests"]["null_shares"][:, 1])
    return figure


def draw_shares(axes: plt.Axes, ours: Sequence[float], exact: np.ndarray) -> None:
    """Shares of times near zero that pass: networks' by set of draws, and those of exact paths."""
    bins = np.linspace(0, 1, 21)
    axes.hist(exact, bins, weights=np.full(len(exact), 1 / len(exact)), color=COLOURS[0],
              alpha=0.35, label=f"exact paths, mean {exact.mean():.2f}")  # fmt: skip
    axes.hist(ours, bins, weights=np.full(len(ours), 1 / len(ours)), histtype="step",
              color=ACCENT, linewidth=1.5, label=f"networks, mean {np.mean(ours):.2f}")  # fmt: skip
    axes.set(title="Share that passes, t < 0.05", xlabel="share", ylabel="sets of draws", **ROOMY)
    axes.legend(loc="upper left")


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
                    ("exact", "tests", "chain"), partial(draw_tests, process)),
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
