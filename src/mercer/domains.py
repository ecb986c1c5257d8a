"""Where functions live: a set, a measure on it, and points to integrate with.

A point is an array of shape (d,). On a one-dimensional domain a plain number will do.
"""

import functools
from abc import abstractmethod
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtri
from jax.scipy.stats import norm
from jaxtyping import Array, ArrayLike, Bool, Float, PRNGKeyArray
from scipy.special import roots_hermitenorm, roots_legendre

from .checks import (
    Real,
    default_float,
    is_concrete,
    require_count,
    require_finite,
    require_positive,
)
from .lattice import rank_one_lattice

Points = Float[Array, "n d"]
PointLike = ArrayLike | list[Any] | tuple[Any, ...]
Rule = tuple[Float[Array, "n d"], Float[Array, " n"]]
MAX_QUADRATURE_POINTS = 2**22
# Units in the last place by which a point may miss the side that it was meant for.
ROUNDING = 64


class Domain(eqx.Module):
    """A set with a finite measure.

    Inner products of functions on it are ⟨u, v⟩ = ∫ u v dμ = `measure` · E[u(T) v(T)]
    with T distributed as `sample` draws it.
    """

    dimension: eqx.AbstractVar[int]
    measure: eqx.AbstractVar[float]

    @abstractmethod
    def density(self, x: PointLike) -> Float[Array, ""]:
        """Density of the measure (total mass `measure`) at one point."""

    @abstractmethod
    def from_unit(self, unit: Float[Array, "n e"]) -> Points:
        """Map uniform points of the unit cube to points distributed as the measure."""

    @abstractmethod
    def quadrature(self, num_points: int | tuple[int, ...]) -> Rule:
        """Nodes and weights, a number of points to each axis; the weights sum to `measure`."""

    @abstractmethod
    def excess(self, x: PointLike) -> Float[Array, ""]:
        """How far a point is outside; zero inside."""

    @property
    def lattice_dimension(self) -> int:
        """How many uniform numbers make one point."""
        return self.dimension

    def sample(self, key: PRNGKeyArray, num_points: int) -> Points:
        """Independent points distributed as the normalised measure."""
        require_count("num_points", num_points)
        return self.from_unit(jax.random.uniform(key, (num_points, self.lattice_dimension)))

    def lattice(self, key: PRNGKeyArray | None, num_points: int) -> Points:
        """A rank-1 lattice with one random shift, folded by the tent map 1 − |2t − 1|.

        Each point alone is distributed as the normalised measure, so averages over the
        lattice are unbiased. Without a key the lattice is not shifted.
        """
        base = rank_one_lattice(num_points, self.lattice_dimension)
        if key is None:
            shift = jnp.full((1, self.lattice_dimension), 0.25 / num_points)
        else:
            shift = jax.random.uniform(key, (1, self.lattice_dimension))
        shifted = jnp.mod(jnp.asarray(base, default_float()) + shift, 1.0)
        return self.from_unit(1.0 - jnp.abs(2.0 * shifted - 1.0))

    def contains(self, x: PointLike) -> Bool[Array, ""]:
        """Whether a point lies in the set."""
        return self.excess(x) <= 0

    def same_as(self, other: "Domain") -> bool:
        """Whether the other domain is this one, under whatever name."""
        return bool(eqx.tree_equal(self, other))

    def point(self, x: PointLike) -> Float[Array, " d"]:
        """The point as an array of shape (d,)."""
        array = jnp.asarray(x, default_float())
        shape = array.shape
        if shape != (self.dimension,) and not (shape == () and self.dimension == 1):
            raise ValueError(
                f"a point of this domain has shape ({self.dimension},), got {shape}; "
                "use jax.vmap to go over many points."
            )
        return jnp.reshape(array, (self.dimension,))


class Box(Domain):
    """The box with the given corners, under Lebesgue measure.

    >>> Box([0.0, 0.0], [1.0, 2.0]).measure
    2.0
    """

    lower: tuple[float, ...] = eqx.field(static=True)
    upper: tuple[float, ...] = eqx.field(static=True)

    def __init__(
        self,
        lower: ArrayLike | tuple[Any, ...] | list[Any],
        upper: ArrayLike | tuple[Any, ...] | list[Any],
    ):
        self.lower = tuple(float(a) for a in np.atleast_1d(np.asarray(lower)))
        self.upper = tuple(float(b) for b in np.atleast_1d(np.asarray(upper)))

    def __check_init__(self) -> None:
        if len(self.lower) != len(self.upper) or not self.lower:
            raise ValueError(
                f"lower and upper need one entry per dimension, got {self.lower} and {self.upper}."
            )
        corners = np.array([self.lower, self.upper])
        if not (np.all(np.isfinite(corners)) and np.all(corners[0] < corners[1])):
            raise ValueError(
                f"lower must be finite and below upper, got {self.lower} and {self.upper}."
            )

    @property
    def dimension(self) -> int:
        return len(self.lower)

    def same_as(self, other: Domain) -> bool:
        return isinstance(other, Box) and (self.lower, self.upper) == (other.lower, other.upper)

    @property
    def lengths(self) -> tuple[float, ...]:
        """Side lengths."""
        return tuple(b - a for a, b in zip(self.lower, self.upper, strict=True))

    @property
    def measure(self) -> float:
        return float(np.prod(self.lengths))

    def density(self, x: PointLike) -> Float[Array, ""]:
        return jnp.where(self.contains(x), 1.0, 0.0)

    def to_unit(self, x: PointLike) -> Float[Array, " d"]:
        """The point in coordinates that run from 0 to 1 on each axis."""
        offset = self.point(x) - jnp.asarray(self.lower)
        return offset / jnp.asarray(self.lengths)

    def from_unit(self, unit: Float[Array, "n e"]) -> Points:
        lower, upper = jnp.asarray(self.lower)[None], jnp.asarray(self.upper)[None]
        return jnp.clip(lower + unit * jnp.asarray(self.lengths)[None], lower, upper)

    def quadrature(self, num_points: int | tuple[int, ...]) -> Rule:
        counts = num_points if isinstance(num_points, tuple) else (num_points,) * self.dimension
        if len(counts) != self.dimension:
            raise ValueError(
                f"num_points must be one number or one per axis ({self.dimension}), got {counts}."
            )
        for count in counts:
            require_count("num_points", count)
        if np.prod(counts, dtype=float) > MAX_QUADRATURE_POINTS:
            raise ValueError(
                f"tensor quadrature with {' x '.join(map(str, counts))} points is over "
                f"{MAX_QUADRATURE_POINTS}; use Lattice, fewer modes, or an Empirical domain."
            )
        return _tensor_rule(self.lower, self.lengths, counts)

    def excess(self, x: PointLike) -> Float[Array, ""]:
        x = self.point(x)
        below = jnp.asarray(self.lower) - x
        above = x - jnp.asarray(self.upper)
        excess = jnp.max(jnp.maximum(below, above))
        # Sums and differences of the corners, as grids have them, are off by their rounding.
        rounding = ROUNDING * jnp.finfo(x.dtype).eps * max(map(abs, self.lower + self.upper))
        return jnp.where(excess > rounding, excess, 0.0)


class Interval(Box):
    """The interval from `lower` to `upper`.

    >>> Interval(-1, 3).measure
    4.0
    """

    def __init__(self, lower: Real, upper: Real):
        self.lower = (float(lower),)
        self.upper = (float(upper),)


class RealLine(Domain):
    """The real line under the Gaussian measure N(0, scale²).

    >>> RealLine(2.0).measure
    1.0
    """

    scale: float = eqx.field(static=True, converter=float)

    def __check_init__(self) -> None:
        require_positive("scale", self.scale)

    @property
    def dimension(self) -> int:
        return 1

    @property
    def measure(self) -> float:
        return 1.0

    def density(self, x: PointLike) -> Float[Array, ""]:
        return norm.pdf(self.point(x)[0], scale=self.scale)

    def from_unit(self, unit: Float[Array, "n e"]) -> Points:
        # The open interval: a zero of the generator would map to minus infinity.
        edge = jnp.finfo(unit.dtype).eps
        return self.scale * ndtri(jnp.clip(unit, edge, 1 - edge))

    def quadrature(self, num_points: int | tuple[int, ...]) -> Rule:
        (count,) = num_points if isinstance(num_points, tuple) else (num_points,)
        require_count("num_points", count)
        nodes, weights = roots_hermitenorm(count)
        weights = weights / weights.sum()
        return _arrays(self.scale * nodes[:, None], weights)

    def excess(self, x: PointLike) -> Float[Array, ""]:
        return jnp.where(jnp.isfinite(self.point(x)[0]), 0.0, jnp.inf)


class Empirical(Domain):
    """A set of points, each with mass 1/n: inner products are averages over it.

    Any dimension. A point is "inside" if it is no farther from the set than the set's
    own points are from one another, by the bounding box padded by a tenth.

    >>> Empirical(jnp.zeros((5, 3)) + jnp.arange(5.0)[:, None]).dimension
    3
    """

    points: Float[Array, "n d"]

    def __init__(self, points: ArrayLike | list[Any]):
        self.points = jnp.asarray(points, default_float())

    def __check_init__(self) -> None:
        if self.points.ndim != 2 or 0 in self.points.shape:
            raise ValueError(
                f"points must have shape (n, d) with n, d >= 1, got {self.points.shape}."
            )
        require_finite("points", self.points)

    @property
    def dimension(self) -> int:
        return self.points.shape[1]

    @property
    def measure(self) -> float:
        return 1.0

    @property
    def lattice_dimension(self) -> int:
        return 1

    def density(self, x: PointLike) -> Float[Array, ""]:
        raise ValueError("an Empirical domain has atoms, not a density; drop the proposal.")

    def from_unit(self, unit: Float[Array, "n e"]) -> Points:
        count = self.points.shape[0]
        index = jnp.minimum(jnp.floor(unit[:, 0] * count).astype(int), count - 1)
        return self.points[index]

    def quadrature(self, num_points: int | tuple[int, ...]) -> Rule:
        count = self.points.shape[0]
        return self.points, jnp.full((count,), 1 / count)

    def excess(self, x: PointLike) -> Float[Array, ""]:
        x = self.point(x)
        low, high = jnp.min(self.points, axis=0), jnp.max(self.points, axis=0)
        pad = 0.1 * (high - low)
        return jnp.max(jnp.maximum(jnp.maximum(low - pad - x, x - high - pad), 0.0))


class Euclidean(Domain):
    """All of ℝᵈ, with no measure to integrate by: where kernels of points live."""

    dimension: int = eqx.field(static=True)

    @property
    def measure(self) -> float:
        raise ValueError("the whole space has no finite measure; use a Box or Empirical(points).")

    def density(self, x: PointLike) -> Float[Array, ""]:
        return jnp.ones(())

    def from_unit(self, unit: Float[Array, "n e"]) -> Points:
        raise ValueError("the whole space has no finite measure to draw points from.")

    def quadrature(self, num_points: int | tuple[int, ...]) -> Rule:
        raise ValueError("the whole space has no quadrature; use a Box or Empirical(points).")

    def excess(self, x: PointLike) -> Float[Array, ""]:
        return jnp.where(jnp.all(jnp.isfinite(self.point(x))), 0.0, jnp.inf)


def require_inside(domain: Domain, points: Float[Array, "n d"], name: str = "X") -> None:
    """Raise if a point lies outside the domain, and say how far; taken on trust when traced."""
    if not is_concrete((domain, points)):
        return
    if points.shape[1] != domain.dimension:
        raise ValueError(
            f"{name} has {points.shape[1]} columns, the domain has {domain.dimension} dimensions."
        )
    excess = np.asarray(jax.vmap(domain.excess)(points))
    if np.any(excess > 0):
        row = int(np.argmax(excess))
        raise ValueError(
            f"{int(np.sum(excess > 0))} of {points.shape[0]} rows of {name} lie outside the domain, "
            f"the farthest, row {row}, by {excess[row]:.4g}; widen the domain or drop them."
        )


def _arrays(nodes: np.ndarray, weights: np.ndarray) -> Rule:
    return jnp.asarray(nodes, default_float()), jnp.asarray(weights, default_float())


@functools.lru_cache(maxsize=32)
def _legendre(count: int) -> tuple[np.ndarray, np.ndarray]:
    nodes, weights = roots_legendre(count)
    return (nodes + 1) / 2, weights / 2


def _tensor_rule(lower: tuple[Any, ...], lengths: tuple[Any, ...], counts: tuple[int, ...]) -> Rule:
    rules = [_legendre(count) for count in counts]
    nodes = [a + length * r[0] for a, length, r in zip(lower, lengths, rules, strict=True)]
    weights = [length * r[1] for length, r in zip(lengths, rules, strict=True)]
    grid = np.stack(np.meshgrid(*nodes, indexing="ij"), axis=-1).reshape(-1, len(counts))
    return _arrays(grid, functools.reduce(np.multiply.outer, weights).reshape(-1))
