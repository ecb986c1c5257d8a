"""Steady conduction through a slab in closed form."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Bool, Float

from ..checks import default_float, is_concrete, require_count

# Newton's method on a cubic within one cell, where it is all but linear.
INVERSION_STEPS = 6


def conduct(
    kappa: Callable[[Array], Array],
    lower: ArrayLike,
    upper: ArrayLike,
    stations: ArrayLike | list[Any],
    num_cells: int = 100,
) -> Float[Array, " n"]:
    """Temperatures T at stations y in [0, 1] of (κ(T) T′)′ = 0, T(0) = lower, T(1) = upper.

    In closed form y(T) = ∫κ from `lower` to T, over the same to `upper`; Simpson's rule on
    `num_cells` cells of temperature, inverted within a cell. A factor in κ cancels.

    >>> temperatures = conduct(lambda T: T, 1.0, 3.0, [0.0, 0.5, 1.0])  # T² is linear in y
    >>> [round(float(t), 6) for t in temperatures]
    [1.0, 2.236068, 3.0]
    """
    stations = _check_stations(stations)
    require_count("num_cells", num_cells, at_least=2)
    if is_concrete((lower, upper)) and not lower < upper:
        raise ValueError(f"lower must be below upper, got {lower} and {upper}.")
    nodes = jnp.linspace(lower, upper, 2 * num_cells + 1)
    values = jax.vmap(kappa)(nodes)
    is_valid = require_conductivity(values)
    left, middle, right = values[:-1:2], values[1::2], values[2::2]
    # κ over one cell is left + slope s + bend s², 0 ≤ s ≤ 1.
    slope, bend = -3 * left + 4 * middle - right, 2 * left - 4 * middle + 2 * right
    masses = jnp.cumsum((left + 4 * middle + right) / 6)
    before = jnp.concatenate([jnp.zeros(1), masses])
    wanted = stations * masses[-1]
    cell = jnp.clip(jnp.searchsorted(before, wanted, side="right") - 1, 0, num_cells - 1)
    part = _invert_cell(left[cell], slope[cell], bend[cell], wanted - before[cell])
    return jnp.where(is_valid, nodes[2 * cell] + part * (nodes[2] - nodes[0]), jnp.nan)


def _invert_cell(left: Array, slope: Array, bend: Array, mass: Array) -> Array:
    """The s in [0, 1] at which the integral of left + slope s + bend s² reaches the mass."""

    def missing(s):
        return s * (left + s * (slope / 2 + s * bend / 3)) - mass

    def newton(function, s):
        def step(_, s):
            return jnp.clip(s - function(s) / (left + s * (slope + s * bend)), 0.0, 1.0)

        return jax.lax.fori_loop(0, INVERSION_STEPS, step, s)

    def divide(linear, residual):
        return residual / linear(jnp.ones_like(residual))

    start = mass / (left + slope / 2 + bend / 3)
    return jax.lax.custom_root(missing, jax.lax.stop_gradient(start), newton, divide)


def require_conductivity(values: Array) -> Bool[Array, ""]:
    """Whether all values are positive and finite; raises where they are known and are not."""
    is_valid = jnp.all((values > 0) & jnp.isfinite(values))
    if is_concrete(is_valid) and not is_valid:
        raise ValueError(
            f"kappa must be positive and finite everywhere, got {jnp.min(values):.3g} as its least "
            "value; map the network through jnp.exp or jax.nn.softplus."
        )
    return is_valid


def _check_stations(stations: ArrayLike | list[Any]) -> Float[Array, " n"]:
    if is_concrete(stations):
        places = np.asarray(stations, float)
        if places.ndim != 1 or not np.all((places >= 0) & (places <= 1)):
            raise ValueError(
                f"stations must be numbers in [0, 1] of shape (n,), got {places}; divide by the thickness."
            )
    return jnp.asarray(stations, default_float())
