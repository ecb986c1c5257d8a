"""Parameters and hyperparameters together where the prior's normaliser is unknown.

Each step moves θ by SGLD on the posterior, particles θ' by SGLD on the prior, and λ by SGLD along

    ∇ log p(λ) + ∇ log p̃(θ, y; λ) − mean over θ' of ∇ log p̃(θ'; λ).
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import PRNGKeyArray

from ..checks import PyTree, Real, require_count, require_positive
from ..density import Density, evaluate, normal_like
from ..sampling.algorithm import Algorithm, Info, make_info
from ..sampling.algorithms.langevin import sgld
from .gradient import prior_slope
from .joint import Hyper, Joint

# Steps of the prior's particles before the hyperparameters move.
NUM_SETTLING = 1000


class NestedState(NamedTuple):
    """{"hyper": z, "network": θ}, and particles of the prior in a leading axis."""

    position: PyTree
    particles: PyTree


class NestedLangevin(Algorithm):
    """SGLD on three levels; `hyper_step` is that of λ, `step_size` that of θ and θ'."""

    step_size: float = eqx.field(static=True)
    hyper_step: float = eqx.field(static=True)
    num_particles: int = eqx.field(static=True)
    num_inner: int = eqx.field(static=True)
    needs_deterministic = False

    def init(self, key: PRNGKeyArray, density: Joint, params: PyTree) -> NestedState:
        prior = density.at(params["hyper"]).prior

        # From exact draws where there are any, and with the hyperparameters fixed until they settle:
        # particles that are not of the prior yet would drive them away.
        def settle(key):
            init_key, key = jax.random.split(key)
            return self._move(key, prior, prior.init(init_key), NUM_SETTLING)

        return NestedState(params, jax.vmap(settle)(jax.random.split(key, self.num_particles)))

    def step(
        self, key: PRNGKeyArray, density: Joint, state: NestedState
    ) -> tuple[NestedState, Info]:
        hyper, theta = state.position["hyper"], state.position["network"]
        theta_key, inner_key, slope_key, hyper_key = jax.random.split(key, 4)
        posterior = density.at(hyper)
        theta = self._move(theta_key, posterior, theta, self.num_inner)
        keys = jax.random.split(inner_key, self.num_particles)
        particles = jax.vmap(lambda k, p: self._move(k, posterior.prior, p, self.num_inner))(
            keys, state.particles
        )
        slope = self._hyper_slope(slope_key, density, hyper, theta, particles)
        noise = normal_like(hyper_key, hyper)
        h = self.hyper_step
        moved = jax.tree.map(lambda z, g, n: z + h * g + jnp.sqrt(2 * h) * n, hyper, slope, noise)
        info = make_info(step_size=self.step_size, num_gradients=self.num_inner + 1.0)
        return NestedState({"hyper": moved, "network": theta}, particles), info

    def value(self, density: Joint, params: PyTree, key: PRNGKeyArray) -> Any:
        return evaluate(density.at(params["hyper"]), params["network"], key)

    def _move(self, key: PRNGKeyArray, density: Density, params: PyTree, count: int) -> PyTree:
        """The parameters after `count` steps of SGLD."""
        langevin = sgld(self.step_size)
        start = langevin.init(key, density, params)
        return langevin.burn_in(jax.random.split(key, count), density, start).position

    def _hyper_slope(
        self, key: PRNGKeyArray, density: Joint, hyper: Hyper, theta: PyTree, particles: PyTree
    ) -> Hyper:
        data_key, *particle_keys = jax.random.split(key, 1 + self.num_particles)
        joint_slope = jax.grad(
            lambda h: density.log_hyperprior(h) + evaluate(density.at(h), theta, data_key)
        )(hyper)

        def normaliser_slope(key, particle):
            return prior_slope(density, hyper, particle, density.prior.batch(key))

        lost = jax.vmap(normaliser_slope)(jnp.stack(particle_keys), particles)
        return jax.tree.map(lambda a, b: a - jnp.mean(b), joint_slope, lost)


def nested_sgld(
    step_size: Real, hyper_step: Real, num_particles: int = 8, num_inner: int = 1
) -> NestedLangevin:
    """Alternating SGLD for a `Joint` whose prior is not normalised: `step_size` is that of network
    parameters, `hyper_step` of hyperparameters; h = ε/2 of the paper's ε.

    Its draws are off by a term of the order of the steps, as all of SGLD is.
    """
    require_positive("step_size", step_size)
    require_positive("hyper_step", hyper_step)
    require_count("num_particles", num_particles)
    require_count("num_inner", num_inner)
    return NestedLangevin(float(step_size), float(hyper_step), num_particles, num_inner)
