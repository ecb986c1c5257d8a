"""Adapter for a BlackJAX `SamplingAlgorithm` that its user bound to a density."""

import inspect
from typing import Any

import equinox as eqx
import jax
from jaxtyping import PRNGKeyArray, PyTree

from ...density import Density
from ..algorithm import Algorithm, Info, make_info


class BlackJAX(Algorithm):
    """A BlackJAX `SamplingAlgorithm`; its statistics are passed on where it tells them."""

    algorithm: Any = eqx.field(static=True)
    needs_deterministic = True

    def init(self, key: PRNGKeyArray, density: Density, params: PyTree) -> Any:
        if len(inspect.signature(self.algorithm.init).parameters) > 1:
            # Bare numbers, which a checkpoint can hold as it does any array.
            return self.algorithm.init(params, jax.random.key_data(key))
        return self.algorithm.init(params)

    def step(self, key: PRNGKeyArray, density: Density, state: Any) -> tuple[Any, Info]:
        state, told = self.algorithm.step(key, state)
        names = {
            "acceptance": "acceptance_rate",
            "divergent": "is_divergent",
            "energy": "energy",
            "num_gradients": "num_integration_steps",
        }
        known = {
            ours: getattr(told, theirs) for ours, theirs in names.items() if hasattr(told, theirs)
        }
        return state, make_info(**known)
