"""Microcanonical Langevin Monte Carlo through BlackJAX: unadjusted, so biased by its step, and
adjusted by Metropolis's rule, so exact."""

import dataclasses
from typing import Any

import blackjax
import equinox as eqx
import jax
import jax.numpy as jnp
from blackjax.adaptation.adjusted_mclmc_adaptation import adjusted_mclmc_find_L_and_step_size
from blackjax.mcmc.adjusted_mclmc_dynamic import build_kernel as build_adjusted
from blackjax.mcmc.adjusted_mclmc_dynamic import init as init_adjusted
from jaxtyping import PRNGKeyArray

from ...checks import PyTree, Real, require_positive
from ...density import Density
from ..algorithm import Info, SelfTuning, make_info, require_share


class Microcanonical(SelfTuning):
    """MCLMC; `length` and `step_size` are found by the warm-up.

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
        _require_tuned(self)
        kernel = blackjax.mclmc.build_kernel()
        state, statistics = kernel(
            key, state, density, self.inverse_mass, self.length, self.step_size
        )
        info = make_info(
            energy=-statistics.logdensity, step_size=self.step_size, num_gradients=2.0,
            divergent=jnp.logical_not(statistics.nonans),
        )  # fmt: skip
        return state, info

    def tune(
        self, key: PRNGKeyArray, density: Density, params: PyTree, num_steps: int
    ) -> tuple["Microcanonical", Any]:
        start_key, tune_key = jax.random.split(key)
        state, tuned, *_ = blackjax.mclmc_find_L_and_step_size(
            blackjax.mclmc.build_kernel(),
            num_steps,
            self.init(start_key, density, params),
            tune_key,
            logdensity_fn=density,
            desired_energy_var=self.energy_variance,
        )
        return dataclasses.replace(self, **_tuned_fields(tuned)), state


class AdjustedMicrocanonical(SelfTuning):
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
        _require_tuned(self)
        num_steps = self.length / self.step_size
        state, statistics = _adjusted_kernel(
            key, state, density, self.step_size, self.inverse_mass, (num_steps,)
        )
        info = make_info(
            acceptance=statistics.acceptance_rate, divergent=statistics.is_divergent,
            step_size=self.step_size, num_gradients=2.0 * statistics.num_integration_steps,
        )  # fmt: skip
        return state, info

    def tune(
        self, key: PRNGKeyArray, density: Density, params: PyTree, num_steps: int
    ) -> tuple["AdjustedMicrocanonical", Any]:
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
        adapted = dataclasses.replace(self, **_tuned_fields(tuned))
        keys = jax.random.split(burn_key, max(1, num_steps // 5))
        return adapted, adapted.burn_in(keys, density, state)


def _adjusted_kernel(
    rng_key, state, logdensity_fn, step_size, inverse_mass_matrix, integration_steps_params
):
    """A trajectory of a uniform number of steps, whose mean is the entry of the last argument.

    BlackJAX calls it by these names of the arguments.
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


def _tuned_fields(tuned: Any) -> dict[str, Any]:
    """The algorithm's fields that BlackJAX's adaptation found."""
    return {
        "step_size": tuned.step_size,
        "length": tuned.L,
        "inverse_mass": tuned.inverse_mass_matrix,
    }


def _require_tuned(algorithm: Microcanonical | AdjustedMicrocanonical) -> None:
    if algorithm.step_size is None:
        raise ValueError("microcanonical samplers tune their step in the warm-up: give num_warmup.")


def mclmc(energy_variance: Real = 5e-4) -> Microcanonical:
    """Unadjusted microcanonical Langevin Monte Carlo, tuned in the warm-up."""
    require_positive("energy_variance", energy_variance)
    return Microcanonical(float(energy_variance))


def adjusted_mclmc(target_acceptance: Real = 0.9) -> AdjustedMicrocanonical:
    """Microcanonical Langevin Monte Carlo made exact by Metropolis's rule."""
    require_share("target_acceptance", float(target_acceptance))
    return AdjustedMicrocanonical(float(target_acceptance))
