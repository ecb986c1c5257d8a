"""Where functions live: a set, a measure on it, and points to integrate with.

A point is an array of shape (d,). On a one-dimensional domain a plain number will do.
"""

from abc import abstractmethod
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtri
from jax.scipy.stats import norm
from jaxtyping import Array, ArrayLike, Bool, Float, PRNGKeyArray

from .checks import (
    Real,
    as_real,
    default_float,
    is_concrete,
    require_count,
    require_finite,
    require_positive,
)
from .lattice import rank_one_lattice
from .quadrature import Rule, gauss_hermite, gauss_legendre

Points = Float[Array, "n d"]
PointLike = ArrayLike | list[Any] | tuple[Any, ...]
# Units in the last place by which a point may miss the side that it was meant for.
ROUNDING = 64


class Domain(eqx.Module):
    """A set with a finite measure μ.

    Inner products are ⟨u, v⟩ = ∫ u v dμ = `measure` · E[u(T) v(T)] with T drawn by `sample`.
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
        unshifted = jnp.asarray(rank_one_lattice(num_points, self.lattice_dimension))
        shift = jnp.full((1, self.lattice_dimension), 0.25 / num_points)
        if key is not None:
            shift = jax.random.uniform(key, shift.shape)
        shifted = jnp.mod(unshifted.astype(default_float()) + shift, 1.0)
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

    def __init__(self, lower: PointLike, upper: PointLike):
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
        return (self.point(x) - jnp.asarray(self.lower)) / jnp.asarray(self.lengths)

    def from_unit(self, unit: Float[Array, "n e"]) -> Points:
        lower, upper = jnp.asarray(self.lower)[None], jnp.asarray(self.upper)[None]
        return jnp.clip(lower + unit * jnp.asarray(self.lengths)[None], lower, upper)

    def quadrature(self, num_points: int | tuple[int, ...]) -> Rule:
        counts = num_points if isinstance(num_points, tuple) else (num_points,) * self.dimension
        return gauss_legendre(self.lower, self.lengths, counts)

    def excess(self, x: PointLike) -> Float[Array, ""]:
        x = self.point(x)
        excess = jnp.max(jnp.maximum(jnp.asarray(self.lower) - x, x - jnp.asarray(self.upper)))
        # Sums and differences of the corners, as grids have them, are off by their rounding.
        rounding = ROUNDING * jnp.finfo(x.dtype).eps * max(map(abs, self.lower + self.upper))
        return jnp.where(excess > rounding, excess, 0.0)


class Interval(Box):
    """The interval from `lower` to `upper`.

    >>> Interval(-1, 3).measure
    4.0
    """

    def __init__(self, lower: Real, upper: Real):
        Box.__init__(self, lower, upper)


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
        return gauss_hermite(self.scale, count)

    def excess(self, x: PointLike) -> Float[Array, ""]:
        return jnp.where(jnp.isfinite(self.point(x)[0]), 0.0, jnp.inf)


class Empirical(Domain):
    """A set of points, each with mass 1/n: inner products are averages over it.

    Any dimension. A point is inside where it is in the bounding box, padded by a tenth.

    >>> Empirical(jnp.zeros((5, 3)) + jnp.arange(5.0)[:, None]).dimension
    3
    """

    points: Float[Array, "n d"]

    def __init__(self, points: ArrayLike | list[Any]):
        self.points = as_points(points)

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


def as_points(points: ArrayLike | list[Any]) -> Float[Array, "n d"]:
    """The points as an array of shape (n, d)."""
    array = as_real("points", points).astype(default_float())
    if array.ndim != 2 or 0 in array.shape:
        raise ValueError(f"points must have shape (n, d) with n, d >= 1, got {array.shape}.")
    require_finite("points", array)
    return array
