"""Brownian motion from networks: exact draws of all parameters against min(s, t)."""

import dataclasses
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy import stats

from ..density import Prior
from ..energy import Quadrature
from ..fidelity import fidelity
from ..networks import FourierMLP
from ..plots import STYLE, covariance, marginals, paths, plt
from ..spectra import BrownianMotion

Tell = Callable[[str], None]
PAPER = {"covariance_max_error": 0.043}
TIMES = (0.25, 0.5, 0.75, 1.0)


@dataclasses.dataclass(frozen=True)
class Settings:
    """How large a run is."""

    width: int
    num_modes: int
    num_draws: int
    num_grid: int = 100
    num_fine: int = 20_000
    chunk: int = 250


SETTINGS = {
    "smoke": Settings(width=48, num_modes=64, num_draws=400, num_fine=2_000),
    "quick": Settings(width=256, num_modes=256, num_draws=5_000),
    "paper": Settings(
        width=1000, num_modes=1000, num_draws=100_000, num_grid=1000, num_fine=100_000
    ),
}


def make_prior(settings: Settings, key: jax.Array) -> Prior:
    """The prior of the case study, with a factor and frequencies that reach down to t = 0."""
    network = FourierMLP(
        1,
        settings.width,
        frequency_scale=20.0,
        boundary=("dirichlet", "neumann"),
        key=key,
        saturation=0.003,
        hidden_scale=8.0,
        readout_scale=100.0,
    )
    return Prior(Quadrature(BrownianMotion(settings.num_modes)), network)


def draw_values(
    prior: Prior, points: jax.Array, key: jax.Array, settings: Settings, tell: Tell
) -> np.ndarray:
    """Values of independent exact draws at the points, in chunks, with the time left."""

    @jax.jit
    def chunk(keys):
        return jax.lax.map(lambda k: jax.vmap(prior.network(prior.draw(k)))(points), keys)

    keys = jax.random.split(key, settings.num_draws)
    values, start = [], time.monotonic()
    for begin in range(0, settings.num_draws, settings.chunk):
        values.append(np.asarray(chunk(keys[begin : begin + settings.chunk])))
        done = begin + len(values[-1])
        left = (time.monotonic() - start) * (settings.num_draws - done) / done
        tell(f"drew {done} of {settings.num_draws} networks, {left:.0f} s left")
    return np.concatenate(values)


def run(folder: Path, scale: str, seed: int, tell: Tell) -> dict[str, Any]:
    """Draw, compare, plot; returns the metrics."""
    start = time.monotonic()
    settings = SETTINGS[scale]
    network_key, draw_key, fine_key, exact_key = jax.random.split(jax.random.key(seed), 4)
    prior = make_prior(settings, network_key)
    tell("computing the closed-form fidelity")
    closed = fidelity(prior)
    grid = np.linspace(1 / settings.num_grid, 1, settings.num_grid)
    values = draw_values(prior, jnp.asarray(grid)[:, None], draw_key, settings, tell)
    fine = np.linspace(0, 1, settings.num_fine)
    ours = np.stack(
        [
            np.asarray(
                jax.lax.map(
                    prior.network(prior.draw(k)), jnp.asarray(fine)[:, None], batch_size=4096
                )
            )
            for k in jax.random.split(fine_key, 5)
        ]
    )
    arrays = {"grid": grid, "values": values.astype(np.float32), "fine": fine, "ours": ours}
    arrays["exact"] = exact_paths(exact_key, 5, settings.num_fine)
    np.savez_compressed(folder / "arrays.npz", **arrays)
    metrics = measure(grid, values)
    metrics["fidelity_max_error"] = closed.max_error
    draw_figures(folder, arrays)
    metrics["seconds"] = time.monotonic() - start
    metrics["paper"] = PAPER
    return metrics


def exact_paths(key: jax.Array, count: int, num_points: int) -> np.ndarray:
    """Brownian motion by its increments on a regular grid from 0 to 1."""
    steps = jax.random.normal(key, (count, num_points - 1)) / np.sqrt(num_points - 1)
    return np.concatenate([np.zeros((count, 1)), np.cumsum(np.asarray(steps), axis=1)], axis=1)


def measure(grid: np.ndarray, values: np.ndarray) -> dict[str, Any]:
    """Covariance error with its Monte Carlo error, and Kolmogorov–Smirnov tests along t."""
    exact = np.minimum.outer(grid, grid)
    error = np.abs(values.T @ values / len(values) - exact)
    standard = np.sqrt((np.outer(grid, grid) + exact**2) / len(values))
    worst = np.unravel_index(np.argmax(error), error.shape)
    columns = zip(grid, values.T, strict=True)
    passed = np.array([stats.kstest(v / np.sqrt(t), "norm").pvalue > 0.05 for t, v in columns])
    return {
        "covariance_max_error": float(error.max()),
        "covariance_max_error_se": float(standard[worst]),
        "covariance_max_z": float((error / standard).max()),
        "ks_pass_fraction": float(passed.mean()),
        "ks_pass_fraction_near_zero": float(passed[grid < 0.05].mean()),
        "num_draws": len(values),
    }


def draw_figures(folder: Path, arrays: dict[str, np.ndarray]) -> None:
    """The figures, from arrays alone, so that they can be drawn again."""
    grid, values = arrays["grid"], arrays["values"].astype(float)
    sampled = values.T @ values / len(values)
    exact = np.minimum.outer(grid, grid)
    with plt.rc_context(STYLE):
        figure, (left, right) = plt.subplots(
            1, 2, figsize=(9, 3), sharey=True, layout="constrained"
        )
        paths(left, arrays["fine"], arrays["exact"], "Brownian motion")
        paths(right, arrays["fine"], arrays["ours"], "Networks from the Mercer prior")
        save(figure, folder / "samples.png")
        figure, axes = plt.subplots(1, 3, figsize=(11, 3), layout="constrained")
        covariance(axes[0], figure, grid, exact, "Exact covariance", vmin=0, vmax=1)
        covariance(axes[1], figure, grid, sampled, "Networks", vmin=0, vmax=1)
        covariance(axes[2], figure, grid, np.abs(sampled - exact), "Absolute error")
        save(figure, folder / "covariance.png")
        figure, axes = plt.subplots(1, 4, figsize=(11, 2.4), layout="constrained")
        for panel, t in zip(axes, TIMES, strict=True):
            column = values[:, np.argmin(np.abs(grid - t))]
            marginals(panel, column, np.sqrt(t), f"t = {t:g}")
        save(figure, folder / "marginals.png")


def save(figure, path: Path) -> None:
    """Write a figure and let go of it."""
    figure.savefig(path)
    plt.close(figure)
