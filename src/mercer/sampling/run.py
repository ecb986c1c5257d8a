"""The run loop: many chains in compiled chunks, with progress, a store, and nothing lost."""

import contextlib
import dataclasses
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import blackjax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray, PyTree
from rich.console import Console
from rich.progress import Progress, TextColumn, TimeRemainingColumn

from ..checks import require_count
from ..draws import Draws
from .algorithm import Algorithm, Density
from .bring import Brought
from .store import Store, fingerprint

TARGET_CHUNKS = 40
CHECKPOINT_SECONDS = 10.0


class SamplingError(RuntimeError):
    """A chain left the finite numbers; `draws` holds what came before."""

    def __init__(self, message: str, draws: Draws | None):
        super().__init__(message)
        self.draws = draws


@dataclasses.dataclass(frozen=True)
class Plan:
    """How a run goes: chains, draws, thinning, and what is recorded."""

    num_draws: int
    num_warmup: int
    num_chains: int
    thin: int
    chunk: int
    record: Callable[[PyTree], Any] | None
    keep_params: bool


def sample(
    key: PRNGKeyArray,
    density: Density,
    algorithm: Algorithm | Any,
    *,
    num_draws: int = 1000,
    num_warmup: int = 500,
    num_chains: int = 4,
    thin: int = 1,
    record: Callable[[PyTree], Any] | None = None,
    keep_params: bool | None = None,
    init: PyTree | None = None,
    store: str | Path | None = None,
    resume: bool = False,
    progress: bool = True,
) -> Draws:
    """Draw from a log density with any algorithm.

    `record(params)` is kept for each draw, an array or a pytree of arrays; without it the
    parameters are. `init` is one set of parameters with a leading axis of chains; by default
    exact draws of the prior where there are any. With a `store`, draws go to a folder as they
    come, and `resume=True` goes on with it to the same draws as a run that never stopped.
    Ctrl-C ends after the current chunk and returns what there is.
    """
    plan = _plan(num_draws, num_warmup, num_chains, thin, record, keep_params)
    if resume and store is None:
        raise ValueError("resume=True needs the store to go on with.")
    algorithm = _check(density, algorithm)
    start_key, warm_key, run_key = jax.random.split(key, 3)
    params = _starts(start_key, density, plan.num_chains) if init is None else init
    params = shard_chains(params, plan.num_chains)
    _check_start(density, params, start_key)
    _check_record(plan, params)
    loop = _Loop(density, plan, jax.random.split(run_key, plan.num_chains))
    disk = None
    if store is not None:
        identity = fingerprint(
            density, key, eqx.filter(algorithm, eqx.is_array), [thin, num_warmup, num_chains]
        )
        disk = Store(Path(store), identity, resume)
    warm_keys = jax.random.split(warm_key, plan.num_chains)
    carry, done = loop.begin(algorithm, warm_keys, params, disk)
    return loop.run(carry, done, disk, progress)


def shard_chains(tree: PyTree, num_chains: int) -> PyTree:
    """The pytree with its leading axis spread over all devices."""
    devices = jax.devices()
    if num_chains % len(devices):
        raise ValueError(
            f"{num_chains} chains cannot be spread evenly over {len(devices)} devices; use a multiple."
        )
    mesh = jax.sharding.Mesh(np.array(devices), ("chain",))
    spread = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("chain"))
    return jax.device_put(tree, spread)


class _Loop:
    """Compiled chunks over all chains."""

    def __init__(self, density: Density, plan: Plan, keys: Array):
        self.density = density
        self.plan = plan
        self.keys = keys
        self.parts: list[dict[str, np.ndarray]] = []
        self.structures: dict[str, Any] = {}

    def begin(self, algorithm: Algorithm, keys, params, disk: Store | None):
        """Tuned algorithms and states of all chains, from the store where it has them."""

        def warm(key, params):
            return algorithm.adapt(key, self.density, params, self.plan.num_warmup)

        if disk is not None and disk.counts():
            shapes = eqx.filter_eval_shape(eqx.filter_vmap(warm), keys, params)
            arrays, static = eqx.partition(shapes, lambda x: isinstance(x, jax.ShapeDtypeStruct))
            blank = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), arrays)
            arrays, done = disk.restore(blank)
            return eqx.combine(arrays, static), done
        return eqx.filter_jit(eqx.filter_vmap(warm))(keys, params), 0

    def run(self, carry, done: int, disk: Store | None, progress: bool) -> Draws:
        """Chunk after chunk until all draws are there, or Ctrl-C."""
        plan, interrupted, saved = self.plan, False, time.monotonic()
        self.disk, self.carry = disk, carry
        arrays, static = eqx.partition(carry, eqx.is_array)
        step = self._compile(static)
        with _progress(progress, plan.num_draws, done) as tell, _interrupts() as stop:
            while done < plan.num_draws and not interrupted:
                size = min(plan.chunk, plan.num_draws - done)
                arrays, told = step(arrays, jnp.arange(done, done + size))
                told = {name: np.asarray(value) for name, value in self._flatten(told).items()}
                self._check_finite(told, done)
                interrupted = stop.is_set()
                done += size
                if disk is None:
                    self.parts.append(told)
                else:
                    disk.append(told, done - size)
                    last = interrupted or done == plan.num_draws
                    if last or time.monotonic() - saved > CHECKPOINT_SECONDS:
                        disk.checkpoint(arrays, done)
                        saved = time.monotonic()
                tell(done, told)
        self.carry = eqx.combine(arrays, static)
        if disk is not None:
            self.parts = [disk.read(done)]
        return self._draws(interrupted and done < plan.num_draws)

    def _compile(self, static):
        plan, density = self.plan, self.density

        def one_draw(algorithm, state, key):
            def body(state, key):
                return algorithm.step(key, density, state)

            state, infos = jax.lax.scan(body, state, jax.random.split(key, plan.thin))
            return state, jax.tree.map(lambda x: jnp.mean(x), infos)

        def chain(arrays, key, counts):
            algorithm, state = eqx.combine(arrays, static)

            def body(state, count):
                state, info = one_draw(algorithm, state, jax.random.fold_in(key, count))
                finite = [jnp.all(jnp.isfinite(x)) for x in jax.tree.leaves(state.position)]
                told = {
                    "statistics": info._asdict(),
                    "finite": jnp.all(jnp.stack(finite)),
                    "recorded": None if plan.record is None else plan.record(state.position),
                    "params": state.position if plan.keep_params else None,
                }
                return state, told

            state, told = jax.lax.scan(body, state, counts)
            return eqx.filter((algorithm, state), eqx.is_array), told

        return eqx.filter_jit(
            lambda arrays, counts: eqx.filter_vmap(chain, in_axes=(eqx.if_array(0), 0, None))(
                arrays, self.keys, counts
            )
        )

    def _flatten(self, told: dict[str, Any]) -> dict[str, Any]:
        flat = {}
        for group, tree in told.items():
            leaves, self.structures[group] = jax.tree.flatten(tree)
            flat |= {f"{group}.{i}": leaf for i, leaf in enumerate(leaves)}
        return flat

    def _check_finite(self, told: dict[str, np.ndarray], done: int) -> None:
        finite = told["finite.0"]
        if np.all(finite):
            return
        draw = int(np.argmin(finite.all(axis=0)))
        chain = int(np.argmin(finite[:, draw]))
        kept = {name: value[:, :draw] for name, value in told.items()}
        self.parts.append(kept)
        if self.disk is not None:
            if draw:
                self.disk.append(kept, done)
            self.parts = [self.disk.read(done + draw)] if done + draw else []
        draws = self._draws(True) if done + draw else None
        raise SamplingError(
            f"chain {chain} left the finite numbers at draw {done + draw}: use a smaller step size, "
            f"or start nearer the bulk; the {done + draw} draws before are kept.",
            draws,
        )

    def _draws(self, interrupted: bool) -> Draws:
        names = self.parts[0]
        joined = {n: np.concatenate([part[n] for part in self.parts], axis=1) for n in names}

        def group(name):
            structure = self.structures[name]
            leaves = [joined[f"{name}.{i}"] for i in range(structure.num_leaves)]
            return jax.tree.unflatten(structure, leaves)

        if not self.structures:
            self._shapes()
        return Draws(
            recorded=group("recorded"),
            params=group("params") if self.plan.keep_params else None,
            statistics=group("statistics"),
            density=self.density,
            algorithm=self.carry[0],
            interrupted=interrupted,
        )

    def _shapes(self) -> None:
        """The structure of what is told, where no chunk was run because all were on disk."""
        arrays, static = eqx.partition(self.carry, eqx.is_array)
        _, told = eqx.filter_eval_shape(self._compile(static), arrays, jnp.arange(1))
        self._flatten(told)


def _plan(num_draws, num_warmup, num_chains, thin, record, keep_params) -> Plan:
    require_count("num_draws", num_draws)
    require_count("num_warmup", num_warmup, at_least=0)
    require_count("num_chains", num_chains)
    require_count("thin", thin)
    target = max(1, num_draws // TARGET_CHUNKS)
    chunk = next(size for size in range(target, 0, -1) if num_draws % size == 0)
    if chunk < target / 4:
        chunk = target
    keep = record is None if keep_params is None else keep_params
    return Plan(num_draws, num_warmup, num_chains, thin, chunk, record, keep)


def _check(density: Density, algorithm: Any) -> Algorithm:
    if isinstance(algorithm, blackjax.base.SamplingAlgorithm):
        algorithm = Brought(algorithm)
    if not isinstance(algorithm, Algorithm):
        raise ValueError(
            f"algorithm must be one of mercer's, such as mercer.nuts(), or a BlackJAX algorithm; "
            f"got {type(algorithm).__name__}."
        )
    if algorithm.needs_deterministic and not getattr(density, "is_deterministic", True):
        raise ValueError(
            f"{type(algorithm).__name__} needs a deterministic density: use the Quadrature energy "
            "and no batch_size, or a stochastic gradient sampler such as mercer.sgld."
        )
    return algorithm


def _starts(key: PRNGKeyArray, density: Density, num_chains: int) -> PyTree:
    """Exact prior draws where possible, else draws of the reference, else the params given."""
    keys = jax.random.split(key, num_chains)
    prior = getattr(density, "prior", density)
    if getattr(prior, "obstacle", "") is None and jax.config.read("jax_enable_x64"):
        return jax.jit(jax.vmap(density.draw))(keys)
    if not hasattr(density, "params"):
        raise ValueError("this density does not say where to start: give init=.")
    if getattr(prior, "reference", None) is not None and prior is density:
        return jax.vmap(prior.draw_reference)(keys)
    return jax.tree.map(lambda x: jnp.broadcast_to(x, (num_chains, *x.shape)), density.params)


def _check_start(density: Density, params: PyTree, key: PRNGKeyArray) -> None:
    batch = density.batch(key) if hasattr(density, "batch") else None
    call = (lambda p: density(p)) if batch is None else (lambda p: density(p, batch))
    values = np.asarray(jax.jit(jax.vmap(call))(params))
    if not np.all(np.isfinite(values)):
        chain = int(np.argmin(np.isfinite(values)))
        raise ValueError(
            f"the log density is {values[chain]} where chain {chain} starts; give another init=."
        )


def _check_record(plan: Plan, params: PyTree) -> None:
    if plan.record is None:
        return
    one = jax.tree.map(lambda x: x[0], params)
    leaves = jax.tree.leaves(eqx.filter_eval_shape(plan.record, one))
    if not leaves or not all(isinstance(leaf, jax.ShapeDtypeStruct) for leaf in leaves):
        raise ValueError("record(params) must return an array or a pytree of arrays.")


@contextlib.contextmanager
def _interrupts() -> Iterator[threading.Event]:
    """An event that the first Ctrl-C sets; a second one interrupts at once."""
    stop = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    before = signal.getsignal(signal.SIGINT)

    def handle(number, frame):
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()

    signal.signal(signal.SIGINT, handle)
    try:
        yield stop
    finally:
        signal.signal(signal.SIGINT, before)


@contextlib.contextmanager
def _progress(show: bool, total: int, done: int):
    """A bar with draws done, time left, acceptance, step size and divergences."""
    columns = (
        *Progress.get_default_columns()[:2],
        TextColumn("{task.completed}/{task.total} draws"),
        TimeRemainingColumn(),
        TextColumn("{task.fields[told]}"),
    )
    start = time.monotonic()
    with Progress(*columns, console=Console(stderr=True), transient=True, disable=not show) as bar:
        task = bar.add_task("sampling", total=total, completed=done, told="")

        def tell(count: int, told: dict[str, np.ndarray]) -> None:
            if time.monotonic() - start > 1:
                words = [
                    f"{n} {np.mean(told[f'statistics.{i}']):.3g}"
                    for i, n in ((0, "acceptance"), (4, "step"))
                    if np.all(np.isfinite(told[f"statistics.{i}"]))
                ]
                bar.update(task, completed=count, told=", ".join(words))

        yield tell
