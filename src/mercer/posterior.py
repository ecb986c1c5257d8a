"""The log density of a network's parameters given data."""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jax.scipy.stats import norm
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from .checks import as_real, default_float, require_count, require_finite
from .density import Params, Prior
from .likelihoods import Likelihood


class PosteriorBatch(NamedTuple):
    """Randomness of the prior, and rows of the data."""

    prior: list
    rows: Int[Array, " n"] | None


class Posterior(eqx.Module):
    """log p(θ | y) up to a constant: the prior plus the log likelihood of data = (X, y).

    X has shape (n, d). With a `batch_size`, `batch(key)` also draws rows without replacement
    and their log likelihood is scaled by N/n. Quantities of the likelihood that are given as
    `LogNormal` are learned too; `params` is then a dict of "network" and "likelihood".
    """

    prior: Prior
    likelihood: Likelihood
    inputs: Float[Array, "N d"]
    targets: Array
    batch_size: int | None = eqx.field(static=True)
    __hash__ = object.__hash__

    def __init__(
        self, prior: Prior, likelihood: Likelihood, data: tuple, batch_size: int | None = None
    ):
        self.prior = prior
        self.likelihood = likelihood
        self.inputs, self.targets = _check_data(prior, likelihood, data)
        self.batch_size = batch_size
        jax.eval_shape(lambda params: self.log_likelihood(params), self.params)
        if batch_size is not None:
            require_count("batch_size", batch_size)
            if batch_size > self.inputs.shape[0]:
                raise ValueError(
                    f"batch_size={batch_size} is more than the {self.inputs.shape[0]} rows of data."
                )

    @property
    def params(self) -> Params:
        """A starting point, and the structure of the parameters."""
        return self.join(self.prior.params, self.likelihood.params)

    @property
    def is_deterministic(self) -> bool:
        """Whether the density needs no batch."""
        return self.prior.is_deterministic and self.batch_size is None

    def network(self, params: Params) -> PyTree:
        """The network, or pytree of networks, with these parameters."""
        return self.prior.network(self.split(params)[0])

    def batch(self, key: PRNGKeyArray) -> PosteriorBatch:
        prior_key, row_key = jax.random.split(key)
        rows = None
        if self.batch_size is not None:
            total = self.inputs.shape[0]
            rows = jax.random.choice(row_key, total, (self.batch_size,), replace=False)
        return PosteriorBatch(self.prior.batch(prior_key), rows)

    def log_likelihood(self, params: Params, rows: Int[Array, " n"] | None = None):
        """log p(y | θ), of the given rows alone and scaled by N/n where rows are given."""
        terms = self.row_terms(params, rows)
        return jnp.sum(terms) * (self.inputs.shape[0] / terms.shape[0])

    def row_terms(self, params: Params, rows: Int[Array, " n"] | None = None) -> Float[Array, " n"]:
        """log p(yᵢ | θ) of each row of the data, or of the given rows."""
        network_params, learned = self.split(params)
        likelihood, x, y = self.likelihood.with_params(learned), self.inputs, self.targets
        if rows is not None:
            likelihood, x, y = likelihood.at_rows(rows), x[rows], y[rows]
        return likelihood(self.prior.network(network_params), x, y)

    def log_prior(self, params: Params, batch: list | None = None) -> Float[Array, ""]:
        """The prior of the network and of what is learned of the likelihood."""
        network_params, learned = self.split(params)
        hyper = sum(norm.logpdf(leaf) for leaf in jax.tree.leaves(learned))
        return self.prior(network_params, batch) + hyper

    def __call__(self, params: Params, batch: PosteriorBatch | None = None) -> Float[Array, ""]:
        prior_batch, rows = (None, None) if batch is None else batch
        if batch is None and self.batch_size is not None:
            raise ValueError("this posterior has data minibatches: pass posterior.batch(key).")
        return self.log_prior(params, prior_batch) + self.log_likelihood(params, rows)

    def draw(self, key: PRNGKeyArray) -> Params:
        """An exact draw of the prior, as a starting point."""
        return self._draw(self.prior.draw, key)

    def draw_reference(self, key: PRNGKeyArray) -> Params:
        """A draw of the reference, as a starting point where the prior has no exact draws."""
        return self._draw(self.prior.draw_reference, key)

    def watch(self, params: Params) -> dict[str, Array]:
        """What the prior watches, and what is learned of the likelihood."""
        network_params, learned = self.split(params)
        flat = ravel_pytree(learned)[0]
        return self.prior.watch(network_params) | ({"likelihood": flat} if flat.size else {})

    def draw_observations(self, key: PRNGKeyArray, params: Params, inputs: Float[Array, "n d"]):
        """New targets at these inputs, noise and all."""
        network_params, learned = self.split(params)
        likelihood = self.likelihood.with_params(learned)
        return likelihood.draw(key, likelihood.predict(self.prior.network(network_params), inputs))

    def score(
        self, params: Params, inputs: Float[Array, "n d"], targets: Array
    ) -> Float[Array, " n"]:
        """log p(y | θ) of each row of new data."""
        network_params, learned = self.split(params)
        likelihood = self.likelihood.with_params(learned)
        likelihood.require_any_row()
        return likelihood(self.prior.network(network_params), inputs, targets)

    def require_inputs(self, inputs: Float[Array, "n d"], name: str = "X") -> None:
        """Raise where the likelihood looks at points and one lies outside the domain."""
        if self.likelihood.observes_points:
            self.prior.require_inside(inputs, name)

    def map_rows(self, function: Callable[[Array], Array]) -> "Posterior":
        """The same posterior with a function applied to the arrays of its data."""
        data = function(self.inputs), function(self.targets)
        return eqx.tree_at(lambda p: (p.inputs, p.targets), self, data)

    def _draw(self, draw_network: Callable[[PRNGKeyArray], Params], key: PRNGKeyArray) -> Params:
        network_key, likelihood_key = jax.random.split(key)
        flat, unravel = ravel_pytree(self.likelihood.params)
        noise = unravel(jax.random.normal(likelihood_key, flat.shape, flat.dtype))
        return self.join(draw_network(network_key), noise)

    def split(self, params: Params) -> tuple[Params, Any]:
        """The parameters of the networks, and what is learned of the likelihood."""
        if not jax.tree.leaves(self.likelihood.params):
            return params, self.likelihood.params
        return params["network"], params["likelihood"]

    def join(self, network_params: Params, learned: Any) -> Params:
        """The parameters, from those of the networks and what is learned of the likelihood."""
        if not jax.tree.leaves(self.likelihood.params):
            return network_params
        return {"network": network_params, "likelihood": learned}


def _check_data(prior: Prior, likelihood: Likelihood, data: tuple) -> tuple[Array, Array]:
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
