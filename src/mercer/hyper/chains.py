"""Chains that go on while the hyperparameters change: Metropolis-adjusted Langevin steps.

A step needs ∇ log p by the parameters where it begins and where it would end; the gradient by the
hyperparameters, of which the evidence's gradient is made, comes at the same cost.
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
    """All chains of one density, a row each: slopes of the log density by the hyperparameters, the
    step, recent acceptance, a root of the metric, and the moments of a block."""

    positions: Float[Array, "C D"]
    hyper_slopes: Float[Array, "C p"]
    log_step: Float[Array, ""]
    acceptance: Float[Array, ""]
    root: Array
    count: Float[Array, ""]
    total: Float[Array, " D"]
    products: Array


def evaluate_at(log_density: LogDensity, hyper: Array, position: Array, key: PRNGKeyArray) -> Place:
    """The log density and both gradients at a position."""
    value, slopes = jax.value_and_grad(log_density, argnums=(0, 1))(position, hyper, key)
    return Place(position, value, *slopes)


def begin(positions: Float[Array, "C D"], num_hyper: int) -> Chains:
    """Chains at these positions, one a row, with a metric of one."""
    num_chains, size = positions.shape
    dense = size <= DENSE
    return Chains(
        positions=positions,
        hyper_slopes=jnp.zeros((num_chains, num_hyper)),
        log_step=jnp.log(0.1),
        acceptance=jnp.ones(()),
        root=jnp.eye(size) if dense else jnp.ones(size),
        count=jnp.zeros(()),
        total=jnp.zeros(size),
        products=jnp.zeros((size, size) if dense else (size,)),
    )


def advance(
    log_density: LogDensity, adjusted: bool, chains: Chains, hyper: Array, key: PRNGKeyArray
) -> Chains:
    """One step of every chain at `hyper`, its size tuned where steps are `adjusted` by Metropolis."""
    step = jnp.exp(chains.log_step)

    def propose(chain):
        return _propose(log_density, adjusted, chain[0], hyper, step, chains.root, chain[1])

    keys = jax.random.split(key, chains.positions.shape[0])
    places, acceptance = over_chains(propose, (chains.positions, keys))
    log_step = chains.log_step
    if adjusted:
        log_step = log_step + 0.1 * (jnp.mean(acceptance) - TARGET)
    x = places.position
    products = x.T @ x if chains.products.ndim == 2 else jnp.sum(x * x, axis=0)
    return Chains(
        positions=x,
        hyper_slopes=places.hyper_slope,
        log_step=log_step,
        acceptance=0.8 * chains.acceptance + 0.2 * jnp.mean(acceptance),
        root=chains.root,
        count=chains.count + x.shape[0],
        total=chains.total + jnp.sum(x, axis=0),
        products=chains.products + products,
    )


def with_metric(chains: Chains) -> Chains:
    """The same chains with the metric of the last block's positions, and none counted."""
    mean = chains.total / chains.count
    second = chains.products / chains.count
    if second.ndim == 1:
        root = jnp.sqrt(jnp.maximum(second - mean**2, 1e-12))
    else:
        covariance = second - jnp.outer(mean, mean)
        size = jnp.trace(covariance) / covariance.shape[0]
        root = jnp.linalg.cholesky(covariance + 1e-6 * size * jnp.eye(covariance.shape[0]))
    return chains._replace(
        root=root,
        count=jnp.zeros(()),
        total=jnp.zeros_like(chains.total),
        products=jnp.zeros_like(chains.products),
    )


def _propose(
    log_density: LogDensity,
    adjusted: bool,
    position: Array,
    hyper: Array,
    step: Array,
    root: Array,
    key: PRNGKeyArray,
) -> tuple[Place, Array]:
    """Where a chain is after a step, and the probability with which it was to move."""
    noise_key, accept_key, here_key, there_key = jax.random.split(key, 4)
    noise = jax.random.normal(noise_key, position.shape, position.dtype)
    scale = (lambda v: root @ v) if root.ndim == 2 else (lambda v: root * v)
    scale_back = (lambda v: root.T @ v) if root.ndim == 2 else scale
    here = evaluate_at(log_density, hyper, position, here_key)
    drift = scale_back(here.slope)
    proposal = position + scale(0.5 * step**2 * drift + step * noise)
    there = evaluate_at(log_density, hyper, proposal, there_key)
    # In the metric's coordinates the way back is made by this noise.
    back = -noise - 0.5 * step * (drift + scale_back(there.slope))
    gain = there.value - here.value + 0.5 * (jnp.sum(noise**2) - jnp.sum(back**2))
    acceptance = jnp.minimum(1.0, jnp.exp(jnp.where(jnp.isfinite(gain), gain, -jnp.inf)))
    accepted = (jax.random.uniform(accept_key) < acceptance) | (not adjusted)
    return jax.tree.map(lambda a, b: jnp.where(accepted, a, b), there, here), acceptance
