"""Threads of LAPACK: one where matrices are small, so that they do not spin against one another.

JAX hands factorisations to the LAPACK that SciPy brings, whose threads wait for each other by spinning.
On matrices of a few hundred rows they gain nothing on an idle machine, and on a busy one they make a
factorisation twenty times as slow.
"""

import contextlib
from collections.abc import Iterator

import jax
from jaxtyping import PyTree
from threadpoolctl import threadpool_limits

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
