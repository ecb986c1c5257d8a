"""What a log density over parameters is: the contract between models and samplers."""

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from .checks import PyTree
from .parameters import Params


class Density(eqx.Module):
    """A log density `density(params, batch=None) -> scalar` over a pytree of parameters.

    All randomness of one evaluation is the pytree `batch(key)`; a density that `is_deterministic`
    needs none. `init(key)` is a start near the bulk, `network(params)` the function, or pytree of
    functions, that parameters stand for. `draw(key)` is an exact draw, where `is_exact` says that
    there is one.

    A density in other coordinates names the one it stands for as `target`, and `original` gives
    parameters of that; draws and records are kept in them.
    """

    # By identity, so that jax.jit takes a density as it takes any function.
    def __hash__(self) -> int:
        return object.__hash__(self)

    @property
    @abstractmethod
    def params(self) -> Params:
        """The structure of the parameters, with a value for each."""

    @abstractmethod
    def __call__(self, params: Params, batch: Any = None) -> Float[Array, ""]:
        """The log density up to a constant, or an unbiased estimate of it from a batch."""

    @abstractmethod
    def init(self, key: PRNGKeyArray) -> Params:
        """Parameters near the bulk of the density, for a chain to start from."""

    def network(self, params: Params) -> PyTree:
        """The function, or pytree of functions, that parameters stand for."""
        raise ValueError("this density has no network, so there is nothing to predict with.")

    def batch(self, key: PRNGKeyArray) -> Any:
        """All the randomness of one evaluation; None where there is none."""
        return None

    @property
    def is_deterministic(self) -> bool:
        """Whether the density needs no batch."""
        return True

    @property
    def is_exact(self) -> bool:
        """Whether `draw` gives exact draws of this density."""
        return False

    def draw(self, key: PRNGKeyArray) -> Params:
        """An exact, independent draw of this density."""
        raise ValueError(
            "this density has no exact draws: these are for a normalised Prior, or Frozen with a "
            "Gaussian likelihood. Use mercer.sample(key, density)."
        )

    @property
    def target(self) -> "Density":
        """The density in the user's own parameters: this one, unless it is a change of coordinates."""
        return self

    def original(self, params: Params) -> Params:
        """The target's parameters at these."""
        return params

    def watch(self, params: Params) -> dict[str, Array]:
        """Functions of the target's parameters to judge a chain by."""
        return {}


class FunctionDensity(Density):
    """A plain function log p(params), which starts where it is told to."""

    function: Callable[[Params], Float[Array, ""]]
    start: Params

    @property
    def params(self) -> Params:
        return self.start

    def __call__(self, params: Params, batch: Any = None) -> Float[Array, ""]:
        return self.function(params)

    def init(self, key: PRNGKeyArray) -> Params:
        return self.start


def evaluate(density: Density, params: Params, key: PRNGKeyArray) -> Float[Array, ""]:
    """The log density, or the unbiased estimate that one batch gives."""
    return density(params, density.batch(key))


def gradient(density: Density, params: Params, key: PRNGKeyArray) -> Params:
    """∇ log density, or the unbiased estimate that one batch gives."""
    return jax.grad(evaluate, argnums=1)(density, params, key)


def normal_like(key: PRNGKeyArray, tree: PyTree) -> PyTree:
    """Independent standard normal numbers in the shape of a pytree."""
    leaves, structure = jax.tree.flatten(tree)
    keys = jax.random.split(key, len(leaves)) if leaves else []
    drawn = [
        jax.random.normal(k, jnp.shape(x), jnp.result_type(x))
        for k, x in zip(keys, leaves, strict=True)
    ]
    return jax.tree.unflatten(structure, drawn)
