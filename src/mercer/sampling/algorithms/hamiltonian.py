"""HMC and NUTS through BlackJAX, with window adaptation."""

import dataclasses
from typing import Any

import blackjax
import equinox as eqx
import jax
import jax.numpy as jnp
from blackjax.adaptation.step_size import dual_averaging_adaptation
from jaxtyping import PRNGKeyArray

from ...checks import PyTree, Real, require_count, require_positive
from ...density import Density
from ..algorithm import Info, SelfTuning, require_share
from .blackjax import translate

ADAPTATIONS = ("diagonal", "dense", "low_rank", "step")


class Hamiltonian(SelfTuning):
    """HMC with a fixed number of leapfrog steps, or NUTS where `num_steps` is None.

    The step varies by ±`jitter` from draw to draw: with trajectories of one length, a function
    whose period is that length would hardly move. `step_size` and `inverse_mass` are found by the
    warm-up; before it they are `initial_step` and the identity.
    """

    num_steps: int | None = eqx.field(static=True)
    target_acceptance: float = eqx.field(static=True)
    adaptation: str = eqx.field(static=True)
    max_doublings: int = eqx.field(static=True)
    initial_step: float = eqx.field(static=True)
    jitter: float = eqx.field(static=True)
    step_size: Any = None
    inverse_mass: Any = None
    needs_deterministic = True

    def __check_init__(self) -> None:
        if self.adaptation not in ADAPTATIONS:
            raise ValueError(f"adaptation must be one of {ADAPTATIONS}, got {self.adaptation!r}.")
        require_share("target_acceptance", self.target_acceptance)
        require_count("max_doublings", self.max_doublings)
        require_positive("initial_step", self.initial_step)
        if not 0 <= self.jitter < 1:
            raise ValueError(f"jitter must be at least 0 and below 1, got {self.jitter}.")

    def init(self, key: PRNGKeyArray, density: Density, params: PyTree) -> Any:
        return self._family().init(params, density)

    def step(self, key: PRNGKeyArray, density: Density, state: Any) -> tuple[Any, Info]:
        jitter_key, key = jax.random.split(key)
        wobble = 1 + self.jitter * jax.random.uniform(jitter_key, minval=-1.0, maxval=1.0)
        step_size = (self.initial_step if self.step_size is None else self.step_size) * wobble
        inverse_mass = self.inverse_mass
        if inverse_mass is None:
            inverse_mass = jnp.ones(sum(x.size for x in jax.tree.leaves(state.position)))
        kernel = self._family()(density, step_size, inverse_mass, **self._trajectory())
        state, statistics = kernel.step(key, state)
        return state, translate(statistics, step_size=step_size)

    def tune(
        self, key: PRNGKeyArray, density: Density, params: PyTree, num_steps: int
    ) -> tuple["Hamiltonian", Any]:
        if self.adaptation == "step":
            return self._tune_step(key, density, params, num_steps)
        options: dict[str, Any] = self._trajectory() | {
            "target_acceptance_rate": self.target_acceptance,
            "initial_step_size": self.initial_step,
        }
        adaptation: Any = blackjax.window_adaptation_low_rank
        if self.adaptation != "low_rank":
            adaptation = blackjax.window_adaptation
            options["is_mass_matrix_diagonal"] = self.adaptation == "diagonal"
            options["adaptation_info_fn"] = lambda *_: None
        warmup = adaptation(self._family(), density, **options)
        (state, tuned), _ = warmup.run(key, params, num_steps)
        step_size, inverse_mass = tuned["step_size"], tuned["inverse_mass_matrix"]
        return dataclasses.replace(self, step_size=step_size, inverse_mass=inverse_mass), state

    def _tune_step(
        self, key: PRNGKeyArray, density: Density, params: PyTree, num_steps: int
    ) -> tuple["Hamiltonian", Any]:
        """Dual averaging of the step size alone, the mass left as it is."""
        begin, update, finish = dual_averaging_adaptation(self.target_acceptance)

        def body(carry, key):
            state, averaging = carry
            current = dataclasses.replace(self, step_size=jnp.exp(averaging.log_step_size))
            state, info = current.step(key, density, state)
            return (state, update(averaging, info.acceptance)), None

        start = self.init(key, density, params), begin(self.initial_step)
        (state, averaging), _ = jax.lax.scan(body, start, jax.random.split(key, num_steps))
        return dataclasses.replace(self, step_size=finish(averaging)), state

    def _family(self) -> Any:
        return blackjax.nuts if self.num_steps is None else blackjax.hmc

    def _trajectory(self) -> dict[str, Any]:
        if self.num_steps is None:
            return {"max_num_doublings": self.max_doublings}
        return {"num_integration_steps": self.num_steps}


def nuts(
    target_acceptance: Real = 0.8,
    adaptation: str = "diagonal",
    max_doublings: int = 10,
    initial_step: Real = 0.01,
) -> Hamiltonian:
    """The No-U-Turn sampler, its step and mass matrix adapted in the warm-up.

    `adaptation` is of the mass matrix, "diagonal", "dense" or "low_rank", or of the "step" alone.
    """
    target, first = float(target_acceptance), float(initial_step)
    return Hamiltonian(None, target, adaptation, max_doublings, first, jitter=0.0)


def hmc(
    num_steps: int,
    target_acceptance: Real = 0.75,
    adaptation: str = "diagonal",
    initial_step: Real = 0.01,
    jitter: Real = 0.3,
) -> Hamiltonian:
    """HMC with `num_steps` leapfrog steps to a draw, its step and mass matrix adapted.

    The step then varies by ±`jitter` of itself from draw to draw.
    """
    require_count("num_steps", num_steps)
    target, first = float(target_acceptance), float(initial_step)
    return Hamiltonian(num_steps, target, adaptation, 10, first, float(jitter))
