"""Steady flow through a box by finite volumes."""

import functools
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import lineax as lx
import numpy as np
import optimistix as optx
from jax.scipy.ndimage import map_coordinates
from jaxtyping import Array, ArrayLike, Bool, Float

from ..checks import default_float, is_concrete, require_count, require_finite
from ..domains import Box, require_inside
from ..spectra.boundary import Boundary, BoundaryLike, Sides, parse_boundary
from .conduction import require_conductivity

TOLERANCE = 1e-10
# What may be left of the equations, as a share of their right side.
ACCEPTED = 1e-6
MAX_ITERATIONS = 500
# A function of a point, its values in every cell, or a number.
Quantity = Callable[[Array], Array] | ArrayLike


class Flow(eqx.Module):
    """Steady flow −div(κ ∇T) = source through a box, by finite volumes of second order.

    `cells` counts the cells of each axis. `boundary` says what is known at each side, in the words
    of `Laplacian`, and `values` what it is: T at a "dirichlet" side, at a "neumann" side the flow
    in, κ ∂T/∂n; one number for all, or a pair for each axis.

    >>> from mercer import Box
    >>> flow = Flow(Box([0.0, 0.0], [1.0, 1.0]), (16, 16))
    >>> pressure = flow.solve(lambda x: jnp.exp(x[0]), source=1.0)
    >>> flow.at(pressure, jnp.array([[0.5, 0.5]])).shape
    (1,)
    """

    domain: Box
    cells: tuple[int, ...] = eqx.field(static=True)
    boundary: Boundary = eqx.field(static=True)
    values: Float[Array, "d 2"]

    def __init__(
        self,
        domain: Box,
        cells: tuple[int, ...] | int,
        boundary: BoundaryLike = "dirichlet",
        values: ArrayLike | list[Any] | tuple[Any, ...] = 0.0,
    ):
        if not isinstance(domain, Box):
            raise ValueError(f"domain must be an Interval or a Box, got {domain}.")
        self.domain, dimension = domain, domain.dimension
        self.cells = tuple(cells) if isinstance(cells, tuple) else (cells,) * dimension
        if len(self.cells) != dimension:
            raise ValueError(f"cells needs one count per axis, {dimension} of them, got {cells}.")
        for count in self.cells:
            require_count("cells", count, at_least=2)
        self.boundary = parse_boundary(boundary, dimension)
        self.values = _side_values(values, dimension)
        if any("periodic" in sides for sides in self.boundary):
            raise ValueError("a flow has 'dirichlet' and 'neumann' sides only; got 'periodic'.")
        if all("dirichlet" not in sides for sides in self.boundary):
            raise ValueError("without a 'dirichlet' side T is known up to a constant; give one.")

    @property
    def centres(self) -> Float[Array, "n d"]:
        """The middle of each cell, the last axis fastest."""
        axes = [(np.arange(n) + 0.5) / n for n in self.cells]
        unit = np.stack(np.meshgrid(*axes, indexing="ij"), -1).reshape(-1, len(self.cells))
        return self.domain.from_unit(jnp.asarray(unit))

    def solve(self, kappa: Quantity, source: Quantity = 0.0) -> Float[Array, "..."]:
        """T in every cell for a conductivity κ(x): conjugate gradients by Lineax.

        `kappa` and `source` are functions of a point, values in every cell, or numbers.
        """
        conductivity = self._in_cells("kappa", kappa)
        is_valid = require_conductivity(conductivity)
        field, converged = _solve_linear(self, conductivity, self._in_cells("source", source))
        return jnp.where(is_valid, _require_converged(field, converged), jnp.nan)

    def solve_nonlinear(self, kappa: Callable, source: Quantity = 0.0) -> Float[Array, "..."]:
        """T in every cell for a conductivity κ(x, T): Newton's method by Optimistix."""
        centres, sources = self.centres, self._in_cells("source", source)

        def conductivity(field):
            return jax.vmap(kappa)(centres, field.reshape(-1)).reshape(self.cells)

        start = jax.lax.stop_gradient(self._start())
        # Without units, so that one tolerance suits kelvin and pascal.
        unit = jax.lax.stop_gradient(jnp.mean(conductivity(start)) * (1 + jnp.max(jnp.abs(start))))

        def residual(field):
            imbalance = self._outflow(conductivity(field), field, self.values) - sources
            return imbalance * np.min(self._spacing) ** 2 / unit

        field = jax.lax.custom_root(residual, start, _newton, _solve_tangent)
        field = _require_converged(field, jnp.max(jnp.abs(residual(field))) <= ACCEPTED)
        return jnp.where(require_conductivity(conductivity(field)), field, jnp.nan)

    def at(self, field: Float[Array, "..."], points: ArrayLike | list[Any]) -> Float[Array, " p"]:
        """The field at points, linear between the middles of cells and the sides."""
        with jax.ensure_compile_time_eval():
            points = jnp.asarray(points, default_float())
            require_inside(self.domain, points, "points")
        unit, indices = jax.vmap(self.domain.to_unit)(points), []
        for axis, count in enumerate(self.cells):
            field = self._pad(field, axis)
            places = np.concatenate([[0.0], (np.arange(count) + 0.5) / count, [1.0]])
            indices.append(jnp.interp(unit[:, axis], places, np.arange(count + 2.0)))
        return map_coordinates(field, indices, order=1)

    @property
    def _spacing(self) -> np.ndarray:
        return np.array(self.domain.lengths) / np.array(self.cells)

    def _in_cells(self, name: str, quantity: Quantity) -> Array:
        if callable(quantity):
            return jax.vmap(quantity)(self.centres).reshape(self.cells)
        values = jnp.asarray(quantity, default_float())
        if values.shape not in ((), self.cells):
            raise ValueError(f"{name} needs values in {self.cells} cells, got {values.shape}.")
        return jnp.broadcast_to(values, self.cells)

    def _outflow(self, conductivity: Array, field: Array, values: Array) -> Array:
        """−div(κ ∇T) in every cell: what leaves through its faces, over its volume."""
        total = jnp.zeros(self.cells)
        for axis, (sides, spacing) in enumerate(zip(self.boundary, self._spacing, strict=True)):
            k, t = jnp.moveaxis(conductivity, axis, 0), jnp.moveaxis(field, axis, 0)
            between = 2 * k[:-1] * k[1:] / (k[:-1] + k[1:])
            enters = _inflow(sides[0], k[0], t[0], values[axis, 0], spacing)
            leaves = -_inflow(sides[1], k[-1], t[-1], values[axis, 1], spacing)
            inner = -between * (t[1:] - t[:-1]) / spacing
            flux = jnp.concatenate([enters[None], inner, leaves[None]])
            total = total + jnp.moveaxis((flux[1:] - flux[:-1]) / spacing, 0, axis)
        return total

    def _poisson(self, right: Array) -> Array:
        """The solution for κ = 1 and sides at zero, by the eigenvectors of each axis."""
        axes = zip(self.cells, self.boundary, self._spacing.tolist(), strict=True)
        rates, modes = zip(*(_axis_modes(*axis) for axis in axes), strict=True)
        for axis, vectors in enumerate(modes):
            right = _along(vectors.T, right, axis)
        right = right / functools.reduce(np.add.outer, rates)
        for axis, vectors in enumerate(modes):
            right = _along(vectors, right, axis)
        return right

    def _start(self) -> Array:
        """The field between the Dirichlet sides for κ = 1, nothing flowing in elsewhere."""
        known = np.array([[side == "dirichlet" for side in sides] for sides in self.boundary])
        values, zero = jnp.where(known, self.values, 0.0), jnp.zeros(self.cells)
        return self._poisson(-self._outflow(jnp.ones(self.cells), zero, values))

    def _pad(self, field: Array, axis: int) -> Array:
        """The field with its values at both sides of an axis: known ones, or by a straight line."""
        t = jnp.moveaxis(field, axis, 0)
        ends = [1.5 * t[0] - 0.5 * t[1], 1.5 * t[-1] - 0.5 * t[-2]]
        lower, upper = (
            jnp.full_like(end, self.values[axis, i]) if side == "dirichlet" else end
            for i, (side, end) in enumerate(zip(self.boundary[axis], ends, strict=True))
        )
        return jnp.moveaxis(jnp.concatenate([lower[None], t, upper[None]]), 0, axis)


@eqx.filter_jit
def _solve_linear(flow: Flow, conductivity: Array, source: Array) -> tuple[Array, Array]:
    """T in every cell, and whether the iteration converged.

    The preconditioner κ^(−½) (−Δ)⁻¹ κ^(−½) leaves a number of iterations that hardly grows with
    the cells or with the contrast of a smooth κ.
    """
    zero = jnp.zeros(flow.cells)
    right = source - flow._outflow(conductivity, zero, flow.values)

    def apply(field):
        return flow._outflow(conductivity, field, jnp.zeros_like(flow.values))

    root = jax.lax.stop_gradient(jnp.sqrt(conductivity))
    options = {"preconditioner": _positive(lambda r: flow._poisson(r / root) / root, zero)}
    solver = lx.CG(TOLERANCE, TOLERANCE, max_steps=MAX_ITERATIONS)

    def conjugate(apply, right):
        operator = _positive(apply, zero)
        return lx.linear_solve(operator, right, solver, options=options, throw=False).value

    field = jax.lax.custom_linear_solve(apply, right, conjugate, symmetric=True)
    residual = jnp.max(jnp.abs(apply(field) - right))
    return field, residual <= ACCEPTED * jnp.max(jnp.abs(right))


def _newton(residual: Callable[[Array], Array], start: Array) -> Array:
    """A root by Newton's method, or whatever it came to."""
    tags = frozenset({lx.tridiagonal_tag}) if start.ndim == 1 else frozenset()
    solver = optx.Newton(TOLERANCE, TOLERANCE, linear_solver=lx.AutoLinearSolver(well_posed=True))
    return optx.root_find(
        lambda field, _: residual(field), solver, start, tags=tags, max_steps=100, throw=False
    ).value


def _solve_tangent(linear: Callable[[Array], Array], right: Array) -> Array:
    """The field that a linear function maps to the right side: the implicit function theorem."""
    matrix = jax.jacfwd(linear)(right).reshape(right.size, right.size)
    return jnp.linalg.solve(matrix, right.reshape(-1)).reshape(right.shape)


def _inflow(side: str, conductivity: Array, field: Array, value: Array, spacing: float) -> Array:
    """What enters a cell through its face at a side, half a cell away."""
    if side == "neumann":
        return jnp.full_like(field, value)
    return 2 * conductivity * (value - field) / spacing


@functools.lru_cache(maxsize=32)
def _axis_modes(count: int, sides: Sides, spacing: float) -> tuple[np.ndarray, np.ndarray]:
    """Eigenvalues and eigenvectors of −d²/dx² on the cells of one axis."""
    matrix = 2 * np.eye(count) - np.eye(count, k=1) - np.eye(count, k=-1)
    for end, side in zip((0, -1), sides, strict=True):
        matrix[end, end] = 3.0 if side == "dirichlet" else 1.0
    rates, modes = np.linalg.eigh(matrix / spacing**2)
    # A constant between Neumann sides has the rate zero, but for rounding.
    return np.maximum(rates, 0.0), modes


def _along(matrix: np.ndarray, field: Array, axis: int) -> Array:
    """The matrix applied to one axis of the field."""
    return jnp.moveaxis(jnp.tensordot(jnp.asarray(matrix), field, (1, axis)), 0, axis)


def _positive(function: Callable[[Array], Array], like: Array) -> lx.FunctionLinearOperator:
    """A linear function that is symmetric and positive, as Lineax wants it."""
    shape = jax.ShapeDtypeStruct(like.shape, like.dtype)
    return lx.FunctionLinearOperator(function, shape, lx.positive_semidefinite_tag)


def _require_converged(field: Array, converged: Bool[Array, ""]) -> Array:
    """The field, or NaN where the iteration failed; raises where that is known."""
    if is_concrete(converged) and not converged:
        raise RuntimeError(
            "the iteration did not converge; use fewer cells, or a kappa that varies less."
        )
    return jnp.where(converged, field, jnp.nan)


def _side_values(values: Any, dimension: int) -> Float[Array, "d 2"]:
    array = jnp.asarray(values, default_float())
    if array.shape not in ((), (dimension, 2)) and not (dimension == 1 and array.shape == (2,)):
        raise ValueError(
            f"values must be a number or have shape ({dimension}, 2), a pair for each axis, got "
            f"{array.shape}."
        )
    require_finite("values", array)
    return jnp.full((dimension, 2), array) if array.ndim == 0 else array.reshape(dimension, 2)
