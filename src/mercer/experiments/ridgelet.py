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

from ..spectra import Spectrum

# Nodes on the interval: enough for units as narrow as the largest slope makes them.
NUM_NODES = 400
# How far beyond the interval a unit may sit, in its own widths.
REACH = 4.0


class Ridgelet(eqx.Module):
    """Units exp(−z²/2) on an interval, and a readout r = Ψ Σₙ √λₙ φₙ ξₙ with white ξ = `readout`.

    Slopes are uniform on [−steepest, steepest], and biases over the units that reach the interval:
    a choice with bounded weights 1/p, which normal ones do not have.
    """

    readout: Float[Array, " K"]
    slopes: Float[Array, " N"]
    biases: Float[Array, " N"]
    root: Float[Array, "N K"]
    middle: float = eqx.field(static=True)
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
        nodes, weights = spectrum.domain.quadrature(NUM_NODES)
        (lower,), (upper,) = spectrum.domain.lower, spectrum.domain.upper
        self.middle, self.level = (lower + upper) / 2, level
        slope_key, bias_key = jax.random.split(key)
        self.slopes = jax.random.uniform(slope_key, (width,), minval=-steepest, maxval=steepest)
        farthest = jnp.abs(self.slopes) * (upper - lower) / 2 + REACH
        self.biases = farthest * jax.random.uniform(bias_key, (width,), minval=-1.0, maxval=1.0)
        density = 1 / (2 * steepest) / (2 * farthest)
        psi = _ridgelet(self.before(nodes)) * weights[None] / (width * density)[:, None]
        modes = jnp.exp(0.5 * spectrum.log_eigenvalues)[None] * jax.vmap(spectrum.eigenfunctions)(
            nodes
        )
        self.root = psi @ modes
        self.readout = jnp.zeros(spectrum.num_modes)

    def __call__(self, x: Float[Array, " d"]) -> Float[Array, ""]:
        root, biases, slopes = jax.lax.stop_gradient((self.root, self.biases, self.slopes))
        units = jnp.exp(-0.5 * (slopes * (x[0] - self.middle) + biases) ** 2)
        return self.level + jnp.dot(units, root @ self.readout)

    def before(self, points: Float[Array, "M d"]) -> Float[Array, "N M"]:
        """What the activation is applied to, at each point."""
        return self.slopes[:, None] * (points[:, 0] - self.middle)[None] + self.biases[:, None]


def _ridgelet(z: Array) -> Array:
    """ψ for φ(z) = exp(−z²/2): φ̂ψ̂ = 2π ξ² exp(−ξ²) before the constant, whose integral over |ξ|
    is 2π."""
    return (1 - z**2) * jnp.exp(-0.5 * z**2) / (2 * math.pi)
