"""The mode of a density by Optax: L-BFGS where it is deterministic, Adam where it is not."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, PRNGKeyArray

from .checks import PyTree, Real, require_count, require_positive
from .density import Density, evaluate


def maximise(
    key: PRNGKeyArray,
    density: Density,
    params: PyTree | None = None,
    num_steps: int = 1000,
    learning_rate: Real = 0.02,
) -> PyTree:
    """Parameters of (locally) largest log density, by `num_steps` steps from `params`.

    `learning_rate` is Adam's, for densities with a batch; it falls to zero along a cosine.
    """
    require_count("num_steps", num_steps)
    require_positive("learning_rate", learning_rate)
    start = density.params if params is None else params
    if density.is_deterministic:
        return climb(density, start, num_steps)
    return ascend(key, lambda p, k: evaluate(density, p, k), start, num_steps, learning_rate)


def ascend(
    key: PRNGKeyArray,
    value: Callable[[Any, PRNGKeyArray], Array],
    params: PyTree,
    num_steps: int,
    learning_rate: Real,
) -> PyTree:
    """Adam on a random value(params, key), its rate falling to zero along a cosine."""
    optimiser = optax.adam(optax.cosine_decay_schedule(learning_rate, num_steps))

    def body(carry, key):
        params, state = carry
        slope = jax.grad(lambda p: -value(p, key))(params)
        updates, state = optimiser.update(slope, state, params)
        return (optax.apply_updates(params, updates), state), None

    carry = params, optimiser.init(params)
    return jax.lax.scan(body, carry, jax.random.split(key, num_steps))[0][0]


def climb(density: Density, params: PyTree, num_steps: int) -> PyTree:
    """The mode of a deterministic density by L-BFGS, `num_steps` steps from `params`."""
    optimiser = optax.lbfgs()

    def loss(params):
        return -density(params)

    value_and_slope = optax.value_and_grad_from_state(loss)

    def body(carry, _):
        params, state = carry
        value, slope = value_and_slope(params, state=state)
        updates, state = optimiser.update(
            slope, state, params, value=value, grad=slope, value_fn=loss
        )
        moved = optax.apply_updates(params, updates)
        finite = jnp.all(jnp.stack([jnp.all(jnp.isfinite(x)) for x in jax.tree.leaves(moved)]))
        return (jax.tree.map(lambda a, b: jnp.where(finite, a, b), moved, params), state), None

    carry = params, optimiser.init(params)
    return jax.lax.scan(body, carry, None, length=num_steps)[0][0]
