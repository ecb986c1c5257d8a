"""Mauna Loa CO2, two years ahead: the periodic network of section 5.2, and what it takes to run."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy.stats import norm

import mercer
from mercer import diagnostics
from mercer.data import co2
from mercer.plots import ACCENT, COLOURS, INK, paths

from .co2_model import WINDOW, compare_kernels, decompose, posterior_of, rows_of, score_process
from .experiment import Arrays, Chains, Experiment, Picture, Quantity, Results, Run, Settings, Stage
from .panels import DASHED, curves, draw_band, panels
from .summaries import bands, by_name, converged, convergence, rms, strings, values_at

SCORES = {"rmse": {"at_most": 0.06}, "nlpd": {"at_most": -1.3}, "coverage": {"at_least": 0.85}}
MODELS = {
    "ours": ("", "our network, every parameter"),
    "frozen": ("_frozen", "our network, hidden layer frozen"),
    "process": ("_gp", "the exact process"),
    "printed_mean": ("_printed_mean", "the printed mean and kernel"),
    "isotropic": ("_isotropic", "independent Gaussian weights"),
}
TITLES = {"ours": "Our network", "printed_mean": "The printed mean, 0.95 t",
          "isotropic": "Independent Gaussian weights"}  # fmt: skip
READINGS = {
    "working": "with a length scale, exp(−2(nπℓ/ρ)²)",
    "printed": "as printed, exp(−2(nπ/ρ)²)",
    "product": "read as a product, exp(−2(nπρ)²)",
}
GRAMS = {"working": "ours,\n[0, 1]", "unit_interval": "printed,\n[0, 1]",
         "one_period": "printed,\none period"}  # fmt: skip
# The natural logarithm of the smallest positive number of each type.
SMALLEST = {"float64": 744.4, "float32": 103.3}
# Exact draws that are made at once.
PARALLEL = 100
# Our network and its chains; that with independent weights and its chains, with `num_climb` steps
# to a mode; `num_frozen` exact draws with a frozen layer; times of a curve; other windows.
PAPER = Settings(
    width=256, num_modes=80, num_frequencies=32, chains=Chains(4, 600, 100), plain_width=64,
    plain_depth=3, isotropic=Chains(4, 1500, 500), num_climb=2_000, num_frozen=100_000,
    num_grid=200, windows=("monthly", "ridgelet"),
)  # fmt: skip
QUICK = PAPER.but(
    width=64, num_modes=40, num_frequencies=16, chains=Chains(4, 240, 40),
    isotropic=Chains(4, 60, 60), num_climb=500, num_frozen=10_000,
)  # fmt: skip
SMOKE = QUICK.but(
    width=40, num_modes=32, num_frequencies=8, chains=Chains(2, 10, 10), plain_width=8, num_grid=40,
    plain_depth=2, isotropic=Chains(2, 20, 20), num_climb=20, num_frozen=200, windows=(),
)  # fmt: skip


def grid_of(run: Run) -> np.ndarray:
    """Times that curves are drawn at."""
    return np.linspace(0.0, 1.0, run.settings.num_grid)


def modes_of(run: Run, posterior: mercer.Posterior, count: int) -> Any:
    """Modes, one from each of so many draws of the prior, with a leading axis."""

    @jax.jit
    def climb(key: jax.Array) -> Any:
        start_key, climb_key = jax.random.split(key)
        start = posterior.init(start_key)
        return mercer.optimise.maximise(climb_key, posterior, start, run.settings.num_climb)

    keys = jax.random.split(run.key_of("modes"), count)
    return jax.tree.map(lambda *p: jnp.stack(p), *map(climb, keys))


def predict(run: Run, model: str = "ours", window: str = WINDOW, frozen: bool = False) -> Arrays:
    """Scores of a network on the rows to predict, and its band along the grid.

    Every parameter is drawn, or the readout alone where the hidden layer is frozen. Of a draw the
    network's values are kept, in single precision.
    """
    settings, posterior = run.settings, posterior_of(run, model, window)
    inputs, targets = rows_of(co2(window), train=False)
    points = jnp.asarray(np.concatenate([inputs, grid_of(run)[:, None]]))
    density, algorithm, chains, init = posterior, None, settings.chains, None
    if frozen:
        density = mercer.Frozen(posterior)
        chains = Chains(PARALLEL, -(-settings.num_frozen // PARALLEL))
    elif model == "isotropic":
        run.tell("      modes")
        chains, algorithm = settings.isotropic, mercer.nuts(initial_step=0.001, max_doublings=8)
        init = modes_of(run, posterior, chains.num_chains)
    record = lambda p: jax.vmap(posterior.network(p))(points).astype(jnp.float32)  # noqa: E731
    draws = run.sample(window, density, algorithm, record=record, init=init, **vars(chains))
    values, tail = draws.recorded.astype(float), posterior.tail_variances(points)
    tail = np.zeros(len(points)) if tail is None else np.asarray(tail)
    noise_key, noise = run.key_of(f"noise of {window}"), float(posterior.likelihood.scale)
    arrays = {"times": grid_of(run)} | score(noise_key, values, tail, noise, targets)
    return arrays if frozen else arrays | convergence(values[..., : len(targets)], draws.statistics)


def score(key: jax.Array, values: np.ndarray, tail: Any, noise: float, targets: Any) -> Arrays:
    """Scores of draws (chain, draw, rows to predict and grid), and their band along the grid, of
    new observations: with noise, and the variance of the network's tail."""
    flat, n, network = values.reshape(-1, values.shape[-1]), len(targets), bands(values)
    sd = np.sqrt(noise**2 + tail)
    observed = bands(flat + sd * np.asarray(jax.random.normal(key, flat.shape)))
    curves = {name: network[name] for name in ("mean", "paths")}
    curves |= {name: observed[name] for name in ("lower", "upper")}
    curves["sd"] = np.sqrt(network["sd"] ** 2 + tail)
    return {name: curve[..., n:] for name, curve in curves.items()} | {
        "rmse": rms(curves["mean"][:n] - targets), "num_draws": len(flat),
        "nlpd": diagnostics.nlpd(norm.logpdf(targets, flat[:, :n], sd[:n])),
        "coverage": diagnostics.coverage(targets, curves["lower"][:n], curves["upper"][:n]),
    }  # fmt: skip


def run_process(run: Run) -> Arrays:
    """The exact process: its predictions and their parts, and how close the network's prior is."""
    closeness, of = mercer.fidelity(posterior_of(run).prior), (run.settings.num_modes, grid_of(run))
    return score_process("ours", WINDOW, *of) | decompose(WINDOW, *of) | {
        "fidelity_relative_error": closeness.relative_error,
        "fidelity_outside_share": closeness.outside_share,
    }  # fmt: skip


def run_mode(run: Run) -> Arrays:
    """Our network where the paper's chains start: at a mode."""
    posterior, (inputs, targets) = posterior_of(run), rows_of(co2(WINDOW), train=False)
    network = posterior.network(jax.tree.map(lambda x: x[0], modes_of(run, posterior, 1)))
    return {"rmse": rms(np.asarray(values_at(network, inputs[:, 0])) - targets)}


def run_windows(run: Run) -> Arrays:
    """The other readings of the paper's window: our network, its process, and the printed mean."""
    arrays: Arrays = {"windows": strings(run.settings.windows)}
    for window in run.settings.windows:
        run.tell(f"      {window}")
        closed_form = window, run.settings.num_modes, grid_of(run)
        scored = {
            "ours": predict(run, window=window, frozen=True),
            "printed_mean": score_process("printed_mean", *closed_form),
            "process": score_process("ours", *closed_form),
        }
        for model, scores in scored.items():
            arrays |= {f"{window}/{model}/{name}": value for name, value in scores.items()}
    return arrays


def sample_priors(run: Run) -> Arrays:
    """Functions drawn from each prior along the grid."""
    arrays: Arrays = {"times": grid_of(run)}
    for model in TITLES:
        prior = posterior_of(run, model).prior
        draw = jax.jit(lambda key, p=prior: values_at(p.network(p.draw(key)), grid_of(run)))
        arrays[model] = np.stack([draw(k) for k in jax.random.split(run.key_of(model), 6)])
    return arrays


def measure(results: Results) -> dict[str, Any]:
    """Scores by window, the scales, and what the printed kernel comes to."""
    process, kernel, windows = (results[name] for name in ("process", "kernel", "windows"))
    metrics: dict[str, Any] = {
        "printed_kernel_refused": str(kernel["refusal"]),
        "scales": by_name(process["scale_names"], process["scale_values"]),
    }
    harmonics = [f"n = {n}" for n in kernel["harmonics"]]
    for name in READINGS:
        metrics[f"log_eigenvalues_{name}"] = by_name(harmonics, kernel[f"log_{name}"])
    models = {"ours": "", "printed_mean": ", printed mean", "process": ", exact GP"}
    for name in SCORES:
        table = {f"{WINDOW}{words}": float(results[m][name]) for m, words in models.items()}
        for window in map(str, windows["windows"]):
            table |= {window + w: float(windows[f"{window}/{m}/{name}"]) for m, w in models.items()}
        metrics[f"{name}_by_window"] = table
    return metrics


def _draw_rows(axes: Axes, shift: np.ndarray | float = 0.0) -> None:
    """The data, those to predict as open circles, and where they begin."""
    series = co2()
    times, values, train = series.times, series.values - shift, series.train
    axes.plot(times[train], values[train], "o", markersize=2.6, color=INK, label="training rows")
    axes.plot(times[~train], values[~train], "o", markersize=3.4, color=ACCENT,
              markerfacecolor="white", label="rows to predict")  # fmt: skip
    edge = np.mean(times[np.flatnonzero(train)[-1] + np.arange(2)])
    axes.axvline(float(edge), color=INK, linewidth=0.7, linestyle=":")


def draw_predictions(figure: Figure, ours: Arrays, printed_mean: Arrays, isotropic: Arrays) -> None:
    """Two years ahead: a network whose slope is inferred, one with the paper's mean and kernel, and
    one with independent Gaussian weights."""
    axes = panels(figure, 3, 12, 3.3, sharey=True)
    models = zip(axes, TITLES.values(), (ours, printed_mean, isotropic), strict=True)
    for panel, title, arrays in models:
        band = tuple(arrays[name] for name in ("lower", "mean", "upper"))
        panel.plot(arrays["times"], arrays["paths"].T, color=COLOURS[2], linewidth=0.5, alpha=0.55)
        panel.plot([], [], color=COLOURS[2], linewidth=0.8, label="draws")
        draw_band(panel, arrays["times"], band, labels=("95 % of observations", "mean"))
        _draw_rows(panel)
        panel.set(title=f"{title}\nRMSE {arrays['rmse']:.3f}, NLPD {arrays['nlpd']:.2f}, "
                  f"coverage {arrays['coverage']:.2f}", xlabel="t", xlim=(0, 1))  # fmt: skip
    axes[0].set(ylabel="CO₂, scaled", ylim=(-0.45, 1.55))
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels))


def draw_priors(figure: Figure, prior: Arrays) -> None:
    """Functions drawn from each prior."""
    axes = panels(figure, 3, 12, sharey=True)
    for panel, (name, title) in zip(axes, TITLES.items(), strict=True):
        paths(panel, prior["times"], prior[name], f"{title}, a priori")
        panel.set_xlim(0, 1)


def draw_kernel(figure: Figure, kernel: Arrays) -> None:
    """Printed eigenvalues are lost beside one, and functions orthonormal on one period only."""
    left, right = panels(figure, 2, 9.5, 3.2, width_ratios=(3, 2))
    readings, n = {READINGS[x]: -kernel[f"log_{x}"] for x in READINGS}, kernel["harmonics"]
    curves(left, n, readings, "o-", title="Eigenvalues in three readings: −log λₙ", xticks=n,
           xlabel="harmonic n", yscale="log", ylim=(0.3, 3e5))  # fmt: skip
    for name, bound in SMALLEST.items():
        left.axhline(bound, **DASHED)
        left.text(n[-1], bound * 0.9, f"zero in {name} above", fontsize=7, ha="right", va="top")
    errors = [max(float(kernel[f"gram_error_{name}"]), 1e-16) for name in GRAMS]
    right.bar(list(GRAMS.values()), errors, color=COLOURS[:3], width=0.55)
    right.set(title="Farthest from orthonormal", yscale="log", ylim=(1e-16, 30))


def draw_parts(figure: Figure, process: Arrays) -> None:
    """What the posterior says of the slow part and of the season."""
    line = f"Line and slow trend: slope {process['slope']:.2f} ± {process['slope_sd']:.2f}"
    times, parts = process["times"], (("slow", line, "season"), ("season", "Season", "slow"))
    axes = panels(figure, 2, 9.5, 3.1)
    for panel, (name, title, other) in zip(axes, parts, strict=True):
        mean, twice = process[f"{name}_mean"], 2 * process[f"{name}_sd"]
        draw_band(panel, times, (mean - twice, mean, mean + twice), labels=("± 2 sd", "mean"))
        _draw_rows(panel, np.interp(co2().times, times, process[f"{other}_mean"]))
        panel.set(title=title, xlabel="t", xlim=(0, 1))
    axes[0].plot(times, 0.95 * times, label="the printed mean, 0.95 t", **DASHED)
    axes[0].set_ylabel("less the other part")
    axes[0].legend(loc="lower right")


def draw_agreement(figure: Figure, ours: Arrays, frozen: Arrays, process: Arrays) -> None:
    """The network against the exact process it names."""
    times, noise = process["times"], process["scale_values"][process["scale_names"] == "noise"]
    left, right = panels(figure, 2, 9.5, 2.9)
    stages = {"network, every parameter": ours, "network, frozen layer": frozen}
    off = {f"_{name}": (s["mean"] - process["mean"]) / noise for name, s in stages.items()}
    curves(left, times, off, level=0, title="Mean less that of the process, in sd of the noise",
           xlabel="t", ylim=(-1, 1))  # fmt: skip
    right.plot(times, process["sd"], label="exact process", **DASHED)
    curves(right, times, {name: arrays["sd"] for name, arrays in stages.items()}, xlabel="t",
           title="Standard deviation of u(t)", ylim=(0, None))  # fmt: skip


FIGURES = draw_predictions, draw_priors, draw_kernel, draw_parts, draw_agreement
EXPERIMENT = Experiment(
    name="co2",
    title="Mauna Loa CO2 two years ahead: a network with a season, a line and a slow trend",
    settings={"smoke": SMOKE, "quick": QUICK, "paper": PAPER},
    stages=(
        Stage("kernel", "the kernel as printed, and as it works", compare_kernels),
        Stage("prior", "functions drawn from each prior", sample_priors),
        Stage("process", "the exact process", run_process),
        Stage("ours", "our network, every parameter by HMC", predict),
        Stage("frozen", "our network, its hidden layer frozen", partial(predict, frozen=True)),
        Stage("mode", "our network at its mode", run_mode),
        Stage("printed_mean", "the printed mean, 0.95 t",
              partial(predict, model="printed_mean", frozen=True)),
        Stage("isotropic", "independent Gaussian weights, by NUTS",
              partial(predict, model="isotropic")),
        Stage("windows", "the other readings of the window", run_windows),
    ),
    pictures=tuple(map(Picture.of, FIGURES)),
    quantities=(
        *(Quantity(name + suffix, f"{name} of {words}", f"{stage}.{name}",
                   **limit if stage in ("ours", "frozen") else {})
          for name, limit in SCORES.items() for stage, (suffix, words) in MODELS.items()),
        Quantity("rmse_mode", "rmse of our network at its mode", "mode.rmse"),
        *converged("ours", " of predictions"),
        *converged("isotropic", " of predictions, independent weights", "_isotropic"),
        Quantity("slope", "slope inferred; the paper fixes it", "process.slope", 0.95),
        Quantity("slope_sd", "its standard deviation", "process.slope_sd"),
        Quantity("fidelity_relative_error", "covariance error of the network's prior, closed form",
                 "process.fidelity_relative_error", at_most=0.05),
        Quantity("gram_error_unit_interval",
                 "printed functions on [0, 1]: farthest from orthonormal",
                 "kernel.gram_error_unit_interval"),
        Quantity("gram_error_working", "ours on [0, 1]: farthest from orthonormal",
                 "kernel.gram_error_working"),
        Quantity("num_draws", "draws of HMC", "ours.num_draws"),
        Quantity("num_draws_frozen", "exact draws with the hidden layer frozen",
                 "frozen.num_draws"),
        Quantity("seconds", "seconds in all"),
        Quantity("divergences", source="ours.divergences"),
        Quantity("gradients_per_draw", source="ours.gradients_per_draw"),
        Quantity("gradients_per_draw_isotropic", source="isotropic.gradients_per_draw"),
        Quantity("fidelity_outside_share", source="process.fidelity_outside_share"),
        Quantity("gram_error_one_period", source="kernel.gram_error_one_period"),
    ),
    measure=measure,
    # On one core, from what a draw of every parameter takes there.
    estimate=lambda s: 90 + 3e-6 * s.width**2 * s.chains.num_steps + 0.07 * s.isotropic.num_steps,
)  # fmt: skip
