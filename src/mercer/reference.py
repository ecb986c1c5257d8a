"""The Gaussian process itself, by its kept modes: draws, covariance, conditioning, evidence.

Everything costs O(nK²) for n points and K modes. This is the oracle that networks are held to.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.scipy.linalg import cho_solve, solve_triangular
from jaxtyping import Array, ArrayLike, Float, PRNGKeyArray

from .checks import default_float, require_count, require_finite, require_float64, require_positive
from .domains import require_inside
from .energy import Function
from .spectra import Spectrum


class GaussianProcess(eqx.Module):
    """u = m + Σₙ √λₙ ξₙ φₙ with independent ξₙ ~ N(0, 1).

    >>> import mercer
    >>> process = GaussianProcess(mercer.BrownianMotion(100))
    >>> process.draw(jax.random.key(0), jnp.linspace(0, 1, 5)[:, None], num_draws=3).shape
    (3, 5)
    """

    spectrum: Spectrum
    mean: Function | None = None

    def draw(
        self, key: PRNGKeyArray, points: ArrayLike, num_draws: int = 1
    ) -> Float[Array, "draws n"]:
        """Paths at the given points, by the Karhunen–Loève expansion."""
        require_count("num_draws", num_draws)
        white = jax.random.normal(key, (num_draws, self.spectrum.num_modes))
        return white @ self._basis(points).T + self._mean(points)[None]

    def covariance(self, points: ArrayLike) -> Float[Array, "n n"]:
        """Covariance at the given points, of the kept modes."""
        basis = self._basis(points)
        return basis @ basis.T

    def log_evidence(
        self, inputs: ArrayLike, targets: ArrayLike, noise: ArrayLike
    ) -> Float[Array, ""]:
        """log p(y | X) under y = u(X) + N(0, noise²), noise a number or one a row."""
        return self.condition(inputs, targets, noise).log_evidence

    def condition(
        self, inputs: ArrayLike, targets: ArrayLike, noise: ArrayLike
    ) -> "ConditionedProcess":
        """The process given y = u(X) + N(0, noise²)."""
        require_float64("conditioning a Gaussian process")
        inputs = jnp.asarray(inputs, default_float())
        targets = jnp.asarray(targets, default_float())
        if inputs.ndim != 2 or targets.shape != inputs.shape[:1] or inputs.shape[0] == 0:
            raise ValueError(
                f"X must have shape (n, d) and y shape (n,) with n >= 1, got {inputs.shape} and "
                f"{targets.shape}."
            )
        require_finite("X", inputs)
        require_finite("y", targets)
        require_positive("noise", noise)
        noise = jnp.broadcast_to(jnp.asarray(noise, targets.dtype), targets.shape)
        design = self._basis(inputs) / noise[:, None]
        residual = (targets - self._mean(inputs)) / noise
        precision = jnp.eye(design.shape[1]) + design.T @ design
        factor = jnp.linalg.cholesky(precision)
        weights = cho_solve((factor, True), design.T @ residual)
        return ConditionedProcess(
            self, factor, weights, _evidence(factor, design, residual, noise, weights)
        )

    def _basis(self, points: ArrayLike) -> Float[Array, "n K"]:
        points = jnp.asarray(points, default_float())
        require_inside(self.spectrum.domain, points, "points")
        return jax.vmap(self.spectrum.features)(points)

    def _mean(self, points: ArrayLike) -> Float[Array, " n"]:
        if self.mean is None:
            return jnp.zeros(len(points))
        return jax.vmap(self.mean)(jnp.asarray(points, default_float()))


class ConditionedProcess(eqx.Module):
    """A Gaussian process given data: ξ ~ N(weights, (L Lᵀ)⁻¹)."""

    process: GaussianProcess
    factor: Float[Array, "K K"]
    weights: Float[Array, " K"]
    log_evidence: Float[Array, ""]

    def mean(self, points: ArrayLike) -> Float[Array, " n"]:
        """Posterior mean."""
        return self.process._basis(points) @ self.weights + self.process._mean(points)

    def covariance(self, points: ArrayLike) -> Float[Array, "n n"]:
        """Posterior covariance."""
        half = self._half(points)
        return half.T @ half

    def variance(self, points: ArrayLike) -> Float[Array, " n"]:
        """Posterior variance, without the covariances."""
        return jnp.sum(jnp.square(self._half(points)), axis=0)

    def draw(
        self, key: PRNGKeyArray, points: ArrayLike, num_draws: int = 1
    ) -> Float[Array, "draws n"]:
        """Posterior paths at the given points."""
        require_count("num_draws", num_draws)
        white = jax.random.normal(key, (self.weights.shape[0], num_draws))
        coefficients = self.weights[:, None] + solve_triangular(self.factor.T, white)
        basis = self.process._basis(points)
        return (basis @ coefficients).T + self.process._mean(points)[None]

    def _half(self, points: ArrayLike) -> Float[Array, "K n"]:
        return solve_triangular(self.factor, self.process._basis(points).T, lower=True)


def _evidence(
    factor: Float[Array, "K K"],
    design: Float[Array, "n K"],
    residual: Float[Array, " n"],
    noise: Float[Array, " n"],
    weights: Float[Array, " K"],
) -> Float[Array, ""]:
    # The misfit and the weights at the mode: no difference of large numbers when noise is small.
    misfit = residual - design @ weights
    quadratic = jnp.sum(jnp.square(misfit)) + jnp.sum(jnp.square(weights))
    determinant = jnp.sum(jnp.log(jnp.diag(factor))) + jnp.sum(jnp.log(noise))
    return -0.5 * quadratic - determinant - 0.5 * residual.shape[0] * jnp.log(2 * jnp.pi)
