"""Microcanonical Langevin Monte Carlo through BlackJAX: unadjusted, so biased by its step, and
adjusted by Metropolis's rule, so exact."""

from typing import Any

import blackjax
import equinox as eqx
import jax
import jax.numpy as jnp
from blackjax.adaptation.adjusted_mclmc_adaptation import adjusted_mclmc_find_L_and_step_size
from blackjax.mcmc.adjusted_mclmc_dynamic import build_kernel as build_adjusted
from blackjax.mcmc.adjusted_mclmc_dynamic import init as init_adjusted
from jaxtyping import PRNGKeyArray, PyTree

from ...checks import Real, require_positive
from ...density import Density
from ..algorithm import Algorithm, Info, make_info

UNTUNED = "{}() tunes its step in the warm-up: give num_warmup."


class Microcanonical(Algorithm):
    """MCLMC; `length` and `step_size` are found by `adapt`.

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
            raise ValueError(UNTUNED.format("mclmc"))
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
        state, tuned, *_ = blackjax.mclmc_find_L_and_step_size(
            blackjax.mclmc.build_kernel(),
            num_steps,
            self.init(start_key, density, params),
            tune_key,
            logdensity_fn=density,
            desired_energy_var=self.energy_variance,
        )
        return _tuned(self, tuned), state


class AdjustedMicrocanonical(Algorithm):
    """MCLMC with trajectories of random length, each accepted or not by Metropolis's rule."""

    target_acceptance: float = eqx.field(static=True)
    step_size: Any = None
    length: Any = None
    inverse_mass: Any = None
    needs_deterministic = True

    def init(self, key: PRNGKeyArray, density: Density, params: PyTree) -> Any:
        # Its bare numbers, which a checkpoint can hold as it does any array.
        return init_adjusted(params, density, jax.random.key_data(key))

    def step(self, key: PRNGKeyArray, density: Density, state: Any) -> tuple[Any, Info]:
        if self.step_size is None:
            raise ValueError(UNTUNED.format("adjusted_mclmc"))
        state, told = _adjusted_kernel(
            key, state, density, self.step_size, self.inverse_mass, (self.length / self.step_size,)
        )
        info = make_info(
            acceptance=told.acceptance_rate, divergent=told.is_divergent,
            step_size=self.step_size, num_gradients=2.0 * told.num_integration_steps,
        )  # fmt: skip
        return state, info

    def adapt(self, key, density, params, num_steps):
        if num_steps == 0:
            return self, self.init(key, density, params)
        start_key, tune_key, burn_key = jax.random.split(key, 3)
        state, tuned, *_ = adjusted_mclmc_find_L_and_step_size(
            _adjusted_kernel,
            density,
            num_steps,
            self.init(start_key, density, params),
            tune_key,
            self.target_acceptance,
            frac_tune1=0.4,
            frac_tune2=0.4,
        )
        adapted = _tuned(self, tuned)

        def body(state, key):
            return adapted.step(key, density, state)[0], None

        keys = jax.random.split(burn_key, max(1, num_steps // 5))
        return adapted, jax.lax.scan(body, state, keys)[0]


def _adjusted_kernel(
    rng_key, state, logdensity_fn, step_size, inverse_mass_matrix, integration_steps_params
):
    """A trajectory of a uniform number of steps, on average the one number of the last argument.

    Under BlackJAX's names of the arguments, by which it calls it.
    """

    def num_steps(key, average):
        return jnp.ceil(jax.random.uniform(key) * (2 * average - 1)).astype(int)

    return build_adjusted(num_steps)(
        rng_key,
        state,
        logdensity_fn,
        step_size,
        inverse_mass_matrix=inverse_mass_matrix,
        integration_steps_params=integration_steps_params,
    )


def _tuned(algorithm: Any, tuned: Any) -> Any:
    found = tuned.step_size, tuned.L, tuned.inverse_mass_matrix
    return eqx.tree_at(
        lambda a: (a.step_size, a.length, a.inverse_mass),
        algorithm,
        found,
        is_leaf=lambda x: x is None,
    )


def mclmc(energy_variance: Real = 5e-4) -> Microcanonical:
    """Unadjusted microcanonical Langevin Monte Carlo, tuned in the warm-up."""
    require_positive("energy_variance", energy_variance)
    return Microcanonical(float(energy_variance))


def adjusted_mclmc(target_acceptance: Real = 0.9) -> AdjustedMicrocanonical:
    """Microcanonical Langevin Monte Carlo made exact by Metropolis's rule."""
    if not 0 < target_acceptance < 1:
        raise ValueError(f"target_acceptance must be between 0 and 1, got {target_acceptance}.")
    return AdjustedMicrocanonical(float(target_acceptance))
