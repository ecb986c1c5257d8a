"""Chains that go on while the hyperparameters change: Metropolis-adjusted Langevin steps.

A step needs ∇ log p by the parameters where it begins and where it would end; what these give by the
hyperparameters at the same cost is what the evidence's gradient is made of.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from ..threads import over_chains

# Acceptance that the step is tuned to, that of Langevin proposals in high dimension.
TARGET = 0.574
# Parameters above which the metric is diagonal.
DENSE = 200

LogDensity = Callable[[Array, Array, PRNGKeyArray], Array]


class Place(NamedTuple):
    """A position of flat parameters, the log density there and its two gradients."""

    position: Float[Array, " D"]
    value: Float[Array, ""]
    slope: Float[Array, " D"]
    hyper_slope: Float[Array, " p"]


class Chains(NamedTuple):
    """All chains of one density, a row each, with the slope of the log density by the hyperparameters,
    their step, recent acceptance, metric and the moments of a block."""

    positions: Float[Array, "C D"]
    hyper_slopes: Float[Array, "C p"]
    log_step: Float[Array, ""]
    acceptance: Float[Array, ""]
    root: Array
    count: Float[Array, ""]
    total: Float[Array, " D"]
    products: Array


def arrive(log_density: LogDensity, hyper: Array, position: Array, key: PRNGKeyArray) -> Place:
    """The log density and both gradients at a position."""
    value, slopes = jax.value_and_grad(log_density, argnums=(0, 1))(position, hyper, key)
    return Place(position, value, *slopes)


def begin(positions: Float[Array, "C D"], num_hyper: int) -> Chains:
    """Chains at these positions, one a row, with a metric of one."""
    count, size = positions.shape
    blank = jnp.zeros((size, size) if size <= DENSE else (size,))
    root = jnp.eye(size) if size <= DENSE else jnp.ones(size)
    slopes = jnp.zeros((count, num_hyper))
    tuning = jnp.log(0.1), jnp.ones(()), root
    return Chains(positions, slopes, *tuning, jnp.zeros(()), jnp.zeros(size), blank)


def advance(
    log_density: LogDensity, adjusted: bool, chains: Chains, hyper: Array, key: PRNGKeyArray
) -> Chains:
    """One step of every chain at `hyper`."""
    keys = jax.random.split(key, chains.positions.shape[0])
    step = jnp.exp(chains.log_step)

    def propose(chain):
        return _propose(log_density, adjusted, chain[0], hyper, step, chains.root, chain[1])

    places, acceptance = over_chains(propose, (chains.positions, keys))
    tuned = chains.log_step + 0.1 * (jnp.mean(acceptance) - TARGET) if adjusted else chains.log_step
    x = places.position
    products = x.T @ x if chains.products.ndim == 2 else jnp.sum(x * x, axis=0)
    return Chains(
        x, places.hyper_slope, tuned, 0.8 * chains.acceptance + 0.2 * jnp.mean(acceptance),
        chains.root, chains.count + x.shape[0],
        chains.total + jnp.sum(x, axis=0), chains.products + products,
    )  # fmt: skip


def with_metric(chains: Chains) -> Chains:
    """The same chains with the metric that the positions of the last block tell, and none counted."""
    mean = chains.total / chains.count
    spread = chains.products / chains.count
    if spread.ndim == 1:
        root = jnp.sqrt(jnp.maximum(spread - mean**2, 1e-12))
    else:
        covariance = spread - jnp.outer(mean, mean)
        size = jnp.trace(covariance) / covariance.shape[0]
        root = jnp.linalg.cholesky(covariance + 1e-6 * size * jnp.eye(covariance.shape[0]))
    zeros = jnp.zeros_like(chains.total), jnp.zeros_like(chains.products)
    held = chains.positions, chains.hyper_slopes, chains.log_step, chains.acceptance
    return Chains(*held, root, jnp.zeros(()), *zeros)


def _propose(log_density, adjusted, position, hyper, step, root, key) -> tuple[Place, Array]:
    """Where a chain is after a step, and with what probability it was to move."""
    noise_key, accept_key, here_key, there_key = jax.random.split(key, 4)
    noise = jax.random.normal(noise_key, position.shape, position.dtype)
    spread = (lambda v: root @ v) if root.ndim == 2 else (lambda v: root * v)
    gather = (lambda v: root.T @ v) if root.ndim == 2 else (lambda v: root * v)
    here = arrive(log_density, hyper, position, here_key)
    drift = gather(here.slope)
    proposal = position + spread(0.5 * step**2 * drift + step * noise)
    there = arrive(log_density, hyper, proposal, there_key)
    # In the metric's coordinates the way back is made by this noise.
    back = -noise - 0.5 * step * (drift + gather(there.slope))
    gain = there.value - here.value + 0.5 * (jnp.sum(noise**2) - jnp.sum(back**2))
    acceptance = jnp.minimum(1.0, jnp.exp(jnp.where(jnp.isfinite(gain), gain, -jnp.inf)))
    accepted = (jax.random.uniform(accept_key) < acceptance) | (not adjusted)
    return jax.tree.map(lambda a, b: jnp.where(accepted, a, b), there, here), acceptance
