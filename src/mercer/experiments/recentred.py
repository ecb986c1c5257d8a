"""Coordinates in which a frozen layer's posterior through a forward map is nearly N(0, I).

Data of small noise learns some directions a thousand times better than others, and a sampler has to
take its steps along the narrowest. The density is exact; a linearised forward map shapes the
coordinates alone.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import optimistix as optx
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from ..whitened import Whitened


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
