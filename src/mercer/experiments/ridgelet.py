"""The ridgelet prior of Matsubara, Oates and Briol (2021) for one hidden layer, as a baseline.

A function is Σᵢ rᵢ φ(wᵢ·x + bᵢ). With a ψ such that ∫ φ̂ ψ̂ /|ξ| dξ = 1,

    f(x) = ∫∫ (∫ ψ(w·y + b) f(y) dy) φ(w·x + b) dw db,

so that readouts r = Ψ f, Ψᵢⱼ = ψ(wᵢ·yⱼ + bᵢ) uⱼ / (N p(wᵢ, bᵢ)), of f at the nodes yⱼ of a quadrature
with weights uⱼ, make a network like f: for f ~ N(0, K) they are N(0, Ψ K Ψᵀ). Here f is a process cut
after its leading modes. Hidden units are drawn from p and kept.
"""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from ..domains import Box
from ..spectra import Spectrum

# Nodes on the interval: enough for units as narrow as the largest slope makes them.
NUM_NODES = 400
# Functions of the frozen units are tabulated on a grid, linear between its points: 1e-4 of their size.
NUM_GRID = 4000
# How far beyond the interval a unit may sit, in its own widths.
REACH = 4.0


class Ridgelet(eqx.Module):
    """Units exp(−z²/2) on an interval, and a readout r = Ψ Σₙ √λₙ φₙ ξₙ with white ξ = `readout`.

    Slopes are uniform on [−steepest, steepest], and biases over the units that reach the interval:
    a choice with bounded weights 1/p, which normal ones do not have. `table` has what each ξₙ adds to
    the function on a grid.
    """

    readout: Float[Array, " K"]
    table: Float[Array, "G K"]
    domain: Box
    level: float = eqx.field(static=True)

    def __init__(
        self,
        spectrum: Spectrum,
        width: int,
        steepest: float,
        *,
        key: PRNGKeyArray,
        level: float = 0.0,
    ):
        self.domain, self.level = spectrum.domain, level
        (lower,), (upper,) = self.domain.lower, self.domain.upper
        nodes, weights = self.domain.quadrature(NUM_NODES)
        slope_key, bias_key = jax.random.split(key)
        slopes = jax.random.uniform(slope_key, (width,), minval=-steepest, maxval=steepest)
        farthest = jnp.abs(slopes) * (upper - lower) / 2 + REACH
        biases = farthest * jax.random.uniform(bias_key, (width,), minval=-1.0, maxval=1.0)
        density = 1 / (2 * steepest) / (2 * farthest)

        def before(points):
            return slopes[:, None] * (points - (lower + upper) / 2)[None] + biases[:, None]

        psi = _ridgelet(before(nodes[:, 0])) * weights[None] / (width * density)[:, None]
        readouts = psi @ jax.vmap(spectrum.features)(nodes)
        units = jnp.exp(-0.5 * before(jnp.linspace(lower, upper, NUM_GRID)) ** 2)
        self.table = units.T @ readouts
        self.readout = jnp.zeros(spectrum.num_modes)

    def __call__(self, x: Float[Array, " d"]) -> Float[Array, ""]:
        place = self.domain.to_unit(x)[0] * (NUM_GRID - 1)
        left = jnp.clip(jnp.floor(place), 0, NUM_GRID - 2).astype(int)
        share = place - left
        table = jax.lax.stop_gradient(self.table)
        functions = (1 - share) * table[left] + share * table[left + 1]
        return self.level + jnp.dot(functions, self.readout)


def _ridgelet(z: Array) -> Array:
    """ψ for φ(z) = exp(−z²/2): φ̂ψ̂ = 2π ξ² exp(−ξ²) before the constant, whose integral over |ξ|
    is 2π."""
    return (1 - z**2) * jnp.exp(-0.5 * z**2) / (2 * math.pi)
