"""Every parameter of a posterior in coordinates where it is nearly N(0, I).

Given the hidden parameters η the readout is Gaussian a priori, and stays so where the data enter as
exp(−½|Sw + s|²): w = mean(η) + T(η)ζ with white ζ. In terms of (η, ζ) the posterior is

    N(η; 0, I) N(ζ; 0, I) · p(y | η)

for Gaussian noise, and p(y | η) is nearly the same for all η of a faithful network, so that few
leapfrog steps lead to an independent draw. For other likelihoods S and s are a Gaussian stand-in and
the density carries what they leave out: it is exact whatever they are.
"""

import math
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jax.scipy.linalg import block_diag
from jax.scipy.stats import norm
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from .checks import require_float64
from .coordinates import Coordinates, Params
from .likelihoods import Gaussian, Heteroscedastic
from .posterior import Posterior
from .readout import Readout, features, make_law, offset
from .sampling import maximise
from .terms import Term, is_network
from .whitened import Whitened

# Observations drawn to average the squared slope of the log likelihood: its information.
NUM_INFORMED = 256


class Sight(NamedTuple):
    """What data see of one network: exp(−½|slopes · u(points) + residual|²).

    Slopes are a matrix, or a vector for its diagonal.
    """

    points: Float[Array, "m d"]
    slopes: Float[Array, "n m"] | Float[Array, " m"]
    residual: Float[Array, " n"]

    def through(self, values: Float[Array, "m W"]) -> Float[Array, "n W"]:
        """Slopes times functions at the points, one a column."""
        return self.slopes[:, None] * values if self.slopes.ndim == 1 else self.slopes @ values


class ThroughNoise(eqx.Module):
    """How data with Gaussian noise see their mean, given the network that tells the noise's scale."""

    points: Float[Array, "n d"]
    targets: Float[Array, " n"]
    transform: Any

    def __call__(self, networks: dict[str, Any]) -> Sight:
        slopes = 1 / self.transform(jax.vmap(networks["scale"])(self.points))
        return Sight(self.points, slopes, -slopes * self.targets)


class _Laws(NamedTuple):
    """Readouts given the hidden layers: the law of each by itself, those given the data, one a sight,
    the weights that they make of the coordinates, and what each sight sees of them."""

    own: list[Readout]
    joint: list[Readout]
    weights: list[Array]
    seen: list[Array]


class Conditioned(Coordinates):
    """A posterior over every parameter, all of them white: N(0, I) but for p(y | η).

    `sights` tell how the data see the networks, one for each or one for their sum: a `Sight`, or a
    function that makes it of the networks, those with a `Sight` placed. By default the noise itself
    where it is Gaussian, even if another network tells its scale, else the information of the
    likelihood at the mode of the readouts, hidden layers as they are in `posterior.prior.params`.
    They shape the coordinates alone, never the density. Parameters have the structure of the
    posterior's.

    >>> import mercer
    >>> prior = mercer.design(mercer.BrownianMotion(100), 0.05, key=jax.random.key(0))
    >>> data = jnp.array([[0.2], [0.7]]), jnp.array([0.1, -0.3])
    >>> density = Conditioned(mercer.Posterior(prior, mercer.Gaussian(0.1), data))
    >>> density(density.params).shape
    ()
    """

    posterior: Posterior
    sights: list[Any] | None
    is_deterministic = True

    def __init__(self, posterior: Posterior, sights: list[Any] | None = None):
        require_float64("a posterior in white coordinates")
        posterior.prior.require_exact()
        if any(term.energy is None for term in posterior.prior.terms(posterior.prior.params)):
            raise ValueError("white coordinates need an energy for every network.")
        if posterior.batch_size is not None:
            raise ValueError("white coordinates need all rows at once: leave batch_size out.")
        count = len(posterior.prior.terms(posterior.prior.params))
        if sights is not None and len(sights) not in (1, count):
            raise ValueError(
                f"give one sight a network, or one of their sum: {len(sights)} for {count} networks."
            )
        self.posterior = posterior
        self.sights = sights
        if sights is None and not _is_gaussian(posterior):
            self.sights = find_sights(posterior)

    @property
    def params(self) -> Params:
        """A starting point, and the structure of the parameters."""
        return self.posterior.params

    def __call__(self, params: Params, batch: None = None) -> Float[Array, ""]:
        white = jnp.sum(norm.logpdf(ravel_pytree(params)[0]))
        laws = self._laws(params)
        known = sum(law.log_normaliser for law in laws.joint)
        if self.prior.normalised:
            known = known - sum(law.log_normaliser for law in laws.own)
        return white + known + self._rest(params, laws)

    def original(self, params: Params) -> Params:
        return self._place(params, self._laws(params).weights)

    def draw(self, key: PRNGKeyArray) -> Params:
        """A starting point: N(0, I), hidden layers from the prior and readouts given the data."""
        flat, unravel = ravel_pytree(self.params)
        return unravel(jax.random.normal(key, flat.shape, flat.dtype))

    def _hidden(self, network_params: PyTree) -> PyTree:
        return jax.tree.map(lambda leaf: self.prior.reference * leaf, network_params)

    def _laws(self, params: Params) -> _Laws:
        """First the readouts whose sight is known, then those that look at the others."""
        network_params, learned = self.posterior.split(params)
        terms = self.prior.terms(self._hidden(network_params))
        networks = jax.tree.leaves(network_params, is_leaf=is_network)
        weights = [ravel_pytree(self.prior.where(network))[0] for network in networks]
        own = [self.prior.readout_law(term) for term in terms]
        sights = self.sights or [_exact_sight(self.posterior, learned)]
        each = np.array_split(np.arange(len(terms)), len(sights))
        joint, seen = [], []
        for sight, group in sorted(zip(sights, each, strict=True), key=lambda p: callable(p[0])):
            if callable(sight):
                sight = sight(self.posterior.network(self._place(params, weights)))
            law = self._law_given([terms[i] for i in group], [own[i] for i in group], sight)
            white = law.place(jnp.concatenate([weights[i] for i in group]))
            ends = np.cumsum([len(weights[i]) for i in group])
            for i, part in zip(group, jnp.split(white, ends[:-1]), strict=True):
                weights[i] = self.prior.reference * part
            joint.append(law)
            seen.append((law.mixing @ white + law.residual)[-len(sight.residual) :])
        return _Laws(own, joint, weights, seen)

    def _law_given(self, terms: list[Term], own: list[Readout], sight: Sight) -> Readout:
        """The law of readouts, over the reference's scale, given data that see their sum."""
        where = self.prior.where

        def features_at(x):
            return jnp.concatenate([features(term.network, where, x) for term in terms])

        def rest_at(x):
            return jnp.stack([offset(term.network, where, x) for term in terms]).sum()

        slopes, rest = (jax.vmap(f)(sight.points) for f in (features_at, rest_at))
        known = block_diag(*(law.mixing for law in own))
        mixing = jnp.concatenate([known, self.prior.reference * sight.through(slopes)])
        last = sight.through(rest[:, None])[:, 0] + sight.residual
        residual = jnp.concatenate([*(law.residual for law in own), last])
        return make_law(mixing, residual, 1.0, self.prior.is_stiff)

    def _place(self, params: Params, weights: list[Array]) -> Params:
        network_params, learned = self.posterior.split(params)
        placed = self.prior.with_readouts(self._hidden(network_params), weights)
        return self.posterior.join(placed, learned)

    def _rest(self, params: Params, laws: _Laws) -> Float[Array, ""]:
        """The log likelihood less its stand-in: a constant where that is the noise itself."""
        if self.sights is None:
            scale = self.posterior.likelihood.with_params(self.posterior.split(params)[1]).scale
            every = jnp.broadcast_to(scale, self.posterior.targets.shape)
            return -jnp.sum(jnp.log(every) + 0.5 * math.log(2 * math.pi))
        stand_in = -0.5 * sum(jnp.sum(jnp.square(seen)) for seen in laws.seen)
        return self.posterior.log_likelihood(self._place(params, laws.weights)) - stand_in


def _is_gaussian(posterior: Posterior) -> bool:
    """Whether the readouts given hidden layers and data are exactly Gaussian."""
    return isinstance(posterior.likelihood, Gaussian) and posterior.likelihood.observes_points


def _exact_sight(posterior: Posterior, learned: Any) -> Sight:
    scale = posterior.likelihood.with_params(learned).scale
    slopes = jnp.broadcast_to(1 / scale, posterior.targets.shape)
    return Sight(posterior.inputs, slopes, -slopes * posterior.targets)


def find_sights(posterior: Posterior) -> list[Any]:
    """The likelihood about the mode of the readouts: slopes are the roots of its information. A mean
    whose noise has a network of its own is seen through that."""
    if not posterior.likelihood.observes_points:
        raise ValueError("a forward map has no sights of its own; give `sights`, one a network.")
    frozen = Whitened(posterior)
    likelihood, targets = posterior.likelihood, posterior.targets

    @jax.jit
    def find():
        mode = maximise(jax.random.key(0), frozen, num_steps=200)
        noise = likelihood.with_params(mode["likelihood"])
        values = noise.predict(frozen.network(mode), posterior.inputs)
        slope = jax.grad(lambda v, y: jnp.sum(noise.log_prob(v, y)))
        keys = jax.random.split(jax.random.key(1), NUM_INFORMED)
        drawn = jax.vmap(lambda key: slope(values, noise.draw(key, values)))(keys)
        information = jax.tree.map(lambda g: jnp.mean(jnp.square(g), axis=0), drawn)
        return values, slope(values, targets), information

    values, slopes, information = (jax.tree.leaves(tree) for tree in find())
    roots = [jnp.sqrt(one) for one in information]
    sights: list[Any] = [
        Sight(posterior.inputs, root, -root * value - slope / root)
        for root, value, slope in zip(roots, values, slopes, strict=True)
    ]
    if isinstance(likelihood, Heteroscedastic):
        # Leaves of {"mean": …, "scale": …} in that order.
        sights[0] = ThroughNoise(posterior.inputs, targets, likelihood.transform)
    return sights
