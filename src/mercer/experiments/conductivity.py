"""The thermal conductivity of an insulation from temperatures: priors, forward map, posterior."""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy.interpolate import CubicSpline

from .. import data
from ..conditioned import Conditioned, Sight
from ..density import Prior
from ..domains import Interval
from ..energy import Quadrature
from ..likelihoods import Gaussian
from ..networks import FourierMLP
from ..pde import conduct
from ..posterior import Posterior
from ..spectra import Laplacian, Spectrum
from ..whitened import Whitened
from .recentred import Recentred, recentre

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


@dataclasses.dataclass(frozen=True)
class Network:
    """A one-layer network of temperature, and the modes that weigh it."""

    width: int
    num_modes: int
    num_frequencies: int = 8
    frequency_scale: float = 6.0
    hidden_scale: float = 1.0
    readout_scale: float = 100.0


@dataclasses.dataclass(frozen=True)
class Choice:
    """A prior of u: where it lives, what it does at the sides, and the shift of its operator."""

    title: str
    lower: float
    upper: float
    boundary: str
    shift: float

    def spectrum(self, num_modes: int) -> Spectrum:
        """(shift − Δ)⁻², scaled to the variance."""
        domain = Interval(self.lower, self.upper)
        process = Laplacian(domain, num_modes, self.boundary, self.shift) ** 2
        return process.with_variance(VARIANCE)

    def prior(self, network: Network, key: jax.Array) -> Prior:
        """The Mercer prior of a network."""
        process = self.spectrum(network.num_modes)
        made = FourierMLP(
            1,
            network.width,
            num_frequencies=network.num_frequencies,
            frequency_scale=network.frequency_scale,
            boundary="dirichlet" if self.boundary == "dirichlet" else None,
            key=key,
            saturation=0.1,
            hidden_scale=network.hidden_scale,
            readout_scale=network.readout_scale,
            domain=process.domain,
        )
        return Prior(Quadrature(process), made)


# The wider domain is the one to believe: the paper's sides give κ the same value at both ends of the
# data, Neumann sides give it no slope there, and sides that are a length scale away from the data
# say nothing about it.
HEADLINE = "wider"
CHOICES = {
    "paper": Choice("Dirichlet on [300, 1900], the paper's", COLD, HOT, "dirichlet", 0.0),
    "neumann": Choice("Neumann on [300, 1900]", COLD, HOT, "neumann", SHIFT),
    "wider": Choice(
        "Dirichlet on [−500, 2700]", COLD - LENGTHSCALE, HOT + LENGTHSCALE, "dirichlet", SHIFT
    ),
}


def conductivity(u: Float[Array, "..."]) -> Float[Array, "..."]:
    """κ = softplus(u + offset), in units of its own."""
    return jax.nn.softplus(u + OFFSET)


class Conduction(eqx.Module):
    """Temperatures at the stations for κ = softplus(u(T) + offset): the forward map."""

    num_cells: int = eqx.field(static=True)

    def __call__(self, u, inputs: Float[Array, "n 1"]) -> Float[Array, " n"]:
        return conduct(lambda t: conductivity(u(t)), COLD, HOT, inputs[:, 0], self.num_cells)

    @property
    def nodes(self) -> Float[Array, " m"]:
        """The temperatures at which the map looks at u."""
        return jnp.linspace(COLD, HOT, 2 * self.num_cells + 1)


def posterior_of(prior: Prior, num_cells: int) -> Posterior:
    """Given the 51 temperatures, noise of 2.5 K."""
    stations, observed = data.insulation()
    return Posterior(prior, Gaussian(NOISE, Conduction(num_cells)), (stations[:, None], observed))


def frozen(posterior: Posterior) -> Recentred:
    """The posterior with the hidden layer as it is."""
    return recentre(Whitened(posterior))


def every_parameter(posterior: Posterior, approximate: Recentred) -> Conditioned:
    """The posterior of every parameter, its coordinates made about the frozen layer's mode."""
    observe: Any = posterior.likelihood.observe
    stations = posterior.inputs
    best = jax.vmap(approximate.network(approximate.params))(observe.nodes[:, None])

    def predict(values):
        return observe(lambda t: jnp.interp(t, observe.nodes, values), stations) / NOISE

    slopes = jax.jit(jax.jacfwd(predict))(best)
    residual = jax.jit(predict)(best) - slopes @ best - posterior.targets / NOISE
    return Conditioned(posterior, [Sight(observe.nodes[:, None], slopes, residual)])


def truth_at(temperatures: np.ndarray) -> np.ndarray:
    """The conductivity that made the data, over its mean."""
    curve = CubicSpline(*data.insulation_truth())(temperatures)
    return curve / (mean_weights(len(temperatures)) @ curve)


def mean_weights(count: int) -> np.ndarray:
    """Trapezoidal weights that average over a grid of temperatures."""
    weights = np.ones(count)
    weights[[0, -1]] = 0.5
    return weights / weights.sum()
