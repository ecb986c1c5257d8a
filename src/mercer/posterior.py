"""The log density of a network's parameters given data."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.scipy.stats import norm
from jaxtyping import Array, Float, Int, PRNGKeyArray

from .checks import PyTree, as_real, default_float, require_count, require_finite
from .density import Density, normal_like
from .likelihoods import Gaussian, Likelihood
from .parameters import Params, rows
from .prior import Prior
from .tail import (
    Neighbours,
    NeighbourTail,
    Tail,
    Whitening,
    explained_tail,
    make_tail,
    tail_variances,
)


class PosteriorBatch(NamedTuple):
    """Randomness of the prior, and rows of the data."""

    prior: list[Any]
    rows: Int[Array, " n"] | None


class Posterior(Density):
    """log p(θ | y) up to a constant: the prior plus the log likelihood of data = (X, y).

    X has shape (n, d). With a `batch_size`, `batch(key)` also draws rows without replacement
    and their log likelihood is scaled by N/n. Quantities of the likelihood that are given as
    hyperpriors are learned too; `params` is then a dict of "network" and "likelihood".

    `tail` says what becomes of the part of the process that the network's units leave out:
    "independent" adds its variance to the noise of each row and to predictions, "none" leaves the
    network alone, and "auto" takes off what data tell of it: the level it has at the rows, where
    that is below the noise's variance. "neighbours", or `Neighbours(fitted, predicted)` with their
    numbers, conditions it on the nearest rows, for dense data with known Gaussian noise. All are for
    likelihoods that look at the network's values, by a prior in closed form.
    """

    prior: Prior
    likelihood: Likelihood
    tail: Tail | None
    told_tail: PyTree[Float[Array, ""]] | None
    local: NeighbourTail | None
    batch_size: int | None = eqx.field(static=True)
    inputs: Float[Array, "N d"] = rows()
    targets: Array = rows()
    tail_rows: Float[Array, " N"] | None = rows()

    def __init__(
        self,
        prior: Prior,
        likelihood: Likelihood,
        data: tuple[Any, ...],
        batch_size: int | None = None,
        tail: str | Neighbours = "auto",
    ):
        self.prior = prior
        self.likelihood = likelihood
        self.inputs, self.targets = _check_data(prior, likelihood, data)
        self.batch_size = batch_size
        self.local = None
        if tail == "neighbours" or isinstance(tail, Neighbours):
            counts = tail if isinstance(tail, Neighbours) else Neighbours()
            self.local, tail = self._make_local(counts), "none"
        self.tail = make_tail(tail, prior, likelihood.observes_points)
        self.told_tail = self.tail_rows = None
        if self.tail is not None:
            variances = tail_variances(self.tail, self.inputs)
            noise = likelihood.with_params(likelihood.params).noise_variance(self.targets)
            told = explained_tail(tail, likelihood.tail_variance(variances), noise)
            self.told_tail = jax.tree.map(lambda v: told * jnp.max(v), variances)
            self.tail_rows = likelihood.tail_variance(self._untold(variances))
        jax.eval_shape(lambda params: self.log_likelihood(params), self.params)
        if batch_size is not None:
            require_count("batch_size", batch_size)
            if batch_size > self.inputs.shape[0]:
                raise ValueError(
                    f"batch_size={batch_size} is more than the {self.inputs.shape[0]} rows of data."
                )

    @property
    def params(self) -> Params:
        return self.join(self.prior.params, self.likelihood.params)

    @property
    def is_deterministic(self) -> bool:
        return self.prior.is_deterministic and self.batch_size is None

    def network(self, params: Params) -> PyTree:
        """The network, or pytree of networks, with these parameters."""
        return self.prior.network(self.split(params)[0])

    def batch(self, key: PRNGKeyArray) -> PosteriorBatch:
        prior_key, row_key = jax.random.split(key)
        chosen = None
        if self.batch_size is not None:
            total = self.inputs.shape[0]
            chosen = jax.random.choice(row_key, total, (self.batch_size,), replace=False)
        return PosteriorBatch(self.prior.batch(prior_key), chosen)

    def __call__(self, params: Params, batch: PosteriorBatch | None = None) -> Float[Array, ""]:
        prior_batch, chosen = (None, None) if batch is None else batch
        if chosen is None and self.batch_size is not None:
            raise ValueError("this posterior has data minibatches: pass posterior.batch(key).")
        return self.log_prior(params, prior_batch) + self.log_likelihood(params, chosen)

    def init(self, key: PRNGKeyArray) -> Params:
        """A start from the prior, and from what is learned of the likelihood its own prior."""
        network_key, likelihood_key = jax.random.split(key)
        learned = normal_like(likelihood_key, self.likelihood.params)
        return self.join(self.prior.init(network_key), learned)

    def log_prior(self, params: Params, batch: list[Any] | None = None) -> Float[Array, ""]:
        """The prior of the network and of what is learned of the likelihood."""
        network_params, learned = self.split(params)
        hyper = sum(norm.logpdf(leaf) for leaf in jax.tree.leaves(learned))
        return self.prior(network_params, batch) + hyper

    def log_likelihood(
        self, params: Params, chosen: Int[Array, " n"] | None = None
    ) -> Float[Array, ""]:
        """log p(y | θ), of the chosen rows alone and scaled by N/n where rows are chosen."""
        terms = self.row_terms(params, chosen)
        return jnp.sum(terms) * (self.inputs.shape[0] / terms.shape[0])

    def row_terms(
        self, params: Params, chosen: Int[Array, " n"] | None = None
    ) -> Float[Array, " n"]:
        """log p(yᵢ | θ) of each row of the data, or of the chosen rows."""
        likelihood, x, y = self.row_likelihood(params), self.inputs, self.targets
        if self.local is not None:
            return self._local_terms(likelihood, self.network(params), chosen)
        if chosen is not None:
            likelihood, x, y = likelihood.at_rows(chosen), x[chosen], y[chosen]
        return likelihood(self.network(params), x, y)

    def row_likelihood(self, params: Params) -> Likelihood:
        """The likelihood of the data's rows, the tail's variance in their noise."""
        likelihood = self.likelihood.with_params(self.split(params)[1])
        return likelihood if self.tail_rows is None else likelihood.widened(self.tail_rows)

    def _make_local(self, counts: Neighbours) -> NeighbourTail:
        likelihood = self.likelihood
        if not (isinstance(likelihood, Gaussian) and likelihood.observes_points):
            raise ValueError('tail="neighbours" is for Gaussian noise on values of the networks.')
        if likelihood.hyperpriors:
            raise ValueError('tail="neighbours" needs a noise that is known, not a hyperprior.')
        return NeighbourTail(self.prior, self.inputs, likelihood.scale, counts)

    def _local_terms(self, likelihood: Likelihood, network: PyTree, chosen: Array | None):
        """log p(yᵢ | y of its neighbours, θ) of each row."""
        whitening = self.local.fitted if chosen is None else self.local.fitted.at_rows(chosen)
        if chosen is None:
            missed = self.targets - likelihood.predict(network, self.inputs)
            white = whitening(missed, missed)
        else:
            # The chosen rows and their neighbours alone, one after another.
            near = jnp.concatenate([chosen, whitening.indices.ravel()])
            missed = self.targets[near] - likelihood.predict(network, self.inputs[near])
            own, around = missed[: len(chosen)], missed[len(chosen) :]
            seen = jnp.sum(whitening.coefficients * around.reshape(len(chosen), -1), axis=1)
            white = (own - seen) / whitening.scale
        return norm.logpdf(white) - jnp.log(whitening.scale)

    def watch(self, params: Params) -> dict[str, Array]:
        """What the prior watches, and what is learned of the likelihood, by name."""
        network_params, learned = self.split(params)
        return self.prior.watch(network_params) | self.likelihood.learned(learned)

    def resolve(self, params: Params) -> tuple["Posterior", Params]:
        """The posterior that parameters belong to, and those of its networks and likelihood."""
        return self, params

    def learned(self, group: str, params: dict[str, Array]) -> dict[str, Array]:
        """Learned quantities in the user's units, from their standardised values."""
        return self.likelihood.learned(params) if group == "likelihood" else {}

    def tail_variances(self, inputs: Float[Array, "n d"]) -> PyTree[Float[Array, " n"]] | None:
        """Variances that the units of each network leave out at new inputs; None without a tail."""
        return None if self.tail is None else self._untold(self.tail.variances(inputs))

    def shift(self, params: Params, near: Whitening | None) -> Float[Array, " n"] | float:
        """What the tail at the nearest data adds to the networks at new inputs."""
        if near is None:
            return 0.0
        points = self.inputs[near.indices].reshape(-1, self.inputs.shape[1])
        predicted = self.likelihood.predict(self.network(params), points)
        missed = self.targets[near.indices] - predicted.reshape(near.indices.shape)
        return jnp.sum(near.coefficients * missed, axis=1)

    def _untold(self, variances: PyTree[Float[Array, " n"]]) -> PyTree[Float[Array, " n"]]:
        """Variances of the tail less the level that data tell of it."""
        return jax.tree.map(lambda v, told: jnp.maximum(v - told, 0.0), variances, self.told_tail)

    def draw_observations(
        self,
        key: PRNGKeyArray,
        params: Params,
        inputs: Float[Array, "n d"],
        variances: PyTree | None = None,
    ) -> Array:
        """New targets at these inputs, noise, and the tail of these variances, and all."""
        likelihood = self._any_row(params)
        predicted = likelihood.predict(self.network(params), inputs)
        if variances is None:
            return likelihood.draw(key, predicted)
        noise_key, tail_key = jax.random.split(key)
        extra = likelihood.tail_variance(variances)
        widened = likelihood.widened(extra)
        if widened is likelihood:
            predicted = predicted + jnp.sqrt(extra) * jax.random.normal(tail_key, predicted.shape)
        return widened.draw(noise_key, predicted)

    def score(
        self,
        params: Params,
        inputs: Float[Array, "n d"],
        targets: Array,
        variances: PyTree | None = None,
    ) -> Float[Array, " n"]:
        """log p(y | θ) of each row of new data, the tail of these variances in its noise."""
        likelihood = self._any_row(params)
        if variances is not None:
            likelihood = likelihood.widened(likelihood.tail_variance(variances))
        return likelihood(self.network(params), inputs, targets)

    def require_inputs(self, inputs: Float[Array, "n d"], name: str = "X") -> None:
        """Raise where the likelihood looks at points and one lies outside the domain."""
        if self.likelihood.observes_points:
            self.prior.require_inside(inputs, name)

    def split(self, params: Params) -> tuple[Params, dict[str, Array]]:
        """The parameters of the networks, and what is learned of the likelihood."""
        if not self.likelihood.hyperpriors:
            return params, {}
        return params["network"], params["likelihood"]

    def join(self, network_params: Params, learned: dict[str, Array]) -> Params:
        """The parameters, from those of the networks and what is learned of the likelihood."""
        if not self.likelihood.hyperpriors:
            return network_params
        return {"network": network_params, "likelihood": learned}

    def _any_row(self, params: Params) -> Likelihood:
        likelihood = self.likelihood.with_params(self.split(params)[1])
        likelihood.require_any_row()
        return likelihood


def _check_data(prior: Prior, likelihood: Likelihood, data: tuple[Any, ...]) -> tuple[Array, Array]:
    if not isinstance(data, tuple) or len(data) != 2:
        raise ValueError("data must be a pair (X, y).")
    inputs = as_real("X", data[0]).astype(default_float())
    targets = as_real("y", data[1])
    if inputs.ndim != 2:
        raise ValueError(f"X must have shape (n, d), got {inputs.shape}; use X[:, None] in 1-D.")
    if inputs.shape[0] == 0:
        raise ValueError("the data set is empty: X has no rows.")
    if targets.shape[:1] != inputs.shape[:1]:
        raise ValueError(
            f"X has {inputs.shape[0]} rows, y has shape {targets.shape}; one row a target."
        )
    require_finite("X", inputs)
    require_finite("y", targets)
    if likelihood.observes_points:
        prior.require_inside(inputs)
    likelihood.check(targets)
    return inputs, targets
