"""The heat kernel of a box, from which the covariance of every function of −Δ follows.

On one axis with given sides, p_s(x, y) = Σₙ exp(−s ωₙ²) φₙ(x) φₙ(y) is a theta function:
a few mirror images for short times s, a few modes for long ones. Then, exactly,

    (κ² − Δ)^(−α)  has kernel  (1/Γ(α)) ∫₀^∞ s^(α−1) exp(−κ² s) ∏ᵢ p_s(xᵢ, yᵢ) ds.
"""

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln
from jaxtyping import Array, Float, Int

from ..checks import default_float
from ..domains import Box
from .boundary import Boundary, Sides
from .laplace_basis import axis_frequencies, axis_functions

NUM_TIMES = 400
NUM_IMAGES = 5
NUM_LONG_MODES = 6
# Between them, images and modes lose less than 1e-16 when they change over here.
CHANGE_OVER = 0.15

Time = Float[Array, ""]


def box_heat(
    domain: Box, boundary: Boundary, x: Float[Array, " d"], y: Float[Array, " d"]
) -> Callable[[Time], Float[Array, ""]]:
    """s ↦ ∏ᵢ p_s(xᵢ, yᵢ)."""
    a, b = domain.to_unit(x), domain.to_unit(y)
    axes = list(zip(boundary, domain.lengths, a, b, strict=True))

    def heat(time: Time) -> Float[Array, ""]:
        factors = [_axis_heat(sides, time / size**2, *ab) / size for sides, size, *ab in axes]
        return math.prod(factors, start=jnp.ones(()))

    return heat


def box_heat_trace(domain: Box, boundary: Boundary) -> Callable[[Time], Float[Array, ""]]:
    """s ↦ ∏ᵢ ∫ p_s(xᵢ, xᵢ) dxᵢ = Σ exp(−s μ) over all modes."""
    axes = list(zip(boundary, domain.lengths, strict=True))

    def trace(time: Time) -> Float[Array, ""]:
        factors = [_axis_trace(sides, time / size**2) for sides, size in axes]
        return math.prod(factors, start=jnp.ones(()))

    return trace


def integrate_times(
    heat: Callable[[Time], Float[Array, ""]],
    domain: Box,
    power: Float[Array, ""],
    shift: Float[Array, ""],
    lowest: Float[Array, ""],
) -> Float[Array, ""]:
    """(1/Γ(α)) ∫ s^(α−1) exp(−κ² s) heat(s) ds, `lowest` the smallest eigenvalue of −Δ.

    With log s = v − exp(−v) + const the integrand is analytic in v and decays doubly
    exponentially at both ends, so the trapezoidal rule is exact to rounding.
    """
    digits = -math.log(float(np.finfo(default_float()).eps))
    excess = power - domain.dimension / 2
    offset = jnp.log(shift + lowest)
    # Not below the smallest float, where the heat kernel would divide by zero.
    shortest = -0.9 * math.log(float(np.finfo(default_float()).tiny)) - offset
    start = -jnp.log(jnp.minimum(digits / excess, shortest))
    stop = jnp.log(power + digits + 4 + jnp.sqrt(2 * power * digits))
    v = jnp.linspace(start, stop, NUM_TIMES)
    logs = v - jnp.exp(-v) - offset
    terms = jnp.exp(power * logs - shift * jnp.exp(logs) - gammaln(power))
    terms = terms * jax.vmap(heat)(jnp.exp(logs))
    # For times before the first the integrand is a power of s: its integral, and half a step less.
    step = v[1] - v[0]
    head = terms[0] / excess - 0.5 * step * (1 + jnp.exp(-v[0])) * terms[0]
    return step * jnp.sum((1 + jnp.exp(-v)) * terms) + head


def _axis_heat(
    sides: Sides, time: Time, a: Float[Array, ""], b: Float[Array, ""]
) -> Float[Array, ""]:
    """p_s on the unit interval."""
    products = axis_functions(sides, a, NUM_LONG_MODES) * axis_functions(sides, b, NUM_LONG_MODES)
    long = jnp.sum(_decay(sides, time) * products)
    return jnp.where(time < CHANGE_OVER, _images(sides, time, a, b), long)


def _axis_trace(sides: Sides, time: Time) -> Float[Array, ""]:
    """∫ p_s(x, x) dx on the unit interval."""
    long = jnp.sum(_decay(sides, time))
    return jnp.where(time < CHANGE_OVER, _image_trace(sides, time), long)


def _decay(sides: Sides, time: Time) -> Float[Array, " m"]:
    """exp(−s ω²) of the first modes, s no shorter than the change-over."""
    frequencies = jnp.asarray(axis_frequencies(sides, 1.0, NUM_LONG_MODES))
    return jnp.exp(-jnp.maximum(time, CHANGE_OVER) * frequencies**2)


def _images(sides: Sides, time: Time, a: Float[Array, ""], b: Float[Array, ""]) -> Float[Array, ""]:
    """The sum over mirror images of the source, each with the sign its reflections give it."""
    m = jnp.arange(-NUM_IMAGES, NUM_IMAGES + 1)
    if sides == ("periodic", "periodic"):
        return jnp.sum(_gauss(a - b + m, time))
    mirror = 1.0 if sides[0] == "neumann" else -1.0
    direct, mirrored = _gauss(a - b + 2 * m, time), _gauss(a + b + 2 * m, time)
    return jnp.sum(_signs(sides, m) * (direct + mirror * mirrored))


def _image_trace(sides: Sides, time: Time) -> Float[Array, ""]:
    m = jnp.arange(-NUM_IMAGES, NUM_IMAGES + 1)
    if sides == ("periodic", "periodic"):
        return jnp.sum(_gauss(1.0 * m, time))
    corner = {("neumann", "neumann"): 0.5, ("dirichlet", "dirichlet"): -0.5}.get(sides, 0.0)
    return jnp.sum(_signs(sides, m) * _gauss(2.0 * m, time)) + corner


def _signs(sides: Sides, m: Int[Array, " m"]) -> Float[Array, " m"]:
    """The sign of each image: it changes from one to the next where the two sides differ."""
    return jnp.where(m % 2 == 0, 1.0, 1.0 if sides[0] == sides[1] else -1.0)


def _gauss(distance: Float[Array, " m"], time: Time) -> Float[Array, " m"]:
    """The heat kernel of the line, s no longer than the change-over."""
    time = jnp.minimum(time, CHANGE_OVER)
    return jnp.exp(-jnp.square(distance) / (4 * time)) / jnp.sqrt(4 * jnp.pi * time)
