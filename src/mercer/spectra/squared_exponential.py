"""The squared exponential, k(s, t) = variance · exp(−|s − t|² / (2ℓ²)), on a box or the real line."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float

from ..checks import default_float, is_concrete, require_count, require_positive
from ..domains import Domain, PointLike, RealLine
from .base import Derived, Spectrum
from .boundary import BoundaryLike
from .box import BoxSpectrum
from .heat import box_heat, box_heat_trace
from .laplace_basis import LaplaceBasis, laplace_basis


class SquaredExponential(Derived):
    """The squared exponential process with length scale ℓ: cosines on a box, Hermite functions on R.

    >>> from mercer import RealLine
    >>> process = SquaredExponential(0.5, 1.0, RealLine(1.0), num_modes=60)
    >>> round(float(process.kept_kernel(0.3, 0.3)), 6)
    1.0
    """

    spectrum: "SquaredExponentialBox | SquaredExponentialLine"

    def __init__(
        self,
        lengthscale: ArrayLike,
        variance: ArrayLike,
        domain: Domain,
        num_modes: int,
        boundary: BoundaryLike = "neumann",
    ):
        require_positive("lengthscale", lengthscale)
        require_positive("variance", variance)
        scales = jnp.asarray(lengthscale, default_float()), jnp.asarray(variance, default_float())
        if isinstance(domain, RealLine):
            require_count("num_modes", num_modes)
            self.spectrum = SquaredExponentialLine(domain, num_modes, *scales)
        else:
            self.spectrum = SquaredExponentialBox(
                laplace_basis(domain, num_modes, boundary), *scales
            )

    @property
    def lengthscale(self) -> Float[Array, ""]:
        return self.spectrum.lengthscale

    @property
    def variance(self) -> Float[Array, ""]:
        return self.spectrum.variance

    def with_modes(self, num_modes: int) -> "SquaredExponential":
        require_count("num_modes", num_modes)
        return eqx.tree_at(lambda s: s.spectrum, self, self.spectrum.with_modes(num_modes))


class SquaredExponentialBox(BoxSpectrum):
    """Reflected at the sides of a box: λ = variance (2πℓ²)^(d/2) exp(−ℓ²μ/2)."""

    basis: LaplaceBasis
    lengthscale: Float[Array, ""]
    variance: Float[Array, ""]

    @property
    def log_constant(self) -> Float[Array, ""]:
        """Log of variance (2πℓ²)^(d/2)."""
        log_volume = math.log(2 * math.pi) + 2 * jnp.log(self.lengthscale)
        return jnp.log(self.variance) + self.domain.dimension / 2 * log_volume

    @property
    def time(self) -> Float[Array, ""]:
        """The heat kernel at time ℓ²/2 has this shape."""
        return jnp.square(self.lengthscale) / 2

    @property
    def log_eigenvalues(self) -> Float[Array, " K"]:
        return self.log_constant - self.time * self.basis.eigenvalues

    @property
    def trace(self) -> Float[Array, ""]:
        return jnp.exp(self.log_constant) * box_heat_trace(self.domain, self.boundary)(self.time)

    @property
    def rkhs_order(self) -> float:
        return float("inf")

    def kernel(self, s: PointLike, t: PointLike) -> Float[Array, ""]:
        heat = box_heat(self.domain, self.boundary, self.domain.point(s), self.domain.point(t))
        return jnp.exp(self.log_constant) * heat(self.time)


class SquaredExponentialLine(Spectrum):
    """On the real line under N(0, σ²), by normalised Hermite functions.

    With a = 1/(4σ²), b = 1/(2ℓ²), c = √(a² + 2ab), A = a + b + c:
    λₙ = variance √(2a/A) (b/A)ⁿ⁻¹, φₙ(x) = (πc/a)^¼ exp(ax²) ψₙ₋₁(√(2c) x), n ≥ 1.
    """

    domain: RealLine
    kept: int = eqx.field(static=True)
    lengthscale: Float[Array, ""]
    variance: Float[Array, ""]

    @property
    def _constants(self) -> tuple[float, Float[Array, ""], Float[Array, ""]]:
        a = 1 / (4 * self.domain.scale**2)
        b = 1 / (2 * jnp.square(self.lengthscale))
        return a, b, jnp.sqrt(a * a + 2 * a * b)

    @property
    def log_eigenvalues(self) -> Float[Array, " K"]:
        a, b, c = self._constants
        total = a + b + c
        first = jnp.log(self.variance) + 0.5 * jnp.log(2 * a / total)
        return first + jnp.arange(self.kept) * jnp.log(b / total)

    @property
    def trace(self) -> Float[Array, ""]:
        return self.variance

    @property
    def rkhs_order(self) -> float:
        return float("inf")

    def eigenfunctions(self, x: PointLike) -> Float[Array, " K"]:
        a, _, c = self._constants
        x = self.domain.point(x)[0]
        growth = a * jnp.square(x) + 0.25 * jnp.log(jnp.pi * c / a)
        return hermite_functions(jnp.sqrt(2 * c) * x, self.kept, growth)

    def kernel(self, s: PointLike, t: PointLike) -> Float[Array, ""]:
        gap = self.domain.point(s)[0] - self.domain.point(t)[0]
        return self.variance * jnp.exp(-0.5 * jnp.square(gap / self.lengthscale))

    def with_modes(self, num_modes: int) -> "SquaredExponentialLine":
        return SquaredExponentialLine(self.domain, num_modes, self.lengthscale, self.variance)

    def quadrature_points(self) -> int:
        with jax.ensure_compile_time_eval():
            a, _, c = self._constants
        if not is_concrete(c):
            raise ValueError("the length scale is being traced: give the quadrature num_points.")
        ratio = float(c) / a
        # Gauss-Hermite nodes of N(0, σ²) must lie as densely as the zeros of ψ(√(2c) x).
        return int(np.ceil((ratio + 1) * (self.kept + 16)))


def hermite_functions(
    y: Float[Array, ""], count: int, log_factor: ArrayLike = 0.0
) -> Float[Array, " count"]:
    """exp(log_factor) · ψₙ(y) for n < count, ψₙ the orthonormal Hermite functions.

    ψₙ₊₁ = √(2/(n+1)) y ψₙ − √(n/(n+1)) ψₙ₋₁ is stable, but ψ₀ = π^(−¼) exp(−y²/2) underflows
    far out, where later ψₙ are of order one; the scale is therefore carried as a logarithm.
    """

    def step(carry, n):
        previous, current, log_scale = carry
        following = jnp.sqrt(2 / (n + 1)) * y * current - jnp.sqrt(n / (n + 1)) * previous
        size = jnp.maximum(jnp.abs(current), jnp.abs(following))
        size = jnp.where(size > 0, size, 1.0)
        carry = current / size, following / size, log_scale + jnp.log(size)
        return carry, current * jnp.exp(log_scale)

    log_start = -0.5 * jnp.square(y) - 0.25 * math.log(math.pi) + log_factor
    start = jnp.zeros_like(y), jnp.ones_like(y), log_start
    return jax.lax.scan(step, start, jnp.arange(count, dtype=y.dtype))[1]
