"""Powers of the inverse shifted Laplacian, (κ² − Δ)^(−α), on a box."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float

from ..checks import default_float, is_concrete
from ..domains import Domain
from .boundary import BoundaryLike
from .box import LaplacianPower, require_trace_class
from .eigenvalues import check_eigenvalues
from .laplace_basis import LaplaceBasis, laplace_basis


class Laplacian(LaplacianPower):
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
    def log_constant(self) -> Float[Array, ""]:
        return jnp.zeros(())

    def check(self) -> None:
        require_trace_class(self.power, self.domain.dimension)
        check_eigenvalues(self.log_eigenvalues)

    def __pow__(self, power: ArrayLike) -> "Laplacian":
        total = self.power * power
        require_trace_class(total, self.domain.dimension)
        return eqx.tree_at(lambda s: s.power, self, jnp.asarray(total, default_float()))
