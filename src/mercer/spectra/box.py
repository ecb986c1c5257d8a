"""Spectra on the eigenfunctions of the Laplacian."""

from collections.abc import Callable

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float

from ..checks import is_concrete
from ..domains import Box, PointLike, Points
from .base import Spectrum
from .boundary import Boundary
from .heat import Time, box_heat, box_heat_trace, integrate_times
from .laplace_basis import LaplaceBasis, laplace_basis


class BoxSpectrum(Spectrum):
    """A function of the Laplacian on a box: its eigenfunctions with other eigenvalues."""

    basis: eqx.AbstractVar[LaplaceBasis]

    @property
    def domain(self) -> Box:
        return self.basis.domain

    @property
    def boundary(self) -> Boundary:
        return self.basis.boundary

    def eigenfunctions(self, x: PointLike) -> Float[Array, " K"]:
        return self.basis(x)

    def project(self, points: Points, values: Float[Array, " n"]) -> Float[Array, " K"]:
        return self.basis.project(points, values)

    def quadrature_points(self) -> tuple[int, ...]:
        return self.basis.quadrature_points()

    def with_modes(self, num_modes: int) -> "BoxSpectrum":
        basis = laplace_basis(self.domain, num_modes, self.boundary)
        return eqx.tree_at(lambda s: s.basis, self, basis)


class LaplacianPower(BoxSpectrum):
    """constant · (shift − Δ)^(−power): kernel and trace are integrals of the heat kernel."""

    shift: eqx.AbstractVar[Float[Array, ""]]
    power: eqx.AbstractVar[Float[Array, ""]]
    log_constant: eqx.AbstractVar[Float[Array, ""]]

    @property
    def log_eigenvalues(self) -> Float[Array, " K"]:
        return self.log_constant - self.power * jnp.log(self.shift + self.basis.eigenvalues)

    @property
    def trace(self) -> Float[Array, ""]:
        return self._integrate(box_heat_trace(self.domain, self.boundary))

    @property
    def rkhs_order(self) -> float:
        return float(self.power)

    def kernel(self, s: PointLike, t: PointLike) -> Float[Array, ""]:
        s, t = self.domain.point(s), self.domain.point(t)
        return self._integrate(box_heat(self.domain, self.boundary, s, t))

    def _integrate(self, heat: Callable[[Time], Float[Array, ""]]) -> Float[Array, ""]:
        require_trace_class(self.power, self.domain.dimension)
        lowest = self.basis.eigenvalues[0]
        integral = integrate_times(heat, self.domain, self.power, self.shift, lowest)
        return jnp.exp(self.log_constant) * integral


def require_trace_class(power: ArrayLike, dimension: int) -> None:
    """Raise unless Σ μ^(−power) converges for the eigenvalues μ of −Δ."""
    if is_concrete(power) and not float(power) > dimension / 2:
        raise ValueError(
            f"(shift - Laplacian)^(-{float(power):g}) is not trace class in {dimension} dimensions: "
            f"its eigenvalues are not summable; use a power above d/2 = {dimension / 2:g}."
        )
