"""The run loop: many chains in compiled chunks, with progress, a store, and nothing lost."""

import dataclasses
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import blackjax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import PRNGKeyArray, PyTree

from ..checks import Real, require_count, require_key, require_positive
from ..density import Density, FunctionDensity
from ..draws import Draws
from ..draws.layout import Layout, Memory
from ..threads import few_threads
from ..threads import over_chains as each_chain
from .algorithm import Algorithm, Info, sum_up
from .algorithms.blackjax import BlackJAX
from .devices import agree, gather, make_mesh, over_chains, spread_chains, spread_density
from .fingerprint import fingerprint
from .initialisation import as_starts, check_starts, find_starts
from .paths import choose_path
from .progress import Bar, interrupts, wait
from .store import Store
from .temperature import measure_temperature

# A chunk is what runs between two looks at the clock: at most this long, and this many bytes.
CHUNK_SECONDS = 1.0
CHUNK_BYTES = 2**25
MAX_CHUNK = 1024
# Steps of warm-up: for a mass matrix, and in white coordinates, where the step alone is adapted.
WARMUP, WHITE_WARMUP = 500, 200


class SamplingError(RuntimeError):
    """A run that could not go on; `draws` holds what came before."""

    def __init__(self, message: str, draws: Draws):
        super().__init__(message)
        self.draws = draws


@dataclasses.dataclass(frozen=True)
class Plan:
    """How a run goes: chains, draws, thinning, what is recorded, and where it runs."""

    num_draws: int
    num_warmup: int
    num_chains: int
    thin: int
    record: Callable[[PyTree], Any] | None
    keep_params: bool
    checkpoint_seconds: float
    mesh: Mesh


def sample(
    key: PRNGKeyArray,
    density: Density | Callable[[PyTree], Any],
    algorithm: Algorithm | Any = None,
    *,
    num_draws: int = 1000,
    num_warmup: int | None = None,
    num_chains: int = 4,
    thin: int = 1,
    record: Callable[[PyTree], Any] | None = None,
    keep_params: bool | None = None,
    init: PyTree | None = None,
    store: str | Path | None = None,
    resume: bool = False,
    checkpoint_seconds: Real = 30.0,
    data_devices: int = 1,
    progress: bool = True,
) -> Draws:
    """Draw from a log density: by the best path for it, or as an algorithm that is given does.

    Without an `algorithm`, exact draws are made where there are any, a posterior with closed-form
    readouts is sampled in white coordinates, and a line says what was chosen. Draws are in the
    density's own parameters whatever the coordinates. `density` may be a plain function, with `init`.

    `record(params)` is kept for each draw, an array or a pytree of arrays; without it the
    parameters are, and the values, leading coefficients and energy that `density.watch` tells.
    `init` is one set of parameters with a leading axis of chains; by default draws of
    `density.init`. With a `store`, draws go to a folder as they come, a checkpoint every
    `checkpoint_seconds`, and `resume=True` goes on with it to the same draws as a run that never
    stopped. Ctrl-C ends after the current chunk and returns what there is.

    Chains are spread over all devices, in groups of `data_devices` that share the rows of data.
    """
    require_key(key)
    if resume and store is None:
        raise ValueError("resume=True needs the store to go on with.")
    density = _as_density(density, init)
    words, default_warmup = None, WARMUP
    if algorithm is None:
        density, algorithm, words = choose_path(density)
        default_warmup = WARMUP if density.target is density else WHITE_WARMUP
    num_warmup = default_warmup if num_warmup is None else num_warmup
    plan = _plan(density, num_draws, num_warmup, num_chains, thin, record, keep_params,
                 checkpoint_seconds, data_devices)  # fmt: skip
    algorithm = _check(density, algorithm)
    start_key, check_key, warm_key, run_key = jax.random.split(key, 4)
    with interrupts() as stop, few_threads(density.params), Bar(progress, num_draws, 0) as bar:
        bar.announce(words)
        params = find_starts(start_key, density, num_chains) if init is None else as_starts(init)
        check_starts(check_key, density, algorithm, params, num_chains)
        _check_record(density, plan, params)
        rows: Memory | Store = Memory(num_draws)
        if store is not None:
            identity = fingerprint(
                density, key, algorithm, thin, num_warmup, num_chains, record, plan.keep_params
            )
            rows = Store(Path(store), identity, resume, num_draws)
        loop = _Loop(density, plan, jax.random.split(run_key, num_chains), rows)
        loop.begin(algorithm, jax.random.split(warm_key, num_chains), params, bar, stop)
        return loop.run(bar, stop)


def _as_density(density: Any, init: PyTree | None) -> Density:
    """The density, or a plain function as one."""
    if isinstance(density, Density):
        return density
    if not callable(density):
        raise ValueError(f"density must be a Density or a function, got {type(density).__name__}.")
    if init is None:
        raise ValueError("a plain function does not say where to start: give init=.")
    first = jax.tree.map(lambda x: jnp.asarray(x)[0] if jnp.ndim(x) else jnp.asarray(x), init)
    return FunctionDensity(density, first)


class _Loop:
    """Compiled chunks over all chains; `carry` is the tuned algorithm and the state, a chain a row."""

    def __init__(self, density: Density, plan: Plan, keys: Any, rows: Memory | Store):
        self.density, self.plan, self.rows = density, plan, rows
        self.spread = spread_density(density, plan.mesh)
        self.keys = spread_chains(keys, plan.mesh)
        self.done = 0

    def begin(self, algorithm: Algorithm, keys, params, bar: Bar, stop) -> None:
        """Tune the algorithm and burn in, or take up what the store has."""
        arrays, static = eqx.partition(self.spread, eqx.is_array)

        def warm(arrays, chain):
            density = eqx.combine(arrays, static)
            return algorithm.adapt(chain[0], density, chain[1], self.plan.num_warmup)

        def warm_all(arrays, each):
            return each_chain(lambda chain: eqx.filter(warm(arrays, chain), eqx.is_array), each)

        each = spread_chains((keys, params), self.plan.mesh)
        first = jax.tree.map(lambda x: x[0], (keys, params))
        shapes = eqx.filter_eval_shape(warm, arrays, first)
        _, self.static = eqx.partition(shapes, lambda x: isinstance(x, jax.ShapeDtypeStruct))
        found = eqx.filter_eval_shape(warm_all, arrays, each)
        if isinstance(self.rows, Store) and self.rows.counts():
            held, self.done = self.rows.restore(found)
            self.arrays = spread_chains(held, self.plan.mesh)
        else:
            bar.say(f"warm-up, {self.plan.num_warmup} steps")
            run = over_chains(warm_all, self.plan.mesh, 1)
            self.arrays = wait(jax.jit(run)(arrays, each), stop)
        told = eqx.filter_eval_shape(self._tell, self.spread, self.arrays)
        self.layout = Layout.of(told)
        row_bytes = sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(told))
        self.capacity = int(np.clip(CHUNK_BYTES // row_bytes, 1, MAX_CHUNK))
        blank = {
            name: np.zeros((x.shape[0], 0, *x.shape[1:]), x.dtype)
            for name, x in self.layout.flatten(told).items()
        }
        self._guard(lambda: self.rows.write(blank, self.done))

    def run(self, bar: Bar, stop) -> Draws:
        """Chunk after chunk until all draws are there, or Ctrl-C."""
        plan, saved, size = self.plan, time.monotonic(), 1
        step = self._compile()
        while self.done < plan.num_draws:
            size = agree(0 if stop.is_set() else min(size, plan.num_draws - self.done))
            if size == 0:
                break
            begun = time.monotonic()
            self.arrays, finite, buffer = wait(step(self.arrays, self.done, size))
            told = {n: x[:, :size] for n, x in gather(self.layout.flatten(buffer)).items()}
            self._keep(told, gather(finite)[:, :size])
            self.done += size
            bar.tell(self.done, self.layout.build("sample_stats", told.__getitem__))
            pace = (time.monotonic() - begun) / size
            size = int(np.clip(CHUNK_SECONDS / pace, 1, min(4 * size, self.capacity)))
            if time.monotonic() - saved > plan.checkpoint_seconds:
                self._checkpoint()
                saved = time.monotonic()
        self._checkpoint()
        if isinstance(self.rows, Store) and self.done < plan.num_draws:
            self.rows.cut(self.done)
        return self.draws()

    def draws(self) -> Draws:
        """What there is so far."""
        algorithm, state = eqx.combine(self.arrays, self.static)
        return Draws(
            rows=self.rows,
            layout=self.layout,
            num_draws=min(self.done, self.plan.num_draws),
            density=self.density.target,
            algorithm=algorithm,
            interrupted=self.done < self.plan.num_draws,
            temperature=measure_temperature(self.spread, algorithm, state, self.keys),
        )

    def _compile(self) -> Callable:
        """(carry, first draw, how many) -> carry, whether each draw is finite, a buffer of draws.

        One program for chunks of every size, so that no draw depends on how they were cut.
        """
        plan, shared = self.plan, eqx.partition(self.spread, eqx.is_array)
        algorithm_and_state = self.static

        def advance(density, arrays, key):
            algorithm, state = eqx.combine(arrays, algorithm_and_state)

            def body(state, i):
                return algorithm.step(jax.random.fold_in(key, i), density, state)

            state, infos = jax.lax.scan(body, state, jnp.arange(plan.thin))
            return eqx.filter((algorithm, state), eqx.is_array), sum_up(infos)

        def chunk(arrays, begin, size, each):
            density = eqx.combine(arrays, shared[1])

            def body(i, held):
                carry, finite, buffer = held
                keys = jax.vmap(lambda k: jax.random.fold_in(k, begin + i))(each[1])
                carry, infos = each_chain(lambda chain: advance(density, *chain), (carry, keys))
                told = self._tell(density, carry, infos)
                finite = finite.at[:, i].set(_finite(eqx.combine(carry, self.static)[1].position))
                buffer = jax.tree.map(lambda b, t: b.at[:, i].set(t), buffer, told)
                return carry, finite, buffer

            shapes = eqx.filter_eval_shape(self._tell, density, each[0])
            blank = jax.tree.map(
                lambda s: jnp.zeros((s.shape[0], self.capacity, *s.shape[1:]), s.dtype), shapes
            )
            flags = jnp.ones((each[1].shape[0], self.capacity), bool)
            return jax.lax.fori_loop(0, size, body, (each[0], flags, blank))

        run = jax.jit(over_chains(chunk, plan.mesh, 3))
        return lambda carry, begin, size: run(
            shared[0], jnp.asarray(begin), jnp.asarray(size), (carry, self.keys)
        )

    def _tell(self, density: Density, arrays: PyTree, infos: Any = None) -> dict[str, Any]:
        """What is kept of one draw of every chain, in the target's own parameters."""
        position = each_chain(density.original, eqx.combine(arrays, self.static)[1].position)
        num_chains = jax.tree.leaves(position)[0].shape[0]
        blank = dict.fromkeys(Info._fields, jnp.zeros(num_chains))
        record = density.target.watch if self.plan.record is None else self.plan.record
        return {
            "sample_stats": blank if infos is None else infos._asdict(),
            "posterior": jax.vmap(record)(position),
            "params": position if self.plan.keep_params else None,
        }

    def _keep(self, told: dict[str, np.ndarray], finite: np.ndarray) -> None:
        """Write the rows; raise where a chain left the finite numbers or the disk is full."""
        whole = finite.all(axis=0)
        rows = len(whole) if whole.all() else int(np.argmin(whole))
        if rows:
            self._guard(
                lambda: self.rows.write({n: x[:, :rows] for n, x in told.items()}, self.done)
            )
        if rows == len(whole):
            return
        chain = int(np.argmin(finite[:, rows]))
        self.done += rows
        raise SamplingError(
            f"chain {chain} left the finite numbers at draw {self.done}: use a smaller step size, "
            f"or start nearer the bulk; the {self.done} draws before are kept.",
            self.draws(),
        )

    def _checkpoint(self) -> None:
        if isinstance(self.rows, Store):
            state, store = gather(self.arrays), self.rows
            self._guard(lambda: store.checkpoint(state, self.done))

    def _guard(self, write: Callable[[], None]) -> None:
        try:
            write()
        except OSError as error:
            folder = self.rows.folder if isinstance(self.rows, Store) else ""
            raise SamplingError(
                f"could not write to {folder} ({error.strerror or error}); the first {self.done} "
                "draws are kept, and resume=True goes on once there is room.",
                self.draws(),
            ) from error


def _finite(position: PyTree) -> Any:
    """Whether all parameters of each chain are finite."""
    leaves = [
        jnp.isfinite(x).reshape(x.shape[0], -1).all(axis=1) for x in jax.tree.leaves(position)
    ]
    return jnp.all(jnp.stack(leaves), axis=0)


def _plan(
    density, num_draws, num_warmup, num_chains, thin, record, keep_params, seconds, data_devices
) -> Plan:
    require_count("num_draws", num_draws)
    require_count("num_warmup", num_warmup, at_least=0)
    require_count("num_chains", num_chains)
    require_count("thin", thin)
    require_positive("checkpoint_seconds", seconds)
    mesh = make_mesh(num_chains, data_devices)
    keep = record is None if keep_params is None else keep_params
    if record is None and not keep and isinstance(density, FunctionDensity):
        raise ValueError("nothing would be kept: give record=, or leave keep_params alone.")
    return Plan(num_draws, num_warmup, num_chains, thin, record, keep, float(seconds), mesh)


def _check(density: Density, algorithm: Any) -> Algorithm:
    if isinstance(algorithm, blackjax.base.SamplingAlgorithm):
        algorithm = BlackJAX(algorithm)
    if not isinstance(algorithm, Algorithm):
        raise ValueError(
            f"algorithm must be one of mercer's, such as mercer.nuts(), or a BlackJAX algorithm; "
            f"got {type(algorithm).__name__}."
        )
    if algorithm.needs_deterministic and not density.is_deterministic:
        raise ValueError(
            f"{type(algorithm).__name__} needs a deterministic density: use the Quadrature energy "
            "and no batch_size, or a stochastic gradient sampler such as mercer.sgld."
        )
    return algorithm


def _check_record(density: Density, plan: Plan, params: PyTree) -> None:
    record = plan.record
    if record is None:
        return
    first = jax.tree.map(lambda x: x[0], params)
    leaves = jax.tree.leaves(eqx.filter_eval_shape(lambda p: record(density.original(p)), first))
    if not leaves or not all(isinstance(leaf, jax.ShapeDtypeStruct) for leaf in leaves):
        raise ValueError("record(params) must return an array or a pytree of arrays.")
