"""Conductivities from what flows through: section 5.3 of the paper, and a field in two dimensions."""

import dataclasses
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy.interpolate import CubicSpline

import mercer
from mercer import data, diagnostics
from mercer.pde import conduct

from .darcy import Darcy, infer, infer_field
from .experiment import Arrays, Chains, Experiment, Quantity, Results, Run, Stage, fold, strings
from .insulation_figures import PICTURES, TITLES
from .summaries import asked, by_name, converged, numbers, rms, stack, values_at

COLD, HOT = 300.0, 1900.0
NOISE = 2.5
# What was known before: κ changes by a factor of ten or so from cold to hot, which a deviation of 1
# in u allows, and over half the range of temperatures, not faster. Temperatures tell κ up to a
# factor only, so the offset is free: here softplus is all but exp, and that factor is a straight
# line of constants in u, which a sampler follows with ease.
OFFSET = -10.0
VARIANCE = 1.0
LENGTHSCALE = 800.0
SHIFT = 3 / LENGTHSCALE**2
# Of each prior of u: how far beyond the data it lives, its sides, and the shift of its operator. The
# wider domain is the one to believe: the paper's sides give κ the same value at both ends of the
# data, Neumann sides give it no slope there, and sides that are a length scale away from the data
# say nothing about it.
PRIORS = {
    "paper": (0.0, "dirichlet", 0.0),
    "neumann": (0.0, "neumann", SHIFT),
    "wider": (LENGTHSCALE, "dirichlet", SHIFT),
}
HEADLINE = "wider"


@dataclasses.dataclass(frozen=True)
class Settings:
    """Sizes of a run. The hidden layer is frozen for every prior, and sampled with the rest for
    those named in `every_prior`."""

    width: int
    num_modes: int
    num_frequencies: int
    priors: tuple[str, ...]
    every_prior: tuple[str, ...]
    frozen: Chains
    every: Chains
    num_cells: int
    num_grid: int
    darcy: Darcy


PAPER = Settings(
    width=32, num_modes=100, num_frequencies=8, priors=tuple(PRIORS), every_prior=tuple(PRIORS),
    frozen=Chains(4, 2000, 300), every=Chains(8, 1000, 200), num_cells=100, num_grid=161,
    darcy=Darcy(width=200, num_modes=300, num_cells=32, num_fine=96, num_sensors=100,
                chains=Chains(4, 1000, 200), frequency_scale=5.0),
)  # fmt: skip
QUICK = dataclasses.replace(
    PAPER, every_prior=(HEADLINE,), frozen=Chains(4, 1000, 100), every=Chains(8, 250, 80),
    num_cells=64, num_grid=81,
    darcy=Darcy(width=128, num_modes=200, num_cells=20, num_fine=64, num_sensors=100,
                chains=Chains(4, 600, 80)),
)  # fmt: skip
SMOKE = dataclasses.replace(
    QUICK, width=16, num_modes=24, num_frequencies=4, priors=(HEADLINE,), frozen=Chains(2, 20, 0),
    every=Chains(2, 20, 0), num_cells=32, num_grid=41,
    darcy=Darcy(width=24, num_modes=40, num_cells=8, num_fine=16, num_sensors=30,
                chains=Chains(2, 20, 0), num_frequencies=8),
)  # fmt: skip


def make_prior(name: str, settings: Settings, key: jax.Array, frozen: bool = False) -> mercer.Prior:
    """The Mercer prior of a network of temperature for (shift − Δ)⁻², scaled to the variance; of
    its readout alone where the hidden layer is frozen."""
    margin, boundary, shift = PRIORS[name]
    domain = mercer.Interval(COLD - margin, HOT + margin)
    process = mercer.Laplacian(domain, settings.num_modes, boundary, shift) ** 2
    network = mercer.FourierMLP(
        1, settings.width, num_frequencies=settings.num_frequencies, frequency_scale=6.0,
        boundary="dirichlet" if boundary == "dirichlet" else None, saturation=0.1,
        hidden_scale=1.0, readout_scale=100.0, domain=domain, key=key,
    )  # fmt: skip
    trainable = mercer.readout_only(network) if frozen else None
    energy = mercer.Quadrature(process.with_variance(VARIANCE))
    return mercer.Prior(energy, network, trainable=trainable)


def conductivity(u: Float[Array, "..."]) -> Float[Array, "..."]:
    """κ = softplus(u + offset), in units of its own."""
    return jax.nn.softplus(u + OFFSET)


class Conduction(eqx.Module):
    """Temperatures at the stations for κ = softplus(u(T) + offset): the forward map."""

    num_cells: int = eqx.field(static=True)

    def __call__(self, u: Any, inputs: Float[Array, "n 1"]) -> Float[Array, " n"]:
        return conduct(lambda t: conductivity(u(t[None])), COLD, HOT, inputs[:, 0], self.num_cells)


def posterior_of(prior: mercer.Prior, num_cells: int) -> mercer.Posterior:
    """Given the 51 temperatures, noise of 2.5 K."""
    stations, observed = data.insulation()
    likelihood = mercer.Gaussian(NOISE, Conduction(num_cells))
    return mercer.Posterior(prior, likelihood, (stations[:, None], observed))


def mean_weights(count: int) -> np.ndarray:
    """Trapezoidal weights that average over a grid of temperatures."""
    weights = np.ones(count)
    weights[[0, -1]] = 0.5
    return weights / weights.sum()


def curve_of(network: Any, grid: np.ndarray) -> jax.Array:
    """κ over its mean, all that temperatures tell of it."""
    kappa = conductivity(values_at(network, grid))
    return kappa / (jnp.asarray(mean_weights(len(grid))) @ kappa)


def truth_at(temperatures: np.ndarray) -> np.ndarray:
    """The conductivity that made the data, over its mean."""
    curve = CubicSpline(*data.insulation_truth())(temperatures)
    return curve / (mean_weights(len(temperatures)) @ curve)


def draw_priors(run: Run) -> Arrays:
    """κ of networks drawn from each prior, over its mean; and how closely each follows its process."""
    settings, grid = run.settings, np.linspace(COLD, HOT, run.settings.num_grid)
    rows = []
    for name in settings.priors:
        prior = make_prior(name, settings, fold(run.shared, "network"))
        draw = jax.jit(jax.vmap(lambda key, p=prior: curve_of(p.network(p.draw(key)), grid)))
        curves = np.asarray(draw(jax.random.split(fold(run.key, name), 30)))
        rows.append({"curves": curves, "fidelity": mercer.fidelity(prior).relative_error})
    return _of_priors(settings.priors, grid, rows)


def infer_curves(kind: str, run: Run) -> Arrays:
    """Posterior curves κ over their mean, and temperatures, for each prior: over the readout alone,
    "frozen", or over "every" parameter."""
    settings, grid = run.settings, np.linspace(COLD, HOT, run.settings.num_grid)
    names = settings.priors if kind == "frozen" else settings.every_prior
    rows = []
    for name in names:
        run.tell(f"      {TITLES[name]}")
        prior = make_prior(name, settings, fold(run.shared, "network"), kind == "frozen")
        posterior, chains = posterior_of(prior, settings.num_cells), getattr(settings, kind)
        curve = partial(curve_of, grid=grid)
        rows.append(infer(run, f"{kind} {name}", posterior, chains, curve))
    return _of_priors(names, grid, rows)


def _of_priors(names: tuple[str, ...], grid: np.ndarray, rows: list[Arrays]) -> Arrays:
    """Arrays of each prior with a leading axis, beside the truth."""
    return {"names": strings(names), "grid": grid, "truth": truth_at(grid)} | stack(rows)


def measure_curves(arrays: Arrays) -> dict[str, dict[str, float]]:
    """Tables of numbers over priors, by the name of the number."""
    truth, names = arrays["truth"], arrays["names"]
    weights, observed = mean_weights(len(truth)), data.insulation()[1]
    errors = np.sqrt((arrays["mean"] - truth) ** 2 @ weights / (weights @ truth**2))
    inside = (arrays["lower"] <= truth) & (truth <= arrays["upper"])
    misfits = [rms((row - observed) / NOISE) for row in arrays["predicted"]]
    return {
        "kappa_relative_error": by_name(names, errors),
        "kappa_coverage": by_name(names, inside.mean(axis=1)),
        "temperature_misfit": by_name(names, misfits),
    } | {
        name: by_name(names, arrays[name])
        for name in ("rhat_max", "ess_min", "divergences", "num_draws")
    }


def measure(results: Results) -> dict[str, Any]:
    """Errors, coverage and convergence: the headline's, and tables over priors."""
    frozen, every = (measure_curves(results[kind]) for kind in ("frozen", "every"))
    prior, field = results["prior"], results["darcy"]
    metrics: dict[str, Any] = {name: table[HEADLINE] for name, table in every.items()}
    error, truth = np.linalg.norm(field["mean"] - field["truth"]), field["truth"]
    metrics |= {
        "darcy_relative_error": float(error / np.linalg.norm(truth)),
        "darcy_coverage": diagnostics.coverage(truth, field["lower"], field["upper"]),
        "darcy_misfit": rms((field["predicted"] - field["observed"]) / field["noise"]),
    }
    metrics |= numbers(field, "rhat_max", "ess_min", "divergences", prefix="darcy_")
    metrics |= {f"{name}, hidden layer frozen": table for name, table in frozen.items()}
    metrics |= {f"{name}, every parameter": table for name, table in every.items()}
    return metrics | {"fidelity_error": by_name(prior["names"], prior["fidelity"])}


def estimate(settings: Settings) -> float:
    """Seconds, from gradients counted: a draw takes about fifteen."""
    gradient_seconds = (
        (settings.frozen, 1e-4 * len(settings.priors)),
        (settings.every, 1e-3 * len(settings.every_prior)),
        (settings.darcy.chains, 2e-3),
    )
    return sum(15 * s * c.num_chains * (c.num_draws + c.num_warmup) for c, s in gradient_seconds)


EXPERIMENT = Experiment(
    name="insulation",
    title="Conductivities from what flows through: an insulation, and Darcy flow",
    settings={"smoke": SMOKE, "quick": QUICK, "paper": PAPER},
    stages=(
        Stage("prior", "conductivities drawn from each prior", draw_priors),
        Stage("frozen", "HMC with the hidden layer frozen, each prior",
              partial(infer_curves, "frozen")),
        Stage("every", "HMC over every parameter", partial(infer_curves, "every")),
        Stage("darcy", "a permeability in two dimensions", infer_field),
    ),
    pictures=PICTURES,
    quantities=(
        Quantity("kappa_relative_error", "relative error of κ / mean(κ), every parameter, wider domain",
                 None, asked(0.05)),
        Quantity("kappa_coverage", "share of temperatures where the 95 % band holds the truth", None,
                 asked(0.85), at_least=True),
        Quantity("temperature_misfit", "temperatures: misfit over the noise, root mean square"),
        *converged(" of the curve"),
        Quantity("divergences", "divergent steps"),
        Quantity("num_draws", "draws"),
        Quantity("darcy_relative_error", "Darcy: relative error of u"),
        Quantity("darcy_coverage", "Darcy: share of cells where the 95 % band holds the truth"),
        Quantity("darcy_misfit", "Darcy: pressure misfit over the noise, root mean square"),
        *converged(" of u, Darcy", prefix="darcy_"),
        Quantity("seconds", "seconds in all"),
    ),
    measure=measure,
    estimate=estimate,
)  # fmt: skip
