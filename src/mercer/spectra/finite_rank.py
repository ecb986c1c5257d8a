"""Kernels of finite rank, Σᵢ dᵢ fᵢ(s) fᵢ(t) with any functions fᵢ, and sums of spectra."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float

from ..checks import default_float, is_concrete, require_count
from ..domains import Domain, PointLike
from .base import Derived, Spectrum
from .boundary import Boundary
from .gram import Functions, adaptive_points


class FiniteRank(Spectrum):
    """The spectrum of k(s, t) = Σᵢ dᵢ fᵢ(s) fᵢ(t), for functions that need not be orthogonal.

    `functions` maps a point to (f₁(x), …, f_M(x)) and `weights` holds d₁, …, d_M. With the
    singular values Σ and right vectors V of [√w_q fᵢ(x_q) √dᵢ] over quadrature nodes,
    λ = Σ² and φ = Σ⁻¹ Vᵀ D^½ f. Directions that rounding cannot tell from zero are dropped.

    >>> from mercer import Interval
    >>> line = FiniteRank(lambda x: jnp.array([1.0, x[0]]), [1.0, 4.0], Interval(0, 1))
    >>> round(float(line.kernel(0.5, 1.0)), 6)  # 1 + 4 · 0.5 · 1.0
    3.0
    """

    functions: Functions
    domain: Domain
    log_eigenvalues: Float[Array, " K"]
    transform: Float[Array, "K M"]
    num_points: int | tuple[int, ...] = eqx.field(static=True)

    def __init__(
        self,
        functions: Functions,
        weights: ArrayLike | list[Any] | tuple[Any, ...],
        domain: Domain,
        num_points: int | tuple[int, ...] | None = None,
    ):
        weights = jnp.asarray(weights, default_float())
        _check_functions(functions, weights, domain)
        if num_points is None:
            num_points = adaptive_points(functions, domain)
        nodes, rule = domain.quadrature(num_points)
        values = jax.vmap(functions)(nodes) * jnp.sqrt(rule)[:, None] * jnp.sqrt(weights)[None]
        triangle = jnp.linalg.qr(values, mode="r")
        _, singular, right = jnp.linalg.svd(triangle, full_matrices=False)
        kept = _numerical_rank(singular)
        if not is_concrete(singular):
            kept = _rank_of_span(functions, domain, num_points)
        self.functions = functions
        self.domain = domain
        self.num_points = num_points
        self.log_eigenvalues = 2 * jnp.log(singular[:kept])
        self.transform = right[:kept] * jnp.sqrt(weights)[None] / singular[:kept, None]

    def eigenfunctions(self, x: PointLike) -> Float[Array, " K"]:
        return self.transform @ self.functions(self.domain.point(x))

    @property
    def rkhs_order(self) -> float:
        return float("inf")

    def quadrature_points(self) -> int | tuple[int, ...]:
        return self.num_points


class Sum(Derived):
    """S + T: the sum of two independent processes, diagonalised together."""

    first: Spectrum
    second: Spectrum
    spectrum: FiniteRank

    @property
    def trace(self) -> Float[Array, ""]:
        return self.first.trace + self.second.trace

    @property
    def rkhs_order(self) -> float:
        return min(self.first.rkhs_order, self.second.rkhs_order)

    @property
    def path_order(self) -> float:
        return self.rkhs_order - self.domain.dimension / 2

    @property
    def decay(self) -> float:
        return 2 * self.rkhs_order / self.domain.dimension

    @property
    def boundary(self) -> Boundary | None:
        return self.first.boundary if self.first.boundary == self.second.boundary else None

    def kernel(self, s: PointLike, t: PointLike) -> Float[Array, ""]:
        return self.first.kernel(s, t) + self.second.kernel(s, t)


class BothEigenfunctions(eqx.Module):
    """The eigenfunctions of two spectra, one after the other."""

    first: Spectrum
    second: Spectrum

    def __call__(self, x: Float[Array, " d"]) -> Float[Array, " M"]:
        return jnp.concatenate([self.first.eigenfunctions(x), self.second.eigenfunctions(x)])


def add(first: Spectrum, second: Spectrum) -> Sum:
    """The spectrum of the sum of two independent processes on one domain."""
    if not isinstance(second, Spectrum):
        raise ValueError(
            f"only a spectrum can be added to a spectrum, got {type(second).__name__}."
        )
    if not first.domain.same_as(second.domain):
        raise ValueError(
            f"both spectra must live on one domain, got {first.domain} and {second.domain}."
        )
    for part in (first, second):
        part.check()
        _require_known(part)
    functions = BothEigenfunctions(first, second)
    weights = jnp.exp(jnp.concatenate([first.log_eigenvalues, second.log_eigenvalues]))
    points = np.maximum(first.quadrature_points(), second.quadrature_points())
    counts = int(points) if points.ndim == 0 else tuple(int(p) for p in points)
    return Sum(first, second, FiniteRank(functions, weights, first.domain, counts))


def _require_known(part: Spectrum) -> None:
    """Raise if the eigenfunctions are being traced: the rank of the sum would be too."""
    with jax.ensure_compile_time_eval():
        middle = jnp.full(part.domain.dimension, 0.5, default_float())
        known = is_concrete(part.eigenfunctions(middle))
    if not known:
        raise ValueError(
            f"the eigenfunctions of a {type(part).__name__} that is added depend on a number that is "
            "being traced, such as a period: a sum is diagonalised when it is made. Give each part a "
            "network of its own, which the likelihood adds up, or make the sum outside of jax.jit."
        )


def _check_functions(functions: Functions, weights: Float[Array, "..."], domain: Domain) -> None:
    if weights.ndim != 1 or weights.shape[0] == 0:
        raise ValueError(f"weights must have shape (M,) with M >= 1, got {weights.shape}.")
    # A function of its own: JAX compares those that it is given, and arrays may be traced.
    example = jax.ShapeDtypeStruct((domain.dimension,), default_float())
    shape = jax.eval_shape(lambda x: functions(x), example).shape
    if shape != weights.shape:
        raise ValueError(
            f"functions must return one value per weight, shape {weights.shape}, got {shape}."
        )
    if not is_concrete(weights):
        return
    values = np.asarray(weights)
    smallest = np.finfo(default_float()).eps ** 4
    bad = ~(np.isfinite(values) & (values > smallest * np.nanmax(values)))
    if np.any(bad):
        mode = int(np.argmax(bad)) + 1
        raise ValueError(
            f"weight {mode} is {values[mode - 1]:.4g}, lost beside the largest, {np.nanmax(values):.4g}; "
            "weights must be positive and within the float's range: choose a slower decay, such as "
            "a shorter length scale."
        )


def _rank_of_span(functions: Functions, domain: Domain, num_points) -> int:
    """How many of the functions are independent, where their weights are not known yet."""
    with jax.ensure_compile_time_eval():
        nodes, rule = domain.quadrature(num_points)
        values = jax.vmap(functions)(nodes) * jnp.sqrt(rule)[:, None]
        if not is_concrete(values):
            return values.shape[1]
        return _numerical_rank(jnp.linalg.svd(values, compute_uv=False))


def _numerical_rank(singular: Float[Array, " M"]) -> int:
    require_count("number of functions", singular.shape[0])
    if not is_concrete(singular):
        return singular.shape[0]
    values = np.asarray(singular)
    if not np.all(np.isfinite(values)):
        raise ValueError("the functions are NaN or infinite somewhere on the domain.")
    return int(np.sum(values > 10 * np.sqrt(np.finfo(values.dtype).eps) * values[0]))
