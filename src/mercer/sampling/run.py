"""`mercer.sample`: arguments checked, a path and starting points chosen, and the loop run."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import blackjax
import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import PRNGKeyArray

from ..checks import PyTree, Real, require_key
from ..density import Density, FunctionDensity
from ..draws import Draws
from ..draws.layout import Memory
from ..threads import few_threads
from .algorithm import Algorithm
from .algorithms.blackjax import BlackJAX
from .devices import make_mesh
from .fingerprint import fingerprint
from .initialisation import as_starts, check_starts, find_starts
from .loop import Loop, Plan
from .paths import choose_path
from .progress import Bar, interrupts
from .store import Store

# Steps of warm-up: for a mass matrix, and in white coordinates, where the step alone is adapted.
WARMUP, WHITE_WARMUP = 500, 200


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
    keep_params = record is None if keep_params is None else keep_params
    plan = Plan(num_draws, num_warmup, num_chains, thin, record, keep_params, checkpoint_seconds)
    mesh = make_mesh(num_chains, data_devices)
    algorithm = _check(density, algorithm, plan)
    start_key, check_key, warm_key, run_key = jax.random.split(key, 4)
    with interrupts() as stop, few_threads(density.params), Bar(progress, num_draws, 0) as bar:
        bar.announce(words)
        params = find_starts(start_key, density, num_chains) if init is None else as_starts(init)
        check_starts(check_key, density, algorithm, params, num_chains)
        _check_record(density, plan, params)
        rows: Memory | Store = Memory(num_draws)
        if store is not None:
            identity = fingerprint(
                density, key, algorithm, thin, num_warmup, num_chains, record, keep_params
            )
            rows = Store(Path(store), identity, resume, num_draws)
        loop = Loop(density, plan, mesh, jax.random.split(run_key, num_chains), rows)
        loop.begin(algorithm, jax.random.split(warm_key, num_chains), params, bar, stop)
        return loop.run(bar, stop)


def _as_density(density: Density | Callable[[PyTree], Any], init: PyTree | None) -> Density:
    """The density, or a plain function as one."""
    if isinstance(density, Density):
        return density
    if not callable(density):
        raise ValueError(f"density must be a Density or a function, got {type(density).__name__}.")
    if init is None:
        raise ValueError("a plain function does not say where to start: give init=.")
    first = jax.tree.map(lambda x: jnp.asarray(x)[0] if jnp.ndim(x) else jnp.asarray(x), init)
    return FunctionDensity(density, first)


def _check(density: Density, algorithm: Any, plan: Plan) -> Algorithm:
    """The algorithm, if it can sample this density and something is kept of its draws."""
    if plan.record is None and not plan.keep_params and isinstance(density, FunctionDensity):
        raise ValueError("nothing would be kept: give record=, or leave keep_params alone.")
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
