"""Gaussian sites: the likelihood of data as exp(−½|Σᵢ Aᵢ uᵢ(pointsᵢ) + b|²), exact or at a mode.

A likelihood that looks at values of the networks is expanded in these; one behind a forward map in the
white components of each network's process, u = u* + Σₙ ξₙ unitsₙ, of which the map's Jacobian is one
`jax.jacfwd`, whatever the map is: ξ = R(u − u*)(points) by the energy's own root.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .likelihoods import Gaussian, Heteroscedastic
from .optimise import climb
from .parameters import is_network
from .posterior import Posterior
from .tail import Whitening

# Steps of L-BFGS to the mode, and the least information that a site gives a row.
NUM_STEPS, LEAST = 300, 1e-12


class Site(NamedTuple):
    """exp(−½|Σᵢ slopesᵢ · uᵢ(pointsᵢ) + residual|²), over networks uᵢ.

    Slopes are matrices, vectors for their diagonals, or what whitens rows by their neighbours.
    """

    points: list[Float[Array, "m d"]]
    slopes: list[Float[Array, "n m"] | Float[Array, " m"] | Whitening]
    residual: Float[Array, " n"]

    def apply(self, i: int, values: Float[Array, "m ..."]) -> Float[Array, "n ..."]:
        """Slopes of network i times functions at its points, one a column."""
        slopes = self.slopes[i]
        if isinstance(slopes, Whitening):
            return slopes(values, values)
        if slopes.ndim == 2:
            return slopes @ values
        return slopes.reshape(-1, *[1] * (values.ndim - 1)) * values


class MeanSite(eqx.Module):
    """The site of a mean, given the network that tells the scale of its Gaussian noise."""

    posterior: Posterior

    def __call__(self, networks: dict[str, Any]) -> Site:
        x, y = self.posterior.inputs, self.posterior.targets
        likelihood = self.posterior.row_likelihood(self.posterior.params)
        slopes = 1 / likelihood.scale_at(jax.vmap(networks["scale"])(x))
        return Site([x], [slopes], -slopes * y)


def gaussian_site(posterior: Posterior, learned: dict[str, Array]) -> Site:
    """The data themselves as a site, for Gaussian noise on the sum of the networks' values."""
    scale = posterior.row_likelihood(posterior.join({}, learned)).scale
    count = len(posterior.prior.terms(posterior.prior.params))
    if posterior.local is not None:
        whitening, y = posterior.local.fitted, posterior.targets
        return Site([posterior.inputs] * count, [whitening] * count, -whitening(y, y))
    slopes = jnp.broadcast_to(1 / scale, posterior.targets.shape)
    return Site([posterior.inputs] * count, [slopes] * count, -slopes * posterior.targets)


def find_sites(frozen: Any) -> list[Any]:
    """Sites of a posterior whose hidden layers are frozen, at the mode of its readouts: one over all
    networks or, where the likelihood has a use for each, one a network."""
    posterior = frozen.posterior
    if posterior.likelihood.observes_points:
        sites: list[Any] = _value_sites(frozen)
        if isinstance(posterior.likelihood, Heteroscedastic):
            # Leaves of {"mean": …, "scale": …} in that order.
            sites[0] = MeanSite(posterior)
        return sites
    return [_map_site(frozen)]


@eqx.filter_jit
def _value_sites(frozen: Any) -> list[Site]:
    posterior, mode = frozen.posterior, _mode(frozen)
    network, likelihood = posterior.network(mode), posterior.row_likelihood(mode)
    predicted = likelihood.predict(network, posterior.inputs)
    roots, scores = _expand(likelihood, predicted, posterior.targets)
    count = len(posterior.prior.terms(posterior.prior.params))
    shared = count if len(roots) == 1 else 1
    values = jax.tree.leaves(predicted)
    return [
        Site([posterior.inputs] * shared, [root] * shared, -root * value - score / root)
        for root, value, score in zip(roots, values, scores, strict=True)
    ]


@eqx.filter_jit
def _map_site(frozen: Any) -> Site:
    """One site over all networks behind a forward map, by its Jacobian at the mode."""
    posterior, mode = frozen.posterior, _mode(frozen)
    network, likelihood = posterior.network(mode), posterior.row_likelihood(mode)
    networks, structure = jax.tree.flatten(network, is_leaf=is_network)
    energies = [term.energy for term in posterior.prior.terms(posterior.prior.params)]

    def predict(components: list[Any]) -> Array:
        moved = [
            lambda x, u=u, e=e, c=c: u(x) + jnp.dot(e.units(e.domain.point(x)), c)
            for u, e, c in zip(networks, energies, components, strict=True)
        ]
        return likelihood.predict(jax.tree.unflatten(structure, moved), posterior.inputs)

    sizes = [jax.eval_shape(lambda x, e=e: e.units(x), e.points[0]).shape for e in energies]
    zeros = [jnp.zeros(size) for size in sizes]
    predicted, slopes = predict(zeros), jax.jacfwd(predict)(zeros)
    (root,), (score,) = _expand(likelihood, predicted, posterior.targets)
    identities = [jnp.eye(len(e.points)) for e in energies]
    whitened = [e.whiten(i) for e, i in zip(energies, identities, strict=True)]
    slopes = [root[:, None] * (j @ r) for j, r in zip(slopes, whitened, strict=True)]
    points = [e.points for e in energies]
    at_mode = [a @ jax.vmap(u)(p) for a, u, p in zip(slopes, networks, points, strict=True)]
    return Site(points, slopes, -sum(at_mode) - score / root)


def _mode(frozen: Any) -> Any:
    """The posterior's parameters at the mode of its readouts, from that of the prior.

    By Levenberg–Marquardt where the noise is Gaussian, else by L-BFGS.
    """
    if isinstance(frozen.posterior.likelihood, Gaussian):
        return frozen.original(_least_squares(frozen))
    return frozen.original(climb(frozen, frozen.params, NUM_STEPS))


def _least_squares(frozen: Any) -> Any:
    """Coordinates of the least sum of squared residuals, of data and of the coordinates themselves."""
    import optimistix

    posterior, start = frozen.posterior, frozen.params

    def residuals(latent: Any, _: None) -> Array:
        params = frozen.original({"latent": latent, "likelihood": start["likelihood"]})
        likelihood = posterior.row_likelihood(params)
        predicted = likelihood.predict(posterior.network(params), posterior.inputs)
        misfit = (predicted - posterior.targets) / likelihood.scale
        return jnp.concatenate([misfit, *latent])

    solver = optimistix.LevenbergMarquardt(rtol=1e-6, atol=1e-6)
    found = optimistix.least_squares(
        residuals, solver, start["latent"], max_steps=NUM_STEPS, throw=False
    )
    return {"latent": found.value, "likelihood": start["likelihood"]}


def _expand(likelihood: Any, predicted: Any, targets: Array) -> tuple[list[Array], list[Array]]:
    """Roots of the Fisher information of each prediction, and slopes of the log likelihood."""
    score = jax.grad(lambda p: jnp.sum(likelihood.log_prob(p, targets)))(predicted)
    information = jax.tree.leaves(likelihood.information(predicted, targets))
    return [jnp.sqrt(jnp.maximum(i, LEAST)) for i in information], jax.tree.leaves(score)
