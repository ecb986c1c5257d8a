"""Inner products of functions on a domain."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..checks import default_float, is_concrete
from ..domains import Box, Domain

MAX_ADAPTIVE_POINTS = 2**14


Functions = Callable[[Float[Array, " d"]], Float[Array, " M"]]


def gram(
    functions: Functions, domain: Domain, num_points: int | tuple[int, ...]
) -> Float[Array, "M M"]:
    """∫ f fᵀ dμ by quadrature."""
    nodes, weights = domain.quadrature(num_points)
    values = jax.vmap(functions)(nodes)
    return values.T @ (weights[:, None] * values)


def adaptive_points(functions: Functions, domain: Domain) -> int:
    """Quadrature points to each axis, doubled until the Gram matrix of `functions` settles."""
    start, limit = 64, MAX_ADAPTIVE_POINTS
    if isinstance(domain, Box):
        limit = min(2 ** (22 // domain.dimension), MAX_ADAPTIVE_POINTS)
        start = min(32, limit)
    with jax.ensure_compile_time_eval():
        return _double(functions, domain, start, limit)


def _double(functions: Functions, domain: Domain, count: int, limit: int) -> int:
    tolerance = 1e3 * float(np.finfo(default_float()).eps)
    previous = gram(functions, domain, count)
    if not is_concrete(previous):
        raise ValueError(
            "these functions depend on something that is being traced, so the number of quadrature "
            "points cannot be found from them; give num_points."
        )
    while count < limit:
        # A step that is no multiple, so that a function in step with the nodes is found out.
        following = min(2 * count + 1, limit)
        current = gram(functions, domain, following)
        if jnp.max(jnp.abs(current - previous)) <= tolerance * jnp.max(jnp.abs(current)):
            return count
        count, previous = following, current
    return count
