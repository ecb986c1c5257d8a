"""Adapter for a BlackJAX `SamplingAlgorithm` that its user bound to a density."""

import inspect
from typing import Any

import equinox as eqx
import jax
from jaxtyping import PRNGKeyArray

from ...checks import PyTree
from ...density import Density
from ..algorithm import Algorithm, Info, make_info

# Our statistics, under the names that BlackJAX has for them.
STATISTICS = {
    "acceptance": "acceptance_rate",
    "divergent": "is_divergent",
    "energy": "energy",
    "num_gradients": "num_integration_steps",
}


class BlackJAX(Algorithm):
    """A BlackJAX `SamplingAlgorithm`, with those of our statistics that it has."""

    algorithm: Any = eqx.field(static=True)
    needs_deterministic = True

    def init(self, key: PRNGKeyArray, density: Density, params: PyTree) -> Any:
        if len(inspect.signature(self.algorithm.init).parameters) > 1:
            # Bare numbers, which a checkpoint can hold as it does any array.
            return self.algorithm.init(params, jax.random.key_data(key))
        return self.algorithm.init(params)

    def step(self, key: PRNGKeyArray, density: Density, state: Any) -> tuple[Any, Info]:
        state, statistics = self.algorithm.step(key, state)
        return state, translate(statistics)


def translate(statistics: Any, **known: Any) -> Info:
    """BlackJAX's statistics of a step as ours, and those that are known besides."""
    shared = {name: theirs for name, theirs in STATISTICS.items() if hasattr(statistics, theirs)}
    return make_info(
        **{ours: getattr(statistics, theirs) for ours, theirs in shared.items()}, **known
    )
