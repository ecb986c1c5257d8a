"""Gaussian approximations, fitted in the warm-up and then drawn from: variational and Laplace."""

import dataclasses
from abc import abstractmethod
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, PRNGKeyArray

from ...checks import PyTree, Real, require_count, require_positive
from ...density import Density, evaluate
from ...optimise import ascend, maximise
from ..algorithm import IndependentState, Info, SelfTuning, make_info
from .gaussian import Diagonal, Eigen, Full, GaussianLaw, LowRank

FAMILIES = ("mean_field", "full_rank", "low_rank")
# A dense matrix over the parameters beyond this many would not fit.
MAX_DENSE = 10_000


class Approximate(SelfTuning):
    """A Gaussian law over the parameters; every step is an independent draw of it."""

    law: eqx.AbstractVar[GaussianLaw | None]

    @abstractmethod
    def fit(
        self, key: PRNGKeyArray, density: Density, params: PyTree, num_steps: int
    ) -> GaussianLaw:
        """The law found by `num_steps` steps from these parameters."""

    def init(self, key: PRNGKeyArray, density: Density, params: PyTree) -> IndependentState:
        return IndependentState(params)

    def step(
        self, key: PRNGKeyArray, density: Density, state: IndependentState
    ) -> tuple[IndependentState, Info]:
        if self.law is None:
            raise ValueError("this approximation is fitted in the warm-up: give num_warmup.")
        unravel = ravel_pytree(state.position)[1]
        return IndependentState(unravel(self.law.draw(key))), make_info(num_gradients=0.0)

    def tune(
        self, key: PRNGKeyArray, density: Density, params: PyTree, num_steps: int
    ) -> tuple["Approximate", IndependentState]:
        law = self.fit(key, density, params, num_steps)
        mean = ravel_pytree(params)[1](law.mean)
        return dataclasses.replace(self, law=law), IndependentState(mean)


class Variational(Approximate):
    """The law of a family that maximises the evidence lower bound."""

    family: str = eqx.field(static=True)
    rank: int = eqx.field(static=True)
    num_samples: int = eqx.field(static=True)
    learning_rate: float = eqx.field(static=True)
    law: GaussianLaw | None = None
    needs_deterministic = False

    def fit(
        self, key: PRNGKeyArray, density: Density, params: PyTree, num_steps: int
    ) -> GaussianLaw:
        flat, unravel = ravel_pytree(params)
        start_key, run_key = jax.random.split(key)
        law = self._start(start_key, flat)

        def bound(law, key):
            return evidence_bound(key, density, law, unravel, self.num_samples)

        return ascend(run_key, bound, law, num_steps, self.learning_rate)

    def _start(self, key: PRNGKeyArray, flat: Float[Array, " d"]) -> GaussianLaw:
        log_sd = jnp.full_like(flat, jnp.log(0.1))
        if self.family == "mean_field":
            return Diagonal(flat, log_sd)
        if self.family == "full_rank":
            _require_dense(flat.size)
            return Full(flat, log_sd, jnp.zeros((flat.size, flat.size), flat.dtype))
        # Zero would be a saddle: every direction must be able to grow.
        factor = 0.1 * jax.random.normal(key, (flat.size, self.rank), flat.dtype)
        return LowRank(flat, log_sd, factor)


class Laplace(Approximate):
    """The Gaussian with the curvature of the density at its mode."""

    least_precision: float = eqx.field(static=True)
    law: GaussianLaw | None = None
    needs_deterministic = True

    def fit(
        self, key: PRNGKeyArray, density: Density, params: PyTree, num_steps: int
    ) -> GaussianLaw:
        mode, unravel = ravel_pytree(maximise(key, density, params, num_steps))
        _require_dense(mode.size)
        curvature = -jax.hessian(lambda flat: density(unravel(flat)))(mode)
        precisions, directions = jnp.linalg.eigh(curvature)
        return Eigen(mode, jnp.maximum(precisions, self.least_precision), directions)


def evidence_bound(
    key: PRNGKeyArray,
    density: Density,
    law: GaussianLaw,
    unravel: Callable[[Array], PyTree],
    num_samples: int = 16,
) -> Float[Array, ""]:
    """An unbiased estimate of E_q[log density − log q], the constant (2π)^(−d/2) of q left out.

    Its gradient goes through the draws alone, so that it is free of noise where q is exact.
    """
    fixed_law = jax.tree.map(jax.lax.stop_gradient, law)

    def difference(key):
        draw_key, batch_key = jax.random.split(key)
        x = law.draw(draw_key)
        return evaluate(density, unravel(x), batch_key) - fixed_law.log_density(x)

    return jnp.mean(jax.vmap(difference)(jax.random.split(key, num_samples)))


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
    return Variational(
        family=family, rank=rank, num_samples=num_samples, learning_rate=float(learning_rate)
    )


def laplace(least_precision: Real = 1.0) -> Laplace:
    """The Laplace approximation at the mode, which the warm-up climbs to by L-BFGS.

    Curvatures below `least_precision`, that of the reference, are raised to it: between the
    network's symmetric modes the density can be flat or even hollow.
    """
    require_positive("least_precision", least_precision)
    return Laplace(least_precision=float(least_precision))


def _require_dense(size: int) -> None:
    if size > MAX_DENSE:
        raise ValueError(
            f"{size} parameters make a dense covariance too large (over {MAX_DENSE}); use "
            'variational("low_rank") or variational("mean_field").'
        )
