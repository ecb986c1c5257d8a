"""Unbiased estimates of the Mercer energy at random points.

`energy(u, energy.batch(key))` is the estimate, and all its randomness is the batch. A product of
two independent estimates of ⟨u, φₙ⟩ is an unbiased estimate of ⟨u, φₙ⟩², which a square is not.
"""

from typing import ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float, Int, PRNGKeyArray

from .checks import default_float, require_count
from .domains import Box, Domain, Empirical
from .energy import Function, SpectralEnergy, require_usable, values_of
from .spectra import Spectrum


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
    is_deterministic: ClassVar[bool] = False

    def __check_init__(self) -> None:
        require_count("num_points", self.num_points)
        require_usable(self.spectrum)
        self.spectrum.domain.lattice(None, self.num_points)

    def batch(self, key: PRNGKeyArray) -> LatticeBatch:
        keys = jax.random.split(key)
        return LatticeBatch(*(self.spectrum.domain.lattice(k, self.num_points) for k in keys))

    def __call__(self, u: Function, batch: LatticeBatch | None = None) -> Float[Array, ""]:
        if batch is None:
            raise _batch_missing(self)
        first = average_products(self.spectrum, u, batch.first)
        second = average_products(self.spectrum, u, batch.second)
        return weigh(self.spectrum.log_eigenvalues, first, second)


class MonteCarloBatch(NamedTuple):
    """Two independent sets of points, and random modes; None stands for every mode."""

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
    is_deterministic: ClassVar[bool] = False

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
        if proposal is not None:
            _check_proposal(spectrum.domain, proposal)
        self.spectrum = spectrum
        self.num_points = num_points
        self.num_modes = num_modes
        self.probabilities = _mode_probabilities(modes, spectrum)
        self.proposal = proposal

    def batch(self, key: PRNGKeyArray) -> MonteCarloBatch:
        first, second, third = jax.random.split(key, 3)
        source = self.proposal or self.spectrum.domain
        points = (source.sample(k, self.num_points) for k in (first, second))
        if self.num_modes is None:
            return MonteCarloBatch(*points, None)
        shape, count = (self.num_modes,), self.spectrum.num_modes
        return MonteCarloBatch(
            *points, jax.random.choice(third, count, shape, p=self.probabilities)
        )

    def __call__(self, u: Function, batch: MonteCarloBatch | None = None) -> Float[Array, ""]:
        if batch is None:
            raise _batch_missing(self)
        first = average_products(self.spectrum, u, batch.first, self.proposal)
        second = average_products(self.spectrum, u, batch.second, self.proposal)
        logs = self.spectrum.log_eigenvalues
        if batch.modes is None:
            return weigh(logs, first, second)
        # The sum over all modes is the mean over random ones of each term over its probability.
        logs = logs + jnp.log(self.num_modes * self.probabilities)
        return weigh(logs[batch.modes], first[batch.modes], second[batch.modes])


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
    domain = spectrum.domain
    values = values_of(u, points) * (domain.measure / points.shape[0])
    if proposal is not None:
        total = domain.measure / proposal.measure
        ratio = jax.vmap(lambda x: domain.density(x) / (proposal.density(x) * total))
        values = values * ratio(points)
    return spectrum.project(points, values)


def _batch_missing(energy: SpectralEnergy) -> ValueError:
    return ValueError(
        f"the {type(energy).__name__} energy is random: pass density(params, density.batch(key)), "
        "or use the Quadrature energy where a deterministic density is needed."
    )


def _mode_probabilities(modes: str | ArrayLike, spectrum: Spectrum) -> Float[Array, " K"]:
    if isinstance(modes, str):
        pmf = _named_probabilities(modes, np.asarray(spectrum.log_eigenvalues, float))
    else:
        pmf = _check_probabilities(np.asarray(modes, float), spectrum.num_modes)
    if np.any(pmf < np.finfo(default_float()).tiny):
        raise ValueError(
            f"mode {int(np.argmin(pmf)) + 1} has a probability that underflows; use 'uniform'."
        )
    return jnp.asarray(pmf, default_float())


def _named_probabilities(name: str, log_eigenvalues: np.ndarray) -> np.ndarray:
    count = log_eigenvalues.size
    n = np.arange(1, count + 1, dtype=float)
    rate = (log_eigenvalues[-1] - log_eigenvalues[0]) / max(count - 1, 1)
    weights = {"uniform": np.ones(count), "zeta": n**-2.0, "geometric": np.exp(rate * (n - 1))}
    if name not in weights:
        raise ValueError(f"modes must be one of {sorted(weights)} or probabilities, got {name!r}.")
    return weights[name] / weights[name].sum()


def _check_probabilities(pmf: np.ndarray, count: int) -> np.ndarray:
    if pmf.shape != (count,) or not (np.all(pmf > 0) and np.isclose(pmf.sum(), 1.0)):
        raise ValueError(
            f"modes must be {count} positive probabilities that sum to one, got shape "
            f"{pmf.shape} and sum {pmf.sum():.6g}."
        )
    return pmf


def _check_proposal(domain: Domain, proposal: Domain) -> None:
    if isinstance(domain, Empirical):
        raise ValueError("an Empirical domain has atoms, not a density; drop the proposal.")
    covers = proposal.dimension == domain.dimension and not isinstance(proposal, Empirical)
    if covers and isinstance(proposal, Box):
        covers = isinstance(domain, Box) and all(
            np.less_equal(proposal.lower, domain.lower)
            & np.less_equal(domain.upper, proposal.upper)
        )
    if not covers:
        raise ValueError(f"the proposal must cover the domain {domain}, got {proposal}.")
