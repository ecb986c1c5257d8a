"""log p(y) with an error bar: importance sampling where that is enough, tempered SMC where not.

Both start from a law that can be drawn from and weigh it to the posterior: the prior by the
likelihood, or, in white coordinates, N(0, I) by the rest of the posterior, which for a faithful
network is nearly constant.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import blackjax
import jax
import jax.numpy as jnp
import numpy as np
from blackjax.smc.resampling import systematic
from jax.flatten_util import ravel_pytree
from jax.scipy.special import logsumexp
from jax.scipy.stats import norm
from jaxtyping import Array, Float, PRNGKeyArray

from ..checks import PyTree, require_count
from ..coordinates import Coordinates, Frozen, NonCentred
from ..density import normal_like
from ..posterior import Posterior

# Share of the particles that weights may leave.
TARGET_ESS = 0.5
NUM_LEAPFROG = 8
MAX_STEPS = 200


class Estimate(NamedTuple):
    """A number and its standard error."""

    value: float
    error: float


class Base(NamedTuple):
    """A law to start from, and the log weight that makes the posterior of it."""

    draw: Callable[[PRNGKeyArray], PyTree]
    log_density: Callable[[PyTree], Float[Array, ""]]
    log_weight: Callable[[PyTree], Float[Array, ""]]


def make_base(posterior: Any) -> Base:
    """N(0, I) for white coordinates, the prior for all others."""
    if isinstance(posterior, Coordinates):

        def log_normal(params):
            return jnp.sum(norm.logpdf(ravel_pytree(params)[0]))

        return Base(
            draw=lambda key: normal_like(key, posterior.params),
            log_density=log_normal,
            log_weight=lambda params: posterior(params) - log_normal(params),
        )
    if not posterior.prior.normalised:
        raise ValueError("the evidence needs a normalised prior: leave normalised= alone.")
    return Base(posterior.init, posterior.log_prior, posterior.log_likelihood)


def log_evidence(
    key: PRNGKeyArray,
    posterior: Any,
    num_particles: int = 256,
    num_repeats: int = 4,
    step_size: float = 0.2,
) -> Estimate:
    """log p(y) by tempered SMC, its error from independent repeats.

    The particles are moved by HMC with `step_size`, in white coordinates. For a `Frozen` posterior
    with exact draws it is the closed form, `Frozen(posterior).log_evidence`, with an error of zero.
    """
    require_count("num_particles", num_particles, at_least=2)
    require_count("num_repeats", num_repeats, at_least=2)
    if isinstance(posterior, Frozen) and posterior.is_exact:
        return Estimate(float(posterior.log_evidence), 0.0)
    if isinstance(posterior, Posterior):
        posterior = NonCentred(posterior)
    base = make_base(posterior)
    anneal = jax.jit(lambda k: _anneal(k, base, num_particles, step_size))
    estimates = np.array([float(anneal(k)) for k in jax.random.split(key, num_repeats)])
    # The evidence itself is what the runs estimate: averages are of it.
    value = float(logsumexp(estimates) - math.log(num_repeats))
    spread = np.std(np.exp(estimates - value), ddof=1) / math.sqrt(num_repeats)
    return Estimate(value, float(spread))


def _anneal(
    key: PRNGKeyArray, base: Base, num_particles: int, step_size: float
) -> Float[Array, ""]:
    """log p(y) by one run of SMC from the base to the posterior."""
    draw_key, run_key = jax.random.split(key)
    particles = jax.vmap(base.draw)(jax.random.split(draw_key, num_particles))
    size = ravel_pytree(jax.tree.map(lambda x: x[0], particles))[0].shape[0]
    options = {
        "step_size": jnp.full(1, step_size),
        "inverse_mass_matrix": jnp.ones((1, size)),
        "num_integration_steps": jnp.full(1, NUM_LEAPFROG),
    }
    smc: Any = blackjax.adaptive_tempered_smc(
        base.log_density, base.log_weight, blackjax.hmc.build_kernel(), blackjax.hmc.init, options,
        systematic, TARGET_ESS, num_mcmc_steps=2,
    )  # fmt: skip

    def unfinished(carry):
        return (carry[0].tempering_param < 1) & (carry[2] < MAX_STEPS)

    def step(carry):
        state, total, count = carry
        state, info = smc.step(jax.random.fold_in(run_key, count), state)
        return state, total + info.log_likelihood_increment, count + 1

    state, total, _ = jax.lax.while_loop(unfinished, step, (smc.init(particles), jnp.zeros(()), 0))
    return jnp.where(state.tempering_param < 1, jnp.nan, total)
