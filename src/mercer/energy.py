"""The Mercer energy E(u) = ½⟨u, S⁻¹u⟩ = ½ Σₙ cₙ²/λₙ, cₙ = ⟨u, φₙ⟩.

Deterministic energies are roots, E(u) = ½|R u(points)|²: `Quadrature` projects on the modes, `Nodes`
takes the smallest function through the values at any points of any kernel. `Lattice` and
`MonteCarlo` are random: `energy(u, energy.batch(key))` is an unbiased estimate, and all its randomness
is the batch.
"""

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, ArrayLike, Float, Int, PRNGKeyArray

from .checks import as_real, default_float, is_concrete, require_count, require_finite
from .domains import Box, Domain, Empirical, Euclidean
from .kernels import Kernel, KernelLike, SpectrumKernel, as_kernel
from .spectra import Spectrum
from .spectra.eigenvalues import require_invertible

Function = Callable[[Float[Array, " d"]], Float[Array, ""]]
# Relative to the variance: what keeps a covariance matrix of repeated points invertible.
JITTER = 1e-8


class Energy(eqx.Module):
    """A way to evaluate ½⟨u, S⁻¹u⟩ for a function u of one point."""

    is_deterministic: eqx.AbstractClassVar[bool]
    __hash__ = object.__hash__

    @property
    @abstractmethod
    def kernel(self) -> Kernel:
        """The covariance of the process that the energy names."""

    @property
    @abstractmethod
    def domain(self) -> Domain:
        """Where its functions live."""

    @abstractmethod
    def batch(self, key: PRNGKeyArray) -> Any:
        """All the randomness of one estimate; None where there is none."""

    @abstractmethod
    def __call__(self, u: Function, batch: Any = None) -> Float[Array, ""]:
        """The energy of u, or an unbiased estimate of it."""


class RootEnergy(Energy):
    """E(u) = ½|R u(points)|² with a matrix R: the components of R u(points) are white."""

    points: eqx.AbstractVar[Float[Array, "n d"]]

    @abstractmethod
    def whiten(self, values: Float[Array, "n ..."]) -> Float[Array, "r ..."]:
        """R · values, for functions given by their values at the points, one a column."""

    @abstractmethod
    def units(self, x: Float[Array, " d"]) -> Float[Array, " r"]:
        """The functions that white components stand for: u ≈ Σᵢ (R u(points))ᵢ unitsᵢ(x)."""

    def batch(self, key: PRNGKeyArray) -> None:
        return None

    def __call__(self, u: Function, batch: None = None) -> Float[Array, ""]:
        return 0.5 * jnp.sum(jnp.square(self.whiten(values_of(u, self.points))))


class Nodes(RootEnergy):
    """The energy of the smallest function through the values at some points, for any kernel.

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
    is_deterministic = True

    def __init__(self, kernel: KernelLike, points: ArrayLike | list):
        self.covariance = as_kernel(kernel)
        self.points = _check_nodes(points)
        own = self.covariance.matrix(self.points, self.points)
        self.nugget = JITTER * jnp.mean(jnp.diag(own))
        self.factor = jnp.linalg.cholesky(own + self.nugget * jnp.eye(len(own)))
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
    is_deterministic = True

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


class LatticeBatch(NamedTuple):
    """Two independently shifted lattices."""

    first: Float[Array, "n d"]
    second: Float[Array, "n d"]


class Lattice(SpectralEnergy):
    """All modes on two independently shifted rank-1 lattices: unbiased, any dimension.

    `num_points` counts the points of each lattice: any number in one dimension, a power of
    two in more.
    """

    spectrum: Spectrum
    num_points: int = eqx.field(static=True)
    is_deterministic = False

    def __check_init__(self):
        require_count("num_points", self.num_points)
        require_usable(self.spectrum)
        self.spectrum.domain.lattice(None, self.num_points)

    def batch(self, key: PRNGKeyArray) -> LatticeBatch:
        first, second = jax.random.split(key)
        domain = self.spectrum.domain
        return LatticeBatch(
            domain.lattice(first, self.num_points), domain.lattice(second, self.num_points)
        )

    def __call__(self, u: Function, batch: LatticeBatch | None = None) -> Float[Array, ""]:
        batch = require_batch(self, batch)
        first = average_products(self.spectrum, u, batch.first)
        second = average_products(self.spectrum, u, batch.second)
        return weigh(self.spectrum.log_eigenvalues, first, second)


class MonteCarloBatch(NamedTuple):
    """Two independent sets of points, and modes."""

    first: Float[Array, "n d"]
    second: Float[Array, "n d"]
    modes: Int[Array, " N"] | None


class MonteCarlo(SpectralEnergy):
    """The paper's estimator (Proposition 3.1): two independent point batches, random modes.

    ½ (|Ω|²/(N M²)) Σ_α (λ p)⁻¹_{n_α} (Σ u φ_{n_α})(Σ u φ_{n_α}) over M points each.
    `num_points` is M, `num_modes` is N (None: every mode, none at random). `modes` is the
    distribution p(n): "uniform" (the paper's eq. 3.7), "zeta" (∝ n⁻²), "geometric" (at the
    rate of the eigenvalues), or K probabilities. Points come from the domain's own measure,
    or from `proposal`, another domain that covers it, with importance weights.
    """

    spectrum: Spectrum
    num_points: int = eqx.field(static=True)
    num_modes: int | None = eqx.field(static=True)
    probabilities: Float[Array, " K"]
    proposal: Domain | None
    is_deterministic = False

    def __init__(
        self,
        spectrum: Spectrum,
        num_points: int,
        num_modes: int | None = None,
        modes: str | ArrayLike = "uniform",
        proposal: Domain | None = None,
    ):
        require_usable(spectrum)
        require_count("num_points", num_points)
        if num_modes is not None:
            require_count("num_modes", num_modes)
        _check_proposal(spectrum.domain, proposal)
        self.spectrum = spectrum
        self.num_points = num_points
        self.num_modes = num_modes
        self.probabilities = _mode_probabilities(modes, spectrum)
        self.proposal = proposal

    def batch(self, key: PRNGKeyArray) -> MonteCarloBatch:
        first, second, third = jax.random.split(key, 3)
        source = self.proposal or self.spectrum.domain
        modes = None
        if self.num_modes is not None:
            count = self.spectrum.num_modes
            modes = jax.random.choice(third, count, (self.num_modes,), p=self.probabilities)
        return MonteCarloBatch(
            source.sample(first, self.num_points), source.sample(second, self.num_points), modes
        )

    def __call__(self, u: Function, batch: MonteCarloBatch | None = None) -> Float[Array, ""]:
        batch = require_batch(self, batch)
        first = average_products(self.spectrum, u, batch.first, self.proposal)
        second = average_products(self.spectrum, u, batch.second, self.proposal)
        logs = self.spectrum.log_eigenvalues
        if batch.modes is None:
            return weigh(logs, first, second)
        # The sum over all modes is the mean over random ones of each term over its probability.
        logs = logs + jnp.log(self.num_modes * self.probabilities)
        return weigh(logs[batch.modes], first[batch.modes], second[batch.modes])


def _check_nodes(points: Any) -> Float[Array, "n d"]:
    array = as_real("points", points).astype(default_float())
    if array.ndim != 2 or 0 in array.shape:
        raise ValueError(f"points must have shape (n, d) with n, d >= 1, got {array.shape}.")
    require_finite("points", array)
    return array


def require_usable(spectrum: Spectrum) -> None:
    """Raise if the spectrum's eigenvalues cannot define an energy, and name the mode."""
    spectrum.check()
    require_invertible(spectrum.log_eigenvalues)


def values_of(u: Function, points: Float[Array, "n d"]) -> Float[Array, " n"]:
    """u at each point; an error unless it is a scalar there."""
    values = jax.vmap(u)(points)
    if jnp.shape(values) != points.shape[:1]:
        raise ValueError(f"u(x) must be a scalar, got shape {jnp.shape(values)[1:]}.")
    return values


def weigh(
    log_eigenvalues: Float[Array, " K"], first: Float[Array, " K"], second: Float[Array, " K"]
) -> Float[Array, ""]:
    """½ Σ first · second / λ."""
    roots = jnp.exp(-0.5 * log_eigenvalues)
    return 0.5 * jnp.dot(roots * first, roots * second)


def average_products(
    spectrum: Spectrum, u: Function, points: Float[Array, "n d"], proposal: Domain | None = None
) -> Float[Array, " K"]:
    """Estimates of ⟨u, φₙ⟩ from points that are distributed as the measure, or as `proposal`."""
    values = values_of(u, points) * (spectrum.domain.measure / points.shape[0])
    if proposal is not None:
        total = spectrum.domain.measure / proposal.measure
        ratio = jax.vmap(lambda x: spectrum.domain.density(x) / (proposal.density(x) * total))
        values = values * ratio(points)
    return spectrum.project(points, values)


def require_batch(energy: Energy, batch: Any) -> Any:
    """The batch, or an error that says how to make one."""
    if batch is None:
        name = type(energy).__name__
        raise ValueError(
            f"the {name} energy is random: pass density(params, density.batch(key)), or use the "
            "Quadrature energy where a deterministic density is needed."
        )
    return batch


def _mode_probabilities(modes: str | ArrayLike, spectrum: Spectrum) -> Float[Array, " K"]:
    count = spectrum.num_modes
    n = np.arange(1, count + 1, dtype=float)
    if isinstance(modes, str):
        logs = np.asarray(spectrum.log_eigenvalues, dtype=float)
        rate = (logs[-1] - logs[0]) / max(count - 1, 1)
        choices = {"uniform": np.ones(count), "zeta": n**-2.0, "geometric": np.exp(rate * (n - 1))}
        if modes not in choices:
            raise ValueError(
                f"modes must be one of {sorted(choices)} or probabilities, got {modes!r}."
            )
        pmf = choices[modes] / choices[modes].sum()
    else:
        pmf = np.asarray(modes, dtype=float)
        if pmf.shape != (count,) or not (np.all(pmf > 0) and np.isclose(pmf.sum(), 1.0)):
            raise ValueError(
                f"modes must be {count} positive probabilities that sum to one, got shape "
                f"{pmf.shape} and sum {pmf.sum():.6g}."
            )
    if np.any(pmf < np.finfo(default_float()).tiny):
        raise ValueError(
            f"mode {int(np.argmin(pmf)) + 1} has a probability that underflows; use 'uniform'."
        )
    return jnp.asarray(pmf, default_float())


def _check_proposal(domain: Domain, proposal: Domain | None) -> None:
    if proposal is None:
        return
    if isinstance(domain, Empirical):
        raise ValueError("an Empirical domain has atoms, not a density; drop the proposal.")
    covers = proposal.dimension == domain.dimension and not isinstance(proposal, Empirical)
    if covers and isinstance(proposal, Box):
        covers = isinstance(domain, Box) and all(
            p <= d for p, d in zip(proposal.lower, domain.lower, strict=True)
        )
        covers = covers and all(p >= d for p, d in zip(proposal.upper, domain.upper, strict=True))
    if not covers:
        raise ValueError(f"the proposal must cover the domain {domain}, got {proposal}.")


@eqx.filter_jit
def _project(
    spectrum: Spectrum, points: Float[Array, "n d"], weights: Float[Array, " n"]
) -> tuple[Float[Array, "K n"], Float[Array, "K K"]]:
    """The matrix from values at the points to coefficients, and the modes' inner products."""
    values = jax.vmap(spectrum.eigenfunctions)(points)
    projector = (weights[:, None] * values).T
    return projector, projector @ values


def _check_resolution(gram: Float[Array, "K K"], points, spectrum: Spectrum) -> None:
    """Raise if the quadrature does not see the modes as orthonormal."""
    if not is_concrete(gram):
        return
    require_finite("the eigenfunctions at the quadrature points", gram)
    tolerance = np.finfo(default_float()).eps ** 0.4
    worst = float(np.max(np.abs(np.asarray(gram) - np.eye(gram.shape[0]))))
    if worst > tolerance:
        enough = spectrum.quadrature_points()
        remedy = f"use at least {enough} points, or fewer modes"
        if points == enough:
            remedy = (
                "the eigenfunctions themselves are not orthonormal to this accuracy: keep fewer modes, "
                "or make a Nystrom spectrum with more num_points"
            )
        raise ValueError(
            f"quadrature with {points} points to an axis cannot tell the {gram.shape[0]} modes apart "
            f"(their inner products are off by {worst:.1e}); {remedy}."
        )
