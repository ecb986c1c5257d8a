"""What a sample costs: the paper's count of operations, and seconds measured beside two GPs."""

import dataclasses
import time
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

from ..density import Prior
from ..domains import Interval
from ..energy import Quadrature
from ..networks import FourierMLP
from ..plots import ACCENT, COLOURS, INK
from ..spectra import Matern
from .experiment import Arrays, Experiment, Picture, Quantity, Results, Run, Stage

DEVICE_FLOPS = 989e12
LENGTHSCALE = 0.1
# What the paper's table prints: modes N, points M, parameters D, minibatch B, steps T.
SCENARIOS = {
    "high cost": {"N": 100, "M": 10_000, "D": 2_500, "B": 32, "T": 10_000},
    "low cost": {"N": 10, "M": 8, "D": 32, "B": 8, "T": 1_000},
}


@dataclasses.dataclass(frozen=True)
class Settings:
    """How far each method goes: to a number of points, or until one sample takes so many seconds."""

    width: int
    num_modes: int
    max_points: int
    max_seconds: float
    repetitions: int


SETTINGS = {
    "smoke": Settings(16, 32, 1_000, 1.0, 1),
    "quick": Settings(32, 100, 10_000_000, 4.0, 3),
    "paper": Settings(32, 100, 1_000_000_000, 20.0, 3),
}


def mercer_flops(points: np.ndarray, N: int, M: int, D: int, B: int, T: int) -> np.ndarray:
    """T(NMD + BD) + PD: T steps of SGLD to an independent sample, then its values."""
    return T * (N * M * D + B * D) + points * D


def naive_flops(points: np.ndarray, B: int, T: int) -> np.ndarray:
    """T(B³/3 + B) + P³/3."""
    return T * (B**3 / 3 + B) + points**3 / 3


def kiss_flops(points: np.ndarray, B: int, T: int) -> np.ndarray:
    """2TB + P²; the paper prints B² for P², against its own words."""
    return 2 * T * B + points**2


def exact_flops(points: np.ndarray, width: int, num_modes: int, num_inputs: int = 64) -> np.ndarray:
    """One exact draw of the normalised prior by its closed form, then its values: ours."""
    nodes = 2 * num_modes + 16
    small = min(width, num_modes)
    hidden = 2 * nodes * width * num_inputs
    once = hidden + 2 * nodes * width * num_modes + 2 * width * num_modes * small + small**3 / 3
    return once + 2 * points * width * (num_inputs + 1)


def count_operations(run: Run) -> Arrays:
    """The curves of the paper's figure, and where each reaches the device's line."""
    points = np.geomspace(1, 1e15, 400)
    high, low = SCENARIOS["high cost"], SCENARIOS["low cost"]
    curves = {
        "Mercer, high cost": mercer_flops(points, **high),
        "Mercer, low cost": mercer_flops(points, **low),
        "naive GP": naive_flops(points, high["B"], high["T"]),
        "KISS-GP": kiss_flops(points, high["B"], high["T"]),
        "Mercer, exact draws": exact_flops(points, run.settings.width, run.settings.num_modes),
    }
    reach = {n: float(np.interp(DEVICE_FLOPS, c, points)) for n, c in curves.items()}
    rivals = np.minimum(
        naive_flops(points, low["B"], low["T"]), kiss_flops(points, low["B"], low["T"])
    )
    ahead = float(points[np.argmax(curves["Mercer, low cost"] < rivals)])
    return {
        "points": points,
        "labels": np.array(list(curves)),
        "flops": np.stack(list(curves.values())),
        "reach": np.array(list(reach.values())),
        "low_cost_ahead_from": ahead,
    }


def measure_network(run: Run) -> Arrays:
    """An exact draw of the parameters, then its values at P points."""
    settings = run.settings
    spectrum = Matern(1.5, LENGTHSCALE, 1.0, Interval(0, 1), settings.num_modes)
    network = FourierMLP(1, settings.width, key=run.key, readout_scale=100.0)
    prior = Prior(Quadrature(spectrum), network, normalised=True)
    compiled: dict[int, Any] = {}

    def sample(num_points: int) -> None:
        if num_points not in compiled:
            compiled.clear()
            compiled[num_points] = jax.jit(partial(_values, prior, num_points))
        jax.block_until_ready(compiled[num_points](run.key))

    return _climb(run, "network", sample)


def _values(prior: Prior, num_points: int, key: jax.Array) -> jax.Array:
    network = prior.network(prior.draw(key))
    scale = 1.0 / num_points
    return jax.lax.map(
        lambda i: network((i[None] + 0.5) * scale).astype(jnp.float32),
        jnp.arange(num_points, dtype=jnp.float64),
        batch_size=65_536,
    )


def measure_exact_process(run: Run) -> Arrays:
    """A Gaussian process by Cholesky's factor of its covariance at P points."""
    compiled: dict[int, Any] = {}

    def draw(num_points: int, key: jax.Array) -> jax.Array:
        t = (jnp.arange(num_points) + 0.5) / num_points
        scaled = jnp.sqrt(3.0) * jnp.abs(t[:, None] - t[None]) / LENGTHSCALE
        covariance = (1 + scaled) * jnp.exp(-scaled) + 1e-10 * jnp.eye(num_points)
        return jnp.linalg.cholesky(covariance) @ jax.random.normal(key, (num_points,))

    def sample(num_points: int) -> None:
        if num_points not in compiled:
            compiled.clear()
            compiled[num_points] = jax.jit(partial(draw, num_points))
        jax.block_until_ready(compiled[num_points](run.key))

    return _climb(run, "exact GP", sample)


def measure_kiss(run: Run) -> Arrays:
    """KISS-GP by GPyTorch: a grid of inducing points, interpolated at P points."""
    try:
        import gpytorch  # pyright: ignore[reportMissingImports]
        import torch  # pyright: ignore[reportMissingImports]
    except ImportError:
        run.tell("      GPyTorch is not installed: pip install 'mercer[cost]' adds this curve")
        return {"points": np.zeros(0), "seconds_each": np.zeros(0), "ended": "not installed"}
    device = "cuda" if torch.cuda.is_available() and jax.default_backend() == "gpu" else "cpu"
    base = gpytorch.kernels.MaternKernel(nu=1.5)
    base.lengthscale = LENGTHSCALE
    kernel = gpytorch.kernels.GridInterpolationKernel(
        base, grid_size=1_000, num_dims=1, grid_bounds=[(0.0, 1.0)]
    ).to(device)

    def sample(num_points: int) -> None:
        t = (torch.arange(num_points, device=device, dtype=torch.float32) + 0.5) / num_points
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            # Of the grid first, then interpolated: KISS-GP's own way, linear in the points.
            kernel(t[:, None]).evaluate_kernel().zero_mean_mvn_samples(1)
        if device == "cuda":
            torch.cuda.synchronize()

    return _climb(run, "KISS-GP", sample)


def _climb(run: Run, name: str, sample: Callable[[int], None]) -> Arrays:
    """Seconds of one sample at more and more points, until it is too slow or too large."""
    settings = run.settings
    sizes = [int(s) for s in np.round(np.geomspace(10, 1e9, 17)) if s <= settings.max_points]
    points, seconds, ended = [], [], "as far as asked"
    for size in sizes:
        try:
            sample(size)
            each = []
            for _ in range(settings.repetitions):
                begin = time.perf_counter()
                sample(size)
                each.append(time.perf_counter() - begin)
        except (MemoryError, RuntimeError) as error:
            ended = f"out of memory at {size:,} points"
            run.tell(f"      {name}: {ended} ({type(error).__name__})")
            break
        points.append(size)
        seconds.append(min(each))
        if seconds[-1] > settings.max_seconds:
            ended = f"more than {settings.max_seconds:g} s a sample"
            break
        if (
            len(seconds) > 2
            and seconds[-1] * (seconds[-1] / seconds[-2]) > 4 * settings.max_seconds
        ):
            ended = f"the next would take more than {4 * settings.max_seconds:g} s"
            break
    return {"points": np.array(points), "seconds_each": np.array(seconds), "ended": ended}


def measure(results: Results) -> dict[str, Any]:
    """Reach of each method, by count and by clock."""
    flops = results["operations"]
    metrics: dict[str, Any] = {
        "points_at_989_teraflop": dict(
            zip((str(n) for n in flops["labels"]), map(float, flops["reach"]), strict=True)
        ),
        "low_cost_ahead_from": float(flops["low_cost_ahead_from"]),
    }
    for name in ("network", "exact_process", "kiss"):
        held = results[name]
        if len(held["points"]):
            short = {"network": "network", "exact_process": "exact_gp", "kiss": "kiss_gp"}[name]
            metrics[f"{short}_points"] = int(held["points"][-1])
            metrics[f"{short}_seconds"] = float(held["seconds_each"][-1])
            metrics[f"{short}_ended"] = str(held["ended"])
    metrics["network_ahead_of_exact_gp_from"] = _ahead(results["network"], results["exact_process"])
    metrics["network_ahead_of_kiss_gp_from"] = _ahead(results["network"], results["kiss"])
    return metrics


def _ahead(ours: Arrays, other: Arrays) -> int | None:
    """The number of points from which a sample of ours takes less time, where both were timed."""
    shared = min(len(ours["points"]), len(other["points"]))
    faster = ours["seconds_each"][:shared] < other["seconds_each"][:shared]
    if shared == 0 or not faster[-1]:
        return None
    first = shared - int(np.argmin(faster[::-1])) if not faster.all() else 0
    return int(ours["points"][first])


def draw_operations(results: Results) -> Figure:
    """The paper's figure."""
    held = results["operations"]
    figure, axes = plt.subplots(figsize=(7, 3.8), layout="constrained")
    for label, curve in zip(held["labels"], held["flops"], strict=True):
        axes.loglog(held["points"], curve, linewidth=1.4, label=str(label))
    axes.axhline(DEVICE_FLOPS, color=INK, linewidth=1, linestyle="--")
    axes.text(1.3, DEVICE_FLOPS * 1.5, "989 teraFLOP", fontsize=8)
    axes.set(title="Operations for one posterior sample at P points", xlabel="P",
             ylabel="floating-point operations", ylim=(1e3, 1e20))  # fmt: skip
    axes.legend(loc="lower right")
    return figure


def draw_seconds(results: Results) -> Figure:
    """Seconds measured against the number of points."""
    figure, axes = plt.subplots(figsize=(7, 3.8), layout="constrained")
    names = {
        "network": "network with a Mercer prior",
        "exact_process": "exact GP",
        "kiss": "KISS-GP",
    }
    for colour, (stage, label) in zip(COLOURS, names.items(), strict=False):
        held = results[stage]
        if len(held["points"]):
            axes.loglog(held["points"], held["seconds_each"], "o-", markersize=3.5, linewidth=1.4,
                        color=colour, label=label)  # fmt: skip
            axes.annotate(str(held["ended"]), (held["points"][-1], held["seconds_each"][-1]),
                          fontsize=7, color=ACCENT, ha="right", va="bottom")  # fmt: skip
    axes.set(title="Seconds for one function drawn and evaluated at P points, measured",
             xlabel="P", ylabel="seconds")  # fmt: skip
    axes.legend(loc="upper left")
    return figure


EXPERIMENT = Experiment(
    name="cost",
    title="What a sample costs: operations counted, seconds measured",
    settings=SETTINGS,
    stages=(
        Stage("operations", "operations, counted", count_operations),
        Stage("network", "a network, measured", measure_network),
        Stage("exact_process", "an exact Gaussian process, measured", measure_exact_process),
        Stage("kiss", "KISS-GP, measured", measure_kiss),
    ),
    pictures=(
        Picture("operations", "The paper's count of operations for one posterior sample, and that of one "
                "exact draw of the normalised prior.", ("operations",), draw_operations),
        Picture("seconds", "One function drawn jointly at P points: seconds measured on this machine, as far "
                "as each method goes.", ("network", "exact_process", "kiss"), draw_seconds),
    ),
    quantities=(
        Quantity("network_points", "most points of one function drawn as a network"),
        Quantity("network_seconds", "seconds for that"),
        Quantity("exact_gp_points", "most points by an exact GP"),
        Quantity("exact_gp_seconds", "seconds for that"),
        Quantity("kiss_gp_points", "most points by KISS-GP"),
        Quantity("kiss_gp_seconds", "seconds for that"),
        Quantity("network_ahead_of_exact_gp_from", "points from which the network is faster than the exact GP"),
        Quantity("network_ahead_of_kiss_gp_from", "points from which the network is faster than KISS-GP"),
        Quantity("low_cost_ahead_from", "points from which the paper's low-cost count is ahead of both", 100),
        Quantity("seconds", "seconds in all"),
    ),
    measure=measure,
    estimate=lambda settings: 20 * settings.max_seconds * settings.repetitions,
)  # fmt: skip
