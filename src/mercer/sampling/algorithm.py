"""What a sampling algorithm is: `init`, `step`, and `adapt` for those that tune themselves."""

from abc import abstractmethod
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from ..density import Density, evaluate, gradient


class Info(NamedTuple):
    """What a draw tells: each a scalar, NaN where the algorithm has no such thing."""

    acceptance: Float[Array, ""]
    divergent: Float[Array, ""]
    energy: Float[Array, ""]
    step_size: Float[Array, ""]
    num_gradients: Float[Array, ""]


def make_info(**known: Any) -> Info:
    """An Info with the given fields, the others NaN."""
    fields = dict.fromkeys(Info._fields, jnp.nan) | known
    return Info(**{name: jnp.asarray(value, float) for name, value in fields.items()})


def sum_up(infos: Info) -> Info:
    """What several steps come to, each field with a leading axis of steps."""
    return Info(
        acceptance=jnp.mean(infos.acceptance),
        divergent=jnp.sum(infos.divergent),
        energy=infos.energy[-1],
        step_size=jnp.mean(infos.step_size),
        num_gradients=jnp.sum(infos.num_gradients),
    )


class Algorithm(eqx.Module):
    """A Markov kernel on parameters; tuned quantities are its array leaves.

    A state is any pytree with an attribute `position`.
    """

    needs_deterministic: eqx.AbstractClassVar[bool]

    @abstractmethod
    def init(self, key: PRNGKeyArray, density: Density, params: PyTree) -> Any:
        """The state at these parameters."""

    @abstractmethod
    def step(self, key: PRNGKeyArray, density: Density, state: Any) -> tuple[Any, Info]:
        """One transition."""

    def adapt(
        self, key: PRNGKeyArray, density: Density, params: PyTree, num_steps: int
    ) -> tuple["Algorithm", Any]:
        """The algorithm, tuned where it can be, and a state after `num_steps` steps of burn-in."""
        start_key, run_key = jax.random.split(key)
        state = self.init(start_key, density, params)

        def body(state, key):
            return self.step(key, density, state)[0], None

        return self, jax.lax.scan(body, state, jax.random.split(run_key, num_steps))[0]

    def value(self, density: Density, params: PyTree, key: PRNGKeyArray) -> Float[Array, ""]:
        """The log density as a step sees it: what tells whether a chain can start."""
        return evaluate(density, params, key)

    def slope(self, density: Density, params: PyTree, key: PRNGKeyArray) -> PyTree:
        """The gradient that a step uses."""
        return gradient(density, params, key)

    def heat(self, state: Any, noise: PyTree) -> PyTree | None:
        """Excess temperature of each parameter caused by gradient noise of this variance; None where
        an algorithm takes it up or has none."""
        return None
