"""Rank-1 lattices: points that integrate smooth functions far better than random ones."""

import numpy as np
from jaxtyping import Float

from .checks import require_count

# Made by benchmarks/lattice_vector.py; good for every power of two from 2^6 to 2^16.
GENERATING_VECTOR = (
    3, 2957, 16785, 10049, 13919, 26971, 1325, 10671,
    2333, 28939, 16959, 31031, 6277, 13395, 18939, 27127,
)  # fmt: skip
MAX_POINTS = 2**16


def rank_one_lattice(num_points: int, dimension: int) -> Float[np.ndarray, "n d"]:
    """The unshifted lattice {k z / n}, k = 0, ..., n − 1, in the unit cube.

    One dimension takes any number of points; more take a power of two, for which
    the generating vector z was built.
    """
    require_count("num_points", num_points)
    if dimension > len(GENERATING_VECTOR):
        raise ValueError(
            f"lattice points are tabulated to {len(GENERATING_VECTOR)} dimensions, the domain has "
            f"{dimension}; use MonteCarlo, or an Empirical domain."
        )
    if dimension > 1 and (num_points & (num_points - 1) or num_points > MAX_POINTS):
        below = min(2 ** (num_points.bit_length() - 1), MAX_POINTS)
        raise ValueError(
            f"a lattice in {dimension} dimensions has a power of two points, {MAX_POINTS} at most; "
            f"got {num_points}, the nearest below is {below}."
        )
    steps = np.arange(num_points, dtype=np.int64)[:, None]
    vector = np.array(GENERATING_VECTOR[:dimension], dtype=np.int64)
    if dimension == 1:
        vector = np.ones(1, dtype=np.int64)
    return (steps * vector % num_points) / num_points
