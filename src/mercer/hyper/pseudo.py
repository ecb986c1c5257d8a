"""Metropolis over hyperparameters with an unbiased estimate of the evidence: exact whatever the number
of particles, and affordable on small problems."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.scipy.special import logsumexp
from jaxtyping import Array, Float, PRNGKeyArray

from ..checks import PyTree, Real, require_count, require_positive
from ..density import normal_like
from ..sampling.algorithm import Algorithm, Info, make_info
from .evidence import make_base
from .joint import Hyper, Joint


class PseudoState(NamedTuple):
    """The position, and the estimate of log p(y | λ) that it was accepted with."""

    position: PyTree
    log_estimate: Float[Array, ""]


class PseudoMarginal(Algorithm):
    """Random-walk Metropolis; the network is the particle that its weight picks, a posterior draw."""

    scale: float = eqx.field(static=True)
    num_particles: int = eqx.field(static=True)
    needs_deterministic = True

    def init(self, key: PRNGKeyArray, density: Joint, params: PyTree) -> PseudoState:
        network, log_estimate = self._estimate(key, density, params["hyper"])
        return PseudoState({"hyper": params["hyper"], "network": network}, log_estimate)

    def step(
        self, key: PRNGKeyArray, density: Joint, state: PseudoState
    ) -> tuple[PseudoState, Info]:
        walk_key, estimate_key, accept_key = jax.random.split(key, 3)
        hyper = state.position["hyper"]
        noise = normal_like(walk_key, hyper)
        proposed = {name: z + self.scale * noise[name] for name, z in hyper.items()}
        network, log_estimate = self._estimate(estimate_key, density, proposed)
        gain = log_estimate - state.log_estimate
        gain += density.log_hyperprior(proposed) - density.log_hyperprior(hyper)
        accepted = jnp.log(jax.random.uniform(accept_key)) < gain
        moved = PseudoState({"hyper": proposed, "network": network}, log_estimate)
        state = jax.tree.map(lambda new, old: jnp.where(accepted, new, old), moved, state)
        return state, make_info(acceptance=accepted, step_size=self.scale, num_gradients=0.0)

    def _estimate(
        self, key: PRNGKeyArray, density: Joint, hyper: Hyper
    ) -> tuple[PyTree, Float[Array, ""]]:
        """One particle, picked by its weight, and the logarithm of the mean weight."""
        draw_key, pick_key = jax.random.split(key)
        base = make_base(density.at(hyper))
        particles = jax.vmap(base.draw)(jax.random.split(draw_key, self.num_particles))
        log_weights = jax.vmap(base.log_weight)(particles)
        picked = jax.random.categorical(pick_key, log_weights)
        log_mean = logsumexp(log_weights) - jnp.log(self.num_particles)
        return jax.tree.map(lambda x: x[picked], particles), log_mean


def pseudo_marginal(scale: Real = 0.5, num_particles: int = 64) -> PseudoMarginal:
    """Pseudo-marginal Metropolis for a `Joint`: steps of `scale` in standard normal numbers."""
    require_positive("scale", scale)
    require_count("num_particles", num_particles)
    return PseudoMarginal(float(scale), num_particles)
