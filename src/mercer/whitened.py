"""A frozen hidden layer: the readouts alone are random, in coordinates where the prior is N(0, I).

Given the hidden parameters the readout of each network is Gaussian, w = mean + Tz with white z, and
the values at the data are linear in z. Samplers see a well-conditioned latent; with a Gaussian
likelihood the posterior itself is Gaussian, its draws are exact and its evidence is known.
"""

import math
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.stats import norm
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from .checks import require_float64
from .coordinates import Coordinates
from .density import Prior
from .likelihoods import Gaussian
from .posterior import Posterior, PosteriorBatch
from .readout import Readout, features, make_law, offset
from .terms import is_network
from .unknowns import Unknown

Params = dict[str, list]


class Latent(eqx.Module):
    """One network's readout w = mean + Tz, and what z does at the data: values = at_zero + slopes z.

    Both of these are None where the likelihood looks at more than the values at the data.
    """

    mean: Float[Array, " W"]
    root: Float[Array, "W W"]
    at_zero: Any
    slopes: Any


class Whitened(Coordinates):
    """The posterior of the readouts with the hidden layers as they are in `posterior.prior.params`.

    A density like any other: `params` is {"latent": [z, …], "likelihood": […]}, one z a network.
    Where the likelihood is Gaussian with known noise, of one network or of a sum, `is_exact` holds:
    `draw` gives independent draws of the posterior and `log_evidence` is log p(y).

    >>> import mercer
    >>> prior = mercer.design(mercer.BrownianMotion(100), 0.05, key=jax.random.key(0))
    >>> data = jnp.array([[0.2], [0.7]]), jnp.array([0.1, -0.3])
    >>> frozen = Whitened(mercer.Posterior(prior, mercer.Gaussian(0.1), data))
    >>> frozen.is_exact, frozen.log_evidence.shape
    (True, ())
    """

    posterior: Posterior
    latents: list[Latent]
    law: Readout | None

    def __init__(self, posterior: Posterior):
        require_float64("a whitened readout")
        prior = posterior.prior
        prior.require_exact()
        terms = prior.terms(prior.params)
        if any(term.energy is None for term in terms):
            raise ValueError("a whitened readout needs an energy for every network.")
        self.posterior = posterior
        self.latents = [_make_latent(prior, term, posterior) for term in terms]
        self.law = _exact_law(posterior, self.latents)

    @property
    def params(self) -> Params:
        """A starting point, and the structure of the parameters."""
        zeros = [jnp.zeros_like(latent.mean) for latent in self.latents]
        return {"latent": zeros, "likelihood": self.posterior.likelihood.params}

    @property
    def is_deterministic(self) -> bool:
        """Whether the density needs no batch."""
        return self.posterior.batch_size is None

    @property
    def is_exact(self) -> bool:
        """Whether `draw` gives exact draws of this density."""
        return self.law is not None

    @property
    def log_evidence(self) -> Float[Array, ""]:
        """log p(y) given the hidden layers."""
        if self.law is None:
            raise ValueError(
                "the evidence is known for a Gaussian likelihood at points of the networks, with "
                "known noise and no batch_size."
            )
        scale = jnp.broadcast_to(self.posterior.likelihood.scale, self.law.residual.shape)
        return self.law.log_normaliser - jnp.sum(jnp.log(scale) + 0.5 * math.log(2 * math.pi))

    def batch(self, key: PRNGKeyArray) -> PosteriorBatch:
        return self.posterior.batch(key)

    def original(self, params: Params) -> Any:
        return self.posterior.join(self.network_params(params), params["likelihood"])

    def network_params(self, params: Params) -> PyTree:
        """All parameters of the networks, as the prior has them."""
        pairs = zip(self.latents, params["latent"], strict=True)
        weights = [latent.mean + latent.root @ z for latent, z in pairs]
        return self.prior.with_readouts(self.prior.params, weights)

    def __call__(self, params: Params, batch: PosteriorBatch | None = None) -> Float[Array, ""]:
        if batch is None and not self.is_deterministic:
            raise ValueError("this posterior has data minibatches: pass density.batch(key).")
        rows = None if batch is None else batch.rows
        log_prior = sum(jnp.sum(norm.logpdf(leaf)) for leaf in jax.tree.leaves(params))
        terms = self.row_terms(params, rows)
        return log_prior + jnp.sum(terms) * (self.inputs.shape[0] / terms.shape[0])

    def row_terms(self, params: Params, rows: Int[Array, " n"] | None = None) -> Float[Array, " n"]:
        """log p(yᵢ | z) of each row of the data, or of the given rows."""
        likelihood = self.posterior.likelihood.with_params(params["likelihood"])
        x, y, latents = self.inputs, self.posterior.targets, self.latents
        if not likelihood.observes_points:
            if rows is not None:
                likelihood, x, y = likelihood.at_rows(rows), x[rows], y[rows]
            return likelihood(self.network(params), x, y)
        if rows is not None:
            likelihood, y = likelihood.at_rows(rows), y[rows]
            latents = [
                Latent(one.mean, one.root, one.at_zero[rows], one.slopes[rows]) for one in latents
            ]
        pairs = zip(latents, params["latent"], strict=True)
        values = [latent.at_zero + latent.slopes @ z for latent, z in pairs]
        networks = self.prior.network(self.prior.params)
        structure = jax.tree.structure(networks, is_leaf=is_network)
        observed = likelihood.combine(jax.tree.unflatten(structure, values))
        return likelihood.log_prob(observed, y)

    def draw(self, key: PRNGKeyArray) -> Params:
        """An exact draw of this density where it is Gaussian, else of the prior."""
        latent_key, likelihood_key = jax.random.split(key)
        if self.law is not None:
            drawn = self.law.draw(latent_key)
            ends = np.cumsum([len(latent.mean) for latent in self.latents])
            return {"latent": jnp.split(drawn, ends[:-1]), "likelihood": []}
        keys = jax.random.split(latent_key, len(self.latents))
        drawn = [
            jax.random.normal(k, latent.mean.shape)
            for k, latent in zip(keys, self.latents, strict=True)
        ]
        learned = self.posterior.likelihood.params
        noise = jax.random.normal(likelihood_key, (len(learned),))
        return {"latent": drawn, "likelihood": list(noise)}

    def map_rows(self, function: Callable[[Array], Array]) -> "Whitened":
        """The same density with a function applied to the arrays of its data."""

        def rows(density):
            return [(one.at_zero, one.slopes) for one in density.latents]

        mapped = jax.tree.map(function, rows(self))
        whole = eqx.tree_at(lambda d: d.posterior, self, self.posterior.map_rows(function))
        return eqx.tree_at(rows, whole, mapped) if jax.tree.leaves(mapped) else whole


def _make_latent(prior: Prior, term, posterior: Posterior) -> Latent:
    law = prior.readout_law(term)
    mean, root = law.mean(), law.root()
    if not posterior.likelihood.observes_points:
        return Latent(mean, root, None, None)
    slopes = jax.vmap(lambda x: features(term.network, prior.where, x))(posterior.inputs)
    rest = jax.vmap(lambda x: offset(term.network, prior.where, x))(posterior.inputs)
    # Turned so that the data sees the latent's axes one by one: what it learns of them differs by
    # orders of magnitude, and a diagonal mass matrix can then even it out.
    seen = slopes @ root
    root = root @ jnp.linalg.eigh(seen.T @ seen)[1]
    return Latent(mean, root, rest + slopes @ mean, slopes @ root)


def _exact_law(posterior: Posterior, latents: list[Latent]) -> Readout | None:
    """The Gaussian law of z given the data, or None where it is not Gaussian."""
    likelihood = posterior.likelihood
    if not isinstance(likelihood, Gaussian) or isinstance(likelihood.scale, Unknown):
        return None
    if not likelihood.observes_points or posterior.batch_size is not None:
        return None
    scale = jnp.asarray(likelihood.scale)
    column = scale if scale.ndim == 0 else scale[:, None]
    slopes = jnp.concatenate([latent.slopes for latent in latents], axis=1)
    at_zero = sum(latent.at_zero for latent in latents)
    return make_law(slopes / column, (at_zero - posterior.targets) / scale)
