"""Mauna Loa CO2, two years ahead: the periodic network of section 5.2, and what it takes to run."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..conditioned import Conditioned
from ..data import co2
from ..draws import Draws
from ..fidelity import fidelity
from ..isotropic import MLP, IsotropicPrior
from ..likelihoods import Gaussian
from ..posterior import Posterior
from ..reference import GaussianProcess
from ..sampling import exact, nuts
from ..sampling.maximise import ascend
from ..whitened import Whitened
from .co2_figures import PICTURES
from .co2_kernel import compare_kernels
from .co2_model import (
    DOMAIN,
    Network,
    fit_scales,
    make_posterior,
    make_spectrum,
    printed_mean,
    training_rows,
)
from .co2_scores import (
    decompose,
    judge_chains,
    measure,
    quantities,
    score_draws,
    score_process,
    test_rows,
)
from .experiment import Arrays, Chains, Experiment, Run, Stage, fold, strings

WINDOW = "four_weekly"
LEARNING_RATE = 0.01
NUM_PATHS = 6
# Exact draws that are made at once.
PARALLEL = 100


@dataclasses.dataclass(frozen=True)
class Plain:
    """A network with independent weights, steep enough by `weight_scale` for a season to fit."""

    width: int
    depth: int
    weight_scale: float = 3.0

    def prior(self, key: jax.Array) -> IsotropicPrior:
        """Independent Gaussian parameters."""
        network = MLP(1, self.width, self.depth, key=key, weight_scale=self.weight_scale,
                      domain=DOMAIN)  # fmt: skip
        return IsotropicPrior(network)


@dataclasses.dataclass(frozen=True)
class Settings:
    """How large a run is: our network and its chains, that with independent weights and its chains,
    `num_adam` steps to a mode, and `num_frozen` exact draws with a frozen hidden layer."""

    network: Network
    chains: Chains
    plain: Plain
    isotropic: Chains
    num_adam: int
    num_frozen: int
    num_grid: int
    windows: tuple[str, ...]


def _record_at(density: Any, times: np.ndarray):
    """Values of the network at the times, in single precision: that is what is kept of a draw."""
    points = jnp.asarray(times)[:, None]
    return lambda params: jax.vmap(density.network(params))(points).astype(jnp.float32)


def _grid(settings: Settings) -> np.ndarray:
    return np.linspace(0.0, 1.0, settings.num_grid)


def _everywhere(run: Run, density: Any, window: str = WINDOW):
    """Records the network at the test rows and along the grid."""
    return _record_at(density, np.concatenate([test_rows(co2(window))[0], _grid(run.settings)]))


def _score(run: Run, name: str, draws: Draws, window: str = WINDOW) -> Arrays:
    """Draws scored on the test rows, and their band along the grid."""
    targets, density = test_rows(co2(window))[1], draws.density
    noise = float(getattr(density, "posterior", density).likelihood.scale)
    noise_key = fold(run.key, f"noise of {name}")
    return score_draws(noise_key, draws.recorded, noise, _grid(run.settings), targets)


def _posterior(run: Run, window: str = WINDOW, model: str = "ours") -> Posterior:
    return make_posterior(run.settings.network, window, model, fold(run.shared, "network"))


def _predict_frozen(run: Run, name: str, posterior: Posterior, window: str = WINDOW) -> Arrays:
    """Independent exact draws with the hidden layer as it is."""
    density, rounds = Whitened(posterior), -(-run.settings.num_frozen // PARALLEL)
    draws = run.sample(
        name, density, exact(), record=_everywhere(run, density, window), num_draws=rounds,
        num_warmup=0, num_chains=PARALLEL,
    )  # fmt: skip
    return _score(run, name, draws, window)


def run_ours(run: Run) -> Arrays:
    """NUTS over every parameter, from draws of the prior for the hidden layers."""
    density = Conditioned(_posterior(run))
    draws = run.sample_white("nuts", density, run.settings.chains, _everywhere(run, density))
    return _judge(run, draws)


def _judge(run: Run, draws: Draws) -> Arrays:
    """What a chain predicts, and whether it can be trusted."""
    return _score(run, "nuts", draws) | judge_chains(draws, int(np.sum(~co2(WINDOW).train)))


def run_frozen(run: Run) -> Arrays:
    """Our network with its hidden layer frozen: exact draws."""
    return _predict_frozen(run, "frozen", _posterior(run))


def run_process(run: Run) -> Arrays:
    """The exact process: its predictions and their parts, and how close the network's prior is."""
    scales, closeness = fit_scales(WINDOW, "ours"), fidelity(_posterior(run).prior)
    num_modes = run.settings.network.num_modes
    found = _score_exactly(run, WINDOW, "ours")
    return (
        found
        | decompose(scales, co2(WINDOW), _grid(run.settings), num_modes)
        | {
            "scale_names": strings(dataclasses.asdict(scales)),
            "scale_values": np.array(list(dataclasses.asdict(scales).values())),
            "relative_error": closeness.relative_error,
            "outside_share": closeness.outside_share,
        }
    )


def _score_exactly(run: Run, window: str, model: str) -> Arrays:
    """The process that a network is held to, in closed form."""
    series, scales = co2(window), fit_scales(window, model)
    spectrum = make_spectrum(scales, series.year, run.settings.network.num_modes)
    process = GaussianProcess(spectrum, printed_mean)
    return score_process(process, scales.noise, series, _grid(run.settings))


def run_mode(run: Run) -> Arrays:
    """Our network where the paper's chains start: at a mode, by Adam."""
    posterior, (times, targets) = _posterior(run), test_rows(co2(WINDOW))
    (best,) = _climb(fold(run.key, "mode"), posterior, 1, run.settings.num_adam)
    values = np.asarray(jax.vmap(posterior.network(best))(jnp.asarray(times)[:, None]))
    return {"rmse": np.sqrt(np.mean((values - targets) ** 2))}


def _climb(key: jax.Array, posterior: Posterior, num_starts: int, num_steps: int) -> list[Any]:
    """Modes by Adam, one from each of so many draws of the prior."""

    @jax.jit
    def climb(key):
        draw_key, climb_key = jax.random.split(key)
        start = posterior.draw(draw_key)
        return ascend(climb_key, lambda p, _: posterior(p), start, num_steps, LEARNING_RATE)

    return [climb(one) for one in jax.random.split(key, num_starts)]


def run_printed_mean(run: Run) -> Arrays:
    """The paper's mean and kernel, with a length scale: no slope to learn and no trend."""
    posterior = _posterior(run, model="printed_mean")
    return _predict_frozen(run, "frozen", posterior)


def run_isotropic(run: Run) -> Arrays:
    """The network with independent Gaussian weights, on the same rows and with the same noise."""
    chains, noise = run.settings.isotropic, Gaussian(fit_scales(WINDOW, "ours").noise)
    prior = run.settings.plain.prior(fold(run.shared, "plain"))
    posterior = Posterior(prior, noise, training_rows(co2(WINDOW)))
    run.tell("      modes, by Adam")
    modes = _climb(fold(run.key, "modes"), posterior, chains.num_chains, run.settings.num_adam)
    starts = jax.tree.map(lambda *leaves: jnp.stack(leaves), *modes)
    algorithm = nuts(initial_step=0.001, max_doublings=8)
    record = _everywhere(run, posterior)
    draws = run.sample("nuts", posterior, algorithm, record=record, init=starts, **chains.counts)
    return _judge(run, draws)


def run_windows(run: Run) -> Arrays:
    """The other readings of the paper's window: our network, its process, and the printed mean."""
    found: Arrays = {"windows": strings(run.settings.windows)}
    for window in run.settings.windows:
        run.tell(f"      {window}")
        scored = {
            "ours": _predict_frozen(run, window, _posterior(run, window), window),
            "printed_mean": _score_exactly(run, window, "printed_mean"),
            "process": _score_exactly(run, window, "ours"),
        }
        for model, arrays in scored.items():
            found |= {f"{window}/{model}/{name}": value for name, value in arrays.items()}
    return found


def draw_priors(run: Run) -> Arrays:
    """Functions drawn from each prior along the grid."""
    points = jnp.asarray(_grid(run.settings))[:, None]
    priors = {
        "ours": _posterior(run).prior,
        "printed_mean": _posterior(run, model="printed_mean").prior,
        "isotropic": run.settings.plain.prior(fold(run.shared, "plain")),
    }
    found: Arrays = {"times": _grid(run.settings)}
    for name, prior in priors.items():
        keys = jax.random.split(fold(run.key, name), NUM_PATHS)
        draw = jax.jit(lambda key, p=prior: jax.vmap(p.network(p.draw(key)))(points))
        found[name] = np.stack([draw(key) for key in keys])
    return found


SETTINGS = {
    "smoke": Settings(
        network=Network(40, 32, num_frequencies=8), chains=Chains(2, 10, 10), plain=Plain(8, 2),
        isotropic=Chains(2, 20, 20), num_adam=20, num_frozen=200, num_grid=40, windows=(),
    ),
    "quick": Settings(
        network=Network(64, 40, num_frequencies=16), chains=Chains(4, 240, 40),
        plain=Plain(64, 3), isotropic=Chains(4, 60, 60), num_adam=1_000,
        num_frozen=10_000, num_grid=200, windows=("monthly", "ridgelet"),
    ),
    "paper": Settings(
        network=Network(256, 80), chains=Chains(4, 600, 100), plain=Plain(64, 3),
        isotropic=Chains(4, 1500, 500), num_adam=10_000,
        num_frozen=100_000, num_grid=200, windows=("monthly", "ridgelet"),
    ),
}  # fmt: skip


def estimate(settings: Settings) -> float:
    """Seconds on one core, from what a draw of every parameter takes there."""
    ours, plain = (c.num_chains * (c.num_draws + c.num_warmup)
                   for c in (settings.chains, settings.isotropic))  # fmt: skip
    return 90 + 3e-6 * settings.network.width**2 * ours + 0.07 * plain


EXPERIMENT = Experiment(
    name="co2",
    title="Mauna Loa CO2 two years ahead: a network with a season, a line and a slow trend",
    settings=SETTINGS,
    stages=(
        Stage("kernel", "the kernel as printed, and as it works", compare_kernels),
        Stage("prior", "functions drawn from each prior", draw_priors),
        Stage("process", "the exact process", run_process),
        Stage("ours", "our network, every parameter by NUTS", run_ours),
        Stage("frozen", "our network, its hidden layer frozen", run_frozen),
        Stage("mode", "our network at its mode", run_mode),
        Stage("printed_mean", "the printed mean, 0.95 t", run_printed_mean),
        Stage("isotropic", "independent Gaussian weights, by NUTS", run_isotropic),
        Stage("windows", "the other readings of the window", run_windows),
    ),
    pictures=PICTURES,
    quantities=quantities(),
    measure=measure,
    estimate=estimate,
)
