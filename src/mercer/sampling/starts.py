"""Where chains start: exact draws of the prior where there are any."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray, PyTree

from .algorithm import Algorithm, Density
from .maximise import maximise

ASCENT_STEPS = 300


def find_starts(key: PRNGKeyArray, density: Density, num_chains: int) -> PyTree:
    """One set of parameters a chain, in a leading axis.

    Exact draws of the prior where it has them; else draws of the reference, which a posterior
    climbs from towards its mode; else the parameters that the density was made with.
    """
    if not hasattr(density, "params"):
        raise ValueError("this density does not say where to start: give init=.")
    prior: Any = getattr(density, "prior", density)
    keys = jax.random.split(key, num_chains)
    if getattr(prior, "obstacle", "") is None and jax.config.read("jax_enable_x64"):
        return jax.jit(jax.vmap(density.draw))(keys)
    if getattr(prior, "reference", None) is None:
        return jax.tree.map(lambda x: jnp.broadcast_to(x, (num_chains, *x.shape)), density.params)
    if prior is density:
        return jax.vmap(prior.draw_reference)(keys)

    def climb(key):
        draw_key, climb_key = jax.random.split(key)
        return maximise(climb_key, density, density.draw_reference(draw_key), ASCENT_STEPS)

    return jax.jit(jax.vmap(climb))(keys)


def as_starts(init: PyTree) -> PyTree:
    """The starting points that a user gives, as arrays of floats."""
    starts = jax.tree.map(jnp.asarray, init)
    if not all(jnp.issubdtype(x.dtype, jnp.inexact) for x in jax.tree.leaves(starts)):
        raise ValueError("init must hold floats, one set of parameters a chain.")
    return starts


def check_starts(
    key: PRNGKeyArray, density: Density, algorithm: Algorithm, params: PyTree, num_chains: int
) -> None:
    """Raise unless there is one start a chain and the log density is finite at each."""
    wrong = [x.shape for x in jax.tree.leaves(params) if x.shape[:1] != (num_chains,)]
    if wrong:
        raise ValueError(
            f"init must have a leading axis of {num_chains} chains, got an array of shape {wrong[0]}."
        )
    values = np.asarray(jax.jit(jax.vmap(lambda p: algorithm.value(density, p, key)))(params))
    if not np.all(np.isfinite(values)):
        chain = int(np.argmin(np.isfinite(values)))
        raise ValueError(
            f"the log density is {values[chain]} where chain {chain} starts; give another init=."
        )
