"""Posteriors through a forward map: coordinates that are nearly N(0, I), and draws of the unknown.

Data of small noise learns some directions a thousand times better than others, and a sampler has to
take its steps along the narrowest. The density is exact; a linearised forward map shapes the
coordinates alone.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optimistix as optx
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

import mercer

from .experiment import Arrays, Chains, Run
from .summaries import bands, convergence


class Recentred(eqx.Module):
    """A frozen layer's posterior over ζ, where its latent is z = centre + root ζ."""

    whitened: mercer.Whitened
    centre: Float[Array, " W"]
    root: Float[Array, "W W"]
    is_deterministic = True
    __hash__ = object.__hash__

    @property
    def params(self) -> Float[Array, " W"]:
        """The mode."""
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
        """The same point as the whitened density has it."""
        return {"latent": [self.centre + self.root @ params], "likelihood": []}


def freeze(posterior: mercer.Posterior) -> Recentred:
    """The posterior with the hidden layer as it is, in coordinates about its mode, scaled by the
    Gauss–Newton precision I + JᵀJ/σ² there."""
    whitened, likelihood = mercer.Whitened(posterior), posterior.likelihood

    def misfit(latent: Array) -> Array:
        network = whitened.network({"latent": [latent], "likelihood": []})
        predicted = likelihood.predict(network, posterior.inputs)
        return (predicted - posterior.targets) / likelihood.scale

    def residuals(latent: Array, _: None) -> Array:
        return jnp.concatenate([misfit(latent), latent])

    @jax.jit
    def locate() -> tuple[Array, Array]:
        solver, start = optx.LevenbergMarquardt(rtol=1e-6, atol=1e-6), whitened.params["latent"][0]
        mode = optx.least_squares(residuals, solver, start, max_steps=60, throw=False).value
        slopes, identity = jax.jacfwd(misfit)(mode), jnp.eye(mode.shape[0])
        factor = jnp.linalg.cholesky(identity + slopes.T @ slopes)
        return mode, solve_triangular(factor.T, identity)

    return Recentred(whitened, *locate())


def free(posterior: mercer.Posterior, frozen: Recentred, nodes: Array) -> mercer.Conditioned:
    """The posterior of every parameter: what the data see of u at the nodes, linearised about the
    frozen layer's mode."""
    observe, noise = posterior.likelihood.observe, posterior.likelihood.scale
    mode = jax.vmap(frozen.network(frozen.params))(nodes[:, None])

    def predict(values: Array) -> Array:
        return observe(lambda t: jnp.interp(t, nodes, values), posterior.inputs) / noise

    slopes = jax.jit(jax.jacfwd(predict))(mode)
    residual = jax.jit(predict)(mode) - slopes @ mode - posterior.targets / noise
    return mercer.Conditioned(posterior, [mercer.Sight(nodes[:, None], slopes, residual)])


def infer(
    run: Run, name: str, density: Any, posterior: mercer.Posterior, chains: Chains, unknown: Callable
) -> Arrays:  # fmt: skip
    """Bands and convergence of unknown(network), an array, by NUTS; and what the data would be."""

    def record(params: Any) -> dict[str, Array]:
        network = density.network(params)
        predicted = posterior.likelihood.predict(network, posterior.inputs)
        return {"unknown": unknown(network), "predicted": predicted}

    draws = run.sample_white(name, density, chains, record)
    values, predicted = draws.recorded["unknown"], draws.recorded["predicted"]
    arrays = bands(values) | convergence(values, draws.statistics)
    return arrays | {"predicted": predicted.mean(axis=(0, 1))}
