"""Gaussian approximations, fitted in the warm-up and then drawn from: variational and Laplace."""

from abc import abstractmethod
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from ...checks import Real, require_count, require_positive
from ...density import Density, evaluate
from ...optimise import ascend, maximise
from ..algorithm import Algorithm, Info, make_info
from .gaussian import Diagonal, Eigen, Full, GaussianLaw, LowRank

FAMILIES = ("mean_field", "full_rank", "low_rank")
# A dense matrix over the parameters beyond this many would not fit.
MAX_DENSE = 10_000


class ApproximateState(NamedTuple):
    """The last draw."""

    position: PyTree


class Approximate(Algorithm):
    """A Gaussian law over the parameters; every step is an independent draw of it."""

    law: eqx.AbstractVar[GaussianLaw | None]

    @abstractmethod
    def fit(
        self, key: PRNGKeyArray, density: Density, params: PyTree, num_steps: int
    ) -> GaussianLaw:
        """The law found by `num_steps` steps from these parameters."""

    def init(self, key: PRNGKeyArray, density: Density, params: PyTree) -> ApproximateState:
        return ApproximateState(params)

    def step(
        self, key: PRNGKeyArray, density: Density, state: ApproximateState
    ) -> tuple[ApproximateState, Info]:
        if self.law is None:
            raise ValueError("this approximation is fitted in the warm-up: give num_warmup.")
        unravel = ravel_pytree(state.position)[1]
        return ApproximateState(unravel(self.law.draw(key))), make_info(num_gradients=0.0)

    def adapt(self, key, density, params, num_steps):
        if num_steps == 0:
            return self, self.init(key, density, params)
        law = self.fit(key, density, params, num_steps)
        fitted = eqx.tree_at(lambda a: a.law, self, law, is_leaf=lambda x: x is None)
        return fitted, ApproximateState(ravel_pytree(params)[1](law.mean))


class Variational(Approximate):
    """The law of a family that maximises the evidence lower bound."""

    family: str = eqx.field(static=True)
    rank: int = eqx.field(static=True)
    num_samples: int = eqx.field(static=True)
    learning_rate: float = eqx.field(static=True)
    law: GaussianLaw | None = None
    needs_deterministic = False

    def fit(self, key, density, params, num_steps):
        flat, unravel = ravel_pytree(params)
        start_key, run_key = jax.random.split(key)
        law = self._start(start_key, flat)

        def bound(law, key):
            return evidence_bound(key, density, law, unravel, self.num_samples)

        return ascend(run_key, bound, law, num_steps, self.learning_rate)

    def _start(self, key: PRNGKeyArray, flat: Float[Array, " d"]) -> GaussianLaw:
        small = jnp.full_like(flat, jnp.log(0.1))
        if self.family == "mean_field":
            return Diagonal(flat, small)
        if self.family == "full_rank":
            _require_dense(flat.size)
            return Full(flat, small, jnp.zeros((flat.size, flat.size), flat.dtype))
        # Zero would be a saddle: every direction must be able to grow.
        factor = 0.1 * jax.random.normal(key, (flat.size, self.rank), flat.dtype)
        return LowRank(flat, small, factor)


class Laplace(Approximate):
    """The Gaussian with the curvature of the density at its mode."""

    least_precision: float = eqx.field(static=True)
    law: GaussianLaw | None = None
    needs_deterministic = True

    def fit(self, key, density, params, num_steps):
        mode, unravel = ravel_pytree(maximise(key, density, params, num_steps))
        _require_dense(mode.size)
        curvature = -jax.hessian(lambda flat: density(unravel(flat)))(mode)
        precisions, directions = jnp.linalg.eigh(curvature)
        return Eigen(mode, jnp.maximum(precisions, self.least_precision), directions)


def evidence_bound(
    key: PRNGKeyArray, density: Density, law: GaussianLaw, unravel, num_samples: int = 16
) -> Float[Array, ""]:
    """An unbiased estimate of E_q[log density − log q], the constant (2π)^(−d/2) of q left out.

    Its gradient goes through the draws alone, so that it is free of noise where q is exact.
    """
    fixed = jax.tree.map(jax.lax.stop_gradient, law)

    def one(key):
        draw_key, batch_key = jax.random.split(key)
        x = law.draw(draw_key)
        return evaluate(density, unravel(x), batch_key) - fixed.log_density(x)

    return jnp.mean(jax.vmap(one)(jax.random.split(key, num_samples)))


def variational(
    family: str = "mean_field",
    rank: int = 10,
    num_samples: int = 4,
    learning_rate: Real = 0.02,
) -> Variational:
    """A Gaussian fitted by maximising the evidence lower bound, one warm-up step an Adam step.

    `family` is "mean_field", "full_rank" or "low_rank" (then with `rank` directions). Each chain
    is fitted on its own, from its own start, so R-hat tells whether they found the same.
    """
    if family not in FAMILIES:
        raise ValueError(f"family must be one of {FAMILIES}, got {family!r}.")
    require_count("rank", rank)
    require_count("num_samples", num_samples)
    require_positive("learning_rate", learning_rate)
    return Variational(family, rank, num_samples, float(learning_rate))


def laplace(least_precision: Real = 1.0) -> Laplace:
    """The Laplace approximation at the mode, which the warm-up climbs to by L-BFGS.

    Curvatures below `least_precision`, that of the reference, are raised to it: between the
    network's symmetric modes the density can be flat or even hollow.
    """
    require_positive("least_precision", least_precision)
    return Laplace(float(least_precision))


def _require_dense(size: int) -> None:
    if size > MAX_DENSE:
        raise ValueError(
            f"{size} parameters make a dense covariance too large (over {MAX_DENSE}); use "
            'variational("low_rank") or variational("mean_field").'
        )
