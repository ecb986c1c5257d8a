"""How hot a stochastic gradient chain runs: its step against the noise of its gradient."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ..density import Density
from .algorithm import Algorithm
from .devices import gather

NUM_BATCHES = 16


def measure_temperature(density: Density, algorithm: Algorithm, states: Any, keys: Any) -> float:
    """The temperature at which the chains run where they are now; one is the target's.

    A step of size h injects noise of variance 2h and h²C more comes with a gradient whose
    variance is C, so that parameters move at the temperature 1 + hC/2: the mean over each array
    of parameters, and of those the largest. One for a deterministic density.
    """
    if density.is_deterministic:
        return 1.0

    def excess(density, algorithm, state, key):
        def one(key):
            return algorithm.slope(density, state.position, key)

        slopes = jax.lax.map(one, jax.random.split(jax.random.fold_in(key, 2**31 - 1), NUM_BATCHES))
        heat = algorithm.heat(state, jax.tree.map(lambda x: jnp.var(x, axis=0, ddof=1), slopes))
        if heat is None:
            return jnp.zeros(())
        return jnp.max(jnp.stack([jnp.mean(leaf) for leaf in jax.tree.leaves(heat)]))

    # A schedule's numbers are the same for all chains; arrays have a chain a row.
    each = eqx.if_array(0)
    found = eqx.filter_jit(eqx.filter_vmap(excess, in_axes=(None, each, each, 0)))(
        density, algorithm, states, keys
    )
    return 1.0 + float(np.mean(gather(found)))
