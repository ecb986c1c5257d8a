"""Parameters and hyperparameters together where the prior's normaliser is unknown.

Each step moves θ by SGLD on the posterior, particles θ' by SGLD on the prior, and λ by SGLD along

    ∇ log p(λ) + ∇ log p̃(θ, y; λ) − mean over θ' of ∇ log p̃(θ'; λ).
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import PRNGKeyArray, PyTree

from ..checks import Real, require_count, require_positive
from ..density import evaluate, normal_like
from ..sampling.algorithm import Algorithm, Info, make_info
from .gradient import prior_slope
from .joint import Joint

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

        # From exact draws where there are any, and with the hyperparameters held until they settle:
        # particles that are not of the prior yet would drive them away.
        def settle(key):
            init_key, key = jax.random.split(key)
            return self._move(key, prior, prior.init(init_key), NUM_SETTLING)

        return NestedState(params, jax.vmap(settle)(jax.random.split(key, self.num_particles)))

    def step(self, key: PRNGKeyArray, density: Joint, state: NestedState) -> tuple[Any, Info]:
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
        moved = {
            name: z + self.hyper_step * slope[name] + jnp.sqrt(2 * self.hyper_step) * noise[name]
            for name, z in hyper.items()
        }
        info = make_info(step_size=self.step_size, num_gradients=self.num_inner + 1.0)
        return NestedState({"hyper": moved, "network": theta}, particles), info

    def value(self, density: Joint, params: PyTree, key: PRNGKeyArray) -> Any:
        return evaluate(density.at(params["hyper"]), params["network"], key)

    def _move(self, key: PRNGKeyArray, density: Any, params: PyTree, count: int) -> PyTree:
        """So many steps of SGLD."""

        def body(params, key):
            batch_key, noise_key = jax.random.split(key)
            slope = jax.grad(lambda p: evaluate(density, p, batch_key))(params)
            noise = normal_like(noise_key, params)
            step = self.step_size
            moved = jax.tree.map(
                lambda x, g, n: x + step * g + jnp.sqrt(2 * step) * n, params, slope, noise
            )
            return moved, None

        return jax.lax.scan(body, params, jax.random.split(key, count))[0]

    def _hyper_slope(self, key, density: Joint, hyper, theta, particles) -> PyTree:
        data_key, *keys = jax.random.split(key, 1 + self.num_particles)
        own = jax.grad(
            lambda h: density.log_hyperprior(h) + evaluate(density.at(h), theta, data_key)
        )(hyper)

        def one(key, particle):
            return prior_slope(density, hyper, particle, density.prior.batch(key))

        lost = jax.vmap(one)(jnp.stack(keys), particles)
        return jax.tree.map(lambda a, b: a - jnp.mean(b), own, lost)


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
