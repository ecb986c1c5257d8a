"""What is random in a network, where its linear readout is, and what that readout multiplies.

A network is any callable of one point, and a model is one network or a pytree of them. Every float
array of a network is a random parameter unless its class marks the field as `constant()` or the prior
is given a filter.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jax.tree_util import DictKey, GetAttrKey, SequenceKey
from jaxtyping import Array, Float

from .checks import PyTree, is_concrete

Network = Any
Params = PyTree
Where = Callable[[Network], Any]
LINEARITY_TOLERANCE = 1e-3


def constant(**options: Any) -> Any:
    """A field of an Equinox module whose arrays are constants, never random parameters.

    >>> class Wave(eqx.Module):
    ...     frequency: Array = constant()
    ...     readout: Array = eqx.field()
    >>> random_parameters(Wave(jnp.ones(3), jnp.ones(3)))
    Wave(frequency=False, readout=True)
    """
    return eqx.field(metadata={"role": "constant"}, **options)


def rows(**options: Any) -> Any:
    """A field whose arrays have one entry a row of data, which may be spread over devices."""
    return eqx.field(metadata={"role": "rows"}, **options)


def roles(tree: PyTree) -> PyTree[str]:
    """The role that its owner's class gives each leaf: "constant", "rows", or "" for none."""
    paths, structure = jax.tree_util.tree_flatten_with_path(tree)
    return jax.tree.unflatten(structure, [_role(tree, path) for path, _ in paths])


def _role(node: Any, path: tuple[Any, ...]) -> str:
    for key in path:
        if isinstance(key, GetAttrKey):
            fields = dataclasses.fields(node) if dataclasses.is_dataclass(node) else ()
            role = {field.name: field.metadata.get("role") for field in fields}.get(key.name)
            if role is not None:
                return role
            node = getattr(node, key.name)
        elif isinstance(key, SequenceKey):
            node = node[key.idx]
        elif isinstance(key, DictKey):
            node = node[key.key]
        else:
            return ""
    return ""


def random_parameters(network: PyTree) -> PyTree[bool]:
    """True at each float array of a network that no class marks as a constant."""
    return jax.tree.map(
        lambda leaf, role: eqx.is_inexact_array(leaf) and role != "constant",
        network,
        roles(network),
    )


def is_network(node: Any) -> bool:
    """Whether a node of a pytree is a network: something to be called with a point."""
    return callable(node)


def readout_only(networks: PyTree) -> PyTree[bool]:
    """For `Prior(trainable=…)`: the readout of each network alone is random, hidden layers stay."""
    frozen = jax.tree.map(lambda leaf: False, networks)

    def readouts(tree):
        return [network.readout for network in jax.tree.leaves(tree, is_leaf=is_network)]

    return eqx.tree_at(readouts, frozen, replace_fn=lambda _: True)


def default_where(network: Network) -> Any:
    """The readout of a network: its attribute of that name."""
    return network.readout


def features(network: Network, where: Where, x: Float[Array, " d"]) -> Float[Array, " W"]:
    """f(x): the derivative of the output by the readout weights, flattened."""
    slopes = jax.grad(lambda readout: eqx.tree_at(where, network, readout)(x))(where(network))
    return ravel_pytree(slopes)[0]


def offset(network: Network, where: Where, x: Float[Array, " d"]) -> Float[Array, ""]:
    """g(x): the output with the readout at zero."""
    zero = jax.tree.map(jnp.zeros_like, where(network))
    return eqx.tree_at(where, network, zero)(x)


def linear_in_readout(network: Network, where: Where, points: Float[Array, "n d"]) -> bool:
    """Whether u is affine in the readout: its slopes are the same at two different readouts.

    Taken on trust where the network's parameters are not known yet.
    """
    try:
        readout = where(network)
    except (AttributeError, IndexError, KeyError, TypeError):
        return False
    if not is_concrete((network, points)):
        return True
    with jax.ensure_compile_time_eval():
        doubled = jax.tree.map(lambda leaf: 2 * leaf + 1, readout)
        moved = eqx.tree_at(where, network, doubled)
        slope, other = _slopes(network, where, points), _slopes(moved, where, points)
    size = np.max(np.abs(slope))
    return bool(size > 0 and np.max(np.abs(slope - other)) <= LINEARITY_TOLERANCE * size)


@eqx.filter_jit
def _slopes(network: Network, where: Where, points: Float[Array, "n d"]) -> Float[Array, "n W"]:
    return jax.vmap(lambda x: features(network, where, x))(points)
