"""Inner products of functions on a domain."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..checks import default_float, is_concrete
from ..domains import Box, Domain

MAX_ADAPTIVE_POINTS = 2**14


def gram(functions, domain: Domain, num_points: int | tuple[int, ...]) -> Float[Array, "M M"]:
    """∫ f fᵀ dμ by quadrature."""
    nodes, weights = domain.quadrature(num_points)
    values = jax.vmap(functions)(nodes)
    return values.T @ (weights[:, None] * values)


def adaptive_points(functions, domain: Domain) -> int:
    """Quadrature points to each axis, doubled until the Gram matrix of `functions` settles."""
    if not isinstance(domain, Box):
        return _adaptive(functions, domain, 64, MAX_ADAPTIVE_POINTS)
    limit = int(2 ** (22 // domain.dimension))
    return _adaptive(functions, domain, min(32, limit), min(limit, MAX_ADAPTIVE_POINTS))


def _adaptive(functions, domain: Domain, start: int, limit: int) -> int:
    with jax.ensure_compile_time_eval():
        return _double(functions, domain, start, limit)


def _double(functions, domain: Domain, start: int, limit: int) -> int:
    tolerance = 1e3 * float(np.finfo(default_float()).eps)
    count, previous = start, gram(functions, domain, start)
    if not is_concrete(previous):
        raise ValueError(
            "these functions depend on something that is being traced, so the number of quadrature "
            "points cannot be found from them; give num_points."
        )
    while count < limit:
        # A step that is no multiple, so that a function in step with the nodes is found out.
        following = min(2 * count + 1, limit)
        current = gram(functions, domain, following)
        if float(jnp.max(jnp.abs(current - previous))) <= tolerance * float(
            jnp.max(jnp.abs(current))
        ):
            return count
        count, previous = following, current
    return count
