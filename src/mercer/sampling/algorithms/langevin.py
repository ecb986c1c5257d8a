"""Stochastic gradient Langevin dynamics, plain, preconditioned, cyclical, with control variates.

    θ' = θ + h G ∇ log p(θ) + N(0, 2 h G),   h the step size, G a diagonal preconditioner.

In the paper's letters h = ε/2: drift ε/2, noise N(0, ε).
"""

import dataclasses
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from ...checks import PyTree, Real
from ...density import Density, gradient, normal_like
from ..algorithm import Algorithm, Info, make_info
from .schedules import Schedule, as_schedule, cyclical


class LangevinState(NamedTuple):
    """Where the chain is, and how many steps it took."""

    position: PyTree
    count: Float[Array, ""]


class Langevin(Algorithm):
    """SGLD; `scale` is the diagonal of G, `center` where a control variate is taken."""

    schedule: Schedule
    adapts_scale: bool = eqx.field(static=True, default=False)
    scale: PyTree | None = None
    center: PyTree | None = None
    center_gradient: PyTree | None = None
    needs_deterministic = False

    def init(self, key: PRNGKeyArray, density: Density, params: PyTree) -> LangevinState:
        return LangevinState(params, jnp.zeros(()))

    def step(
        self, key: PRNGKeyArray, density: Density, state: LangevinState
    ) -> tuple[LangevinState, Info]:
        batch_key, noise_key = jax.random.split(key)
        step_size = self.schedule(state.count)
        slope = self.slope(density, state.position, batch_key)
        noise = normal_like(noise_key, state.position)

        def move(x, g, s, n):
            return x + step_size * s * g + jnp.sqrt(2 * step_size * s) * n

        scale = self._scale(state.position)
        position = jax.tree.map(move, state.position, slope, scale, noise)
        info = make_info(step_size=step_size, num_gradients=1.0)
        return LangevinState(position, state.count + 1), info

    def slope(self, density: Density, params: PyTree, key: PRNGKeyArray) -> PyTree:
        """The gradient that one batch gives, less its control variate where there is one."""
        if self.center is None:
            return gradient(density, params, key)
        here, there = (gradient(density, p, key) for p in (params, self.center))
        return jax.tree.map(lambda g, c, full: g - c + full, here, there, self.center_gradient)

    def heat(self, state: LangevinState, noise: PyTree) -> PyTree:
        # Injected 2hG a step, and h²G² times the gradient's variance on top.
        half_step = self.schedule(state.count) / 2
        return jax.tree.map(lambda s, v: half_step * s * v, self._scale(state.position), noise)

    def adapt(
        self, key: PRNGKeyArray, density: Density, params: PyTree, num_steps: int
    ) -> tuple[Algorithm, LangevinState]:
        if not self.adapts_scale or num_steps == 0:
            return Algorithm.adapt(self, key, density, params, num_steps)
        return self._adapt_scale(key, density, params, num_steps)

    def _scale(self, position: PyTree) -> PyTree:
        return jax.tree.map(jnp.ones_like, position) if self.scale is None else self.scale

    def _adapt_scale(
        self, key: PRNGKeyArray, density: Density, params: PyTree, num_steps: int
    ) -> tuple["Langevin", LangevinState]:
        """Run with a running mean of squared gradients; keep the last scale, its mean one."""
        start_key, run_key = jax.random.split(key)

        def body(carry, key):
            state, squares = carry
            gradient_key, step_key = jax.random.split(key)
            slope = gradient(density, state.position, gradient_key)
            squares = jax.tree.map(lambda v, g: 0.99 * v + 0.01 * g**2, squares, slope)
            return (self._scaled_by(squares).step(step_key, density, state)[0], squares), None

        squares = jax.tree.map(jnp.square, gradient(density, params, start_key))
        start = self.init(start_key, density, params), squares
        (state, squares), _ = jax.lax.scan(body, start, jax.random.split(run_key, num_steps))
        return self._scaled_by(squares), state

    def _scaled_by(self, squares: PyTree) -> "Langevin":
        """The same with a scale of 1/√squares, of mean one."""
        raw = jax.tree.map(lambda v: 1 / (jnp.sqrt(v) + 1e-8), squares)
        leaves = jax.tree.leaves(raw)
        mean = sum(jnp.sum(leaf) for leaf in leaves) / sum(leaf.size for leaf in leaves)
        return dataclasses.replace(self, scale=jax.tree.map(lambda s: s / mean, raw))


def sgld(step_size: Real | Schedule) -> Langevin:
    """SGLD with step size h = ε/2 of the paper's ε: a number or a schedule.

    >>> algorithm = sgld(1e-4)
    """
    return Langevin(as_schedule(step_size))


def cyclical_sgld(step_size: Real, period: int) -> Langevin:
    """SGLD whose step falls along half a cosine, again and again, to leave modes and refine them."""
    return Langevin(cyclical(step_size, period))


def psgld(step_size: Real | Schedule) -> Langevin:
    """SGLD preconditioned by the gradients' size, which is learned in the warm-up and then kept.

    A preconditioner that goes on changing would need its divergence in the drift; one that is
    kept leaves the target as it is.
    """
    return Langevin(as_schedule(step_size), adapts_scale=True)


def sgld_control_variates(
    step_size: Real | Schedule, center: PyTree, center_gradient: PyTree
) -> Langevin:
    """SGLD with ∇(θ; batch) − ∇(θ̂; batch) + ∇(θ̂) for a fixed θ̂ near the mode.

    `center_gradient` is the full gradient at `center`: of the deterministic density, or a long
    average over batches (`average_gradient`).
    """
    return Langevin(as_schedule(step_size), center=center, center_gradient=center_gradient)


def average_gradient(
    key: PRNGKeyArray, density: Density, params: PyTree, num_batches: int
) -> PyTree:
    """The mean gradient over batches."""

    def body(total, key):
        return jax.tree.map(jnp.add, total, gradient(density, params, key)), None

    zero = jax.tree.map(jnp.zeros_like, params)
    total, _ = jax.lax.scan(body, zero, jax.random.split(key, num_batches))
    return jax.tree.map(lambda x: x / num_batches, total)
