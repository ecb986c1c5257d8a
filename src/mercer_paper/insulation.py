"""Conductivities from what flows through: section 5.3 of the paper."""

from collections.abc import Callable
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from matplotlib.figure import Figure
from scipy.interpolate import CubicSpline

import mercer
from mercer import data, diagnostics
from mercer.pde import conduct
from mercer.plots import ACCENT, COLOURS, INK

from .darcy import draw_darcy, infer, infer_field
from .experiment import Arrays, Chains, Experiment, Picture, Quantity, Results, Run, Settings, Stage
from .panels import draw_band, panels
from .summaries import by_name, converged, rms, stack, strings, values_at

COLD, HOT, NOISE = 300.0, 1900.0, 2.5
# What was known before: κ changes by a factor of ten or so from cold to hot, which a deviation of 1
# in u allows, and over half the range of temperatures, not faster. Temperatures tell κ up to a
# factor only, so the offset is free: here softplus is all but exp, and that factor is a straight
# line of constants in u, which a sampler follows with ease.
OFFSET, VARIANCE, LENGTHSCALE = -10.0, 1.0, 800.0
SHIFT = 3 / LENGTHSCALE**2
# Of each prior of u: how far beyond the data it lives, its sides, and the shift of its operator.
# The wider domain is the one to believe: the paper's sides give κ the same value at both ends of
# the data, Neumann sides give it no slope there, and sides that are a length scale away from the data
# say nothing about it.
PRIORS = {
    "paper": (0.0, "dirichlet", 0.0, "Dirichlet on [300, 1900], the paper's"),
    "neumann": (0.0, "neumann", SHIFT, "Neumann on [300, 1900]"),
    "wider": (LENGTHSCALE, "dirichlet", SHIFT, "Dirichlet on [−500, 2700]"),
}
HEADLINE = "wider"
# The hidden layer is frozen for every prior, and sampled with the rest for those of `every_prior`.
PAPER = Settings(
    width=32, num_modes=100, num_frequencies=8, priors=tuple(PRIORS), every_prior=tuple(PRIORS),
    frozen=Chains(4, 2000, 300), every=Chains(8, 1000, 200), num_cells=100, num_grid=161,
    darcy=Settings(width=200, num_modes=300, num_cells=32, num_fine=96, num_sensors=100,
                   chains=Chains(4, 1000, 200), num_frequencies=32, frequency_scale=5.0),
)  # fmt: skip
QUICK = PAPER.but(
    every_prior=(HEADLINE,), frozen=Chains(4, 1000, 100), every=Chains(8, 250, 80), num_cells=64,
    num_grid=81, darcy=PAPER.darcy.but(width=128, num_modes=200, num_cells=20, num_fine=64,
                                       chains=Chains(4, 600, 80), frequency_scale=4.0),
)  # fmt: skip
SMOKE = QUICK.but(
    width=16, num_modes=24, num_frequencies=4, priors=(HEADLINE,), frozen=Chains(2, 20),
    every=Chains(2, 20), num_cells=32, num_grid=41,
    darcy=QUICK.darcy.but(width=24, num_modes=40, num_cells=8, num_fine=16, num_sensors=30,
                          chains=Chains(2, 20), num_frequencies=8),
)  # fmt: skip


def make_prior(name: str, settings: Settings, key: jax.Array, frozen: bool = False) -> mercer.Prior:
    """The Mercer prior of a network of temperature, or of its readout, for (shift − Δ)⁻² scaled."""
    margin, boundary, shift, _ = PRIORS[name]
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


def over_mean(curve: Any, grid: np.ndarray) -> Any:
    """κ over its mean over the temperatures of a grid: all that temperatures tell of it."""
    return curve * (grid[-1] - grid[0]) / jnp.trapezoid(curve, grid)


def truth_at(grid: np.ndarray) -> np.ndarray:
    """The conductivity that made the data, over its mean."""
    return np.asarray(over_mean(CubicSpline(*data.insulation_truth())(grid), grid))


def by_prior(run: Run, names: tuple[str, ...], compute: Callable[..., Arrays], **of: Any) -> Arrays:
    """What compute(name, prior, the network's κ over its mean) tells of each prior along the grid,
    with a leading axis, beside the truth."""
    grid, key = np.linspace(COLD, HOT, run.settings.num_grid), run.shared_key_of("network")
    curve = lambda network: over_mean(conductivity(values_at(network, grid)), grid)  # noqa: E731
    rows = [compute(name, make_prior(name, run.settings, key, **of), curve) for name in names]
    return {"names": strings(names), "grid": grid, "truth": truth_at(grid)} | stack(rows)


def draw_priors(run: Run) -> Arrays:
    """κ drawn from each prior, over its mean; and how closely each follows its process."""

    def compute(name: str, prior: mercer.Prior, curve: Callable) -> Arrays:
        draw = jax.jit(jax.vmap(lambda key: curve(prior.network(prior.draw(key)))))
        curves = np.asarray(draw(jax.random.split(run.key_of(name), 30)))
        return {"curves": curves, "fidelity": mercer.fidelity(prior).relative_error}

    return by_prior(run, run.settings.priors, compute)


def infer_curves(run: Run, kind: str) -> Arrays:
    """Posterior κ over its mean, for each prior: of the readout, "frozen", or "every" parameter."""
    settings, frozen = run.settings, kind == "frozen"

    def compute(name: str, prior: mercer.Prior, curve: Callable) -> Arrays:
        run.tell(f"      {PRIORS[name][-1]}")
        posterior = posterior_of(prior, settings.num_cells)
        return infer(run, f"{kind} {name}", posterior, getattr(settings, kind), curve)

    names = settings.priors if frozen else settings.every_prior
    return by_prior(run, names, compute, frozen=frozen)


def measure(results: Results) -> dict[str, Any]:
    """Errors, coverage and convergence of the curves: the headline's, and tables over priors."""
    metrics: dict[str, Any] = {}
    for kind, words in {"frozen": "hidden layer frozen", "every": "every parameter"}.items():
        arrays, observed = results[kind], data.insulation()[1]
        truth, grid, predicted = arrays["truth"], arrays["grid"], arrays["predicted"]
        squares = np.trapezoid((arrays["mean"] - truth) ** 2, grid) / np.trapezoid(truth**2, grid)
        inside = (arrays["lower"] <= truth) & (truth <= arrays["upper"])
        numbers = {
            "kappa_relative_error": np.sqrt(squares), "kappa_coverage": inside.mean(axis=1),
            "temperature_misfit": [rms((row - observed) / NOISE) for row in predicted],
        }  # fmt: skip
        numbers |= {n: arrays[n] for n in ("rhat_max", "ess_min", "divergences", "num_draws")}
        tables = {name: by_name(arrays["names"], values) for name, values in numbers.items()}
        metrics |= {name: table[HEADLINE] for name, table in tables.items()}
        metrics |= {f"{name}, {words}": table for name, table in tables.items()}
    prior, field, truth = results["prior"], results["darcy"], results["darcy"]["truth"]
    return metrics | {
        "darcy_relative_error": rms(field["mean"] - truth) / rms(truth),
        "darcy_coverage": diagnostics.coverage(truth, field["lower"], field["upper"]),
        "darcy_misfit": rms((field["predicted"] - field["observed"]) / field["noise"]),
        "fidelity_error": by_name(prior["names"], prior["fidelity"]),
    }


def estimate(settings: Settings) -> float:
    """Seconds, from gradients counted: a draw takes about fifteen."""
    frozen = 1e-4 * len(settings.priors) * settings.frozen.num_steps
    every = 1e-3 * len(settings.every_prior) * settings.every.num_steps
    return 15 * (frozen + every + 2e-3 * settings.darcy.chains.num_steps)


KELVIN = "temperature T (K)"
DEVIATION = "deviation from the truth (%)"
TRUTH = {"color": ACCENT, "linewidth": 1.4, "linestyle": "--"}


def _titles(arrays: Arrays) -> list[str]:
    """The titles of the priors of a stage."""
    return [PRIORS[str(name)][-1] for name in arrays["names"]]


def _curves(arrays: Arrays, i: int, percent: bool = False) -> tuple[np.ndarray, ...]:
    """Lower end, mean and upper end of κ for a prior, or their deviation from the truth in %."""
    curves = [arrays[name][i] for name in ("lower", "mean", "upper")]
    return tuple(100 * (c / arrays["truth"] - 1) if percent else c for c in curves)


def draw_prior_curves(figure: Figure, prior: Arrays) -> None:
    """Conductivities drawn from each prior. Temperatures tell κ up to a constant factor only."""
    titles, grid = _titles(prior), prior["grid"]
    axes = panels(figure, len(titles), max(3.6 * len(titles), 4.8), sharey=True)
    for panel, title, curves in zip(axes, titles, prior["curves"], strict=True):
        panel.semilogy(grid, curves.T, color=COLOURS[0], linewidth=0.7, alpha=0.5)
        panel.semilogy(grid, prior["truth"], label="truth", **TRUTH)
        panel.set(title=title, xlabel=KELVIN)
    axes[0].set_ylabel("κ / mean(κ)")
    axes[0].legend(loc="lower right")


def draw_posterior_curves(figure: Figure, frozen: Arrays) -> None:
    """Posterior of κ over its mean, hidden layer frozen, for each prior. The paper's sides force
    equal values at both ends, Neumann sides a slope of zero; the wider domain forces nothing where
    there are data."""
    titles, grid = _titles(frozen), frozen["grid"]
    options = {"rows": 2, "sharex": True, "sharey": "row"}
    axes = panels(figure, len(titles), max(3.6 * len(titles), 4.8), 5.2, **options)
    for i, (above, below) in enumerate(axes.T):
        above.plot(grid, frozen["paths"][i].T, color=COLOURS[2], linewidth=0.5, alpha=0.6)
        draw_band(above, grid, _curves(frozen, i), labels=("95 %", "posterior mean"), alpha=0.25)
        above.plot(grid, frozen["truth"], label="truth", **TRUTH)
        above.set_title(titles[i])
        draw_band(below, grid, _curves(frozen, i, percent=True), alpha=0.25)
        below.axhline(0, **TRUTH)
        below.set(xlabel=KELVIN, ylim=(-25, 25))
    axes[0, 0].set_ylabel("κ / mean(κ)")
    axes[1, 0].set_ylabel(DEVIATION)
    axes[0, 0].legend(loc="upper left")


def draw_layers(figure: Figure, frozen: Arrays, every: Arrays) -> None:
    """The wider domain's posterior with one hidden layer and with every parameter random."""
    left, right = panels(figure, 2, 9.5, 3)
    kinds = {"one hidden layer, frozen": frozen, "every parameter random": every}
    for colour, (words, arrays) in zip(COLOURS[::2], kinds.items(), strict=False):
        grid, i = arrays["grid"], list(arrays["names"]).index(HEADLINE)
        draw_band(left, grid, _curves(arrays, i, percent=True), colour, (None, words))
        label = f"{words}, of {arrays['num_draws'][i]:,} draws"
        right.plot(grid, arrays["ess"][i], color=colour, linewidth=1.4, label=label)
    left.axhline(0, **TRUTH)
    left.set(title=f"κ / mean(κ), {DEVIATION}", xlabel=KELVIN)
    right.set(title="Effective draws along T", xlabel=KELVIN, ylim=(0, None))
    left.legend()
    right.legend()


def draw_temperatures(figure: Figure, frozen: Arrays) -> None:
    """The 51 temperatures, the posterior mean of the profile, and residuals."""
    stations, observed = data.insulation()
    left, right = panels(figure, 2, 9.5, 3)
    left.plot(stations, observed, "o", markersize=3, color=INK, label="observed")
    for title, fitted, colour in zip(_titles(frozen), frozen["predicted"], COLOURS, strict=False):
        left.plot(stations, fitted, linewidth=1.2, color=colour, label=title)
        residuals = (observed - fitted) / NOISE
        right.plot(stations, residuals, "o-", markersize=2.5, linewidth=0.6, color=colour)
    for level, style in ((-2, ":"), (0, "-"), (2, ":")):
        right.axhline(level, color=INK, linewidth=0.8, linestyle=style)
    left.set(title="Temperatures", xlabel="position y", ylabel="T (K)")
    right.set(title="Residuals over the noise of 2.5 K", xlabel="position y")
    left.legend()


FIGURES = draw_prior_curves, draw_posterior_curves, draw_layers, draw_temperatures, draw_darcy
EXPERIMENT = Experiment(
    name="insulation",
    title="Conductivities from what flows through: an insulation, and Darcy flow",
    settings={"smoke": SMOKE, "quick": QUICK, "paper": PAPER},
    stages=(
        Stage("prior", "conductivities drawn from each prior", draw_priors),
        Stage("frozen", "HMC with the hidden layer frozen, each prior",
              partial(infer_curves, kind="frozen")),
        Stage("every", "HMC over every parameter", partial(infer_curves, kind="every")),
        Stage("darcy", "a permeability in two dimensions", infer_field),
    ),
    pictures=tuple(map(Picture.of, FIGURES)),
    quantities=(
        Quantity("kappa_relative_error",
                 "relative error of κ / mean(κ), every parameter, wider domain", at_most=0.05),
        Quantity("kappa_coverage", "share of temperatures where the 95 % band holds the truth",
                 at_least=0.85),
        Quantity("temperature_misfit", "temperatures: misfit over the noise, root mean square"),
        Quantity("rhat_max", "largest R-hat of the curve", at_most=1.01),
        Quantity("ess_min", "smallest ESS of the curve", at_least=400),
        Quantity("divergences", "divergent steps"),
        Quantity("num_draws", "draws"),
        Quantity("darcy_relative_error", "Darcy: relative error of u"),
        Quantity("darcy_coverage", "Darcy: share of cells where the 95 % band holds the truth"),
        Quantity("darcy_misfit", "Darcy: pressure misfit over the noise, root mean square"),
        *converged("darcy", " of u, Darcy", prefix="darcy_"),
        Quantity("darcy_divergences", source="darcy.divergences"),
        Quantity("seconds", "seconds in all"),
    ),
    measure=measure, estimate=estimate,
)  # fmt: skip
