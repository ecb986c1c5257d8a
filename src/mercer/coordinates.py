"""A posterior in other coordinates."""

from abc import abstractmethod
from typing import Any

import equinox as eqx
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from .density import Prior
from .posterior import Posterior

Params = PyTree


class Coordinates(eqx.Module):
    """What is asked of a posterior, asked at the parameters that its coordinates stand for."""

    posterior: eqx.AbstractVar[Posterior]
    __hash__ = object.__hash__

    @abstractmethod
    def original(self, params: Params) -> Params:
        """The parameters as the posterior has them."""

    @property
    def prior(self) -> Prior:
        return self.posterior.prior

    @property
    def inputs(self) -> Float[Array, "N d"]:
        return self.posterior.inputs

    def network(self, params: Params) -> PyTree:
        """The network, or pytree of networks, at these coordinates."""
        return self.posterior.network(self.original(params))

    def row_terms(self, params: Params, rows: Any = None) -> Float[Array, " n"]:
        """log p(yᵢ | θ) of each row of the data, or of the given rows."""
        return self.posterior.row_terms(self.original(params), rows)

    def watch(self, params: Params) -> dict[str, Array]:
        """What the posterior watches."""
        return self.posterior.watch(self.original(params))

    def score(
        self, params: Params, inputs: Float[Array, "n d"], targets: Array
    ) -> Float[Array, " n"]:
        """log p(y | θ) of each row of new data."""
        return self.posterior.score(self.original(params), inputs, targets)

    def draw_observations(self, key: PRNGKeyArray, params: Params, inputs: Float[Array, "n d"]):
        """New targets at these inputs, noise and all."""
        return self.posterior.draw_observations(key, self.original(params), inputs)

    def require_inputs(self, inputs: Float[Array, "n d"], name: str = "X") -> None:
        """Raise where the likelihood looks at points and one lies outside the domain."""
        self.posterior.require_inputs(inputs, name)
