"""The run loop: many chains in compiled chunks, written as they come, and nothing lost."""

import dataclasses
import time
from collections.abc import Callable
from threading import Event
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array, Bool

from ..checks import PyTree, Real, require_count, require_positive
from ..density import Density
from ..draws import Draws
from ..draws.layout import Layout, Memory
from ..threads import over_chains as each_chain
from .algorithm import Algorithm, Info, sum_up
from .devices import agree, gather, over_chains, spread_chains, spread_density
from .progress import Bar, wait
from .store import Store
from .temperature import measure_temperature

# A chunk is what runs between two looks at the clock: at most this long, and this many bytes.
CHUNK_SECONDS = 1.0
CHUNK_BYTES = 2**25
MAX_CHUNK = 1024


class SamplingError(RuntimeError):
    """A run that could not go on; `draws` holds what came before."""

    def __init__(self, message: str, draws: Draws):
        super().__init__(message)
        self.draws = draws


@dataclasses.dataclass(frozen=True)
class Plan:
    """How a run goes: chains, draws, thinning, what is recorded, and how often it is saved."""

    num_draws: int
    num_warmup: int
    num_chains: int
    thin: int
    record: Callable[[PyTree], Any] | None
    keep_params: bool
    checkpoint_seconds: Real

    def __post_init__(self) -> None:
        require_count("num_draws", self.num_draws)
        require_count("num_warmup", self.num_warmup, at_least=0)
        require_count("num_chains", self.num_chains)
        require_count("thin", self.thin)
        require_positive("checkpoint_seconds", self.checkpoint_seconds)


class Loop:
    """Compiled chunks over all chains.

    `arrays` and `static` together are the tuned algorithm and the state, a chain a row.
    """

    density: Density
    plan: Plan
    mesh: Mesh
    rows: Memory | Store
    spread: Density
    keys: PyTree
    done: int
    arrays: PyTree
    static: PyTree
    layout: Layout
    capacity: int

    def __init__(self, density: Density, plan: Plan, mesh: Mesh, keys: Array, rows: Memory | Store):
        self.density, self.plan, self.mesh, self.rows = density, plan, mesh, rows
        self.spread = spread_density(density, mesh)
        self.keys = spread_chains(keys, mesh)
        self.done = 0

    def begin(
        self, algorithm: Algorithm, keys: Array, params: PyTree, bar: Bar, stop: Event
    ) -> None:
        """Tune the algorithm and burn in, or take up what the store has."""
        density_arrays, density_static = eqx.partition(self.spread, eqx.is_array)

        def warm(arrays, chain):
            density = eqx.combine(arrays, density_static)
            return algorithm.adapt(chain[0], density, chain[1], self.plan.num_warmup)

        def warm_all(arrays, chains):
            return each_chain(lambda chain: eqx.filter(warm(arrays, chain), eqx.is_array), chains)

        chains = spread_chains((keys, params), self.mesh)
        first = jax.tree.map(lambda x: x[0], (keys, params))
        shapes = eqx.filter_eval_shape(warm, density_arrays, first)
        _, self.static = eqx.partition(shapes, lambda x: isinstance(x, jax.ShapeDtypeStruct))
        template = eqx.filter_eval_shape(warm_all, density_arrays, chains)
        if isinstance(self.rows, Store) and self.rows.counts():
            restored, self.done = self.rows.restore(template)
            self.arrays = spread_chains(restored, self.mesh)
        else:
            bar.say(f"warm-up, {self.plan.num_warmup} steps")
            run = over_chains(warm_all, self.mesh, 1)
            self.arrays = wait(jax.jit(run)(density_arrays, chains), stop)
        self._lay_out()

    def _lay_out(self) -> None:
        """The layout of what is kept, with room for no draw yet, and the largest chunk."""
        shapes = eqx.filter_eval_shape(self._record, self.spread, self.arrays)
        self.layout = Layout.of(shapes)
        row_bytes = sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(shapes))
        self.capacity = int(np.clip(CHUNK_BYTES // row_bytes, 1, MAX_CHUNK))
        no_rows = {
            name: np.zeros((x.shape[0], 0, *x.shape[1:]), x.dtype)
            for name, x in self.layout.flatten(shapes).items()
        }
        self._guard(lambda: self.rows.write(no_rows, self.done))

    def run(self, bar: Bar, stop: Event) -> Draws:
        """Chunk after chunk until all draws are there, or Ctrl-C."""
        plan, saved, size = self.plan, time.monotonic(), 1
        step = self._compile()
        while self.done < plan.num_draws:
            size = agree(0 if stop.is_set() else min(size, plan.num_draws - self.done))
            if size == 0:
                break
            begun = time.monotonic()
            self.arrays, finite, buffer = wait(step(self.arrays, self.done, size))
            values = {n: x[:, :size] for n, x in gather(self.layout.flatten(buffer)).items()}
            self._write(values, gather(finite)[:, :size])
            self.done += size
            bar.tell(self.done, self.layout.build("sample_stats", values.__getitem__))
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

    def _compile(self) -> Callable[[PyTree, int, int], Any]:
        """(arrays, first draw, how many) -> arrays, whether each draw is finite, a buffer of draws.

        One program for chunks of every size, so that no draw depends on how they were cut.
        """
        density_arrays, density_static = eqx.partition(self.spread, eqx.is_array)
        static, thin = self.static, self.plan.thin

        def advance(density, arrays, key):
            algorithm, state = eqx.combine(arrays, static)

            def body(state, i):
                return algorithm.step(jax.random.fold_in(key, i), density, state)

            state, infos = jax.lax.scan(body, state, jnp.arange(thin))
            return eqx.filter((algorithm, state), eqx.is_array), sum_up(infos)

        def chunk(density_arrays, first_draw, size, chains):
            density = eqx.combine(density_arrays, density_static)
            arrays, keys = chains

            def body(i, carry):
                arrays, finite, buffer = carry
                draw_keys = jax.vmap(lambda key: jax.random.fold_in(key, first_draw + i))(keys)
                arrays, infos = each_chain(
                    lambda chain: advance(density, *chain), (arrays, draw_keys)
                )
                values = self._record(density, arrays, infos)
                finite = finite.at[:, i].set(_finite(eqx.combine(arrays, static)[1].position))
                buffer = jax.tree.map(lambda b, x: b.at[:, i].set(x), buffer, values)
                return arrays, finite, buffer

            shapes = eqx.filter_eval_shape(self._record, density, arrays)
            blank = jax.tree.map(
                lambda s: jnp.zeros((s.shape[0], self.capacity, *s.shape[1:]), s.dtype), shapes
            )
            finite = jnp.ones((keys.shape[0], self.capacity), bool)
            return jax.lax.fori_loop(0, size, body, (arrays, finite, blank))

        run = jax.jit(over_chains(chunk, self.mesh, 3))
        return lambda arrays, first_draw, size: run(
            density_arrays, jnp.asarray(first_draw), jnp.asarray(size), (arrays, self.keys)
        )

    def _record(
        self, density: Density, arrays: PyTree, infos: Info | None = None
    ) -> dict[str, Any]:
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

    def _write(self, values: dict[str, np.ndarray], finite: np.ndarray) -> None:
        """Write the rows; raise where a chain left the finite numbers or the disk is full."""
        whole = np.asarray(finite.all(axis=0))
        count = len(whole) if whole.all() else int(np.argmin(whole))
        if count:
            kept = {name: x[:, :count] for name, x in values.items()}
            self._guard(lambda: self.rows.write(kept, self.done))
        if count == len(whole):
            return
        chain = int(np.argmin(finite[:, count]))
        self.done += count
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


def _finite(position: PyTree) -> Bool[Array, " chains"]:
    """Whether all parameters of each chain are finite."""
    leaves = jax.tree.leaves(position)
    finite = [jnp.isfinite(x).reshape(x.shape[0], -1).all(axis=1) for x in leaves]
    return jnp.all(jnp.stack(finite), axis=0)
