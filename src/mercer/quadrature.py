"""Gauss quadrature: nodes and weights that integrate polynomials exactly."""

import functools

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy.special import roots_hermitenorm, roots_legendre

from .checks import default_float, require_count

Rule = tuple[Float[Array, "n d"], Float[Array, " n"]]
MAX_POINTS = 2**22


def gauss_legendre(
    lower: tuple[float, ...], lengths: tuple[float, ...], counts: tuple[int, ...]
) -> Rule:
    """The tensor product rule on a box, with a number of points for each axis."""
    _check_counts(counts, len(lower))
    rules = [_legendre(count) for count in counts]
    nodes = [a + length * r[0] for a, length, r in zip(lower, lengths, rules, strict=True)]
    weights = [length * r[1] for length, r in zip(lengths, rules, strict=True)]
    grid = np.stack(np.meshgrid(*nodes, indexing="ij"), axis=-1).reshape(-1, len(counts))
    return _arrays(grid, functools.reduce(np.multiply.outer, weights).reshape(-1))


def gauss_hermite(scale: float, count: int) -> Rule:
    """The rule for the Gaussian measure N(0, scale²)."""
    require_count("num_points", count)
    nodes, weights = roots_hermitenorm(count)
    return _arrays(scale * nodes[:, None], weights / weights.sum())


@functools.lru_cache(maxsize=32)
def _legendre(count: int) -> tuple[np.ndarray, np.ndarray]:
    """The rule on the unit interval."""
    nodes, weights = roots_legendre(count)
    return (nodes + 1) / 2, weights / 2


def _check_counts(counts: tuple[int, ...], dimension: int) -> None:
    if len(counts) != dimension:
        raise ValueError(
            f"num_points must be one number or one per axis ({dimension}), got {counts}."
        )
    for count in counts:
        require_count("num_points", count)
    if np.prod(counts, dtype=float) > MAX_POINTS:
        raise ValueError(
            f"tensor quadrature with {' x '.join(map(str, counts))} points is over {MAX_POINTS}; "
            "use Lattice, fewer modes, or an Empirical domain."
        )


def _arrays(nodes: np.ndarray, weights: np.ndarray) -> Rule:
    return jnp.asarray(nodes, default_float()), jnp.asarray(weights, default_float())
