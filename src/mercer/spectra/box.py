"""What spectra on the eigenfunctions of the Laplacian share."""

import equinox as eqx
from jaxtyping import Array, Float

from ..domains import Box, PointLike
from .base import Spectrum
from .boundary import Boundary
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

    def project(
        self, points: Float[Array, "n d"], values: Float[Array, " n"]
    ) -> Float[Array, " K"]:
        return self.basis.project(points, values)

    def quadrature_points(self) -> tuple[int, ...]:
        return self.basis.quadrature_points()

    def with_modes(self, num_modes: int) -> "BoxSpectrum":
        basis = laplace_basis(self.domain, num_modes, self.boundary)
        return eqx.tree_at(lambda s: s.basis, self, basis)
