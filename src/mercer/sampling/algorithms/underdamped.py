"""Stochastic gradient Hamiltonian dynamics: SGHMC, and SGNHT with a thermostat.

Both split a step symmetrically (drift, kick, friction, kick, drift) with one gradient, so that
on a Gaussian target the stationary variance is right to second order in the step.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from ...checks import PyTree, Real, require_positive
from ...density import Density, gradient, normal_like
from ..algorithm import Algorithm, Info, make_info
from .schedules import Schedule, as_schedule


class UnderdampedState(NamedTuple):
    """Position, velocity, the thermostat's friction, and the number of steps."""

    position: PyTree
    velocity: PyTree
    friction: Float[Array, ""]
    count: Float[Array, ""]


class Underdamped(Algorithm):
    """dθ = v dt, dv = ∇ log p dt − ξ v dt + √(2a) dW; ξ = a, or driven by the kinetic energy."""

    schedule: Schedule
    friction: float
    has_thermostat: bool
    needs_deterministic = False

    def init(self, key: PRNGKeyArray, density: Density, params: PyTree) -> UnderdampedState:
        friction = jnp.asarray(self.friction, float)
        return UnderdampedState(params, normal_like(key, params), friction, jnp.zeros(()))

    def step(
        self, key: PRNGKeyArray, density: Density, state: UnderdampedState
    ) -> tuple[UnderdampedState, Info]:
        batch_key, noise_key = jax.random.split(key)
        h = self.schedule(state.count)
        middle = _add(state.position, h / 2, state.velocity)
        slope = gradient(density, middle, batch_key)
        velocity = _add(state.velocity, h / 2, slope)
        friction = self._regulate(state.friction, velocity, h / 2)
        velocity = _rub(velocity, normal_like(noise_key, velocity), friction, self.friction, h)
        friction = self._regulate(friction, velocity, h / 2)
        velocity = _add(velocity, h / 2, slope)
        position = _add(middle, h / 2, velocity)
        info = make_info(step_size=h, num_gradients=1.0)
        return UnderdampedState(position, velocity, friction, state.count + 1), info

    def heat(self, state: UnderdampedState, noise: PyTree) -> PyTree | None:
        if self.has_thermostat:
            return None
        # Injected 2ah a step, and h² times the gradient's variance on top.
        share = self.schedule(state.count) / (2 * self.friction)
        return jax.tree.map(lambda v: share * v, noise)

    def _regulate(
        self, friction: Float[Array, ""], velocity: PyTree, h: Float[Array, ""]
    ) -> Float[Array, ""]:
        """The thermostat's friction after a time h at this velocity."""
        if not self.has_thermostat:
            return friction
        leaves = jax.tree.leaves(velocity)
        temperature = sum(jnp.sum(x**2) for x in leaves) / sum(x.size for x in leaves)
        return friction + h * (temperature - 1)


def sghmc(step_size: Real | Schedule, friction: Real = 1.0) -> Underdamped:
    """Stochastic gradient HMC with a constant friction."""
    require_positive("friction", friction)
    return Underdamped(as_schedule(step_size), float(friction), False)


def sgnht(step_size: Real | Schedule, friction: Real = 1.0) -> Underdamped:
    """Stochastic gradient Nosé–Hoover: the friction takes up the gradient's own noise."""
    require_positive("friction", friction)
    return Underdamped(as_schedule(step_size), float(friction), True)


def _add(tree: PyTree, factor: Float[Array, ""], other: PyTree) -> PyTree:
    return jax.tree.map(lambda x, y: x + factor * y, tree, other)


def _rub(velocity: PyTree, noise: PyTree, friction, strength: float, h) -> PyTree:
    """The exact solution of dv = −ξ v dt + √(2a) dW over a time h, also as ξ passes zero."""
    decay = jnp.exp(-friction * h)
    safe = jnp.where(jnp.abs(friction) > 1e-6, friction, 1.0)
    spread = jnp.where(jnp.abs(friction) > 1e-6, -jnp.expm1(-2 * friction * h) / safe, 2 * h)
    root = jnp.sqrt(strength * spread)
    return jax.tree.map(lambda v, n: decay * v + root * n, velocity, noise)
