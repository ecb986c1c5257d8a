"""Brownian motion and the Brownian bridge."""

import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float

from ..domains import Box, Domain, Interval, PointLike
from .box import BoxSpectrum
from .laplace_basis import LaplaceBasis, laplace_basis
from .laplacian import Laplacian

UNIT = Interval(0, 1)


class InverseLaplacian(BoxSpectrum):
    """(−Δ)⁻¹ on an interval, whose powers are those of the Laplacian."""

    @property
    def log_eigenvalues(self) -> Float[Array, " K"]:
        return -jnp.log(self.basis.eigenvalues)

    @property
    def rkhs_order(self) -> float:
        return 1.0

    def __pow__(self, power: ArrayLike) -> Laplacian:
        return Laplacian(self.domain, self.num_modes, self.boundary) ** power


class BrownianMotion(InverseLaplacian):
    """Brownian motion that starts at the lower end: k(s, t) = min(s, t) − lower.

    λₙ = (L / (π(n − ½)))², φₙ(t) = √(2/L) sin(π(n − ½)(t − lower)/L).

    >>> float(BrownianMotion(10).kernel(0.25, 0.5))
    0.25
    """

    basis: LaplaceBasis

    def __init__(self, num_modes: int, domain: Domain = UNIT):
        _require_interval(domain)
        self.basis = laplace_basis(domain, num_modes, ("dirichlet", "neumann"))

    @property
    def trace(self) -> Float[Array, ""]:
        return jnp.asarray(self.domain.measure**2 / 2)

    def kernel(self, s: PointLike, t: PointLike) -> Float[Array, ""]:
        first, second = self.domain.point(s)[0], self.domain.point(t)[0]
        return jnp.minimum(first, second) - self.domain.lower[0]


class BrownianBridge(InverseLaplacian):
    """Brownian motion pinned at both ends, k(s, t) = (min − lower)(upper − max) / L.

    λₙ = (L / (πn))², φₙ(t) = √(2/L) sin(πn(t − lower)/L): the inverse Dirichlet Laplacian.

    >>> float(BrownianBridge(10).kernel(0.25, 0.5))
    0.125
    """

    basis: LaplaceBasis

    def __init__(self, num_modes: int, domain: Domain = UNIT):
        _require_interval(domain)
        self.basis = laplace_basis(domain, num_modes, "dirichlet")

    @property
    def trace(self) -> Float[Array, ""]:
        return jnp.asarray(self.domain.measure**2 / 6)

    def kernel(self, s: PointLike, t: PointLike) -> Float[Array, ""]:
        first, second = self.domain.point(s)[0], self.domain.point(t)[0]
        below = jnp.minimum(first, second) - self.domain.lower[0]
        above = self.domain.upper[0] - jnp.maximum(first, second)
        return below * above / self.domain.measure


def _require_interval(domain: Domain) -> None:
    if not isinstance(domain, Box) or domain.dimension != 1:
        raise ValueError(f"Brownian motion and bridge live on an Interval, got {domain}.")
