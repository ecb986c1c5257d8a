"""Elliptical slice sampling, for densities that are N(0, I) times something else.

With a white draw ν, θ cos a + ν sin a is N(0, I) for every angle a if θ is: a slice of the rest of the
density along that ellipse needs no gradient, no step size and no acceptance (Murray, Adams and
MacKay, 2010). The number of parameters does not matter, only how much the rest varies.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from .algorithm import Algorithm, Density, Info, make_info, normal_like


class EllipticalState(NamedTuple):
    """Where the chain is, and the logarithm of the density over N(0, I) there."""

    position: PyTree
    rest: Float[Array, ""]


class Elliptical(Algorithm):
    """Elliptical slice sampling; every step moves."""

    needs_deterministic = True

    def init(self, key: PRNGKeyArray, density: Density, params: PyTree) -> EllipticalState:
        return EllipticalState(params, _rest(density, params))

    def step(
        self, key: PRNGKeyArray, density: Density, state: EllipticalState
    ) -> tuple[EllipticalState, Info]:
        noise_key, height_key, angle_key = jax.random.split(key, 3)
        white = normal_like(noise_key, state.position)
        height = state.rest - jax.random.exponential(height_key)

        def turn(angle):
            return jax.tree.map(
                lambda x, n: x * jnp.cos(angle) + n * jnp.sin(angle), state.position, white
            )

        def shrink(held):
            angle, low, high, _, count = held
            low, high = jnp.where(angle < 0, angle, low), jnp.where(angle < 0, high, angle)
            draw = jax.random.uniform(jax.random.fold_in(angle_key, count))
            return attempt(low + (high - low) * draw, low, high, count + 1)

        def attempt(angle, low, high, count):
            return angle, low, high, _rest(density, turn(angle)), count

        first = 2 * math.pi * jax.random.uniform(jax.random.fold_in(angle_key, 0))
        found = jax.lax.while_loop(
            lambda held: ~(held[3] > height),
            shrink,
            attempt(first, first - 2 * math.pi, first, jnp.asarray(1)),
        )
        info = make_info(acceptance=1.0 / found[4], num_gradients=0.0)
        return EllipticalState(turn(found[0]), found[3]), info


def elliptical_slice() -> Elliptical:
    """Slices along ellipses through white draws: for `Whitened`, `Conditioned`, or a white `Joint`.

    `acceptance` of a draw is one over the number of densities it took.

    >>> algorithm = elliptical_slice()
    """
    return Elliptical()


def _rest(density: Density, params: PyTree) -> Float[Array, ""]:
    """log density − log N(0, I), but for a constant."""
    return density(params) + 0.5 * sum(jnp.sum(x**2) for x in jax.tree.leaves(params))
