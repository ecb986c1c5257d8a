"""Powers of the inverse shifted Laplacian, (κ² − Δ)^(−α), on a box."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float

from ..checks import default_float, is_concrete
from ..domains import Domain, PointLike
from .boundary import BoundaryLike
from .box import BoxSpectrum
from .eigenvalues import check_eigenvalues
from .heat import box_heat, box_heat_trace, integrate_times
from .laplace_basis import LaplaceBasis, laplace_basis


class Laplacian(BoxSpectrum):
    """(shift − Δ)^(−power) on a box, with λ = (shift + μ)^(−power) for each eigenvalue μ of −Δ.

    `boundary` is "dirichlet", "neumann" or "periodic", one for each axis, or a pair of
    sides for each axis. `shift` is κ², zero for the paper's Δ^(−α); `S ** alpha` sets the
    power. A Gaussian process needs power > d/2.

    >>> import mercer
    >>> smooth = mercer.Laplacian(mercer.Interval(0, 1), num_modes=100) ** 2
    >>> float(smooth.kernel(0.5, 0.5))  # 1/48
    0.0208333...
    """

    basis: LaplaceBasis
    shift: Float[Array, ""]
    power: Float[Array, ""]

    def __init__(
        self,
        domain: Domain,
        num_modes: int,
        boundary: BoundaryLike = "dirichlet",
        shift: ArrayLike = 0.0,
    ):
        self.basis = laplace_basis(domain, num_modes, boundary)
        self.shift = jnp.asarray(shift, default_float())
        self.power = jnp.ones((), default_float())
        if is_concrete(shift) and not (np.isfinite(shift) and shift >= 0):
            raise ValueError(f"shift must be finite and not negative, got {shift}.")
        free = all("dirichlet" not in sides for sides in self.boundary)
        if is_concrete(shift) and shift == 0 and free:
            raise ValueError(
                "mode 1 is constant and has an infinite eigenvalue, since no side is 'dirichlet' "
                "and shift is 0; give a positive shift."
            )

    @property
    def lowest(self) -> Float[Array, ""]:
        """The smallest eigenvalue of −Δ."""
        return self.basis.eigenvalues[0]

    @property
    def log_eigenvalues(self) -> Float[Array, " K"]:
        return -self.power * jnp.log(self.shift + self.basis.eigenvalues)

    @property
    def trace(self) -> Float[Array, ""]:
        require_trace_class(self.power, self.domain.dimension)
        heat = box_heat_trace(self.domain, self.boundary)
        return integrate_times(heat, self.domain, self.power, self.shift, self.lowest)

    @property
    def rkhs_order(self) -> float:
        return float(self.power)

    def kernel(self, s: PointLike, t: PointLike) -> Float[Array, ""]:
        require_trace_class(self.power, self.domain.dimension)
        heat = box_heat(self.domain, self.boundary, self.domain.point(s), self.domain.point(t))
        return integrate_times(heat, self.domain, self.power, self.shift, self.lowest)

    def check(self) -> None:
        require_trace_class(self.power, self.domain.dimension)
        check_eigenvalues(self.log_eigenvalues)

    def __pow__(self, power: ArrayLike) -> "Laplacian":
        total = self.power * power
        require_trace_class(total, self.domain.dimension)
        return eqx.tree_at(lambda s: s.power, self, jnp.asarray(total, default_float()))


def require_trace_class(power: ArrayLike, dimension: int) -> None:
    """Raise unless Σ μ^(−power) converges for the eigenvalues μ of −Δ."""
    if is_concrete(power) and not float(power) > dimension / 2:
        raise ValueError(
            f"(shift - Laplacian)^(-{float(power):g}) is not trace class in {dimension} dimensions: "
            f"its eigenvalues are not summable; use a power above d/2 = {dimension / 2:g}."
        )
