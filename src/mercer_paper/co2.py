"""Mauna Loa CO2, two years ahead: the periodic network of section 5.2, and what it takes to run."""

import dataclasses
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy.stats import norm

import mercer
from mercer import diagnostics
from mercer.data import co2

from .co2_figures import PICTURES
from .co2_model import (
    DOMAIN,
    compare_kernels,
    decompose,
    fit_scales,
    make_spectrum,
    printed_mean,
    rows_of,
    score_process,
)  # fmt: skip
from .experiment import Arrays, Chains, Experiment, Quantity, Results, Run, Stage, fold, strings
from .summaries import asked, bands, by_name, converged, convergence, numbers, rms, values_at

WINDOW = "four_weekly"
SCORES = {"rmse": 0.06, "nlpd": -1.3, "coverage": 0.85}
MODELS = {
    "ours": ("", "our network, every parameter"),
    "frozen": ("_frozen", "our network, hidden layer frozen"),
    "process": ("_gp", "the exact process"),
    "printed_mean": ("_printed_mean", "the printed mean and kernel"),
    "isotropic": ("_isotropic", "independent Gaussian weights"),
}
# Exact draws that are made at once.
PARALLEL = 100


@dataclasses.dataclass(frozen=True)
class Settings:
    """Sizes of a run: our network and its chains, that with independent weights and its chains,
    `num_climb` steps to a mode, and `num_frozen` exact draws with a frozen hidden layer."""

    width: int
    num_modes: int
    num_frequencies: int
    chains: Chains
    plain_width: int
    plain_depth: int
    isotropic: Chains
    num_climb: int
    num_frozen: int
    num_grid: int
    windows: tuple[str, ...]


PAPER = Settings(
    width=256, num_modes=80, num_frequencies=32, chains=Chains(4, 600, 100), plain_width=64,
    plain_depth=3, isotropic=Chains(4, 1500, 500), num_climb=2_000, num_frozen=100_000,
    num_grid=200, windows=("monthly", "ridgelet"),
)  # fmt: skip
QUICK = dataclasses.replace(
    PAPER, width=64, num_modes=40, num_frequencies=16, chains=Chains(4, 240, 40),
    isotropic=Chains(4, 60, 60), num_climb=500, num_frozen=10_000,
)  # fmt: skip
SMOKE = dataclasses.replace(
    QUICK, width=40, num_modes=32, num_frequencies=8, chains=Chains(2, 10, 10), plain_width=8,
    plain_depth=2, isotropic=Chains(2, 20, 20), num_climb=20, num_frozen=200, num_grid=40, windows=(),
)  # fmt: skip


def posterior_of(run: Run, model: str = "ours", window: str = WINDOW) -> mercer.Posterior:
    """A network given the training rows: with the fitted process of a model for its prior, or with
    independent Gaussian weights, "isotropic", steep enough for a season to fit."""
    settings, series = run.settings, co2(window)
    scales = fit_scales(window, "ours" if model == "isotropic" else model)
    with jax.default_device(jax.local_devices(backend="cpu")[0]):
        if model == "isotropic":
            prior = mercer.IsotropicPrior(mercer.MLP(
                1, settings.plain_width, settings.plain_depth, key=fold(run.shared, "plain"),
                weight_scale=3.0, domain=DOMAIN,
            ))  # fmt: skip
        else:
            network = mercer.FourierMLP(
                1, settings.width, num_frequencies=settings.num_frequencies, frequency_scale=20.0,
                hidden_scale=1.0, readout_scale=100.0, domain=DOMAIN,
                key=fold(run.shared, "network"),
            )  # fmt: skip
            spectrum = make_spectrum(scales, series.year, settings.num_modes)
            prior = mercer.Prior(mercer.Quadrature(spectrum), network, mean=printed_mean)
    return mercer.Posterior(prior, mercer.Gaussian(scales.noise), rows_of(series))


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

    keys = jax.random.split(fold(run.key, "modes"), count)
    return jax.tree.map(lambda *p: jnp.stack(p), *map(climb, keys))


def predict(run: Run, model: str = "ours", window: str = WINDOW, frozen: bool = False) -> Arrays:
    """Scores of a network on the rows to predict, and its band along the grid.

    Every parameter is drawn, or the readout alone where the hidden layer is frozen. Of a draw the
    network's values are kept, in single precision.
    """
    settings, posterior = run.settings, posterior_of(run, model, window)
    inputs, targets = rows_of(co2(window), train=False)
    points = jnp.asarray(np.concatenate([inputs, grid_of(run)[:, None]]))

    def record(params: Any) -> jax.Array:
        return jax.vmap(posterior.network(params))(points).astype(jnp.float32)

    if frozen:
        counts = Chains(PARALLEL, -(-settings.num_frozen // PARALLEL), 0).counts
        draws = run.sample(window, mercer.Frozen(posterior), record=record, **counts)
    elif model == "isotropic":
        run.tell("      modes")
        starts = modes_of(run, posterior, settings.isotropic.num_chains)
        options = {"record": record, "init": starts} | settings.isotropic.counts
        algorithm = mercer.nuts(initial_step=0.001, max_doublings=8)
        draws = run.sample(window, posterior, algorithm, **options)
    else:
        draws = run.sample(window, posterior, record=record, **settings.chains.counts)
    values, tail = draws.recorded.astype(float), posterior.tail_variances(points)
    tail = np.zeros(len(points)) if tail is None else np.asarray(tail)
    noise_key, noise = fold(run.key, f"noise of {window}"), float(posterior.likelihood.scale)
    arrays = {"times": grid_of(run)} | score(noise_key, values, tail, noise, targets)
    return arrays if frozen else arrays | convergence(values[..., : len(targets)], draws.statistics)


def score(
    key: jax.Array, values: np.ndarray, tail: np.ndarray, noise: float, targets: np.ndarray
) -> Arrays:
    """Scores of draws (chain, draw, rows to predict and grid), and their band along the grid.

    Intervals are those of new observations: noise, and the variance of the network's tail.
    """
    flat, count = values.reshape(-1, values.shape[-1]), len(targets)
    network, sd = bands(values), np.sqrt(noise**2 + tail)
    observed = bands(flat + sd * np.asarray(jax.random.normal(key, flat.shape)))
    curves = {name: network[name] for name in ("mean", "paths")}
    curves |= {name: observed[name] for name in ("lower", "upper")}
    curves["sd"] = np.sqrt(network["sd"] ** 2 + tail)
    return {name: curve[..., count:] for name, curve in curves.items()} | {
        "rmse": rms(curves["mean"][:count] - targets),
        "nlpd": diagnostics.nlpd(norm.logpdf(targets, flat[:, :count], sd[:count])),
        "coverage": diagnostics.coverage(targets, curves["lower"][:count], curves["upper"][:count]),
        "num_draws": len(flat),
    }


def run_process(run: Run) -> Arrays:
    """The exact process: its predictions and their parts, and how close the network's prior is."""
    scales, num_modes = fit_scales(WINDOW, "ours"), run.settings.num_modes
    closeness = mercer.fidelity(posterior_of(run).prior)
    arrays = score_process("ours", WINDOW, num_modes, grid_of(run))
    return arrays | decompose(WINDOW, num_modes, grid_of(run)) | {
        "scale_names": strings(dataclasses.asdict(scales)),
        "scale_values": np.array(list(dataclasses.asdict(scales).values())),
        "fidelity_relative_error": closeness.relative_error,
        "fidelity_outside_share": closeness.outside_share,
    }  # fmt: skip


def run_mode(run: Run) -> Arrays:
    """Our network where the paper's chains start: at a mode."""
    posterior, (inputs, targets) = posterior_of(run), rows_of(co2(WINDOW), train=False)
    mode = jax.tree.map(lambda leaf: leaf[0], modes_of(run, posterior, 1))
    network = posterior.network(mode)
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


def draw_priors(run: Run) -> Arrays:
    """Functions drawn from each prior along the grid."""
    arrays: Arrays = {"times": grid_of(run)}
    for model in ("ours", "printed_mean", "isotropic"):
        prior = posterior_of(run, model).prior
        draw = jax.jit(lambda key, p=prior: values_at(p.network(p.draw(key)), grid_of(run)))
        arrays[model] = np.stack([draw(k) for k in jax.random.split(fold(run.key, model), 6)])
    return arrays


def measure(results: Results) -> dict[str, Any]:
    """Scores of each model, by window, convergence, and what the printed kernel comes to."""
    process, kernel, windows = (results[name] for name in ("process", "kernel", "windows"))
    metrics: dict[str, Any] = {}
    for stage, (suffix, _) in MODELS.items():
        metrics |= numbers(results[stage], *SCORES, suffix=suffix)
    chains = "rhat_max", "ess_min", "gradients_per_draw"
    metrics |= numbers(results["ours"], *chains, "num_draws", "divergences")
    metrics |= numbers(results["isotropic"], *chains, suffix="_isotropic")
    metrics |= numbers(results["mode"], "rmse", suffix="_mode")
    metrics |= numbers(results["frozen"], "num_draws", suffix="_frozen")
    metrics |= numbers(process, "slope", "slope_sd", "fidelity_relative_error")
    metrics |= numbers(process, "fidelity_outside_share")
    metrics |= numbers(kernel, *(name for name in kernel if name.startswith("gram_error")))
    metrics["printed_kernel_refused"] = str(kernel["refusal"])
    metrics["scales"] = by_name(process["scale_names"], process["scale_values"])
    harmonics = [f"n = {n}" for n in kernel["harmonics"]]
    for name in ("printed", "working", "product"):
        metrics[f"log_eigenvalues_{name}"] = by_name(harmonics, kernel[f"log_{name}"])
    models = {"ours": "", "printed_mean": ", printed mean", "process": ", exact GP"}
    for name in SCORES:
        table = {f"{WINDOW}{words}": float(results[m][name]) for m, words in models.items()}
        for window in map(str, windows["windows"]):
            table |= {window + w: float(windows[f"{window}/{m}/{name}"]) for m, w in models.items()}
        metrics[f"{name}_by_window"] = table
    return metrics


def estimate(settings: Settings) -> float:
    """Seconds on one core, from what a draw of every parameter takes there."""
    ours, plain = (c.num_chains * (c.num_draws + c.num_warmup)
                   for c in (settings.chains, settings.isotropic))  # fmt: skip
    return 90 + 3e-6 * settings.width**2 * ours + 0.07 * plain


EXPERIMENT = Experiment(
    name="co2",
    title="Mauna Loa CO2 two years ahead: a network with a season, a line and a slow trend",
    settings={"smoke": SMOKE, "quick": QUICK, "paper": PAPER},
    stages=(
        Stage("kernel", "the kernel as printed, and as it works", lambda run: compare_kernels()),
        Stage("prior", "functions drawn from each prior", draw_priors),
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
    pictures=PICTURES,
    quantities=(
        *(
            Quantity(name + suffix, f"{name} of {words}", None,
                     asked(limit) if suffix in ("", "_frozen") else {}, name == "coverage")
            for name, limit in SCORES.items()
            for suffix, words in MODELS.values()
        ),
        Quantity("rmse_mode", "rmse of our network at its mode"),
        *converged(" of predictions"),
        *converged(" of predictions, independent weights", "_isotropic"),
        Quantity("slope", "slope inferred; the paper fixes it", 0.95),
        Quantity("slope_sd", "its standard deviation"),
        Quantity("fidelity_relative_error", "covariance error of the network's prior, closed form",
                 None, asked(0.05)),
        Quantity("gram_error_unit_interval", "printed functions on [0, 1]: farthest from orthonormal"),
        Quantity("gram_error_working", "ours on [0, 1]: farthest from orthonormal"),
        Quantity("num_draws", "draws of HMC"),
        Quantity("num_draws_frozen", "exact draws with the hidden layer frozen"),
        Quantity("seconds", "seconds in all"),
    ),
    measure=measure,
    estimate=estimate,
)  # fmt: skip
