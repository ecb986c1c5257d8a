"""Threads that do not wait for one another: LAPACK's own, and those of JAX's pool.

JAX hands factorisations to the LAPACK that SciPy brings, whose threads wait for each other by spinning.
On matrices of a few hundred rows they gain nothing on an idle machine, and on a busy one they make a
factorisation twenty times as slow. And a batch of factorisations is cut into tasks for JAX's pool by a
thread of that pool, which then waits for them: where as many run at once as the pool has threads, all
wait and none works, on two cores for ever. One chain at a time has no batches.
"""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import jax
from threadpoolctl import threadpool_limits

from .checks import PyTree

# Readouts up to this width are factorised by one thread.
SMALL = 600


@contextlib.contextmanager
def few_threads(params: PyTree) -> Iterator[None]:
    """While it lasts, LAPACK runs on one thread where no array of parameters is wide."""
    widest = max((max(x.shape, default=1) for x in jax.tree.leaves(params)), default=1)
    if widest > SMALL:
        yield
        return
    with threadpool_limits(limits=1, user_api="blas"):
        yield


def over_chains(function: Callable[[Any], Any], each: PyTree) -> PyTree:
    """The function of each chain, a leading axis of `each`: at once on an accelerator, one after the
    other on a CPU."""
    if jax.default_backend() == "cpu":
        return jax.lax.map(function, each)
    return jax.vmap(function)(each)
