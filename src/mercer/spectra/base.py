"""The base class of spectra, and their algebra: scaling, powers, truncation."""

from abc import abstractmethod

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float

from ..checks import default_float, is_concrete, require_count, require_positive
from ..domains import Domain, PointLike, Points
from .boundary import Boundary
from .eigenvalues import check_eigenvalues, decay_order, warn_unless_summable
from .gram import adaptive_points


class Spectrum(eqx.Module):
    """Eigenpairs (λₙ, φₙ) of a covariance operator on a domain, λ₁ ≥ λ₂ ≥ ….

    A spectrum of one's own is a field `domain`, a field or property `log_eigenvalues`
    and a method `eigenfunctions`:

    >>> class Cosines(Spectrum):
    ...     domain: Domain
    ...     @property
    ...     def log_eigenvalues(self):
    ...         return -2.0 * jnp.log(jnp.arange(1.0, 6.0))
    ...     def eigenfunctions(self, x):
    ...         t = self.domain.point(x)[0]
    ...         return jnp.sqrt(2.0) * jnp.cos(jnp.pi * jnp.arange(1.0, 6.0) * t)
    >>> import mercer
    >>> Cosines(mercer.Interval(0, 1)).num_modes
    5
    """

    domain: eqx.AbstractVar[Domain]
    log_eigenvalues: eqx.AbstractVar[Float[Array, " K"]]

    def __hash__(self) -> int:
        return object.__hash__(self)

    @abstractmethod
    def eigenfunctions(self, x: PointLike) -> Float[Array, " K"]:
        """(φ₁(x), …, φ_K(x)) at one point, orthonormal under the domain's measure."""

    def features(self, x: PointLike) -> Float[Array, " K"]:
        """√λₙ φₙ(x): times independent standard normal numbers, the process cut after K modes."""
        return jnp.exp(0.5 * self.log_eigenvalues) * self.eigenfunctions(x)

    def kernel(self, s: PointLike, t: PointLike) -> Float[Array, ""]:
        """Covariance k(s, t) of the process; the sum over the kept modes where no more is known."""
        return self.kept_kernel(s, t)

    def kept_kernel(self, s: PointLike, t: PointLike) -> Float[Array, ""]:
        """The sum over the kept modes, Σₙ λₙ φₙ(s) φₙ(t)."""
        products = self.eigenfunctions(s) * self.eigenfunctions(t)
        return jnp.sum(jnp.exp(self.log_eigenvalues) * products)

    def project(self, points: Points, values: Float[Array, " n"]) -> Float[Array, " K"]:
        """Σᵢ valuesᵢ φ(xᵢ): inner products with all modes, for values weighted by a rule."""
        return values @ jax.vmap(self.eigenfunctions)(points)

    def tail_variance(self, x: PointLike) -> Float[Array, ""]:
        """Variance that the kept modes miss, k(x, x) − Σₙ λₙ φₙ(x)²."""
        return jnp.maximum(self.kernel(x, x) - self.kept_kernel(x, x), 0.0)

    @property
    def num_modes(self) -> int:
        return self.log_eigenvalues.shape[0]

    @property
    def trace(self) -> Float[Array, ""]:
        """∫ k(x, x) dμ, the sum of all eigenvalues; of the kept ones where no more is known."""
        return jnp.sum(jnp.exp(self.log_eigenvalues))

    @property
    def cumulative_ratio(self) -> Float[Array, " K"]:
        """Share of the trace in the first 1, 2, …, K modes."""
        return jnp.cumsum(jnp.exp(self.log_eigenvalues)) / self.trace

    def num_modes_for(self, share: float) -> int:
        """How many modes hold the given share of the variance.

        >>> import mercer
        >>> mercer.BrownianMotion(100).num_modes_for(0.99)
        21
        """
        ratio = np.asarray(self.cumulative_ratio)
        if not 0 < share <= 1:
            raise ValueError(f"share must be in (0, 1], got {share}.")
        if ratio[-1] < share:
            raise ValueError(
                f"the {self.num_modes} modes kept hold {ratio[-1]:.4%} of the variance, less than "
                f"the {share:.4%} asked for; make the spectrum with more modes."
            )
        return int(np.argmax(ratio >= share)) + 1

    @property
    def rkhs_order(self) -> float:
        """Sobolev order r of the space that posterior means live in; paths have r − d/2.

        Estimated from the decay λₙ ∝ n^(−2r/d) of the later half of the modes unless the
        family knows it; infinite for faster than algebraic decay.
        """
        return decay_order(np.asarray(self.log_eigenvalues), self.domain.dimension)

    @property
    def path_order(self) -> float:
        """Sobolev order of the paths: they have every order below it."""
        return self.rkhs_order - self.domain.dimension / 2

    @property
    def decay(self) -> float:
        """The exponent p of λₙ ∝ n^(−p); infinite if faster than algebraic."""
        return 2 * self.rkhs_order / self.domain.dimension

    def quadrature_points(self) -> int | tuple[int, ...]:
        """Points to each axis that integrate products of the eigenfunctions."""
        return adaptive_points(self.eigenfunctions, self.domain)

    @property
    def boundary(self) -> Boundary | None:
        """The boundary conditions of the eigenfunctions on a box, or None."""
        return None

    def check(self) -> None:
        """Raise if these eigenvalues cannot define a prior, and name the mode."""
        check_eigenvalues(self.log_eigenvalues)
        warn_unless_summable(self.log_eigenvalues)

    def with_variance(self, variance: ArrayLike) -> "Spectrum":
        """The same spectrum scaled so that k(x, x), averaged over the domain, is `variance`."""
        require_positive("variance", variance)
        return (variance * self.domain.measure / self.trace) * self

    def __mul__(self, factor: ArrayLike) -> "Spectrum":
        require_positive("factor", factor)
        return Scaled(self, jnp.log(jnp.asarray(factor, default_float())))

    def __rmul__(self, factor: ArrayLike) -> "Spectrum":
        return self * factor

    # NumPy numbers would otherwise multiply element by element before we are asked.
    __array_ufunc__ = None

    def __pow__(self, power: ArrayLike) -> "Spectrum":
        require_positive("power", power)
        return Powered(self, jnp.asarray(power, default_float()))

    def __getitem__(self, modes: slice) -> "Spectrum":
        if not isinstance(modes, slice) or modes.start or modes.step not in (None, 1):
            raise ValueError(f"a spectrum is cut by S[:K], its K leading modes; got S[{modes}].")
        count = self.num_modes if modes.stop is None else modes.stop
        require_count("K in S[:K]", count)
        if count > self.num_modes:
            raise ValueError(
                f"S[:{count}] asks for more than the {self.num_modes} modes there are."
            )
        return self.with_modes(count)

    def with_modes(self, num_modes: int) -> "Spectrum":
        """The same process with another number of modes: fewer, or more where the family has them."""
        if num_modes > self.num_modes:
            raise ValueError(
                f"this spectrum has {self.num_modes} modes and no way to make {num_modes}."
            )
        return Truncated(self, num_modes)

    def __add__(self, other: "Spectrum") -> "Spectrum":
        from .finite_rank import add

        return add(self, other)


class Derived(Spectrum):
    """A spectrum made from another one, like it in all that it does not say itself."""

    spectrum: eqx.AbstractVar[Spectrum]

    @property
    def domain(self) -> Domain:
        return self.spectrum.domain

    @property
    def log_eigenvalues(self) -> Float[Array, " K"]:
        return self.spectrum.log_eigenvalues

    @property
    def boundary(self) -> Boundary | None:
        return self.spectrum.boundary

    @property
    def rkhs_order(self) -> float:
        return self.spectrum.rkhs_order

    @property
    def path_order(self) -> float:
        return self.spectrum.path_order

    @property
    def decay(self) -> float:
        return self.spectrum.decay

    @property
    def trace(self) -> Float[Array, ""]:
        return self.spectrum.trace

    def eigenfunctions(self, x: PointLike) -> Float[Array, " K"]:
        return self.spectrum.eigenfunctions(x)

    def kernel(self, s: PointLike, t: PointLike) -> Float[Array, ""]:
        return self.spectrum.kernel(s, t)

    def project(self, points: Points, values: Float[Array, " n"]) -> Float[Array, " K"]:
        return self.spectrum.project(points, values)

    def quadrature_points(self) -> int | tuple[int, ...]:
        return self.spectrum.quadrature_points()


class Scaled(Derived):
    """c · S: every eigenvalue times a constant."""

    spectrum: Spectrum
    log_factor: Float[Array, ""]

    @property
    def log_eigenvalues(self) -> Float[Array, " K"]:
        return self.spectrum.log_eigenvalues + self.log_factor

    @property
    def trace(self) -> Float[Array, ""]:
        return jnp.exp(self.log_factor) * self.spectrum.trace

    def kernel(self, s: PointLike, t: PointLike) -> Float[Array, ""]:
        return jnp.exp(self.log_factor) * self.spectrum.kernel(s, t)

    def check(self) -> None:
        self.spectrum.check()
        check_eigenvalues(self.log_eigenvalues)

    def with_modes(self, num_modes: int) -> Spectrum:
        return Scaled(self.spectrum.with_modes(num_modes), self.log_factor)

    def __mul__(self, factor: ArrayLike) -> Spectrum:
        require_positive("factor", factor)
        return Scaled(self.spectrum, self.log_factor + jnp.log(jnp.asarray(factor)))

    def __pow__(self, power: ArrayLike) -> Spectrum:
        return Scaled(self.spectrum**power, self.log_factor * power)


class Powered(Derived):
    """S^α: every eigenvalue to a power; known by its kept modes alone."""

    spectrum: Spectrum
    power: Float[Array, ""]

    @property
    def log_eigenvalues(self) -> Float[Array, " K"]:
        return self.power * self.spectrum.log_eigenvalues

    @property
    def trace(self) -> Float[Array, ""]:
        return jnp.sum(jnp.exp(self.log_eigenvalues))

    def kernel(self, s: PointLike, t: PointLike) -> Float[Array, ""]:
        return self.kept_kernel(s, t)

    @property
    def rkhs_order(self) -> float:
        return float(self.power) * self.spectrum.rkhs_order

    @property
    def path_order(self) -> float:
        return self.rkhs_order - self.domain.dimension / 2

    @property
    def decay(self) -> float:
        return float(self.power) * self.spectrum.decay

    def check(self) -> None:
        check_eigenvalues(self.log_eigenvalues)
        if is_concrete(self.power) and self.rkhs_order <= self.domain.dimension / 2:
            raise ValueError(
                f"this power has eigenvalues that decay like n^-{self.decay:.3g}, which is not "
                f"summable; use a power above {float(self.power) / self.decay:.3g}."
            )


class Truncated(Derived):
    """S[:K]: the leading modes of the same process, whose kernel and trace stay."""

    spectrum: Spectrum
    kept: int = eqx.field(static=True)

    @property
    def log_eigenvalues(self) -> Float[Array, " K"]:
        return self.spectrum.log_eigenvalues[: self.kept]

    def eigenfunctions(self, x: PointLike) -> Float[Array, " K"]:
        return self.spectrum.eigenfunctions(x)[: self.kept]

    def project(self, points: Points, values: Float[Array, " n"]) -> Float[Array, " K"]:
        return self.spectrum.project(points, values)[: self.kept]
