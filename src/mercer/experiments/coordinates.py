"""Coordinates in which a posterior through a forward map is nearly N(0, I).

Data of small noise learns some directions a thousand times better than others, and a sampler has to
take its steps along the narrowest. Both densities here are exact; a linearised forward map shapes
the coordinates alone.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optimistix as optx
from jax.scipy.linalg import cho_solve, solve_triangular
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from ..density import Params
from ..draws import Draws
from ..posterior import Posterior
from ..readout import features, mix
from ..sampling import nuts
from ..whitened import Whitened
from .experiment import Run, fold


@dataclasses.dataclass(frozen=True)
class Chains:
    """NUTS that adapts its step alone, since the coordinates have done the rest."""

    num_chains: int
    num_draws: int
    num_warmup: int

    def sample(self, run: Run, name: str, density: Any, record: Callable[[Any], Any]) -> Draws:
        """Draws of a density of this file, from its own starting points."""
        keys = jax.random.split(fold(run.key, f"starts of {name}"), self.num_chains)
        return run.sample(
            name,
            density,
            nuts(adaptation="step", initial_step=0.2),
            num_draws=self.num_draws,
            num_warmup=self.num_warmup,
            num_chains=self.num_chains,
            init=jax.jit(jax.vmap(density.draw))(keys),
            record=record,
        )


class Recentred(eqx.Module):
    """A frozen layer's posterior over ζ, where its latent is z = centre + root ζ."""

    whitened: Whitened
    centre: Float[Array, " W"]
    root: Float[Array, "W W"]
    is_deterministic = True
    __hash__ = object.__hash__

    @property
    def params(self) -> Float[Array, " W"]:
        return jnp.zeros_like(self.centre)

    def __call__(self, params: Float[Array, " W"], batch: None = None) -> Float[Array, ""]:
        return self.whitened(self._latent(params))

    def network(self, params: Float[Array, " W"]) -> PyTree:
        """The network at these coordinates."""
        return self.whitened.network(self._latent(params))

    def draw(self, key: PRNGKeyArray) -> Float[Array, " W"]:
        """A starting point: a draw of the Gaussian approximation."""
        return jax.random.normal(key, self.centre.shape)

    def _latent(self, params: Float[Array, " W"]) -> dict[str, list]:
        return {"latent": [self.centre + self.root @ params], "likelihood": []}


def recentre(whitened: Whitened, num_steps: int = 60) -> Recentred:
    """Coordinates about the mode, scaled by the Gauss–Newton precision I + JᵀJ/σ² there."""
    posterior = whitened.posterior
    scale, start = posterior.likelihood.scale, whitened.latents[0].mean

    def misfit(latent):
        network = whitened.network({"latent": [latent], "likelihood": []})
        return (posterior.likelihood.predict(network, posterior.inputs) - posterior.targets) / scale

    def residuals(latent, _):
        return jnp.concatenate([misfit(latent), latent])

    @jax.jit
    def find():
        solver = optx.LevenbergMarquardt(rtol=1e-6, atol=1e-6)
        begin = jnp.zeros_like(start)
        mode = optx.least_squares(residuals, solver, begin, max_steps=num_steps, throw=False).value
        slopes = jax.jacfwd(misfit)(mode)
        factor = jnp.linalg.cholesky(jnp.eye(mode.shape[0]) + slopes.T @ slopes)
        return mode, solve_triangular(factor.T, jnp.eye(mode.shape[0]))

    return Recentred(whitened, *find())


class Conditioned(eqx.Module):
    """A posterior over every parameter, where the readout's place is taken by white numbers ζ.

    Given the hidden parameters η, the readout would be Gaussian if the forward map were linear,
    R(u) = R(u*) + J(u − u*): w = mean(η) + C(η)^(−T) ζ. `slopes` are J/σ at the points, and
    slopes · u + residual is the misfit over σ of that map.
    """

    posterior: Posterior
    points: Float[Array, "m d"]
    slopes: Float[Array, "n m"]
    residual: Float[Array, " n"]
    is_deterministic = True
    __hash__ = object.__hash__

    @property
    def params(self) -> Params:
        return self.posterior.prior.params

    def __call__(self, params: Params, batch: None = None) -> Float[Array, ""]:
        original, log_volume = self._original(params)
        return self.posterior(original) + log_volume

    def network(self, params: Params) -> PyTree:
        """The network at these coordinates."""
        return self.posterior.network(self._original(params)[0])

    def draw(self, key: PRNGKeyArray) -> Params:
        """A starting point: hidden parameters by an exact draw of the prior, ζ by N(0, I)."""
        return self.posterior.prior.draw_reference(key)

    def _original(self, params: Params) -> tuple[Params, Float[Array, ""]]:
        """The parameters as the posterior has them, and the log volume of the change."""
        prior: Any = self.posterior.prior
        (term,) = prior.terms(params)
        white = prior.where(term.network)
        rows = jax.vmap(lambda x: features(term.network, prior.where, x))(self.points)
        ours = mix(term.energy, term.network, prior.where, 1.0)
        data = self.slopes @ rows
        precision = jnp.eye(white.shape[0]) + ours.T @ ours + data.T @ data
        factor = jnp.linalg.cholesky(precision)
        mean = -cho_solve((factor, True), data.T @ self.residual)
        weights = mean + solve_triangular(factor.T, white)
        return prior.with_readouts(params, [weights]), -jnp.sum(jnp.log(jnp.diag(factor)))
