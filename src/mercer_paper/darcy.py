"""A permeability in two dimensions from pressures: Darcy flow −div(exp(u) ∇p) = 1, p = 0 outside.

The truth flows through `num_fine` cells a side, ours through `num_cells`.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from matplotlib.figure import Figure

import mercer
from mercer.pde import Flow

from .experiment import Arrays, Chains, Run, Settings
from .panels import panels
from .summaries import bands, convergence

SQUARE = mercer.Box([0.0, 0.0], [1.0, 1.0])
# Noise as a share of the largest pressure.
NOISE = 0.01
VARIANCE = 0.5


class Pressure(eqx.Module):
    """Pressures at the sensors for a permeability exp(u): the forward map."""

    flow: Flow

    def __call__(self, u: mercer.FourierMLP, inputs: Float[Array, "n 2"]) -> Float[Array, " n"]:
        return self.flow.at(self.flow.solve(lambda x: jnp.exp(u(x)), 1.0), inputs)


def make_data(process: mercer.spectra.Spectrum, settings: Settings, key: jax.Array) -> Arrays:
    """A field drawn from the exact process, its pressure on the finer cells, noisy sensors."""
    field_key, place_key, noise_key = jax.random.split(key, 3)
    fine, ours = Flow(SQUARE, settings.num_fine), Flow(SQUARE, settings.num_cells)
    points = jnp.concatenate([fine.centres, ours.centres])
    field = mercer.GaussianProcess(process).draw(field_key, points)[0]
    through, truth = jnp.split(field, [len(fine.centres)])
    sensors = jax.random.uniform(place_key, (settings.num_sensors, 2), minval=0.02, maxval=0.98)

    @jax.jit
    def observe(field: Array) -> tuple[Array, Array]:
        pressure = fine.solve(jnp.exp(field).reshape(fine.cells), 1.0)
        return fine.at(pressure, sensors), NOISE * jnp.max(pressure)

    exact, noise = observe(through)
    observed = exact + noise * jax.random.normal(noise_key, exact.shape)
    arrays = {"truth": truth, "sensors": sensors, "observed": observed, "noise": noise}
    return {name: np.asarray(value) for name, value in arrays.items()}


def infer(
    run: Run, name: str, posterior: mercer.Posterior, chains: Chains, unknown: Callable
) -> Arrays:
    """Bands and convergence of unknown(network), an array; and what the data would be."""

    def record(params: Any) -> dict[str, Array]:
        network = posterior.network(params)
        predicted = posterior.likelihood.predict(network, posterior.inputs)
        return {"unknown": unknown(network), "predicted": predicted}

    draws = run.sample(name, posterior, record=record, **vars(chains))
    values, predicted = draws.recorded["unknown"], draws.recorded["predicted"]
    arrays = bands(values) | convergence(values, draws.statistics)
    return arrays | {"predicted": predicted.mean(axis=(0, 1))}


def infer_field(run: Run) -> Arrays:
    """The posterior of u over a frozen layer's readout, against the field that was drawn."""
    settings = run.settings.darcy
    process = mercer.Matern(2.0, 0.3, VARIANCE, SQUARE, settings.num_modes)
    data = make_data(process, settings, run.key_of("truth"))
    network = mercer.FourierMLP(
        2, settings.width, num_frequencies=settings.num_frequencies,
        frequency_scale=settings.frequency_scale, hidden_scale=1.0,
        readout_scale=100.0 * np.sqrt(VARIANCE), domain=SQUARE, key=run.key_of("network"),
    )  # fmt: skip
    flow = Flow(SQUARE, settings.num_cells)
    energy, readout = mercer.Quadrature(process), mercer.readout_only(network)
    prior = mercer.Prior(energy, network, trainable=readout)
    likelihood = mercer.Gaussian(data["noise"], Pressure(flow))
    posterior = mercer.Posterior(prior, likelihood, (data["sensors"], data["observed"]))
    arrays = infer(run, "darcy", posterior, settings.chains, lambda u: jax.vmap(u)(flow.centres))
    return data | arrays | {"cells": np.array(flow.cells)}


def draw_darcy(figure: Figure, darcy: Arrays) -> None:
    """A log permeability from the exact process, inferred from noisy pressures at the dots."""
    truth, mean, sd = (darcy[name].reshape(darcy["cells"]) for name in ("truth", "mean", "sd"))
    error, bound = np.abs(mean - truth), float(np.abs(truth).max())
    top = float(max(error.max(), sd.max()))
    fields = (
        ("True log permeability u", truth, -bound, bound), ("Posterior mean", mean, -bound, bound),
        ("Posterior deviation", sd, 0.0, top), ("Absolute error", error, 0.0, top),
    )  # fmt: skip
    axes = panels(figure, 4, 13, 2.9, sharey=True)
    for panel, (title, field, low, high) in zip(axes, fields, strict=True):
        image = panel.imshow(field.T, origin="lower", extent=(0, 1, 0, 1), vmin=low, vmax=high)
        figure.colorbar(image, ax=panel, shrink=0.9)
        panel.set(title=title, xlabel="x₁")
    axes[0].set_ylabel("x₂")
    axes[2].plot(*darcy["sensors"].T, ".", markersize=2, color="white")
