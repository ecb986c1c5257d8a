"""Eigenfunctions of the Laplacian on a box: sines and cosines, ordered by eigenvalue."""

import heapq
import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ..checks import require_count
from ..domains import Box, Domain, PointLike, Points
from .boundary import Boundary, BoundaryLike, Sides, parse_boundary


class LaplaceBasis(eqx.Module):
    """The K smoothest eigenfunctions of −Δ on a box with given sides.

    Mode k is a product over the axes of sines or cosines; `indices[k]` says which.
    """

    domain: Box
    boundary: Boundary = eqx.field(static=True)
    indices: Int[Array, "K d"]
    counts: tuple[int, ...] = eqx.field(static=True)

    @property
    def _axes(self) -> list[tuple[Sides, float, int]]:
        """The sides, the length and the number of functions of each axis."""
        return list(zip(self.boundary, self.domain.lengths, self.counts, strict=True))

    @property
    def eigenvalues(self) -> Float[Array, " K"]:
        """Eigenvalues of −Δ, the sum over the axes of squared frequencies."""
        total = jnp.zeros(self.indices.shape[0])
        for axis, (sides, length, count) in enumerate(self._axes):
            frequencies = jnp.asarray(axis_frequencies(sides, length, count))
            total = total + jnp.square(frequencies)[self.indices[:, axis]]
        return total

    def __call__(self, x: PointLike) -> Float[Array, " K"]:
        unit = self.domain.to_unit(x)
        values = jnp.ones(self.indices.shape[0])
        for axis, (sides, length, count) in enumerate(self._axes):
            table = axis_functions(sides, unit[axis], count) / math.sqrt(length)
            values = values * (table if len(unit) == 1 else table[self.indices[:, axis]])
        return values

    def project(self, points: Points, values: Float[Array, " n"]) -> Float[Array, " K"]:
        """Σᵢ valuesᵢ φ(xᵢ); in one and two dimensions without a table of all modes at all points."""
        unit = jax.vmap(self.domain.to_unit)(points)
        scale = 1 / math.sqrt(self.domain.measure)
        if self.domain.dimension == 1:
            return scale * axis_sums(self.boundary[0], unit[:, 0], values, self.counts[0])
        if self.domain.dimension > 2:
            return values @ jax.vmap(self)(points)
        first, second = (
            jax.vmap(lambda t, i=i: axis_functions(self.boundary[i], t, self.counts[i]))(unit[:, i])
            for i in range(2)
        )
        table = (first * values[:, None]).T @ second
        return scale * table[self.indices[:, 0], self.indices[:, 1]]

    def quadrature_points(self) -> tuple[int, ...]:
        """Gauss–Legendre points to each axis for products of two modes, with room to spare."""
        return tuple(2 * count + 16 for count in self.counts)


def laplace_basis(domain: Domain, num_modes: int, boundary: BoundaryLike) -> LaplaceBasis:
    """The `num_modes` smoothest eigenfunctions of −Δ on the box."""
    if not isinstance(domain, Box):
        raise ValueError(
            f"the Laplacian lives on an Interval or a Box, got {type(domain).__name__}; "
            "on other domains use Nystrom."
        )
    require_count("num_modes", num_modes)
    sides = parse_boundary(boundary, domain.dimension)
    indices = _smallest_modes(sides, domain.lengths, num_modes)
    counts = tuple(int(c) for c in indices.max(axis=0) + 1)
    return LaplaceBasis(domain, sides, jnp.asarray(indices), counts)


def axis_frequencies(sides: Sides, length: float, count: int) -> np.ndarray:
    """Frequencies of the functions on one axis, smallest first."""
    index = np.arange(count)
    if sides == ("periodic", "periodic"):
        return 2 * np.pi * ((index + 1) // 2) / length
    if sides == ("dirichlet", "dirichlet"):
        return np.pi * (index + 1) / length
    if sides == ("neumann", "neumann"):
        return np.pi * index / length
    return np.pi * (index + 0.5) / length


def _smallest_modes(boundary: Boundary, lengths: tuple[float, ...], num_modes: int) -> np.ndarray:
    """Multi-indices of the smallest eigenvalues, best first, without a grid of candidates."""
    if len(lengths) == 1:
        return np.arange(num_modes)[:, None]
    axes = zip(boundary, lengths, strict=True)
    return smallest_sums([axis_frequencies(*axis, num_modes) ** 2 for axis in axes], num_modes)


def smallest_sums(terms: list[np.ndarray], count: int) -> np.ndarray:
    """The multi-indices of the smallest sums of one increasing term for each axis, best first."""

    def cost(index: tuple[int, ...]) -> float:
        return sum(term[i] for term, i in zip(terms, index, strict=True))

    origin = (0,) * len(terms)
    heap, seen, smallest = [(cost(origin), origin)], {origin}, []
    while heap and len(smallest) < count:
        _, index = heapq.heappop(heap)
        smallest.append(index)
        for axis, term in enumerate(terms):
            child = (*index[:axis], index[axis] + 1, *index[axis + 1 :])
            if child[axis] < len(term) and child not in seen:
                seen.add(child)
                heapq.heappush(heap, (cost(child), child))
    return np.array(smallest)


def axis_functions(sides: Sides, t: Float[Array, ""], count: int) -> Float[Array, " count"]:
    """Orthonormal functions of t in [0, 1] for one axis."""
    return axis_sums(sides, t[None], jnp.ones(1), count)


def axis_sums(
    sides: Sides, t: Float[Array, " n"], values: Float[Array, " n"], count: int
) -> Float[Array, " count"]:
    """Σᵢ valuesᵢ φ(tᵢ) for the first orthonormal functions φ on one axis."""
    if sides == ("periodic", "periodic"):
        cosine, sine = _harmonic_sums(2 * jnp.pi * t, values, count // 2 + 1)
        pairs = jnp.stack([cosine[1:], sine[1:]], axis=1).reshape(-1)
        return jnp.concatenate([cosine[:1], math.sqrt(2) * pairs])[:count]
    if sides[0] == sides[1]:
        cosine, sine = _harmonic_sums(jnp.pi * t, values, count + 1)
        if sides[0] == "dirichlet":
            return math.sqrt(2) * sine[1:]
        return math.sqrt(2) * cosine[:count].at[0].multiply(1 / math.sqrt(2))
    cosine, sine = _harmonic_sums(jnp.pi * t, values, count, phase=0.5)
    return math.sqrt(2) * (sine if sides[0] == "dirichlet" else cosine)


def _harmonic_sums(
    angle: Float[Array, " n"], values: Float[Array, " n"], count: int, phase: float = 0.0
) -> tuple[Float[Array, " count"], Float[Array, " count"]]:
    """Σᵢ valuesᵢ cos((k + phase) angleᵢ), and with sin, for k < count.

    With k = a b + c the addition theorem leaves about 2√count cosines and sines a point, and
    the sums over points become four small matrix products.
    """
    block = max(1, math.isqrt(count))
    coarse = (jnp.arange(-(-count // block)) * block + phase)[:, None] * angle[None]
    fine = angle[:, None] * jnp.arange(block)[None]
    cosine_c, sine_c = jnp.cos(coarse) * values[None], jnp.sin(coarse) * values[None]
    cosine_f, sine_f = jnp.cos(fine), jnp.sin(fine)
    cosine = (cosine_c @ cosine_f - sine_c @ sine_f).reshape(-1)[:count]
    sine = (sine_c @ cosine_f + cosine_c @ sine_f).reshape(-1)[:count]
    return cosine, sine
