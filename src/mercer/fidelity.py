"""How closely a network follows its process, a priori and given data, in closed form."""

import math
import zlib
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, ArrayLike, Float, PRNGKeyArray

from .checks import default_float
from .coordinates import Frozen
from .domains import Box, Domain, require_inside
from .energy import Quadrature, RootEnergy
from .kernels import as_kernel
from .linear import map_rows
from .networks import FourierMLP
from .parameters import features, is_network, offset
from .posterior import Posterior
from .prior import Prior
from .process import GaussianProcess
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
        tried = [(fidelity(prior).relative_error, words) for words, prior in moves(self.prior)]
        best, words = min(tried)
        if best > WORTH_WHILE * self.relative_error:
            return (
                f"No single step helps: of {', '.join(w for _, w in tried)}, none brings the "
                f"relative error of {self.relative_error:.2g} down."
            )
        return (
            f"{words[0].upper()}{words[1:]}: the relative error falls from "
            f"{self.relative_error:.2g} to {best:.2g}."
        )

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


def fidelity(model: Prior | Posterior, points: ArrayLike | list | None = None) -> Any:
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
    terms = model.terms(model.params)
    results = [
        None if term.energy is None else _compare(model, i, term, points)
        for i, term in enumerate(terms)
    ]
    return jax.tree.unflatten(structure, results)


def _compare(prior: Prior, index: int, term: Term, points: Float[Array, "p d"] | None) -> Fidelity:
    points = comparison_points(term.energy) if points is None else points
    require_inside(term.energy.domain, points, "points")
    kernel = kernel_matrix(term.energy.kernel, points)
    return Fidelity(
        points,
        network_covariance(prior, term, points),
        kernel,
        layer_errors(prior, index, points, kernel),
        float(jnp.max(jnp.abs(mean_offset(prior, term, points)))),
        float(outside_share(prior, term)),
        _with(prior, term),
    )


@eqx.filter_jit
def network_covariance(
    prior: Prior, term: Term, points: Float[Array, "p d"]
) -> Float[Array, "p p"]:
    """Cov(u(s), u(t)) for all pairs of points, given the hidden layer."""
    return prior.readout_law(term).covariance(prior.white_features(term.network, points))


def layer_errors(
    prior: Prior, index: int, points: Float[Array, "p d"], kernel: Float[Array, "p p"]
) -> Float[Array, " l"]:
    """Relative error of network `index` at hidden layers drawn from the prior; where none is random,
    at the one there is."""
    if not _has_hidden(prior, index):
        own = network_covariance(prior, prior.terms(prior.params)[index], points)
        return jnp.max(jnp.abs(own - kernel))[None] / jnp.max(jnp.diag(kernel))
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


def own_key(prior: Prior) -> PRNGKeyArray:
    """A random key that the prior's own parameters seed: the same prior, the same numbers."""
    flat = np.asarray(ravel_pytree(prior.params)[0])
    return jax.random.key(zlib.crc32(flat.tobytes()))


@eqx.filter_jit
def outside_share(prior: Prior, term: Term) -> Float[Array, ""]:
    """The share of the prior's variance in functions that the kept modes do not see."""
    if not isinstance(term.energy, Quadrature):
        return jnp.zeros(())
    law, (mixing, _) = prior.readout_law(term), prior.energy_rows(term)
    kept = jnp.exp(term.energy.spectrum.log_eigenvalues) * map_rows(law.variance, mixing)

    def variance(points):
        return law.variance(prior.white_features(term.network, points))

    total = jnp.sum(term.energy.weights * map_rows(variance, term.energy.points))
    return jnp.maximum(1 - jnp.sum(kept) / total, 0.0)


@eqx.filter_jit
def mean_offset(prior: Prior, term: Term, points: Float[Array, "p d"]) -> Float[Array, " p"]:
    """E u − m at the points."""
    weights = prior.reference * prior.readout_law(term).mean()

    def off(x):
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
    (term,) = terms
    if points is None:
        every = -(-posterior.inputs.shape[0] // NUM_COMPARED)
        points = posterior.inputs[::every]
    energy = term.energy
    small = posterior.inputs.shape[0] <= MAX_EXACT
    process = GaussianProcess(energy.kernel if small else energy.spectrum, term.mean)
    noise = posterior.likelihood.scale
    exact = process.condition(posterior.inputs, posterior.targets, noise)
    mean, variance = frozen.moments(points)
    sd = jnp.sqrt(exact.variance(points))
    return PosteriorFidelity(points, (mean - exact.mean(points)) / sd, jnp.sqrt(variance) / sd)


@eqx.filter_jit
def kernel_matrix(kernel: Any, points: Float[Array, "p d"]) -> Float[Array, "p p"]:
    """k(s, t) for all pairs of points, of a kernel or a spectrum."""
    return as_kernel(kernel).matrix(points, points)


def comparison_points(where: Domain | RootEnergy) -> Float[Array, "p d"]:
    """Where covariances are compared: a grid, denser at the sides, to three dimensions;
    above, a lattice; for an energy of points, some of these."""
    if isinstance(where, RootEnergy) and not isinstance(where, Quadrature):
        return where.points[:: -(-len(where.points) // NUM_LATTICE)]
    domain = where if isinstance(where, Domain) else where.domain
    if isinstance(domain, Box) and domain.dimension in GRID:
        axis = (1 - np.cos(np.linspace(0, np.pi, GRID[domain.dimension]))) / 2
        grid = np.meshgrid(*[axis] * domain.dimension, indexing="ij")
        return domain.from_unit(jnp.asarray(np.stack(grid, -1).reshape(-1, domain.dimension)))
    return domain.lattice(None, NUM_LATTICE)


def moves(prior: Prior) -> list[tuple[str, Prior]]:
    """Priors one step from this one, and the words for each step."""
    (term,) = prior.terms(prior.params)
    wider = _with(prior, term, reference=3 * prior.reference)
    found = [("use a reference three times as wide", wider)]
    if isinstance(term.network, FourierMLP):
        found = _network_moves(prior, term)
    if not isinstance(term.energy, Quadrature):
        return found
    spectrum = term.energy.spectrum
    count = 2 * spectrum.num_modes
    try:
        finer = Quadrature(spectrum.with_modes(count))
    except ValueError:
        return found
    return [*found, (f"keep {count} modes", _with(prior, term, energy=finer))]


def _network_moves(prior: Prior, term: Term) -> list[tuple[str, Prior]]:
    network = term.network

    def changed(where, value) -> Prior:
        return _with(prior, term, network=eqx.tree_at(where, network, value))

    scale = 3 * network.readout_scale
    wider = _with(prior, term, network=widen(network, own_key(prior)))
    return [
        (f"widen the network to {2 * network.width} units", wider),
        ("double the frequency_scale", changed(lambda n: n.frequencies, 2 * network.frequencies)),
        ("halve the frequency_scale", changed(lambda n: n.frequencies, network.frequencies / 2)),
        (f"raise the readout_scale to {scale:g}", changed(lambda n: n.readout_scale, scale)),
    ]


def _with(
    prior: Prior,
    term: Term,
    energy: Any = None,
    network: Any = None,
    reference: float | None = None,
) -> Prior:
    """The prior of one network alone, with some part of it changed."""
    return Prior(
        term.energy if energy is None else energy,
        term.network if network is None else network,
        prior.reference if reference is None else reference,
        term.mean,
        normalised=True,
        readout=prior.where,
    )


def widen(network: FourierMLP, key: PRNGKeyArray, factor: float = 2.0) -> FourierMLP:
    """The same network with more units; those it has stay, new ones are drawn alike."""
    width = math.ceil(network.width * factor)

    def grow(leaf: Array, axis: int, index: int) -> Array:
        shape = tuple(width - network.width if i == axis else n for i, n in enumerate(leaf.shape))
        new = jax.random.normal(jax.random.fold_in(key, 2 * index + axis), shape, leaf.dtype)
        return jnp.concatenate([leaf, new], axis)

    weights = [grow(w, 0, i) for i, w in enumerate(network.weights)]
    weights[1:] = [grow(w, 1, i) for i, w in enumerate(weights[1:], start=1)]
    biases = [grow(b, 0, 100 + i) for i, b in enumerate(network.biases)]
    parts = tuple(weights), tuple(biases), grow(network.readout, 0, len(weights))
    return eqx.tree_at(lambda n: (n.weights, n.biases, n.readout), network, parts)
