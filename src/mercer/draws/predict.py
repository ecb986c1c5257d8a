"""Predictions of many networks at many points, a block of points at a time."""

import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import zarr
from jax.sharding import NamedSharding, PartitionSpec
from jaxtyping import Array, PRNGKeyArray

from ..checks import PyTree, default_float, require_count
from ..likelihoods import values_at
from ..tail import Whitening


@runtime_checkable
class Sliceable(Protocol):
    """Points of shape (n, d) that need not be in memory: a memory map, a Zarr array, your own."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    def __getitem__(self, rows: slice) -> Any: ...


@runtime_checkable
class Predictive(Protocol):
    """A density whose draws belong to a posterior: the same for all, or one for each draw."""

    @property
    def prior(self) -> Any: ...

    def resolve(self, params: Any) -> tuple[Any, Any]:
        """The posterior that parameters belong to, and its own parameters."""
        ...

    def require_inputs(self, inputs: Any, name: str) -> None:
        """Raise where there are no observations at these inputs."""


class Prediction(NamedTuple):
    """Mean, standard deviation and quantiles (one a row) at each point, for each network."""

    mean: Any
    sd: Any
    quantiles: Any


@dataclasses.dataclass(frozen=True)
class Request:
    """Networks with these parameters at these points, `chunk` of them at a time; with a `noise_key`
    new observations there, with `out` in a Zarr array in that folder."""

    density: Any
    params: PyTree
    points: Any
    noise_key: PRNGKeyArray | None
    chunk: int
    out: str | Path | None

    def values(self) -> PyTree:
        """Values (draws, points) of every network."""
        return _collect(self, lambda *at: _values(self.density, self.params, *at).values)

    def moments(self, quantiles: tuple[float, ...]) -> Prediction:
        """Mean, sd and quantiles over the draws, at each point."""
        if any(not 0 <= level <= 1 for level in quantiles):
            raise ValueError(f"quantiles must lie between 0 and 1, got {quantiles}.")
        levels = jnp.asarray(quantiles, default_float())

        def block(*at):
            if not quantiles:
                return _streamed(self.density, self.params, *at)
            return _summarised(self.density, self.params, levels, *at)

        return Prediction(**_collect(self, block))


def log_scores(density: Any, params: PyTree, points: Any, targets: Any) -> np.ndarray:
    """log p(y | θ) of new data, shape (draws, points)."""
    x, y = jnp.asarray(points, default_float()), jnp.asarray(targets)
    density.require_inputs(x, "points")
    return np.asarray(_scores(density, params, x, y, _surroundings(density, x)))


@eqx.filter_jit
def _scores(density: Any, params: PyTree, x: Array, y: Array, near: Whitening | None) -> Array:
    shared_tail = _shared_tail(density, x, near)

    def score(draw):
        posterior, own_params = density.resolve(draw)
        tail = posterior.tail_variances(x) if shared_tail is None else shared_tail
        return posterior.score(own_params, x, y - posterior.shift(own_params, near), tail)

    return jax.lax.map(score, params)


def _surroundings(density: Any, x: Array) -> Whitening | None:
    """The nearest rows of data, found on the host, where a tail is conditioned on them."""
    local = getattr(density, "local", None)
    return None if local is None else local.whitening(x)


def _shared_tail(density: Any, x: Array, near: Whitening | None) -> PyTree | None:
    """Variances of the tail where these are the same for all draws, else None."""
    if near is not None:
        return near.scale**2
    return density.tail_variances(x) if hasattr(density, "tail_variances") else None


class _Value(NamedTuple):
    """Values of the networks at the points, or observations there, and variances of the tail."""

    values: PyTree
    tail: PyTree


def _evaluate(
    density: Any,
    params: PyTree,
    x: Array,
    key: PRNGKeyArray | None,
    near: Whitening | None,
    shared_tail: PyTree | None,
) -> _Value:
    """One network's values; with a key observations, whose tail is drawn with them."""
    tail, shift = None, 0.0
    if isinstance(density, Predictive):
        posterior, params = density.resolve(params)
        tail = posterior.tail_variances(x) if shared_tail is None else shared_tail
        shift = posterior.shift(params, near)
        if key is not None:
            values = posterior.draw_observations(key, params, x, tail) + shift
            return _Value(values, jax.tree.map(jnp.zeros_like, values))
        density = posterior
    values = values_at(density.network(params), x)
    if near is not None:
        # The tail that neighbours tell belongs to the sum of the networks.
        values = sum(jax.tree.leaves(values)) + shift
    return _Value(values, jax.tree.map(jnp.zeros_like, values) if tail is None else tail)


@eqx.filter_jit
def _values(
    density: Any, params: PyTree, x: Array, key: PRNGKeyArray | None, near: Whitening | None
) -> _Value:
    """(draws, points), one network at a time so that its hidden layer alone is in memory."""
    tail = near, _shared_tail(density, x, near)
    draws = params, _split(key, params)
    return jax.lax.map(lambda draw: _evaluate(density, draw[0], x, draw[1], *tail), draws)


def _split(key: PRNGKeyArray | None, params: PyTree) -> Array | None:
    """A key for each draw, where there is one at all."""
    return None if key is None else jax.random.split(key, _num_draws(params))


def _num_draws(params: PyTree) -> int:
    return jax.tree.leaves(params)[0].shape[0]


@eqx.filter_jit
def _summarised(
    density: Any,
    params: PyTree,
    levels: Array,
    x: Array,
    key: PRNGKeyArray | None,
    near: Whitening | None,
) -> dict[str, PyTree]:
    values, tail = _values(density, params, x, key, near)
    mean = jax.tree.map(lambda v: jnp.mean(v, axis=0), values)
    own_sd = jax.tree.map(lambda v: jnp.std(v, axis=0, ddof=1), values)
    sd = jax.tree.map(lambda s, t: jnp.sqrt(s**2 + jnp.mean(t, axis=0)), own_sd, tail)

    def widen(v, m, narrow, wide):
        ratio = jnp.where(narrow > 0, wide / jnp.where(narrow > 0, narrow, 1.0), 1.0)
        return m[None] + ratio[None] * (jnp.quantile(v, levels, axis=0) - m[None])

    return {"mean": mean, "sd": sd, "quantiles": jax.tree.map(widen, values, mean, own_sd, sd)}


@eqx.filter_jit
def _streamed(
    density: Any, params: PyTree, x: Array, key: PRNGKeyArray | None, near: Whitening | None
) -> dict[str, PyTree]:
    """Mean and sd by Welford's update, no value kept."""
    tail_at = near, _shared_tail(density, x, near)
    num_draws = _num_draws(params)
    first = jax.tree.map(lambda p: p[0], params)
    shapes = jax.eval_shape(lambda: _evaluate(density, first, x, key, *tail_at).values)
    zero = jax.tree.map(lambda s: jnp.zeros(s.shape, default_float()), shapes)

    def body(carry, draw):
        count, mean, squares, tails = carry
        values, tail = _evaluate(density, draw[0], x, draw[1], *tail_at)
        count = count + 1
        step = jax.tree.map(jnp.subtract, values, mean)
        mean = jax.tree.map(lambda m, s: m + s / count, mean, step)
        squares = jax.tree.map(lambda q, s, v, m: q + s * (v - m), squares, step, values, mean)
        return (count, mean, squares, jax.tree.map(jnp.add, tails, tail)), None

    start = (jnp.zeros(()), zero, zero, zero)
    (_, mean, squares, tails), _ = jax.lax.scan(body, start, (params, _split(key, params)))
    sd = jax.tree.map(lambda q, t: jnp.sqrt(q / (num_draws - 1) + t / num_draws), squares, tails)
    no_quantiles = jax.tree.map(lambda m: jnp.zeros((0, *m.shape), m.dtype), mean)
    return {"mean": mean, "sd": sd, "quantiles": no_quantiles}


def _collect(request: Request, block: Callable[..., PyTree]) -> PyTree:
    """Run `block` over all points and put the results side by side, in memory or in Zarr."""
    points, noise_key, chunk = request.points, request.noise_key, request.chunk
    points = points if hasattr(points, "shape") else np.asarray(points, default_float())
    target, waiting = None, None

    def put(result, begin, size):
        for array, value in zip(jax.tree.leaves(target), jax.tree.leaves(result), strict=True):
            array[..., begin : begin + size] = np.asarray(value)[..., :size]

    # One block is computed while the one before it is fetched and written.
    for begin, x, size in _blocks(request.density, points, chunk, noise_key is not None):
        key = None if noise_key is None else jax.random.fold_in(noise_key, begin)
        result = block(x, key, _surroundings(request.density, x))
        if target is None:
            target = _make_target(result, points.shape[0], chunk, request.out)
        if waiting is not None:
            put(*waiting)
        waiting = result, begin, size
    if waiting is not None:
        put(*waiting)
    return target


def _make_target(result: PyTree, total: int, chunk: int, out: str | Path | None) -> PyTree:
    """Arrays for all points, in the shape of one block's result."""
    if out is None:
        return jax.tree.map(lambda v: np.empty((*v.shape[:-1], total), v.dtype), result)
    out = Path(out).expanduser()
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ValueError(f"{out} is not empty; choose another folder for the predictions.")
    group = zarr.open_group(str(out), mode="w")

    def create(path, value):
        name = jax.tree_util.keystr(path, simple=True, separator="/").strip("/") or "values"
        leading = [f"{name.split('/')[-1]}_{i}" for i in range(value.ndim - 1)]
        return group.create_array(
            name,
            shape=(*value.shape[:-1], total),
            chunks=(*(max(1, n) for n in value.shape[:-1]), min(chunk, total)),
            dtype=value.dtype,
            compressors=None,
            dimension_names=[*leading, "point"],
        )

    return jax.tree_util.tree_map_with_path(create, result)


def _blocks(
    density: Any, points: Any, chunk: int, observed: bool
) -> Iterator[tuple[int, Array, int]]:
    """(first row, `chunk` rows spread over the local devices, how many of them are real)."""
    require_count("chunk", chunk)
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
    """The function that raises where there are points that cannot be predicted at."""
    if isinstance(density, Predictive):
        return density.require_inputs if observed else density.prior.require_inside
    return getattr(density, "require_inside", lambda points, name: None)
