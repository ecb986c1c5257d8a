"""Matérn processes on a box, through their spectral density on the Laplacian's modes."""

import math

import jax.numpy as jnp
from jax.scipy.special import gammaln
from jaxtyping import Array, ArrayLike, Float

from ..checks import default_float, require_positive
from ..domains import Domain
from .boundary import BoundaryLike
from .box import LaplacianPower
from .laplace_basis import LaplaceBasis, laplace_basis


class Matern(LaplacianPower):
    """Matérn with smoothness ν and length scale ℓ, reflected at the sides of the box.

    λ = variance · (4π)^(d/2) Γ(ν + d/2)/Γ(ν) κ^(2ν) (κ² + μ)^(−ν−d/2), κ² = 2ν/ℓ², for each
    eigenvalue μ of −Δ. Away from the sides the covariance is the stationary Matérn; at a
    Neumann side a path meets its own mirror image, and the variance doubles.

    >>> from mercer import Interval
    >>> process = Matern(1.5, 0.1, 2.0, Interval(0, 10), num_modes=500)
    >>> round(float(process.kernel(5.0, 5.0)), 6)
    2.0
    """

    basis: LaplaceBasis
    nu: Float[Array, ""]
    lengthscale: Float[Array, ""]
    variance: Float[Array, ""]

    def __init__(
        self,
        nu: ArrayLike,
        lengthscale: ArrayLike,
        variance: ArrayLike,
        domain: Domain,
        num_modes: int,
        boundary: BoundaryLike = "neumann",
    ):
        for name, value in (("nu", nu), ("lengthscale", lengthscale), ("variance", variance)):
            require_positive(name, value)
        self.basis = laplace_basis(domain, num_modes, boundary)
        self.nu = jnp.asarray(nu, default_float())
        self.lengthscale = jnp.asarray(lengthscale, default_float())
        self.variance = jnp.asarray(variance, default_float())

    @property
    def shift(self) -> Float[Array, ""]:
        """κ² = 2ν/ℓ²."""
        return 2 * self.nu / jnp.square(self.lengthscale)

    @property
    def power(self) -> Float[Array, ""]:
        """α = ν + d/2."""
        return self.nu + self.domain.dimension / 2

    @property
    def log_constant(self) -> Float[Array, ""]:
        """Log of the constant by which (κ² − Δ)^(−α) has this variance."""
        gammas = gammaln(self.power) - gammaln(self.nu)
        volume = self.domain.dimension / 2 * math.log(4 * math.pi)
        return jnp.log(self.variance) + volume + gammas + self.nu * jnp.log(self.shift)
