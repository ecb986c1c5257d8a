"""Conductivities from what flows through: section 5.3 of the paper, and a field in two dimensions."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .. import data
from ..diagnostics import coverage, ess, rhat
from ..fidelity import fidelity
from .conductivity import (
    CHOICES,
    COLD,
    HEADLINE,
    HOT,
    NOISE,
    Network,
    conductivity,
    every_parameter,
    frozen,
    mean_weights,
    posterior_of,
    truth_at,
)
from .darcy import Darcy, infer_field
from .experiment import Arrays, Chains, Experiment, Quantity, Results, Run, Stage, fold, strings
from .insulation_figures import PICTURES

NUM_SHOWN = 30


@dataclasses.dataclass(frozen=True)
class Settings:
    """How large a run is. The hidden layer is frozen for every prior, and sampled with the rest for
    those named in `every_prior`."""

    network: Network
    priors: tuple[str, ...]
    every_prior: tuple[str, ...]
    frozen: Chains
    every: Chains
    darcy: Darcy
    num_cells: int = 64
    num_grid: int = 81


ALL = tuple(CHOICES)
SETTINGS = {
    "smoke": Settings(
        Network(16, 24, num_frequencies=4), (HEADLINE,), (HEADLINE,), Chains(2, 20, 0),
        Chains(2, 20, 0), Darcy(24, 40, 8, 16, 30, Chains(2, 20, 0), 8), num_cells=32, num_grid=41,
    ),
    "quick": Settings(
        Network(32, 100), ALL, (HEADLINE,), Chains(4, 1000, 100), Chains(8, 250, 80),
        Darcy(128, 200, 20, 64, 100, Chains(4, 600, 80)),
    ),
    "paper": Settings(
        Network(32, 100), ALL, ALL, Chains(4, 2000, 300), Chains(8, 1000, 200),
        Darcy(200, 300, 32, 96, 100, Chains(4, 1000, 200), frequency_scale=5.0), num_cells=100,
        num_grid=161,
    ),
}  # fmt: skip


def draw_priors(run: Run) -> Arrays:
    """κ of networks drawn from each prior, over its mean; and how closely each follows its process."""
    grid = np.linspace(COLD, HOT, run.settings.num_grid)
    curves, errors = [], []
    for name in run.settings.priors:
        prior = CHOICES[name].prior(run.settings.network, fold(run.shared, "network"))
        draw = jax.jit(jax.vmap(lambda key, p=prior: curve_of(p.network(p.draw(key)), grid)))
        curves.append(np.asarray(draw(jax.random.split(fold(run.key, name), NUM_SHOWN))))
        errors.append(fidelity(prior).relative_error)
    names = strings(run.settings.priors)
    return {"names": names, "grid": grid, "curves": np.stack(curves), "fidelity": np.array(errors)}


def infer_frozen(run: Run) -> Arrays:
    """NUTS over the readout alone, one hidden layer for each prior."""
    return infer(run, run.settings.priors, "frozen", run.settings.frozen)


def infer_every(run: Run) -> Arrays:
    """NUTS over every parameter, hidden layers started from exact draws of the prior."""
    return infer(run, run.settings.every_prior, "every", run.settings.every)


def infer(run: Run, names: tuple[str, ...], kind: str, chains: Chains) -> Arrays:
    """Posterior curves κ over their mean, and temperatures, for each prior that is named."""
    grid = np.linspace(COLD, HOT, run.settings.num_grid)
    rows: dict[str, list] = {}
    for name in names:
        run.tell(f"      {CHOICES[name].title}")
        prior = CHOICES[name].prior(run.settings.network, fold(run.shared, "network"))
        posterior = posterior_of(prior, run.settings.num_cells)
        density: Any = frozen(posterior)
        if kind == "every":
            density = every_parameter(posterior, density)

        def record(params, density=density, posterior=posterior):
            network = density.network(params)
            temperatures = posterior.likelihood.predict(network, posterior.inputs)
            return {"curve": curve_of(network, grid), "temperatures": temperatures}

        draws = run.sample_white(f"{kind} {name}", density, chains, record)
        for key, value in _summarise(draws).items():
            rows.setdefault(key, []).append(value)
    stacked = {key: np.stack(value) for key, value in rows.items()}
    return {"names": strings(names), "grid": grid} | stacked


def curve_of(network: Any, grid: np.ndarray) -> jax.Array:
    """κ over its mean, all that temperatures tell of it."""
    kappa = conductivity(jax.vmap(network)(jnp.asarray(grid)[:, None]))
    return kappa / (jnp.asarray(mean_weights(len(grid))) @ kappa)


def _summarise(draws: Any) -> Arrays:
    curves, temperatures = draws.recorded["curve"], draws.recorded["temperatures"]
    flat = curves.reshape(-1, curves.shape[-1])
    lower, upper = np.quantile(flat, [0.025, 0.975], axis=0)
    warm = temperatures.reshape(-1, temperatures.shape[-1])
    return {
        "mean": flat.mean(axis=0),
        "lower": lower,
        "upper": upper,
        "samples": flat[:: -(-len(flat) // NUM_SHOWN)],
        "temperatures": warm.mean(axis=0),
        "rhat": rhat(curves),
        "ess": ess(curves),
        "divergences": draws.statistics["divergent"].sum(),
        "gradients": draws.statistics["num_gradients"].mean(),
        "num_draws": len(flat),
    }


def measure(results: Results) -> dict[str, Any]:
    """Errors, coverage and convergence: the headline's, and tables over priors."""
    tables = {kind: measure_curves(results[kind]) for kind in ("frozen", "every")}
    metrics: dict[str, Any] = {name: table[HEADLINE] for name, table in tables["every"].items()}
    field = results["darcy"]
    away = np.linalg.norm(field["mean"] - field["truth"]) / np.linalg.norm(field["truth"])
    metrics |= {
        "darcy_relative_error": float(away),
        "darcy_coverage": coverage(field["truth"], field["lower"], field["upper"]),
        "darcy_misfit": _rms((field["predicted"] - field["observed"]) / field["noise"]),
        "darcy_rhat_max": float(field["rhat"]),
        "darcy_ess_min": float(field["ess"]),
        "darcy_divergences": int(field["divergences"]),
    }
    for kind, words in (("frozen", "hidden layer frozen"), ("every", "every parameter")):
        metrics |= {f"{name}, {words}": table for name, table in tables[kind].items()}
    held = results["prior"]
    metrics["fidelity_error"] = dict(
        zip(map(str, held["names"]), map(float, held["fidelity"]), strict=True)
    )
    return metrics


def measure_curves(held: Arrays) -> dict[str, dict[str, float]]:
    """Numbers of each prior, by the name of the number."""
    truth, weights = truth_at(held["grid"]), mean_weights(len(held["grid"]))
    observed = data.insulation()[1]
    tables: dict[str, dict[str, float]] = {}
    for i, name in enumerate(map(str, held["names"])):
        away = weights @ (held["mean"][i] - truth) ** 2 / (weights @ truth**2)
        numbers = {
            "kappa_relative_error": float(np.sqrt(away)),
            "kappa_coverage": coverage(truth, held["lower"][i], held["upper"][i]),
            "temperature_misfit": _rms((held["temperatures"][i] - observed) / NOISE),
            "rhat_max": float(held["rhat"][i].max()),
            "ess_min": float(held["ess"][i].min()),
            "divergences": int(held["divergences"][i]),
            "num_draws": int(held["num_draws"][i]),
        }
        for key, value in numbers.items():
            tables.setdefault(key, {})[name] = value
    return tables


def _rms(values: np.ndarray) -> float:
    return float(np.sqrt(np.mean(np.square(values))))


def estimate(settings: Settings) -> float:
    """Seconds, from gradients counted: a draw takes about fifteen."""
    chains = [(settings.frozen, len(settings.priors), 1e-4), (settings.darcy.chains, 1, 2e-3)]
    chains += [(settings.every, len(settings.every_prior), 1e-3)]
    return sum(
        15 * seconds * times * c.num_chains * (c.num_draws + c.num_warmup)
        for c, times, seconds in chains
    )


BOTH = ("quick", "paper")
EXPERIMENT = Experiment(
    name="insulation",
    title="Conductivities from what flows through: an insulation, and Darcy flow",
    settings=SETTINGS,
    stages=(
        Stage("prior", "conductivities drawn from each prior", draw_priors),
        Stage("frozen", "NUTS with the hidden layer frozen, each prior", infer_frozen),
        Stage("every", "NUTS over every parameter", infer_every),
        Stage("darcy", "a permeability in two dimensions", infer_field),
    ),
    pictures=PICTURES,
    quantities=(
        Quantity("kappa_relative_error", "relative error of κ / mean(κ), every parameter, wider domain",
                 None, dict.fromkeys(BOTH, 0.05)),
        Quantity("kappa_coverage", "share of temperatures where the 95 % band holds the truth", None,
                 dict.fromkeys(BOTH, 0.85), at_least=True),
        Quantity("temperature_misfit", "temperatures: misfit over the noise, root mean square"),
        Quantity("rhat_max", "largest R-hat of the curve", None, dict.fromkeys(BOTH, 1.01)),
        Quantity("ess_min", "smallest ESS of the curve", None, dict.fromkeys(BOTH, 400), at_least=True),
        Quantity("divergences", "divergent steps"),
        Quantity("num_draws", "draws"),
        Quantity("darcy_relative_error", "Darcy: relative error of u"),
        Quantity("darcy_coverage", "Darcy: share of cells where the 95 % band holds the truth"),
        Quantity("darcy_misfit", "Darcy: pressure misfit over the noise, root mean square"),
        Quantity("darcy_rhat_max", "Darcy: largest R-hat of u", None, dict.fromkeys(BOTH, 1.01)),
        Quantity("darcy_ess_min", "Darcy: smallest ESS of u", None, dict.fromkeys(BOTH, 400), at_least=True),
        Quantity("seconds", "seconds in all"),
    ),
    measure=measure,
    estimate=estimate,
)  # fmt: skip
