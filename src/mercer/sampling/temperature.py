"""Temperature of a stochastic gradient chain: its step against the noise of its gradient."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ..checks import PyTree
from ..density import Density
from .algorithm import Algorithm
from .devices import gather

NUM_BATCHES = 16


def measure_temperature(
    density: Density, algorithm: Algorithm, states: PyTree, keys: Array
) -> float:
    """The temperature at which the chains run where they are now; one is the target's.

    A step of size h injects noise of variance 2h and h²C more comes with a gradient whose
    variance is C, so that parameters move at the temperature 1 + hC/2: the mean over each array
    of parameters, and of those the largest. One for a deterministic density.
    """
    if density.is_deterministic:
        return 1.0

    def excess(density, algorithm, state, key):
        def slope(key):
            return algorithm.slope(density, state.position, key)

        batch_keys = jax.random.split(jax.random.fold_in(key, 2**31 - 1), NUM_BATCHES)
        slopes = jax.lax.map(slope, batch_keys)
        heat = algorithm.heat(state, jax.tree.map(lambda x: jnp.var(x, axis=0, ddof=1), slopes))
        if heat is None:
            return jnp.zeros(())
        return jnp.max(jnp.stack([jnp.mean(leaf) for leaf in jax.tree.leaves(heat)]))

    # A schedule's numbers are the same for all chains; arrays have a chain a row.
    by_chain = eqx.if_array(0)
    of_chains = eqx.filter_vmap(excess, in_axes=(None, by_chain, by_chain, 0))
    return 1.0 + float(np.mean(gather(eqx.filter_jit(of_chains)(density, algorithm, states, keys))))
