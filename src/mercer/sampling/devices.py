"""Chains, and rows of data, over the devices of one machine or of many."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from ..checks import PyTree, require_count
from ..density import Density
from ..parameters import roles


def make_mesh(num_chains: int, data_devices: int = 1) -> Mesh:
    """All devices of all processes in two axes, "chain" and "data"."""
    require_count("data_devices", data_devices)
    devices = jax.devices()
    if len(devices) % data_devices:
        raise ValueError(
            f"data_devices={data_devices} does not divide the {len(devices)} devices there are."
        )
    groups = len(devices) // data_devices
    if num_chains % groups:
        raise ValueError(
            f"{num_chains} chains cannot be spread evenly over {groups} devices; "
            f"use a multiple of {groups}."
        )
    return Mesh(np.array(devices).reshape(groups, data_devices), ("chain", "data"))


def at_least_chains(count: int) -> int:
    """The least number of chains, `count` or more, that spreads evenly over all devices."""
    groups = len(jax.devices())
    return -(-count // groups) * groups


def spread_chains(tree: PyTree, mesh: Mesh) -> PyTree:
    """The pytree with its leading axis over the devices' chains."""
    over_chains = NamedSharding(mesh, PartitionSpec("chain"))
    return jax.tree.map(lambda x: _put(x, over_chains), tree)


def spread_density(density: Density, mesh: Mesh) -> Density:
    """The density with its arrays on every device, and the rows of its data over the data axis."""
    everywhere = NamedSharding(mesh, PartitionSpec())
    parts = mesh.shape["data"]
    if parts == 1:
        return jax.tree.map(lambda x: _put(x, everywhere) if is_jax(x) else x, density)
    over_data = NamedSharding(mesh, PartitionSpec("data"))
    marks = roles(density)
    _check_rows(density, marks, parts)

    def spread(x, role):
        return _put(x, over_data if role == "rows" else everywhere) if is_jax(x) else x

    return jax.tree.map(spread, density, marks)


def _check_rows(density: Density, marks: PyTree[str], parts: int) -> None:
    """Raise unless the density has rows of data that divide into so many parts."""
    leaves = zip(jax.tree.leaves(density), jax.tree.leaves(marks), strict=True)
    num_rows = [len(x) for x, role in leaves if role == "rows"]
    if not num_rows:
        raise ValueError("data_devices is for a Posterior: this density has no rows of data.")
    if num_rows[0] % parts:
        raise ValueError(
            f"{num_rows[0]} rows of data cannot be spread evenly over {parts} devices."
        )


def is_jax(leaf: Any) -> bool:
    """Whether a leaf is an array of JAX's."""
    return isinstance(leaf, jax.Array)


def _put(array: Any, sharding: NamedSharding) -> jax.Array:
    """The array on the devices of every process, each of which has all of it."""
    if is_jax(array) and jax.numpy.issubdtype(array.dtype, jax.dtypes.prng_key):
        numbers = _put(jax.random.key_data(array), sharding)
        return jax.random.wrap_key_data(numbers, impl=jax.random.key_impl(array))
    if jax.process_count() > 1 and is_jax(array):
        array = np.asarray(array.addressable_data(0))
    return jax.device_put(array, sharding)


def over_chains(function: Callable[..., PyTree], mesh: Mesh, shared: int) -> Callable[..., PyTree]:
    """A function of `shared` arguments for all and one pytree a chain, run where its chains are.

    Each device runs its own chains' loops at their own pace; the data axis is left to the compiler.
    """
    here, everywhere = PartitionSpec("chain"), PartitionSpec()
    return jax.shard_map(
        function,
        mesh=mesh,
        in_specs=(*[everywhere] * shared, here),
        out_specs=here,
        axis_names={"chain"},
        check_vma=False,
    )


def gather(tree: PyTree) -> PyTree:
    """The pytree as NumPy arrays, whole in every process."""
    if jax.process_count() > 1:
        tree = multihost_utils.process_allgather(tree, tiled=True)
    return jax.tree.map(np.asarray, tree)


def agree(number: int) -> int:
    """The smallest number that any process has, in every process."""
    if jax.process_count() == 1:
        return number
    return int(np.min(multihost_utils.process_allgather(np.asarray(number))))
