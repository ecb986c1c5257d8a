"""Gaussian laws over a flat vector of parameters: diagonal, full, low-rank, and by eigenpairs."""

from abc import abstractmethod

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Float, PRNGKeyArray


class GaussianLaw(eqx.Module):
    """N(mean, LLᵀ) for some L."""

    mean: eqx.AbstractVar[Float[Array, " d"]]

    @abstractmethod
    def draw(self, key: PRNGKeyArray) -> Float[Array, " d"]:
        """A draw, differentiable in the law's own parameters."""

    @abstractmethod
    def log_density(self, x: Float[Array, " d"]) -> Float[Array, ""]:
        """log N(x; mean, LLᵀ) + d/2 log 2π."""


class Diagonal(GaussianLaw):
    """Independent parameters."""

    mean: Float[Array, " d"]
    log_sd: Float[Array, " d"]

    def draw(self, key: PRNGKeyArray) -> Float[Array, " d"]:
        return self.mean + jnp.exp(self.log_sd) * jax.random.normal(key, self.mean.shape)

    def log_density(self, x: Float[Array, " d"]) -> Float[Array, ""]:
        white = (x - self.mean) * jnp.exp(-self.log_sd)
        return -0.5 * jnp.sum(white**2) - jnp.sum(self.log_sd)


class Full(GaussianLaw):
    """L = lower triangle, its diagonal exp(log_diagonal)."""

    mean: Float[Array, " d"]
    log_diagonal: Float[Array, " d"]
    below: Float[Array, "d d"]

    @property
    def root(self) -> Float[Array, "d d"]:
        return jnp.tril(self.below, -1) + jnp.diag(jnp.exp(self.log_diagonal))

    def draw(self, key: PRNGKeyArray) -> Float[Array, " d"]:
        return self.mean + self.root @ jax.random.normal(key, self.mean.shape)

    def log_density(self, x: Float[Array, " d"]) -> Float[Array, ""]:
        white = solve_triangular(self.root, x - self.mean, lower=True)
        return -0.5 * jnp.sum(white**2) - jnp.sum(self.log_diagonal)


class LowRank(GaussianLaw):
    """Covariance S(I + FFᵀ)S: independent parameters and a few directions more."""

    mean: Float[Array, " d"]
    log_sd: Float[Array, " d"]
    factor: Float[Array, "d r"]

    def draw(self, key: PRNGKeyArray) -> Float[Array, " d"]:
        own_key, shared_key = jax.random.split(key)
        white = jax.random.normal(own_key, self.mean.shape)
        white = white + self.factor @ jax.random.normal(shared_key, self.factor.shape[1:])
        return self.mean + jnp.exp(self.log_sd) * white

    def log_density(self, x: Float[Array, " d"]) -> Float[Array, ""]:
        white = (x - self.mean) * jnp.exp(-self.log_sd)
        root = jnp.linalg.cholesky(jnp.eye(self.factor.shape[1]) + self.factor.T @ self.factor)
        cross = solve_triangular(root, self.factor.T @ white, lower=True)
        log_determinant = jnp.sum(jnp.log(jnp.diag(root))) + jnp.sum(self.log_sd)
        return -0.5 * (jnp.sum(white**2) - jnp.sum(cross**2)) - log_determinant


class Eigen(GaussianLaw):
    """Precision V diag(p) Vᵀ."""

    mean: Float[Array, " d"]
    precisions: Float[Array, " d"]
    directions: Float[Array, "d d"]

    def draw(self, key: PRNGKeyArray) -> Float[Array, " d"]:
        white = jax.random.normal(key, self.mean.shape) / jnp.sqrt(self.precisions)
        return self.mean + self.directions @ white

    def log_density(self, x: Float[Array, " d"]) -> Float[Array, ""]:
        along = self.directions.T @ (x - self.mean)
        return -0.5 * jnp.sum(self.precisions * along**2) + 0.5 * jnp.sum(jnp.log(self.precisions))
