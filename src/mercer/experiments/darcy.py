"""A permeability in two dimensions from pressures: Darcy flow −div(exp(u) ∇p) = 1, p = 0 outside."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..density import Prior
from ..diagnostics import ess, rhat
from ..domains import Box
from ..energy import Quadrature
from ..likelihoods import Gaussian
from ..networks import FourierMLP
from ..pde import Flow
from ..posterior import Posterior
from ..reference import GaussianProcess
from ..spectra import Matern, Spectrum
from ..whitened import Whitened
from .experiment import Arrays, Chains, Run, fold
from .recentred import recentre

SQUARE = Box([0.0, 0.0], [1.0, 1.0])
# Noise as a share of the largest pressure.
NOISE = 0.01
VARIANCE = 0.5


@dataclasses.dataclass(frozen=True)
class Darcy:
    """How large the problem is; the truth flows through `num_fine` cells a side, ours through
    `num_cells`."""

    width: int
    num_modes: int
    num_cells: int
    num_fine: int
    num_sensors: int
    chains: Chains
    num_frequencies: int = 32
    frequency_scale: float = 4.0


class Pressure(eqx.Module):
    """Pressures at the sensors for a permeability exp(u): the forward map."""

    flow: Flow

    def __call__(self, u, inputs: Float[Array, "n 2"]) -> Float[Array, " n"]:
        return self.flow.at(self.flow.solve(lambda x: jnp.exp(u(x)), 1.0), inputs)


def make_spectrum(num_modes: int) -> Spectrum:
    """Matérn with ν = 2, length scale 0.3."""
    return Matern(2.0, 0.3, VARIANCE, SQUARE, num_modes)


def make_prior(settings: Darcy, key: jax.Array) -> Prior:
    """A network with the Mercer prior of that process."""
    network = FourierMLP(
        2,
        settings.width,
        num_frequencies=settings.num_frequencies,
        frequency_scale=settings.frequency_scale,
        key=key,
        hidden_scale=1.0,
        readout_scale=100.0 * np.sqrt(VARIANCE),
        domain=SQUARE,
    )
    return Prior(Quadrature(make_spectrum(settings.num_modes)), network)


def make_data(settings: Darcy, key: jax.Array) -> Arrays:
    """A field drawn from the exact process, its pressure on the finer cells, noisy sensors."""
    field_key, place_key, noise_key = jax.random.split(key, 3)
    fine, ours = Flow(SQUARE, settings.num_fine), Flow(SQUARE, settings.num_cells)
    process, split = GaussianProcess(make_spectrum(settings.num_modes)), fine.centres.shape[0]
    field = process.draw(field_key, jnp.concatenate([fine.centres, ours.centres]))[0]
    shape = (settings.num_sensors, 2)
    sensors = jax.random.uniform(place_key, shape, minval=0.02, maxval=0.98)

    @jax.jit
    def observe(field):
        pressure = fine.solve(jnp.exp(field).reshape(fine.cells), 1.0)
        return fine.at(pressure, sensors), NOISE * jnp.max(pressure)

    exact, noise = observe(field[:split])
    observed = exact + noise * jax.random.normal(noise_key, exact.shape)
    truth = field[split:].reshape(ours.cells)
    made = {"truth": truth, "sensors": sensors, "observed": observed, "noise": noise}
    return {name: np.asarray(value) for name, value in made.items()}


def infer_field(run: Run) -> Arrays:
    """The posterior of u by NUTS over a frozen layer's readout, against the field that was drawn."""
    settings: Darcy = run.settings.darcy
    made = make_data(settings, fold(run.key, "truth"))
    flow = Flow(SQUARE, settings.num_cells)
    prior = make_prior(settings, fold(run.key, "network"))
    likelihood = Gaussian(made["noise"], Pressure(flow))
    posterior = Posterior(prior, likelihood, (made["sensors"], made["observed"]))
    density = recentre(Whitened(posterior))

    def record(params):
        network = density.network(params)
        field = jax.vmap(network)(flow.centres)
        return {"field": field, "pressure": likelihood.predict(network, posterior.inputs)}

    draws = run.sample_white("darcy", density, settings.chains, record)
    field, pressure = draws.recorded["field"], draws.recorded["pressure"]
    flat = field.reshape(-1, field.shape[-1])
    lower, upper = np.quantile(flat, [0.025, 0.975], axis=0).reshape(2, *flow.cells)
    return made | {
        "mean": flat.mean(axis=0).reshape(flow.cells),
        "sd": flat.std(axis=0).reshape(flow.cells),
        "lower": lower,
        "upper": upper,
        "predicted": pressure.mean(axis=(0, 1)),
        "rhat": rhat(field).max(),
        "ess": ess(field).min(),
        "divergences": draws.statistics["divergent"].sum(),
        "gradients": draws.statistics["num_gradients"].mean(),
    }
