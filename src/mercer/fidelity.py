"""How closely a network follows its process, a priori and given data, in closed form."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float

from .advice import moves, one_network, own_key
from .checks import default_float
from .coordinates import Frozen
from .domains import Box, Domain, require_inside
from .energy import Quadrature, RootEnergy
from .kernels import Kernel, KernelLike, SpectrumKernel, as_kernel
from .linear import Law, map_rows
from .parameters import features, is_network, offset
from .posterior import Posterior
from .prior import Prior
from .process import GaussianProcess
from .spectra import Spectrum
from .terms import Term

GRID = {1: 101, 2: 13, 3: 5}
NUM_LATTICE = 128
WORTH_WHILE = 0.95
# Hidden layers that the error is averaged over.
NUM_LAYERS = 8
# Rows of data up to which the exact process is conditioned by its kernel, and points to compare at.
MAX_EXACT, NUM_COMPARED = 2000, 200


class Fidelity(eqx.Module):
    """The covariance of a network prior against the process it names.

    `relative_error` is max |Cov(u(s), u(t)) − k(s, t)| over pairs of `points` and over the largest
    variance, averaged over hidden layers drawn from the prior; `spread` is the standard deviation
    of it among them. `max_error` is that of the prior's own hidden layer, without the division;
    `mean_error` is max |E u − m|, and `outside_share` the share of the prior's variance in
    functions that the kept modes do not see, both of that layer too.
    """

    points: Float[Array, "p d"]
    covariance: Float[Array, "p p"]
    kernel: Float[Array, "p p"]
    layer_errors: Float[Array, " l"]
    mean_error: float
    outside_share: float
    prior: Prior

    @property
    def max_error(self) -> float:
        return float(jnp.max(jnp.abs(self.covariance - self.kernel)))

    @property
    def relative_error(self) -> float:
        return float(jnp.mean(self.layer_errors))

    @property
    def spread(self) -> float:
        return float(jnp.std(self.layer_errors))

    @property
    def advice(self) -> str:
        """One sentence: the change that lowers the error most, each having been tried."""
        errors = {words: fidelity(prior).relative_error for words, prior in moves(self.prior)}
        best, current = min(errors, key=errors.get), self.relative_error
        if errors[best] > WORTH_WHILE * current:
            return (
                f"No single step helps: of {', '.join(errors)}, none brings the relative error of "
                f"{current:.2g} down."
            )
        step = best[0].upper() + best[1:]
        return f"{step}: the relative error falls from {current:.2g} to {errors[best]:.2g}."

    def __repr__(self) -> str:
        return (
            f"Fidelity(relative_error={self.relative_error:.3g} ± {self.spread:.2g} over "
            f"{len(self.layer_errors)} hidden layers, max_error={self.max_error:.3g}, "
            f"mean_error={self.mean_error:.3g}, outside_share={self.outside_share:.3g})"
        )


class PosteriorFidelity(eqx.Module):
    """A network's posterior, its hidden layers frozen, against that of the exact process.

    `mean_offset` is the difference of the means in standard deviations of the process, `sd_ratio`
    the network's standard deviation over the process's, both at each of `points`.
    """

    points: Float[Array, "p d"]
    mean_offset: Float[Array, " p"]
    sd_ratio: Float[Array, " p"]

    @property
    def worst_mean(self) -> float:
        """The largest difference of means, in standard deviations."""
        return float(jnp.max(jnp.abs(self.mean_offset)))

    @property
    def worst_sd(self) -> float:
        """The largest difference of a ratio of standard deviations from one."""
        return float(jnp.max(jnp.abs(self.sd_ratio - 1)))

    def __repr__(self) -> str:
        low, high = float(jnp.min(self.sd_ratio)), float(jnp.max(self.sd_ratio))
        return (
            f"PosteriorFidelity(mean within {self.worst_mean:.2g} sd, sd from {low:.3g} to "
            f"{high:.3g} of the process's)"
        )


def fidelity(model: Prior | Posterior, points: ArrayLike | list[Any] | None = None) -> Any:
    """How closely a prior, or a posterior with Gaussian noise, follows its process.

    Closed form, no sampling. Of a prior: Cov(u(s), u(t)) = f(s)ᵀ A⁻¹ f(t) against k(s, t), for the
    hidden layer of `prior.params` and averaged over hidden layers of the prior, which its own
    parameters seed; for a pytree of networks, a pytree of results. Of a posterior: means and
    standard deviations against the exact process given the same data.

    >>> import mercer
    >>> network = mercer.FourierMLP(1, 100, boundary="dirichlet", key=jax.random.key(0))
    >>> prior = mercer.Prior(mercer.Quadrature(mercer.BrownianBridge(100)), network)
    >>> mercer.fidelity(prior).relative_error < 0.1
    True
    """
    points = None if points is None else jnp.asarray(points, default_float())
    if isinstance(model, Posterior):
        return compare_posterior(model, points)
    model.require_exact()
    structure = jax.tree.structure(model.network(model.params), is_leaf=is_network)
    results = [
        None if term.energy is None else _compare(model, index, term, points)
        for index, term in enumerate(model.terms(model.params))
    ]
    return jax.tree.unflatten(structure, results)


def _compare(prior: Prior, index: int, term: Term, points: Float[Array, "p d"] | None) -> Fidelity:
    points = comparison_points(term.energy) if points is None else points
    require_inside(term.energy.domain, points, "points")
    kernel = kernel_matrix(term.energy.kernel, points)
    covariance, mean_error, outside = _compare_layer(prior, term, points)
    errors = layer_errors(prior, index, points, kernel)
    scalars = float(mean_error), float(outside)
    return Fidelity(points, covariance, kernel, errors, *scalars, one_network(prior, term))


@eqx.filter_jit
def _compare_layer(prior: Prior, term: Term, points: Float[Array, "p d"]) -> tuple[Array, ...]:
    """The covariance, the error of the mean and the share outside, given the hidden layer."""
    law = prior.readout_law(term)
    mean_error = jnp.max(jnp.abs(mean_offset(prior, term, points, law)))
    covariance = law.covariance(prior.white_features(term.network, points))
    return covariance, mean_error, outside_share(prior, term, law)


@eqx.filter_jit
def network_covariance(
    prior: Prior, term: Term, points: Float[Array, "p d"]
) -> Float[Array, "p p"]:
    """Cov(u(s), u(t)) for all pairs of points, given the hidden layer."""
    return prior.readout_law(term).covariance(prior.white_features(term.network, points))


def layer_errors(
    prior: Prior, index: int, points: Float[Array, "p d"], kernel: Float[Array, "p p"]
) -> Float[Array, " l"]:
    """Relative errors of network `index` at hidden layers drawn from the prior.

    Where nothing but the readout is random, the error at the one layer there is.
    """
    if not _has_hidden(prior, index):
        covariance = network_covariance(prior, prior.terms(prior.params)[index], points)
        return jnp.max(jnp.abs(covariance - kernel))[None] / jnp.max(jnp.diag(kernel))
    keys = jax.random.split(own_key(prior), NUM_LAYERS)
    return _layer_errors(prior, index, points, kernel, keys)


@eqx.filter_jit
def _layer_errors(prior: Prior, index: int, points: Array, kernel: Array, keys: Array) -> Array:
    def error(key):
        term = prior.terms(prior.draw_reference(key))[index]
        return jnp.max(jnp.abs(network_covariance(prior, term, points) - kernel))

    return jax.lax.map(error, keys) / jnp.max(jnp.diag(kernel))


def _has_hidden(prior: Prior, index: int) -> bool:
    """Whether anything but the readout of a network is random."""
    part = jax.tree.leaves(prior.params, is_leaf=is_network)[index]
    return len(jax.tree.leaves(part)) > len(jax.tree.leaves(prior.where(part)))


def outside_share(prior: Prior, term: Term, law: Law) -> Float[Array, ""]:
    """The share of the prior's variance in functions that the kept modes do not see."""
    if not isinstance(term.energy, Quadrature):
        return jnp.zeros(())
    mixing = prior.energy_rows(term).mixing
    kept = jnp.exp(term.energy.spectrum.log_eigenvalues) * map_rows(law.variance, mixing)

    def variance(points: Float[Array, "q d"]) -> Float[Array, " q"]:
        return law.variance(prior.white_features(term.network, points))

    total = jnp.sum(term.energy.weights * map_rows(variance, term.energy.points))
    return jnp.maximum(1 - jnp.sum(kept) / total, 0.0)


def mean_offset(
    prior: Prior, term: Term, points: Float[Array, "p d"], law: Law | None = None
) -> Float[Array, " p"]:
    """E u − m at the points."""
    weights = prior.reference * (law or prior.readout_law(term)).mean()

    def off(x: Float[Array, " d"]) -> Float[Array, ""]:
        expected = offset(term.network, prior.where, x)
        expected = expected + features(term.network, prior.where, x) @ weights
        return expected if term.mean is None else expected - term.mean(x)

    return jax.vmap(off)(points)


def compare_posterior(
    posterior: Posterior, points: Float[Array, "p d"] | None = None
) -> PosteriorFidelity:
    """Means and standard deviations of a network's posterior against the exact process's."""
    frozen = Frozen(posterior)
    if not frozen.is_exact:
        raise ValueError(
            "the exact posterior is known for a Gaussian likelihood at points of the networks, with "
            "known noise and no batch_size."
        )
    terms = posterior.prior.terms(posterior.prior.params)
    if len(terms) != 1:
        raise ValueError("the fidelity of a posterior is known for one network.")
    (term,), inputs = terms, posterior.inputs
    if points is None:
        points = inputs[:: -(-len(inputs) // NUM_COMPARED)]
    covariance = term.energy.kernel if len(inputs) <= MAX_EXACT else term.energy.spectrum
    process = GaussianProcess(covariance, term.mean)
    exact = process.condition(inputs, posterior.targets, posterior.likelihood.scale)
    mean, variance = frozen.moments(points)
    sd = jnp.sqrt(exact.variance(points))
    return PosteriorFidelity(points, (mean - exact.mean(points)) / sd, jnp.sqrt(variance) / sd)


def kernel_matrix(kernel: KernelLike, points: Float[Array, "p d"]) -> Float[Array, "p p"]:
    """k(s, t) for all pairs of points, of a kernel or a spectrum."""
    if isinstance(kernel, SpectrumKernel):
        kernel = kernel.spectrum
    # The process is the same however many modes are kept: one compiled program serves them all.
    return _matrix(
        as_kernel(kernel.with_modes(1) if isinstance(kernel, Spectrum) else kernel), points
    )


@eqx.filter_jit
def _matrix(kernel: Kernel, points: Float[Array, "p d"]) -> Float[Array, "p p"]:
    return kernel.matrix(points, points)


def comparison_points(where: Domain | RootEnergy) -> Float[Array, "p d"]:
    """Points to compare covariances at: a grid, denser at the sides, in up to three dimensions.

    In more dimensions a lattice; for an energy with points of its own, some of these.
    """
    if isinstance(where, RootEnergy) and not isinstance(where, Quadrature):
        return where.points[:: -(-len(where.points) // NUM_LATTICE)]
    domain = where if isinstance(where, Domain) else where.domain
    if isinstance(domain, Box) and domain.dimension in GRID:
        axis = (1 - np.cos(np.linspace(0, np.pi, GRID[domain.dimension]))) / 2
        grid = np.meshgrid(*[axis] * domain.dimension, indexing="ij")
        return domain.from_unit(jnp.asarray(np.stack(grid, -1).reshape(-1, domain.dimension)))
    return domain.lattice(None, NUM_LATTICE)
