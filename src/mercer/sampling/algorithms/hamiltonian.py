"""HMC and NUTS through BlackJAX, with window adaptation."""

from typing import Any

import blackjax
import equinox as eqx
import jax
import jax.numpy as jnp
from blackjax.adaptation.step_size import dual_averaging_adaptation
from jaxtyping import PRNGKeyArray, PyTree

from ...checks import Real, require_count, require_positive
from ...density import Density
from ..algorithm import Algorithm, Info, make_info

ADAPTATIONS = ("diagonal", "dense", "low_rank", "step")


class Hamiltonian(Algorithm):
    """HMC with a fixed number of leapfrog steps, or NUTS where `num_steps` is None.

    The step varies by ±`jitter` from draw to draw: with trajectories of one length, a function
    whose period is that length would hardly move.
    `step_size` and `inverse_mass` are found by `adapt`; before it, a step of `initial_step`
    and the identity are used.
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

    def init(self, key: PRNGKeyArray, density: Density, params: PyTree) -> Any:
        return self._family().init(params, density)

    def step(self, key: PRNGKeyArray, density: Density, state: Any) -> tuple[Any, Info]:
        count = sum(leaf.size for leaf in jax.tree.leaves(state.position))
        jitter_key, key = jax.random.split(key)
        wobble = 1 + self.jitter * jax.random.uniform(jitter_key, minval=-1.0, maxval=1.0)
        step_size = (self.initial_step if self.step_size is None else self.step_size) * wobble
        inverse_mass = jnp.ones(count) if self.inverse_mass is None else self.inverse_mass
        kernel = self._family()(density, step_size, inverse_mass, **self._options())
        state, told = kernel.step(key, state)
        info = make_info(
            acceptance=told.acceptance_rate,
            divergent=told.is_divergent,
            energy=told.energy,
            step_size=step_size,
            num_gradients=told.num_integration_steps,
        )
        return state, info

    def adapt(self, key, density, params, num_steps):
        if num_steps == 0:
            return self, self.init(key, density, params)
        if self.adaptation == "step":
            return _adapt_step(self, key, density, params, num_steps)
        options = {
            "target_acceptance_rate": self.target_acceptance,
            "initial_step_size": self.initial_step,
        }
        if self.adaptation == "low_rank":
            warmup = blackjax.window_adaptation_low_rank(
                self._family(), density, **options, **self._options()
            )
        else:
            diagonal = self.adaptation == "diagonal"
            warmup = blackjax.window_adaptation(
                self._family(),
                density,
                is_mass_matrix_diagonal=diagonal,
                adaptation_info_fn=lambda *_: None,
                **options,
                **self._options(),
            )
        (state, tuned), _ = warmup.run(key, params, num_steps)
        found = tuned["step_size"], tuned["inverse_mass_matrix"]
        adapted = eqx.tree_at(
            lambda a: (a.step_size, a.inverse_mass), self, found, is_leaf=lambda x: x is None
        )
        return adapted, state

    def _family(self) -> Any:
        return blackjax.nuts if self.num_steps is None else blackjax.hmc

    def _options(self) -> dict[str, Any]:
        if self.num_steps is None:
            return {"max_num_doublings": self.max_doublings}
        return {"num_integration_steps": self.num_steps}


def _adapt_step(algorithm: Hamiltonian, key, density, params, num_steps):
    """Dual averaging of the step size alone, the mass left as it is."""
    begin, update, finish = dual_averaging_adaptation(algorithm.target_acceptance)
    start = algorithm.init(key, density, params), begin(algorithm.initial_step)

    def body(carry, key):
        state, averaging = carry
        current = _with_step(algorithm, jnp.exp(averaging.log_step_size))
        state, info = current.step(key, density, state)
        return (state, update(averaging, info.acceptance)), None

    (state, averaging), _ = jax.lax.scan(body, start, jax.random.split(key, num_steps))
    return _with_step(algorithm, finish(averaging)), state


def _with_step(algorithm: Hamiltonian, step_size: Any) -> Hamiltonian:
    return eqx.tree_at(lambda a: a.step_size, algorithm, step_size, is_leaf=lambda x: x is None)


def nuts(
    target_acceptance: Real = 0.8,
    adaptation: str = "diagonal",
    max_doublings: int = 10,
    initial_step: Real = 0.01,
) -> Hamiltonian:
    """The No-U-Turn sampler, its step and mass matrix adapted in the warm-up.

    `adaptation` is of the mass matrix, "diagonal", "dense" or "low_rank", or of the "step" alone.
    """
    return _hamiltonian(None, target_acceptance, adaptation, max_doublings, initial_step, 0.0)


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
    return _hamiltonian(num_steps, target_acceptance, adaptation, 10, initial_step, jitter)


def _hamiltonian(num_steps, target, adaptation, max_doublings, initial_step, jitter) -> Hamiltonian:
    if adaptation not in ADAPTATIONS:
        raise ValueError(f"adaptation must be one of {ADAPTATIONS}, got {adaptation!r}.")
    if not 0 < target < 1:
        raise ValueError(f"target_acceptance must be between 0 and 1, got {target}.")
    require_count("max_doublings", max_doublings)
    require_positive("initial_step", initial_step)
    if not 0 <= jitter < 1:
        raise ValueError(f"jitter must be at least 0 and below 1, got {jitter}.")
    return Hamiltonian(
        num_steps, float(target), adaptation, max_doublings, float(initial_step), float(jitter)
    )
