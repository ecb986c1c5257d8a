"""Microcanonical Langevin Monte Carlo through BlackJAX; unadjusted, so biased by its step."""

from typing import Any

import blackjax
import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import PRNGKeyArray, PyTree

from ..checks import Real, require_positive
from .algorithm import Algorithm, Density, Info, make_info


class Microcanonical(Algorithm):
    """MCLMC; `length` and `step_size` are found by `adapt` unless given.

    `energy_variance` is the error in energy, squared and a dimension, that sets the step: smaller
    is slower and less biased.
    """

    energy_variance: float = eqx.field(static=True)
    step_size: Any = None
    length: Any = None
    inverse_mass: Any = None
    needs_deterministic = True

    def init(self, key: PRNGKeyArray, density: Density, params: PyTree) -> Any:
        return blackjax.mclmc.init(params, density, key)

    def step(self, key: PRNGKeyArray, density: Density, state: Any) -> tuple[Any, Info]:
        if self.step_size is None:
            raise ValueError(
                "mclmc() tunes its step in the warm-up: give num_warmup, or a step_size."
            )
        kernel = blackjax.mclmc.build_kernel()
        state, told = kernel(key, state, density, self.inverse_mass, self.length, self.step_size)
        info = make_info(
            energy=-told.logdensity, step_size=self.step_size, num_gradients=2.0,
            divergent=jnp.logical_not(told.nonans),
        )  # fmt: skip
        return state, info

    def adapt(self, key, density, params, num_steps):
        if num_steps == 0:
            return self, self.init(key, density, params)
        start_key, tune_key = jax.random.split(key)
        state = self.init(start_key, density, params)
        state, tuned, *_ = blackjax.mclmc_find_L_and_step_size(
            blackjax.mclmc.build_kernel(),
            num_steps,
            state,
            tune_key,
            logdensity_fn=density,
            desired_energy_var=self.energy_variance,
        )
        found = tuned.step_size, tuned.L, tuned.inverse_mass_matrix
        adapted = eqx.tree_at(
            lambda a: (a.step_size, a.length, a.inverse_mass),
            self,
            found,
            is_leaf=lambda x: x is None,
        )
        return adapted, state


def mclmc(energy_variance: Real = 5e-4) -> Microcanonical:
    """Unadjusted microcanonical Langevin Monte Carlo, tuned in the warm-up."""
    require_positive("energy_variance", energy_variance)
    return Microcanonical(float(energy_variance))
