"""The contract of a sampling algorithm: `init`, `step`, and `adapt` where it tunes itself."""

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from ..checks import PyTree
from ..density import Density, evaluate, gradient

if TYPE_CHECKING:
    # Type checkers take an abstract class variable for a field.
    from typing import ClassVar as AbstractClassVar
else:
    from equinox import AbstractClassVar


class Info(NamedTuple):
    """Statistics of one draw, each a scalar; NaN where the algorithm has none."""

    acceptance: Float[Array, ""]
    divergent: Float[Array, ""]
    energy: Float[Array, ""]
    step_size: Float[Array, ""]
    num_gradients: Float[Array, ""]


def make_info(**known: Any) -> Info:
    """An Info with these fields, the others NaN."""
    fields = dict.fromkeys(Info._fields, jnp.nan) | known
    return Info(**{name: jnp.asarray(value, float) for name, value in fields.items()})


def sum_up(infos: Info) -> Info:
    """Statistics of several steps together, each field with a leading axis of steps."""
    return Info(
        acceptance=jnp.mean(infos.acceptance),
        divergent=jnp.sum(infos.divergent),
        energy=infos.energy[-1],
        step_size=jnp.mean(infos.step_size),
        num_gradients=jnp.sum(infos.num_gradients),
    )


class IndependentState(NamedTuple):
    """State of an algorithm whose draws are independent: the last draw."""

    position: PyTree


class Algorithm(eqx.Module):
    """A Markov kernel on parameters; tuned quantities are its array leaves.

    A state is any pytree with an attribute `position`.
    """

    needs_deterministic: AbstractClassVar[bool]

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
        return self, self.burn_in(jax.random.split(run_key, num_steps), density, state)

    def burn_in(self, keys: Array, density: Density, state: Any) -> Any:
        """The state after one step for each key."""

        def body(state, key):
            return self.step(key, density, state)[0], None

        return jax.lax.scan(body, state, keys)[0]

    def value(self, density: Density, params: PyTree, key: PRNGKeyArray) -> Float[Array, ""]:
        """The log density as a step sees it, finite where a chain can start."""
        return evaluate(density, params, key)

    def slope(self, density: Density, params: PyTree, key: PRNGKeyArray) -> PyTree:
        """The gradient that a step uses."""
        return gradient(density, params, key)

    def heat(self, state: Any, noise: PyTree) -> PyTree | None:
        """Excess temperature of each parameter caused by gradient noise of this variance; None
        where the algorithm removes it or uses no such gradient."""
        return None


class SelfTuning(Algorithm):
    """An algorithm that is tuned in the warm-up, and left as it is where there is none."""

    @abstractmethod
    def tune(
        self, key: PRNGKeyArray, density: Density, params: PyTree, num_steps: int
    ) -> tuple[Algorithm, Any]:
        """The tuned algorithm, and the state that `num_steps` steps of warm-up end in."""

    def adapt(
        self, key: PRNGKeyArray, density: Density, params: PyTree, num_steps: int
    ) -> tuple[Algorithm, Any]:
        if num_steps == 0:
            return self, self.init(key, density, params)
        return self.tune(key, density, params, num_steps)


def require_share(name: str, value: float) -> None:
    """Raise unless a number lies strictly between zero and one."""
    if not 0 < value < 1:
        raise ValueError(f"{name} must be between 0 and 1, got {value}.")
