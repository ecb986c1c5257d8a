"""How closely a network prior follows its process: a covariance in closed form, against k."""

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float

from .checks import default_float
from .density import Prior
from .domains import Box, Domain, require_inside
from .energy import Quadrature
from .networks import FourierMLP
from .readout import Readout, features, offset
from .spectra import Spectrum
from .terms import Term, is_network

GRID = {1: 101, 2: 13, 3: 5}
NUM_LATTICE = 128
WORTH_WHILE = 0.95


class Fidelity(eqx.Module):
    """The covariance of a network prior against the process it names.

    `max_error` is max |Cov(u(s), u(t)) − k(s, t)| over pairs of `points`, `relative_error` the
    same over the largest variance, `mean_error` is max |E u − m|, and `outside_share` the share
    of the prior's variance in functions that the kept modes do not see.
    """

    points: Float[Array, "p d"]
    covariance: Float[Array, "p p"]
    kernel: Float[Array, "p p"]
    mean_error: float
    outside_share: float
    prior: Prior

    @property
    def max_error(self) -> float:
        return float(jnp.max(jnp.abs(self.covariance - self.kernel)))

    @property
    def relative_error(self) -> float:
        variance = float(jnp.max(jnp.diag(self.kernel)))
        return self.max_error / variance if variance > 0 else float("inf")

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
            f"Fidelity(max_error={self.max_error:.3g}, relative_error={self.relative_error:.3g}, "
            f"mean_error={self.mean_error:.3g}, outside_share={self.outside_share:.3g})"
        )


def fidelity(prior: Prior, points: ArrayLike | list | None = None) -> Any:
    """The covariance of the prior's network, given its hidden parameters, against the process.

    Closed form, no sampling: Cov(u(s), u(t)) = f(s)ᵀ A⁻¹ f(t) with the hidden parameters of
    `prior.params`. For a pytree of networks, a pytree of results.

    >>> import mercer
    >>> network = mercer.FourierMLP(1, 100, boundary="dirichlet", key=jax.random.key(0))
    >>> prior = mercer.Prior(mercer.Quadrature(mercer.BrownianBridge(100)), network)
    >>> mercer.fidelity(prior).relative_error < 0.1
    True
    """
    prior.require_exact()
    points = None if points is None else jnp.asarray(points, default_float())
    structure = jax.tree.structure(prior.network(prior.params), is_leaf=is_network)
    terms = prior.terms(prior.params)
    results = [None if t.energy is None else _compare(prior, t, points) for t in terms]
    return jax.tree.unflatten(structure, results)


def _compare(prior: Prior, term: Term, points: Float[Array, "p d"] | None) -> Fidelity:
    spectrum = term.energy.spectrum
    points = comparison_points(spectrum.domain) if points is None else points
    require_inside(spectrum.domain, points, "points")
    covariance, outside_share = network_covariance(prior, term, points)
    alone = Prior(
        term.energy, term.network, prior.reference, term.mean, normalised=True, readout=prior.where
    )
    kernel = kernel_matrix(spectrum, points)
    off = float(jnp.max(jnp.abs(mean_offset(prior, term, points))))
    return Fidelity(points, covariance, kernel, off, float(outside_share), alone)


@eqx.filter_jit
def network_covariance(
    prior: Prior, term: Term, points: Float[Array, "p d"]
) -> tuple[Float[Array, "p p"], Float[Array, ""]]:
    """Cov(u(s), u(t)) for all pairs of points, and the share of variance outside the modes."""
    law = prior.readout_law(term)
    rows = jax.vmap(lambda x: features(term.network, prior.where, x))
    kept = jnp.exp(term.energy.spectrum.log_eigenvalues) * _variances(law, law.mixing / law.scale)
    total = jnp.sum(term.energy.weights * _variances(law, rows(term.energy.points)))
    return law.covariance(rows(points)), jnp.maximum(1 - jnp.sum(kept) / total, 0.0)


@eqx.filter_jit
def mean_offset(prior: Prior, term: Term, points: Float[Array, "p d"]) -> Float[Array, " p"]:
    """E u − m at the points."""
    weights = prior.readout_law(term).mean()

    def off(x):
        expected = offset(term.network, prior.where, x)
        expected = expected + features(term.network, prior.where, x) @ weights
        return expected if term.mean is None else expected - term.mean(x)

    return jax.vmap(off)(points)


def _variances(law: Readout, rows: Float[Array, "n W"], block: int = 1024) -> Float[Array, " n"]:
    """Variances of f·w, block by block so that no n × n matrix is made."""
    blocks = [rows[i : i + block] for i in range(0, rows.shape[0], block)]
    return jnp.concatenate([jnp.diag(law.covariance(b)) for b in blocks])


@eqx.filter_jit
def kernel_matrix(spectrum: Spectrum, points: Float[Array, "p d"]) -> Float[Array, "p p"]:
    """k(s, t) for all pairs of points."""
    return jax.lax.map(lambda s: jax.vmap(lambda t: spectrum.kernel(s, t))(points), points)


def comparison_points(domain: Domain) -> Float[Array, "p d"]:
    """Where covariances are compared: a grid, denser at the sides, to three dimensions;
    above, a lattice."""
    if isinstance(domain, Box) and domain.dimension in GRID:
        axis = (1 - np.cos(np.linspace(0, np.pi, GRID[domain.dimension]))) / 2
        grid = np.meshgrid(*[axis] * domain.dimension, indexing="ij")
        return domain.from_unit(jnp.asarray(np.stack(grid, -1).reshape(-1, domain.dimension)))
    return domain.lattice(jax.random.key(0), NUM_LATTICE)


def moves(prior: Prior) -> list[tuple[str, Prior]]:
    """Priors one step from this one, and the words for each step."""
    (term,) = prior.terms(prior.params)
    network, spectrum = term.network, term.energy.spectrum
    found = [("use a reference three times as wide", _with(prior, reference=3 * prior.reference))]
    if isinstance(network, FourierMLP):
        found = _network_moves(prior, network)
    count = 2 * spectrum.num_modes
    try:
        finer = Quadrature(spectrum.with_modes(count))
    except ValueError:
        return found
    return [*found, (f"keep {count} modes", _with(prior, energy=finer))]


def _network_moves(prior: Prior, network: FourierMLP) -> list[tuple[str, Prior]]:
    def changed(where, value) -> Prior:
        return _with(prior, network=eqx.tree_at(where, network, value))

    scale = 3 * network.readout_scale
    return [
        (f"widen the network to {2 * network.width} units", _with(prior, network=widen(network))),
        ("double the frequency_scale", changed(lambda n: n.frequencies, 2 * network.frequencies)),
        ("halve the frequency_scale", changed(lambda n: n.frequencies, network.frequencies / 2)),
        (f"raise the readout_scale to {scale:g}", changed(lambda n: n.readout_scale, scale)),
    ]


def _with(
    prior: Prior, energy: Any = None, network: Any = None, reference: float | None = None
) -> Prior:
    (term,) = prior.terms(prior.params)
    return Prior(
        term.energy if energy is None else energy,
        term.network if network is None else network,
        prior.reference if reference is None else reference,
        term.mean,
        normalised=True,
        readout=prior.where,
    )


def widen(network: FourierMLP, factor: float = 2.0) -> FourierMLP:
    """The same network with more units; those it has stay, new ones are drawn alike."""
    width = math.ceil(network.width * factor)
    key = jax.random.key(width)

    def grow(leaf: Array, axis: int, index: int) -> Array:
        shape = tuple(width - network.width if i == axis else n for i, n in enumerate(leaf.shape))
        new = jax.random.normal(jax.random.fold_in(key, 2 * index + axis), shape, leaf.dtype)
        return jnp.concatenate([leaf, new], axis)

    weights = [grow(w, 0, i) for i, w in enumerate(network.weights)]
    weights[1:] = [grow(w, 1, i) for i, w in enumerate(weights[1:], start=1)]
    biases = [grow(b, 0, 100 + i) for i, b in enumerate(network.biases)]
    parts = tuple(weights), tuple(biases), grow(network.readout, 0, len(weights))
    return eqx.tree_at(lambda n: (n.weights, n.biases, n.readout), network, parts)
