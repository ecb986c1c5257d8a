"""The Mercer energy E(u) = ½⟨u, S⁻¹u⟩ = ½ Σₙ cₙ²/λₙ, cₙ = ⟨u, φₙ⟩.

Deterministic energies are roots, E(u) = ½|R u(points)|²: `Quadrature` projects on the modes, `Nodes`
takes the minimum-norm interpolant of the values at any points, for any kernel. Estimates at random
points are in random_energy.py.
"""

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, ArrayLike, Float, PRNGKeyArray

from .checks import default_float, is_concrete, require_count, require_finite
from .domains import Domain, Euclidean, as_points
from .kernels import Kernel, KernelLike, SpectrumKernel, as_kernel
from .spectra import Spectrum
from .spectra.eigenvalues import require_invertible

Function = Callable[[Float[Array, " d"]], Float[Array, ""]]
# Relative to the variance: what keeps a covariance matrix of repeated points invertible.
JITTER = 1e-8


class Energy(eqx.Module):
    """An evaluation, or an unbiased estimate, of ½⟨u, S⁻¹u⟩ for a function u of one point."""

    is_deterministic: eqx.AbstractClassVar[bool]

    def __hash__(self) -> int:
        return object.__hash__(self)

    @property
    @abstractmethod
    def kernel(self) -> Kernel:
        """The covariance of the process that the energy names."""

    @property
    @abstractmethod
    def domain(self) -> Domain:
        """The domain of the functions u."""

    @abstractmethod
    def batch(self, key: PRNGKeyArray) -> Any:
        """The random points and modes of one estimate; None for a deterministic energy."""

    @abstractmethod
    def __call__(self, u: Function, batch: Any = None) -> Float[Array, ""]:
        """The energy of u, or an unbiased estimate of it."""


class RootEnergy(Energy):
    """E(u) = ½|R u(points)|² with a matrix R: the components of R u(points) are white."""

    points: eqx.AbstractVar[Float[Array, "n d"]]

    @abstractmethod
    def whiten(self, values: Float[Array, "n ..."]) -> Float[Array, "r ..."]:
        """R · values, for functions known by their values at the points, one a column."""

    @abstractmethod
    def units(self, x: Float[Array, " d"]) -> Float[Array, " r"]:
        """The functions that white components stand for: u ≈ Σᵢ (R u(points))ᵢ unitsᵢ(x)."""

    def batch(self, key: PRNGKeyArray) -> None:
        return None

    def __call__(self, u: Function, batch: None = None) -> Float[Array, ""]:
        return 0.5 * jnp.sum(jnp.square(self.whiten(values_of(u, self.points))))


class Nodes(RootEnergy):
    """Energy of the minimum-norm interpolant of the values at some points, for any kernel.

    With K = k(points, points) = LLᵀ this is ½|L⁻¹ u(points)|²: the Mercer energy under the measure
    of the points with every mode, in any dimension. `kernel` is a name, a spectrum, or any
    function k(s, t) of two points.

    >>> energy = Nodes("matern32", jnp.linspace(0, 1, 5)[:, None])
    >>> energy(lambda x: jnp.sin(x[0])).shape
    ()
    """

    covariance: Kernel
    points: Float[Array, "n d"]
    factor: Float[Array, "n n"]
    nugget: Float[Array, ""]
    is_deterministic: ClassVar[bool] = True

    def __init__(self, kernel: KernelLike, points: ArrayLike | list[Any]):
        self.covariance = as_kernel(kernel)
        self.points = as_points(points)
        covariances = self.covariance.matrix(self.points, self.points)
        self.nugget = JITTER * jnp.mean(jnp.diag(covariances))
        self.factor = jnp.linalg.cholesky(covariances + self.nugget * jnp.eye(len(covariances)))
        if is_concrete(self.factor) and not np.all(np.isfinite(self.factor)):
            raise ValueError("k(s, t) is not a covariance on these points: it is not positive.")

    @property
    def kernel(self) -> Kernel:
        return self.covariance

    @property
    def domain(self) -> Euclidean:
        return Euclidean(self.points.shape[1])

    def whiten(self, values: Float[Array, "n ..."]) -> Float[Array, "n ..."]:
        return solve_triangular(self.factor, values, lower=True)

    def units(self, x: Float[Array, " d"]) -> Float[Array, " n"]:
        cross = self.covariance.matrix(self.points, x[None])[:, 0]
        # The nugget that keeps K invertible belongs to its points: there R units = I exactly.
        same = jnp.all(self.points == x[None], axis=1)
        return solve_triangular(self.factor, cross + self.nugget * same, lower=True)


class SpectralEnergy(Energy):
    """An energy of the modes of a spectrum."""

    spectrum: eqx.AbstractVar[Spectrum]

    @property
    def kernel(self) -> Kernel:
        return SpectrumKernel(self.spectrum)

    @property
    def domain(self) -> Domain:
        return self.spectrum.domain


class Quadrature(RootEnergy, SpectralEnergy):
    """All modes by Gauss–Legendre quadrature: deterministic, one matrix product.

    `num_points` counts the points to each axis; by default it follows from the spectrum's
    highest frequency. On an `Empirical` domain the points are the domain's own.

    >>> import mercer
    >>> energy = mercer.Quadrature(mercer.BrownianMotion(100))
    >>> round(float(energy(lambda t: jnp.sin(jnp.pi * t[0] / 2))), 6)  # ½∫u'² = π²/16
    0.61685
    """

    spectrum: Spectrum
    points: Float[Array, "n d"]
    weights: Float[Array, " n"]
    projector: Float[Array, "K n"]
    is_deterministic: ClassVar[bool] = True

    def __init__(self, spectrum: Spectrum, num_points: int | tuple[int, ...] | None = None):
        require_usable(spectrum)
        if num_points is None:
            num_points = spectrum.quadrature_points()
        elif not isinstance(num_points, tuple):
            require_count("num_points", num_points)
            num_points = int(num_points)
        self.spectrum = spectrum
        self.points, self.weights = spectrum.domain.quadrature(num_points)
        self.projector, gram = _project(spectrum, self.points, self.weights)
        _check_resolution(gram, num_points, spectrum)

    def coefficients(self, u: Function) -> Float[Array, " K"]:
        """(⟨u, φ₁⟩, …, ⟨u, φ_K⟩)."""
        return self.projector @ values_of(u, self.points)

    def whiten(self, values: Float[Array, "n ..."]) -> Float[Array, "K ..."]:
        roots = jnp.exp(-0.5 * self.spectrum.log_eigenvalues)
        return roots.reshape(-1, *[1] * (values.ndim - 1)) * (self.projector @ values)

    def units(self, x: Float[Array, " d"]) -> Float[Array, " K"]:
        return self.spectrum.features(x)


def require_usable(spectrum: Spectrum) -> None:
    """Raise if the spectrum's eigenvalues cannot define an energy, and name the mode."""
    spectrum.check()
    require_invertible(spectrum.log_eigenvalues)


def values_of(u: Function, points: Float[Array, "n d"]) -> Float[Array, " n"]:
    """The values of u at the points; raises unless u is scalar."""
    values = jax.vmap(u)(points)
    if jnp.shape(values) != points.shape[:1]:
        raise ValueError(f"u(x) must be a scalar, got shape {jnp.shape(values)[1:]}.")
    return values


@eqx.filter_jit
def _project(
    spectrum: Spectrum, points: Float[Array, "n d"], weights: Float[Array, " n"]
) -> tuple[Float[Array, "K n"], Float[Array, "K K"]]:
    """The matrix from values at the points to coefficients, and the modes' inner products."""
    values = jax.vmap(spectrum.eigenfunctions)(points)
    projector = (weights[:, None] * values).T
    return projector, projector @ values


def _check_resolution(gram: Float[Array, "K K"], points: Any, spectrum: Spectrum) -> None:
    """Raise if the quadrature does not see the modes as orthonormal."""
    if not is_concrete(gram):
        return
    require_finite("the eigenfunctions at the quadrature points", gram)
    worst = float(np.max(np.abs(np.asarray(gram) - np.eye(gram.shape[0]))))
    if worst <= np.finfo(default_float()).eps ** 0.4:
        return
    enough = spectrum.quadrature_points()
    remedy = f"use at least {enough} points, or fewer modes"
    if points == enough:
        remedy = (
            "the eigenfunctions themselves are not orthonormal to this accuracy: keep fewer modes, "
            "make a Nystrom spectrum with more num_points or, on a box many times its own size away "
            "from zero, subtract its lower corner from the inputs"
        )
    raise ValueError(
        f"quadrature with {points} points to an axis cannot tell the {gram.shape[0]} modes apart "
        f"(their inner products are off by {worst:.1e}); {remedy}."
    )
