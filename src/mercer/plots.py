"""Figures of spectra, paths, covariances and marginals, by Matplotlib."""

from typing import Any

import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
from jaxtyping import ArrayLike, PRNGKeyArray
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.rcsetup import cycler

from .domains import Box, RealLine
from .fidelity import kernel_matrix
from .process import GaussianProcess
from .spectra import Spectrum

INK = "#22313f"
ACCENT = "#b5442e"
COLOURS = ("#1f5a7a", "#b5442e", "#4b8b5a", "#8a6d3b", "#6a4c86")
STYLE: dict[str, Any] = {
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.titlesize": 10,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.labelsize": 9,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "xtick.color": INK,
    "ytick.color": INK,
    "text.color": INK,
    "legend.frameon": False,
    "legend.fontsize": 8,
    "figure.dpi": 130,
    "savefig.bbox": "tight",
    "image.cmap": "cividis",
    "axes.prop_cycle": cycler(color=COLOURS),
}


def spectrum(process: Spectrum, key: PRNGKeyArray, num_draws: int = 5) -> Figure:
    """Draws, covariance and eigenvalues of any spectrum, in one figure."""
    with plt.rc_context(STYLE):
        figure, (left, middle, right) = plt.subplots(1, 3, figsize=(11, 3.1), layout="constrained")
        _draw_paths(left, figure, process, key, num_draws)
        _draw_covariance(middle, figure, process)
        _draw_eigenvalues(right, process)
    return figure


def covariance(
    axes: Axes, figure: Figure, axis: ArrayLike, values: ArrayLike, title: str, **options: Any
) -> None:
    """A covariance matrix over an interval as an image with its scale."""
    axis = np.asarray(axis)
    extent = (float(axis[0]), float(axis[-1]), float(axis[0]), float(axis[-1]))
    _show(axes, figure, np.asarray(values), extent, **options)
    axes.set(title=title, xlabel="s", ylabel="t")


def paths(axes: Axes, points: ArrayLike, values: ArrayLike, title: str) -> None:
    """Paths over an interval, one a row."""
    axes.plot(np.asarray(points), np.asarray(values).T, linewidth=0.8)
    axes.set(title=title, xlabel="t")


def _line(process: Spectrum, count: int) -> tuple[np.ndarray, np.ndarray, str]:
    """Points along the first axis through the middle of the domain, and that axis's name."""
    domain = process.domain
    if isinstance(domain, Box):
        axis = np.linspace(domain.lower[0], domain.upper[0], count)
        points = np.tile(np.add(domain.lower, domain.upper) / 2, (count, 1))
        points[:, 0] = axis
        return axis, points, "t" if domain.dimension == 1 else "t₁, through the middle"
    if isinstance(domain, RealLine):
        axis = np.linspace(-2.5 * domain.scale, 2.5 * domain.scale, count)
        return axis, axis[:, None], "t"
    points = np.asarray(domain.quadrature(count)[0])
    points = points[np.argsort(points[:, 0], kind="stable")[:: max(1, len(points) // count)]]
    return np.arange(len(points), dtype=float), points, "points, by their first coordinate"


def _draw_paths(
    axes: Axes, figure: Figure, process: Spectrum, key: PRNGKeyArray, count: int
) -> None:
    if isinstance(process.domain, Box) and process.domain.dimension == 2:
        return _draw_surface(axes, figure, process, key)
    axis, points, label = _line(process, 600)
    paths(axes, axis, GaussianProcess(process).draw(key, jnp.asarray(points), count), "Draws")
    axes.set_xlabel(label)


def _draw_surface(axes: Axes, figure: Figure, process: Spectrum, key: PRNGKeyArray) -> None:
    """One draw over a rectangle as an image."""
    domain, side = process.domain, np.linspace(0, 1, 80)
    grid = np.stack(np.meshgrid(side, side, indexing="ij"), -1).reshape(-1, 2)
    values = GaussianProcess(process).draw(key, domain.from_unit(jnp.asarray(grid)))[0]
    extent = (domain.lower[0], domain.upper[0], domain.lower[1], domain.upper[1])
    _show(axes, figure, np.asarray(values).reshape(80, 80).T, extent)
    axes.set(title="One draw", xlabel="t₁", ylabel="t₂")


def _show(axes: Axes, figure: Figure, values: np.ndarray, extent: tuple, **options: Any) -> None:
    """An image with its colour scale."""
    image = axes.imshow(values, origin="lower", extent=extent, aspect="auto", **options)
    figure.colorbar(image, ax=axes, shrink=0.9)


def _draw_covariance(axes: Axes, figure: Figure, process: Spectrum) -> None:
    axis, points, label = _line(process, 80)
    covariance(axes, figure, axis, kernel_matrix(process, jnp.asarray(points)), "Covariance")
    axes.set(xlabel=label, ylabel="")


def _draw_eigenvalues(axes: Axes, process: Spectrum) -> None:
    n = np.arange(1, process.num_modes + 1)
    axes.loglog(n, np.exp(np.asarray(process.log_eigenvalues)), ".", markersize=3, color=COLOURS[0])
    axes.set(title="Eigenvalues", xlabel="mode n", ylabel="λₙ")
    share = axes.twinx()
    share.plot(n, np.asarray(process.cumulative_ratio), color=ACCENT, linewidth=1.2)
    share.set_ylim(0, 1.02)
    share.set_ylabel("cumulative share of variance", color=ACCENT)
    share.tick_params(colors=ACCENT)


def marginals(axes: Axes, values: ArrayLike, scale: float, title: str) -> None:
    """A histogram of values against the density of N(0, scale²)."""
    x = np.linspace(-3.5 * scale, 3.5 * scale, 200)
    axes.hist(np.asarray(values), bins=50, density=True, color=COLOURS[0], alpha=0.35)
    density = np.exp(-0.5 * (x / scale) ** 2) / (scale * np.sqrt(2 * np.pi))
    axes.plot(x, density, color=ACCENT, linewidth=1.4)
    axes.set(title=title, yticks=[])
