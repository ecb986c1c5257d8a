"""Where chains start: `density.init`, and uphill from there where that is far from the bulk."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from ..checks import PyTree
from ..density import Density
from ..optimise import maximise
from ..posterior import Posterior
from ..threads import over_chains
from .algorithm import Algorithm

ASCENT_STEPS = 300


def find_starts(key: PRNGKeyArray, density: Density, num_chains: int) -> PyTree:
    """One set of parameters a chain, in a leading axis.

    Posteriors whose prior has no closed form climb from a draw of the reference towards the mode.
    """
    climbs = (
        isinstance(density, Posterior)
        and density.prior.obstacle is not None
        and density.prior.reference is not None
    )
    return _start(density, jax.random.split(key, num_chains), climbs)


@eqx.filter_jit
def _start(density: Density, keys: Array, climbs: bool) -> PyTree:
    def start(key):
        if not climbs:
            return density.init(key)
        init_key, climb_key = jax.random.split(key)
        return maximise(climb_key, density, density.init(init_key), ASCENT_STEPS)

    return over_chains(start, keys)


def as_starts(init: PyTree) -> PyTree:
    """A user's starting points as arrays of floats."""
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
    values = np.asarray(_values(density, algorithm, params, key))
    if not np.all(np.isfinite(values)):
        chain = int(np.argmin(np.isfinite(values)))
        raise ValueError(
            f"the log density is {values[chain]} where chain {chain} starts; give another init=."
        )


@eqx.filter_jit
def _values(density: Density, algorithm: Algorithm, params: PyTree, key: PRNGKeyArray) -> Array:
    keys = jax.random.split(key, jax.tree.leaves(params)[0].shape[0])
    return over_chains(lambda chain: algorithm.value(density, *chain), (params, keys))
