"""Predictions of many networks at many points, a block of points at a time."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import zarr
from jax.sharding import NamedSharding, PartitionSpec
from jaxtyping import Array, PRNGKeyArray, PyTree

from ..checks import default_float, require_count
from ..likelihoods import values_at


@runtime_checkable
class Sliceable(Protocol):
    """Points of shape (n, d) that need not be in memory: a memory map, a Zarr array, your own."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    def __getitem__(self, rows: slice) -> Any: ...


@runtime_checkable
class Predictive(Protocol):
    """A density of which parameters belong to a posterior: its own, or one for each draw."""

    def resolve(self, params: Any) -> tuple[Any, Any]:
        """The posterior that parameters belong to, and its own parameters."""
        ...


class Prediction(NamedTuple):
    """Mean, standard deviation and quantiles (one a row) at each point, for each network."""

    mean: Any
    sd: Any
    quantiles: Any


def joint_samples(density, params, points, noise_key, chunk: int, out) -> Any:
    """Values (draws, points) of every network with these parameters."""
    return _collect(
        density, points, noise_key, chunk, out, lambda *at: _values(density, params, *at).values
    )


def moments(density, params, points, quantiles: tuple, noise_key, chunk: int, out) -> Prediction:
    """Mean, sd and quantiles over the draws, at each point."""
    if any(not 0 <= level <= 1 for level in quantiles):
        raise ValueError(f"quantiles must lie between 0 and 1, got {quantiles}.")
    levels = jnp.asarray(quantiles, default_float())

    def block(x, key):
        if not quantiles:
            return _streamed(density, params, x, key)
        return _summarised(density, params, levels, x, key)

    found = _collect(density, points, noise_key, chunk, out, block)
    return Prediction(found["mean"], found["sd"], found["quantiles"])


def log_scores(density: Any, params: PyTree, points: Any, targets: Any) -> np.ndarray:
    """log p(y | θ) of new data, shape (draws, points)."""
    x, y = jnp.asarray(points, default_float()), jnp.asarray(targets)
    density.require_inputs(x, "points")
    return np.asarray(_scores(density, params, x, y))


@eqx.filter_jit
def _scores(density: Any, params: PyTree, x: Array, y: Array) -> Array:
    shared = _shared_tail(density, x)

    def score(draw):
        posterior, own = density.resolve(draw)
        tail = posterior.tail_variances(x) if shared is None else shared
        return posterior.score(own, x, y, tail)

    return jax.lax.map(score, params)


def _shared_tail(density: Any, x: Array) -> PyTree | None:
    """Variances of the tail where these are the same for all draws, else None."""
    return density.tail_variances(x) if hasattr(density, "tail_variances") else None


class _Value(NamedTuple):
    """Values of the networks at the points, or observations there, and variances of the tail."""

    values: PyTree
    tail: PyTree


def _evaluate(
    density, params: PyTree, x: Array, key: PRNGKeyArray | None, shared: PyTree
) -> _Value:
    if not isinstance(density, Predictive):
        values = values_at(density.network(params), x)
        return _Value(values, jax.tree.map(jnp.zeros_like, values))
    posterior, own = density.resolve(params)
    tail = posterior.tail_variances(x) if shared is None else shared
    if key is not None:
        values = posterior.draw_observations(key, own, x, tail)
        return _Value(values, jax.tree.map(jnp.zeros_like, values))
    values = values_at(posterior.network(own), x)
    return _Value(values, jax.tree.map(jnp.zeros_like, values) if tail is None else tail)


@eqx.filter_jit
def _values(density, params: PyTree, x: Array, key: PRNGKeyArray | None) -> _Value:
    """(draws, points), one network at a time so that its hidden layer alone is in memory."""
    shared = _shared_tail(density, x)
    if key is None:
        return jax.lax.map(lambda p: _evaluate(density, p, x, None, shared), params)
    keys = jax.random.split(key, jax.tree.leaves(params)[0].shape[0])
    return jax.lax.map(lambda pair: _evaluate(density, pair[0], x, pair[1], shared), (params, keys))


@eqx.filter_jit
def _summarised(density, params: PyTree, levels: Array, x: Array, key) -> dict[str, PyTree]:
    values, tail = _values(density, params, x, key)
    mean = jax.tree.map(lambda v: jnp.mean(v, axis=0), values)
    own = jax.tree.map(lambda v: jnp.std(v, axis=0, ddof=1), values)
    sd = jax.tree.map(lambda s, t: jnp.sqrt(s**2 + jnp.mean(t, axis=0)), own, tail)

    def widen(v, m, narrow, wide):
        ratio = jnp.where(narrow > 0, wide / jnp.where(narrow > 0, narrow, 1.0), 1.0)
        return m[None] + ratio[None] * (jnp.quantile(v, levels, axis=0) - m[None])

    return {"mean": mean, "sd": sd, "quantiles": jax.tree.map(widen, values, mean, own, sd)}


@eqx.filter_jit
def _streamed(density, params: PyTree, x: Array, key: PRNGKeyArray | None) -> dict[str, PyTree]:
    """Mean and sd by Welford's update, no value kept."""
    shared = _shared_tail(density, x)
    num_draws = jax.tree.leaves(params)[0].shape[0]
    keys = None if key is None else jax.random.split(key, num_draws)
    first = jax.tree.map(lambda p: p[0], params)
    shapes = jax.eval_shape(lambda: _evaluate(density, first, x, key, shared).values)
    zero = jax.tree.map(lambda s: jnp.zeros(s.shape, default_float()), shapes)

    def body(carry, each):
        count, mean, squares, tails = carry
        values, tail = _evaluate(density, each[0], x, each[1], shared)
        count = count + 1
        step = jax.tree.map(jnp.subtract, values, mean)
        mean = jax.tree.map(lambda m, s: m + s / count, mean, step)
        squares = jax.tree.map(lambda q, s, v, m: q + s * (v - m), squares, step, values, mean)
        return (count, mean, squares, jax.tree.map(jnp.add, tails, tail)), None

    start = (jnp.zeros(()), zero, zero, zero)
    (_, mean, squares, tails), _ = jax.lax.scan(body, start, (params, keys))
    sd = jax.tree.map(lambda q, t: jnp.sqrt(q / (num_draws - 1) + t / num_draws), squares, tails)
    nothing = jax.tree.map(lambda m: jnp.zeros((0, *m.shape), m.dtype), mean)
    return {"mean": mean, "sd": sd, "quantiles": nothing}


def _collect(density, points, noise_key, chunk, out, block) -> Any:
    """Run `block` over all points and put the results side by side, in memory or in Zarr."""
    total = points.shape[0] if hasattr(points, "shape") else len(points)
    target, waiting = None, None

    def put(found, begin, size):
        for array, value in zip(jax.tree.leaves(target), jax.tree.leaves(found), strict=True):
            array[..., begin : begin + size] = np.asarray(value)[..., :size]

    # One block is computed while the one before it is fetched and written.
    for begin, x, size in _blocks(density, points, chunk, noise_key is not None):
        key = None if noise_key is None else jax.random.fold_in(noise_key, begin)
        found = block(x, key)
        if target is None:
            target = _make_target(found, total, chunk, out)
        if waiting is not None:
            put(*waiting)
        waiting = found, begin, size
    put(*waiting)
    return target


def _make_target(found: PyTree, total: int, chunk: int, out: str | Path | None) -> PyTree:
    """Arrays for all points, in the shape of one block's result."""
    if out is None:
        return jax.tree.map(lambda v: np.empty((*v.shape[:-1], total), v.dtype), found)
    out = Path(out).expanduser()
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ValueError(f"{out} is not empty; choose another folder for the predictions.")
    group = zarr.open_group(str(out), mode="w")
    paths, structure = jax.tree_util.tree_flatten_with_path(found)
    arrays = []
    for path, value in paths:
        name = jax.tree_util.keystr(path, simple=True, separator="/").strip("/") or "values"
        own = [f"{name.split('/')[-1]}_{i}" for i in range(value.ndim - 1)]
        arrays.append(
            group.create_array(
                name,
                shape=(*value.shape[:-1], total),
                chunks=(*(max(1, n) for n in value.shape[:-1]), min(chunk, total)),
                dtype=value.dtype,
                compressors=None,
                dimension_names=[*own, "point"],
            )
        )
    return jax.tree.unflatten(structure, arrays)


def _blocks(density, points: Any, chunk: int, observed: bool) -> Iterator[tuple[int, Array, int]]:
    """(first row, `chunk` rows spread over the local devices, how many of them are real)."""
    require_count("chunk", chunk)
    if not hasattr(points, "shape"):
        points = np.asarray(points, default_float())
    if len(points.shape) != 2 or points.shape[0] == 0:
        raise ValueError(f"points must have shape (n, d), n at least one; got {points.shape}.")
    devices = jax.local_devices()
    whole = min(chunk, points.shape[0])
    whole += -whole % len(devices)
    mesh = jax.sharding.Mesh(np.array(devices), ("point",))
    over_devices = NamedSharding(mesh, PartitionSpec("point"))
    check = _input_check(density, observed)
    for begin in range(0, points.shape[0], chunk):
        rows = np.asarray(points[begin : begin + chunk], default_float())
        with jax.default_device(jax.local_devices(backend="cpu")[0]):
            check(jnp.asarray(rows), "points")
        padded = np.concatenate([rows, np.repeat(rows[-1:], whole - len(rows), axis=0)])
        yield begin, jax.device_put(padded, over_devices), len(rows)


def _input_check(density: Any, observed: bool) -> Callable[[Array, str], None]:
    """What raises where points cannot be predicted at."""
    if isinstance(density, Predictive):
        return density.require_inputs if observed else density.prior.require_inside
    return getattr(density, "require_inside", lambda points, name: None)
