"""Posteriors in coordinates where they are nearly N(0, I).

Given the hidden parameters η the readout of each network is Gaussian a priori, and stays so where the
data enter as a Gaussian site exp(−½|A u(points) + b|²): w = mean(η) + T(η)ζ with white ζ. `Frozen` keeps
the hidden layers as they are and whitens the readout by the prior. `NonCentred` has every parameter, the
readout whitened by the prior and the data:

    p(η, ζ | y) ∝ N(η; 0, I) N(ζ; 0, I) · p(y | η)

where p(y | η) is nearly the same for all η of a faithful network, so that few leapfrog steps lead to an
independent draw. For noise that is not Gaussian, or forward maps that are not linear, the sites are the
likelihood's Gauss–Newton expansion at a mode and the density carries what they leave out: it is exact
whatever they are.
"""

from abc import abstractmethod
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jax.scipy.linalg import block_diag
from jax.scipy.stats import norm
from jaxtyping import Array, ArrayLike, Float, Int, PRNGKeyArray

from .checks import PyTree, default_float, is_concrete, require_float64
from .density import Density, normal_like
from .likelihoods import Gaussian
from .linear import (
    TallLaw,
    condition,
    condition_rows,
    gaussian_constant,
    log_integral,
    map_rows,
    safe_solver,
)
from .parameters import Params, is_network, offset, rows
from .posterior import Posterior, PosteriorBatch
from .prior import Prior, Rows
from .sites import Site, find_sites, gaussian_site
from .tail import NeighbourTail, Whitening
from .terms import Term


class Coordinates(Density):
    """A posterior in other coordinates: `original` leads back to its own parameters."""

    posterior: eqx.AbstractVar[Posterior]

    @property
    def target(self) -> Posterior:
        return self.posterior

    @property
    def prior(self) -> Prior:
        return self.posterior.prior

    @abstractmethod
    def original(self, params: Params) -> Params:
        """The posterior's own parameters at these."""

    def network(self, params: Params) -> PyTree:
        """The network, or pytree of networks, at these coordinates."""
        return self.posterior.network(self.original(params))

    def watch(self, params: Params) -> dict[str, Array]:
        return self.posterior.watch(params)


class Latent(eqx.Module):
    """One network's readout w = mean + Tz, and its values at the data: at_zero + slopes z.

    The latter two are None where they are not needed: for exact draws, and for forward maps.
    """

    mean: Float[Array, " W"]
    root: Float[Array, "W W"]
    at_zero: Float[Array, " n"] | None = rows()
    slopes: Float[Array, "n W"] | None = rows()


class Frozen(Coordinates):
    """The posterior of the readouts with the hidden layers as they are in `posterior.prior.params`.

    A density like any other: `params` is {"latent": [z, …], "likelihood": {…}}, one z a network,
    N(0, I) a priori. Where the likelihood is Gaussian with known noise, of one network or of a sum,
    `is_exact` holds: `draw` gives independent draws of the posterior and `log_evidence` is log p(y).

    >>> import mercer
    >>> prior = mercer.design(mercer.BrownianMotion(100), 0.05, key=jax.random.key(0))
    >>> data = jnp.array([[0.2], [0.7]]), jnp.array([0.1, -0.3])
    >>> frozen = Frozen(mercer.Posterior(prior, mercer.Gaussian(0.1), data))
    >>> frozen.is_exact, frozen.log_evidence.shape
    (True, ())
    """

    posterior: Posterior
    latents: list[Latent]
    law: TallLaw | None
    evidence: Float[Array, ""] | None

    def __init__(self, posterior: Posterior):
        require_float64("a frozen hidden layer")
        _require_energies(posterior)
        self.posterior = posterior
        exact = _is_gaussian(posterior) and not posterior.likelihood.hyperpriors
        exact = exact and posterior.batch_size is None
        self.latents = _make_latents(posterior, exact)
        self.law, self.evidence = _posterior_law(posterior, self.latents) if exact else (None, None)

    @property
    def params(self) -> Params:
        zeros = [jnp.zeros_like(latent.mean) for latent in self.latents]
        return {"latent": zeros, "likelihood": self.posterior.likelihood.params}

    @property
    def is_deterministic(self) -> bool:
        return self.posterior.batch_size is None

    @property
    def is_exact(self) -> bool:
        return self.law is not None

    @property
    def log_evidence(self) -> Float[Array, ""]:
        """log p(y) given the hidden layers."""
        if self.evidence is None:
            raise ValueError(
                "the evidence is known for a Gaussian likelihood at points of the networks, with "
                "known noise and no batch_size."
            )
        return self.evidence

    def batch(self, key: PRNGKeyArray) -> PosteriorBatch:
        return self.posterior.batch(key)

    def original(self, params: Params) -> Params:
        pairs = zip(self.latents, params["latent"], strict=True)
        weights = [latent.mean + latent.root @ z for latent, z in pairs]
        networks = self.prior.with_readouts(self.prior.params, weights)
        return self.posterior.join(networks, params["likelihood"])

    def __call__(self, params: Params, batch: PosteriorBatch | None = None) -> Float[Array, ""]:
        if batch is None and not self.is_deterministic:
            raise ValueError("this posterior has data minibatches: pass density.batch(key).")
        chosen = None if batch is None else batch.rows
        log_prior = sum(jnp.sum(norm.logpdf(leaf)) for leaf in jax.tree.leaves(params))
        terms = self._row_terms(params, chosen)
        return log_prior + jnp.sum(terms) * (self.posterior.inputs.shape[0] / terms.shape[0])

    def init(self, key: PRNGKeyArray) -> Params:
        """An exact draw where there are any, else one of the prior, N(0, I)."""
        return self.draw(key) if self.is_exact else normal_like(key, self.params)

    def draw(self, key: PRNGKeyArray) -> Params:
        if self.law is None:
            return Density.draw(self, key)
        ends = np.cumsum([len(latent.mean) for latent in self.latents])
        return {"latent": jnp.split(self.law.draw(key), ends[:-1]), "likelihood": {}}

    def moments(self, x: ArrayLike) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
        """Exact mean and variance of the sum of the networks at each row, the tail included."""
        x = jnp.asarray(x, default_float())
        if self.law is None:
            raise ValueError("moments in closed form need exact draws; use those of mercer.sample.")
        if self.posterior.local is not None:
            return _local_moments(self, x, self.posterior.local.whitening(x))
        terms = self.prior.terms(self.prior.params)
        centre = self.law.mean()

        def block(points):
            units, rest = _units(self.prior, terms, self.latents, points)
            return rest + units @ centre, self.law.variance(units)

        mean, variance = map_rows(block, x)
        tails = self.posterior.tail_variances(x)
        return mean, variance if tails is None else variance + sum(jax.tree.leaves(tails))

    def _row_terms(self, params: Params, chosen: Int[Array, " n"] | None) -> Float[Array, " n"]:
        """log p(yᵢ | z) of each row of the data, or of the chosen rows."""
        if self.latents[0].slopes is None:
            return self.posterior.row_terms(self.original(params), chosen)
        cut = (lambda array: array) if chosen is None else (lambda array: array[chosen])
        likelihood = self.posterior.row_likelihood(self.posterior.join({}, params["likelihood"]))
        likelihood = likelihood if chosen is None else likelihood.at_rows(chosen)
        values = [
            cut(latent.at_zero) + cut(latent.slopes) @ z
            for latent, z in zip(self.latents, params["latent"], strict=True)
        ]
        networks = self.prior.network(self.prior.params)
        structure = jax.tree.structure(networks, is_leaf=is_network)
        observed = likelihood.combine(jax.tree.unflatten(structure, values))
        return likelihood.log_prob(observed, cut(self.posterior.targets))


@eqx.filter_jit
def _make_latents(posterior: Posterior, exact: bool) -> list[Latent]:
    terms = posterior.prior.terms(posterior.prior.params)
    needs_rows = not exact and posterior.likelihood.observes_points
    return [_make_latent(posterior.prior, t, posterior.inputs, needs_rows) for t in terms]


def _make_latent(prior: Prior, term: Term, inputs: Array, needs_rows: bool) -> Latent:
    law = prior.readout_law(term)
    mean, root = prior.reference * law.mean(), prior.reference * law.root()
    if not needs_rows:
        return Latent(mean, root, None, None)
    slopes = prior.white_features(term.network, inputs) / prior.reference
    rest = jax.vmap(lambda x: offset(term.network, prior.where, x))(inputs)
    # Turned so that the data sees the latent's axes one by one: what it learns of them differs by
    # orders of magnitude, and a diagonal mass matrix can then even it out.
    seen = slopes @ root
    root = root @ jnp.linalg.eigh(seen.T @ seen)[1]
    return Latent(mean, root, rest + slopes @ mean, slopes @ root)


def _units(
    prior: Prior, terms: list[Term], latents: list[Latent], x: Float[Array, "n d"]
) -> tuple[Float[Array, "n W"], Float[Array, " n"]]:
    """What the coordinates z of all networks are multiplied by at each row, and the sum at z = 0."""
    units, rest = [], jnp.zeros(x.shape[0])
    for term, latent in zip(terms, latents, strict=True):
        features = prior.white_features(term.network, x) / prior.reference
        units.append(features @ latent.root)
        at_zero = jax.vmap(lambda p, t=term: offset(t.network, prior.where, p))(x)
        rest = rest + at_zero + features @ latent.mean
    return jnp.concatenate(units, axis=1), rest


@eqx.filter_jit
def _posterior_law(posterior: Posterior, latents: list[Latent]) -> tuple[TallLaw, Float[Array, ""]]:
    """The law of the coordinates z of all networks given the data, and log p(y)."""
    prior = posterior.prior
    terms = prior.terms(prior.params)
    if posterior.local is not None:
        return _local_law(posterior.local, posterior.targets)
    noise = jnp.broadcast_to(
        posterior.row_likelihood(posterior.params).scale, posterior.targets.shape
    )

    def make_rows(block):
        x, y, scale = block
        units, rest = _units(prior, terms, latents, x)
        return units / scale[:, None], (rest - y) / scale

    data = posterior.inputs, posterior.targets, noise
    law, log_ratio = condition_rows(make_rows, data)
    return law, log_ratio + gaussian_constant(noise)


def _local_law(local: NeighbourTail, targets: Array) -> tuple[TallLaw, Float[Array, ""]]:
    """The same where rows are whitened by their neighbours."""
    missed = local.at_zero - targets

    def make_rows(block):
        units, rest, whitening = block
        return whitening(units, local.units), whitening(rest, missed)

    law, log_ratio = condition_rows(make_rows, (local.units, missed, local.fitted))
    return law, log_ratio + gaussian_constant(local.fitted.scale)


@eqx.filter_jit
def _local_moments(
    frozen: Frozen, x: Float[Array, "n d"], whitening: Whitening
) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
    """Mean and variance at each row, the tail there conditioned on that of the nearest data."""
    local, centre = frozen.posterior.local, frozen.law.mean()
    missed = frozen.posterior.targets - local.at_zero - local.units @ centre

    def block(rows):
        points, around = rows
        units, rest = local.units_at(points)
        own = around.innovations(units, local.units)
        seen = jnp.sum(around.coefficients * missed[around.indices], axis=1)
        return rest + units @ centre + seen, frozen.law.variance(own) + around.scale**2

    return map_rows(block, (x, whitening))


class _Readouts(NamedTuple):
    """Readouts given the hidden layers: rows of their own energies, and of energies and sites; the
    weights that coordinates stand for, and what each site makes of them."""

    own: list[Rows]
    joint: list[Rows]
    weights: list[Array]
    seen: list[Array]


class NonCentred(Coordinates):
    """A posterior over every parameter, all of them white: N(0, I) but for p(y | η).

    `sites` are found by the library: the noise itself where it is Gaussian, even if another network
    tells its scale, else the Gauss–Newton expansion of the likelihood, through any forward map, at
    a mode of the readouts. They shape the coordinates alone, never the density. Parameters have
    the structure of the posterior's.

    >>> import mercer
    >>> prior = mercer.design(mercer.BrownianMotion(100), 0.05, key=jax.random.key(0))
    >>> data = jnp.array([[0.2], [0.7]]), jnp.array([0.1, -0.3])
    >>> density = NonCentred(mercer.Posterior(prior, mercer.Gaussian(0.1), data))
    >>> density(density.params).shape
    ()
    """

    posterior: Posterior
    sites: list[Any] | None
    solver: str = eqx.field(static=True)

    def __init__(self, posterior: Posterior):
        require_float64("a posterior in white coordinates")
        _require_energies(posterior)
        if posterior.batch_size is not None:
            raise ValueError("white coordinates need all rows at once: leave batch_size out.")
        self.posterior = posterior
        self.sites = None if _is_gaussian(posterior) else find_sites(Frozen(posterior))
        self.solver = posterior.prior.solver
        self.solver = self._choose_solver()

    @property
    def params(self) -> Params:
        return self.posterior.params

    def __call__(self, params: Params, batch: None = None) -> Float[Array, ""]:
        white = jnp.sum(norm.logpdf(ravel_pytree(params)[0]))
        readouts = self._readouts(params)
        known = sum(log_integral(*rows, self.solver) for rows in readouts.joint)
        if self.prior.normalised:
            known = known - sum(log_integral(*rows, self.prior.solver) for rows in readouts.own)
        return white + known + self._remainder(params, readouts)

    def init(self, key: PRNGKeyArray) -> Params:
        """N(0, I): hidden layers from the prior, and readouts given the data."""
        return normal_like(key, self.params)

    def original(self, params: Params) -> Params:
        return self._place(params, self._readouts(params).weights)

    def _readouts(self, params: Params) -> _Readouts:
        """First the readouts whose site is known, then those whose site depends on the others."""
        network_params, learned = self.posterior.split(params)
        terms = self.prior.terms(self._hidden(network_params))
        networks = jax.tree.leaves(network_params, is_leaf=is_network)
        weights = [ravel_pytree(self.prior.where(network))[0] for network in networks]
        own = [self.prior.energy_rows(term) for term in terms]
        sites = self.sites or [gaussian_site(self.posterior, learned)]
        groups = np.array_split(np.arange(len(terms)), len(sites))
        joint, seen = [], []
        order = sorted(zip(sites, groups, strict=True), key=lambda pair: callable(pair[0]))
        for site, group in order:
            if callable(site):
                site = site(self.posterior.network(self._place(params, weights)))
            stacked = self._stack([terms[i] for i in group], [own[i] for i in group], site)
            law = condition(*stacked, self.solver)
            white = law.place(jnp.concatenate([weights[i] for i in group]))
            ends = np.cumsum([len(weights[i]) for i in group])
            for i, part in zip(group, jnp.split(white, ends[:-1]), strict=True):
                weights[i] = self.prior.reference * part
            joint.append(stacked)
            seen.append((stacked.mixing @ white + stacked.residual)[-len(site.residual) :])
        return _Readouts(own, joint, weights, seen)

    def _stack(self, terms: list[Term], own: list[Rows], site: Site) -> Rows:
        """Rows of the energies of some networks, and below them those of a site that sees them."""
        features = [
            site.apply(i, self.prior.white_features(term.network, points))
            for i, (term, points) in enumerate(zip(terms, site.points, strict=True))
        ]
        rest = [
            site.apply(
                i, jax.vmap(lambda x, t=term: offset(t.network, self.prior.where, x))(points)
            )
            for i, (term, points) in enumerate(zip(terms, site.points, strict=True))
        ]
        known = block_diag(*(rows.mixing for rows in own))
        mixing = jnp.concatenate([known, jnp.concatenate(features, axis=1)])
        residual = jnp.concatenate([*(rows.residual for rows in own), sum(rest) + site.residual])
        return Rows(mixing, residual)

    def _hidden(self, network_params: PyTree) -> PyTree:
        return jax.tree.map(lambda leaf: self.prior.reference * leaf, network_params)

    def _place(self, params: Params, weights: list[Array]) -> Params:
        network_params, learned = self.posterior.split(params)
        placed = self.prior.with_readouts(self._hidden(network_params), weights)
        return self.posterior.join(placed, learned)

    def _remainder(self, params: Params, readouts: _Readouts) -> Float[Array, ""]:
        """The log likelihood less its sites: a constant where the noise is the site itself."""
        if self.sites is None:
            local = self.posterior.local
            scale = (
                self.posterior.row_likelihood(params).scale if local is None else local.fitted.scale
            )
            return gaussian_constant(jnp.broadcast_to(scale, self.posterior.targets.shape))
        expansion = -0.5 * sum(jnp.sum(jnp.square(seen)) for seen in readouts.seen)
        return self.posterior.log_likelihood(self._place(params, readouts.weights)) - expansion

    def _choose_solver(self) -> str:
        """By the size of the rows at the parameters given; "qr" where these are traced."""
        if not is_concrete(self.posterior):
            return "qr"
        with jax.ensure_compile_time_eval():
            return safe_solver(float(_rows_size(self)))


@eqx.filter_jit
def _rows_size(density: NonCentred) -> Float[Array, ""]:
    joint = density._readouts(density.params).joint
    return jnp.max(jnp.stack([jnp.sum(jnp.square(rows.mixing)) for rows in joint]))


def _is_gaussian(posterior: Posterior) -> bool:
    """Whether the readouts given hidden layers and data are exactly Gaussian."""
    return isinstance(posterior.likelihood, Gaussian) and posterior.likelihood.observes_points


def _require_energies(posterior: Posterior) -> None:
    posterior.prior.require_exact()
    if any(term.energy is None for term in posterior.prior.terms(posterior.prior.params)):
        raise ValueError("white coordinates need an energy for every network.")
