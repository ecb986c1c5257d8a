"""The cost of one sample: operations by the paper's count, and seconds beside two GP methods."""

import timeit
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure

import mercer
from mercer.plots import ACCENT

from .experiment import Arrays, Experiment, Picture, Quantity, Results, Run, Settings, Stage
from .panels import LOG, curves, panels
from .summaries import strings

DEVICE_FLOPS = 989e12
LENGTHSCALE = 0.1
# The paper's table: modes N, points M, parameters D, minibatch B, steps T.
SCENARIOS = {
    "high cost": {"N": 100, "M": 10_000, "D": 2_500, "B": 32, "T": 10_000},
    "low cost": {"N": 10, "M": 8, "D": 32, "B": 8, "T": 1_000},
}
# Each method is timed up to a number of points, or until one sample takes so many seconds.
PAPER = Settings(width=32, num_modes=100, repetitions=3, max_points=10**9, max_seconds=20.0)
QUICK = PAPER.but(max_points=10**7, max_seconds=4.0)
SMOKE = Settings(width=16, num_modes=32, repetitions=1, max_points=1_000, max_seconds=1.0)
# The methods that are timed, by stage: the name of their metrics, and two names in words.
METHODS = {
    "network": ("network", "network with a Mercer prior", "of one function drawn as a network"),
    "exact_process": ("exact_gp", "exact GP", "by an exact GP"),
    "kiss": ("kiss_gp", "KISS-GP", "by KISS-GP"),
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
    nodes, small = 2 * num_modes + 16, min(width, num_modes)
    hidden = 2 * nodes * width * num_inputs
    once = hidden + 2 * nodes * width * num_modes + 2 * width * num_modes * small + small**3 / 3
    return once + 2 * points * width * (num_inputs + 1)


def count_operations(run: Run) -> Arrays:
    """The curves of the paper's figure, and where each reaches the device's line."""
    points, (high, low) = np.geomspace(1, 1e15, 400), SCENARIOS.values()
    flops = {
        "Mercer, high cost": mercer_flops(points, **high),
        "Mercer, low cost": mercer_flops(points, **low),
        "naive GP": naive_flops(points, high["B"], high["T"]),
        "KISS-GP": kiss_flops(points, high["B"], high["T"]),
        "Mercer, exact draws": exact_flops(points, run.settings.width, run.settings.num_modes),
    }
    rivals = [function(points, low["B"], low["T"]) for function in (naive_flops, kiss_flops)]
    ahead = np.argmax(flops["Mercer, low cost"] < np.min(rivals, axis=0))
    reach = [np.interp(DEVICE_FLOPS, f, points) for f in flops.values()]
    return {"points": points, "labels": strings(flops), "flops": np.stack(list(flops.values())),
            "reach": np.array(reach), "low_cost_ahead_from": points[ahead]}  # fmt: skip


def measure_network(run: Run) -> Arrays:
    """Seconds of an exact draw of the parameters, then its values at P points."""
    settings, domain = run.settings, mercer.Interval(0, 1)
    spectrum = mercer.Matern(1.5, LENGTHSCALE, 1.0, domain, settings.num_modes)
    network = mercer.FourierMLP(1, settings.width, key=run.key, readout_scale=100.0)
    prior = mercer.Prior(mercer.Quadrature(spectrum), network, normalised=True)

    def draw(num_points: int, key: jax.Array) -> jax.Array:
        network, scale = prior.network(prior.draw(key)), 1.0 / num_points
        values = lambda i: network((i[None] + 0.5) * scale).astype(jnp.float32)  # noqa: E731
        return jax.lax.map(values, jnp.arange(num_points, dtype=jnp.float64), batch_size=65_536)

    return _time_compiled(run, "network", draw)


def measure_exact_process(run: Run) -> Arrays:
    """Seconds of a Gaussian process by the Cholesky factor of its covariance at P points."""

    def draw(num_points: int, key: jax.Array) -> jax.Array:
        t = (jnp.arange(num_points) + 0.5) / num_points
        scaled = jnp.sqrt(3.0) * jnp.abs(t[:, None] - t[None]) / LENGTHSCALE
        covariance = (1 + scaled) * jnp.exp(-scaled) + 1e-10 * jnp.eye(num_points)
        return jnp.linalg.cholesky(covariance) @ jax.random.normal(key, (num_points,))

    return _time_compiled(run, "exact GP", draw)


def measure_kiss(run: Run) -> Arrays:
    """Seconds of KISS-GP by GPyTorch: a grid of inducing points, interpolated at P points."""
    try:
        import gpytorch  # pyright: ignore[reportMissingImports]
        import torch  # pyright: ignore[reportMissingImports]
    except ImportError:
        run.tell("      GPyTorch is not installed: pip install 'mercer[cost]' adds this curve")
        return {"points": np.zeros(0), "seconds_each": np.zeros(0), "ended": "not installed"}
    device = "cuda" if torch.cuda.is_available() and jax.default_backend() == "gpu" else "cpu"
    base, grid = gpytorch.kernels.MaternKernel(nu=1.5), {"grid_size": 1_000, "num_dims": 1}
    base.lengthscale, interpolated = LENGTHSCALE, gpytorch.kernels.GridInterpolationKernel
    kernel = interpolated(base, grid_bounds=[(0.0, 1.0)], **grid).to(device)

    def sample(num_points: int) -> None:
        t = (torch.arange(num_points, device=device, dtype=torch.float32) + 0.5) / num_points
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            # Of the grid first, then interpolated: KISS-GP's own way, linear in the points.
            kernel(t[:, None]).evaluate_kernel().zero_mean_mvn_samples(1)
        if device == "cuda":
            torch.cuda.synchronize()

    return _time_samples(run, "KISS-GP", sample)


def _time_compiled(run: Run, name: str, draw: Callable[[int, jax.Array], jax.Array]) -> Arrays:
    """Seconds of one sample, compiled for each number of points."""
    compiled = jax.jit(draw, static_argnums=0)
    return _time_samples(run, name, lambda size: jax.block_until_ready(compiled(size, run.key)))


def _time_samples(run: Run, name: str, sample: Callable[[int], Any]) -> Arrays:
    """Seconds of one sample at more and more points, until it is too slow or too large."""
    limit, repetitions = run.settings.max_seconds, run.settings.repetitions
    sizes = np.round(np.geomspace(10, 1e9, 17)).astype(int)
    points, seconds, ended = [], [], "as far as asked"
    for size in sizes[sizes <= run.settings.max_points].tolist():
        try:
            sample(size)
            times = timeit.repeat(partial(sample, size), number=1, repeat=repetitions)
        except (MemoryError, RuntimeError) as error:
            ended = f"out of memory at {size:,} points"
            run.tell(f"      {name}: {ended} ({type(error).__name__})")
            break
        points.append(size)
        seconds.append(min(times))
        if seconds[-1] > limit:
            ended = f"more than {limit:g} s a sample"
            break
        if len(seconds) > 2 and seconds[-1] * (seconds[-1] / seconds[-2]) > 4 * limit:
            ended = f"the next would take more than {4 * limit:g} s"
            break
    return {"points": np.array(points), "seconds_each": np.array(seconds), "ended": ended}


def measure(results: Results) -> dict[str, Any]:
    """The reach of each method, by operations and by seconds."""
    operations, ours = results["operations"], results["network"]
    reach = zip(operations["labels"].tolist(), operations["reach"].tolist(), strict=True)
    metrics: dict[str, Any] = {"points_at_989_teraflop": dict(reach)}
    for stage, (name, *_) in METHODS.items():
        arrays = results[stage]
        if len(arrays["points"]):
            metrics[f"{name}_points"] = int(arrays["points"][-1])
            metrics[f"{name}_seconds"] = float(arrays["seconds_each"][-1])
            metrics[f"{name}_ended"] = str(arrays["ended"])
        if stage != "network":
            metrics[f"network_ahead_of_{name}_from"] = _ahead(ours, arrays)
    return metrics


def _ahead(ours: Arrays, other: Arrays) -> int | None:
    """The number of points from which our sample takes less time, where both were timed."""
    shared = min(len(ours["points"]), len(other["points"]))
    slower = np.flatnonzero(ours["seconds_each"][:shared] >= other["seconds_each"][:shared])
    first = slower[-1] + 1 if len(slower) else 0
    return int(ours["points"][first]) if first < shared else None


def draw_operations(figure: Figure, operations: Arrays) -> None:
    """The paper's count of operations for one posterior sample, and that of one exact draw."""
    (axes,) = panels(figure, 1, 7, 3.8)
    by_label = dict(zip(operations["labels"], operations["flops"], strict=True))
    curves(axes, operations["points"], by_label, level=DEVICE_FLOPS, xlabel="P", ylim=(1e3, 1e20),
           title="Operations for one posterior sample at P points",
           ylabel="floating-point operations", **LOG)  # fmt: skip
    axes.text(1.3, DEVICE_FLOPS * 1.5, "989 teraFLOP", fontsize=8)


def draw_seconds(figure: Figure, network: Arrays, exact_process: Arrays, kiss: Arrays) -> None:
    """One function drawn jointly at P points: seconds measured, as far as each method goes."""
    (axes,) = panels(figure, 1, 7, 3.8)
    timed = zip(METHODS.values(), (network, exact_process, kiss), strict=True)
    for (_, label, _), arrays in timed:
        points, seconds = arrays["points"], arrays["seconds_each"]
        if len(points):
            title = "Seconds for one function drawn and evaluated at P points, measured"
            style = {"title": title, "xlabel": "P", "ylabel": "seconds"} | LOG
            curves(axes, points, {label: seconds}, "o-", **style)
            axes.annotate(str(arrays["ended"]), (points[-1], seconds[-1]), fontsize=7,
                          color=ACCENT, ha="right", va="bottom")  # fmt: skip


FASTER = "points from which the network is faster than the"
EXPERIMENT = Experiment(
    name="cost", title="What a sample costs: operations counted, seconds measured",
    settings={"smoke": SMOKE, "quick": QUICK, "paper": PAPER},
    stages=(
        Stage("operations", "operations, counted", count_operations),
        Stage("network", "a network, measured", measure_network),
        Stage("exact_process", "an exact Gaussian process, measured", measure_exact_process),
        Stage("kiss", "KISS-GP, measured", measure_kiss),
    ),
    pictures=(Picture.of(draw_operations), Picture.of(draw_seconds)),
    quantities=(
        *(quantity for name, _, words in METHODS.values() for quantity in (
            Quantity(f"{name}_points", f"most points {words}"),
            Quantity(f"{name}_seconds", "seconds for that"),
        )),
        *(Quantity(f"network_ahead_of_{name}_from", f"{FASTER} {label}")
          for name, label, _ in list(METHODS.values())[1:]),
        Quantity("low_cost_ahead_from",
                 "points from which the paper's low-cost count is ahead of both",
                 "operations.low_cost_ahead_from", 100),
        Quantity("seconds", "seconds in all"),
    ),
    measure=measure, estimate=lambda settings: 20 * settings.max_seconds * settings.repetitions,
)  # fmt: skip
