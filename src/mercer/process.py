"""The Gaussian process itself: draws, covariance, conditioning, evidence.

By the modes of a spectrum, O(nK²) for n points and K modes; or by a kernel, exactly, with one unit at
each row of the data and the tail of these units, O(n³). This is the oracle that networks are held to.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float, PRNGKeyArray

from .checks import default_float, require_count, require_finite, require_float64, require_positive
from .domains import require_inside
from .energy import Function, Nodes
from .kernels import Kernel, KernelLike, as_kernel
from .linear import TallLaw, condition_rows, gaussian_constant
from .spectra import Spectrum


class GaussianProcess(eqx.Module):
    """u ~ GP(mean, k), for a spectrum, by its kept modes, or for any kernel k(s, t) or its name.

    >>> import mercer
    >>> process = GaussianProcess(mercer.BrownianMotion(100))
    >>> process.draw(jax.random.key(0), jnp.linspace(0, 1, 5)[:, None], num_draws=3).shape
    (3, 5)
    """

    basis: Spectrum | Kernel
    mean: Function | None

    def __init__(self, kernel: Spectrum | KernelLike, mean: Function | None = None):
        self.basis = kernel if isinstance(kernel, Spectrum) else as_kernel(kernel)
        self.mean = mean

    def draw(
        self, key: PRNGKeyArray, points: ArrayLike, num_draws: int = 1
    ) -> Float[Array, "draws n"]:
        """Paths at the given points, by white components."""
        require_count("num_draws", num_draws)
        units = self._units(points, points)
        white = jax.random.normal(key, (num_draws, units.shape[1]))
        return white @ units.T + self._mean(points)[None]

    def covariance(self, points: ArrayLike) -> Float[Array, "n n"]:
        """Covariance at the given points, of a spectrum's kept modes or of the kernel."""
        units = self._units(points, points)
        return units @ units.T

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
        residual = (self._mean(inputs) - targets) / noise
        rows = self._units(inputs, inputs) / noise[:, None], residual
        law, log_ratio = condition_rows(lambda block: block, rows)
        return ConditionedProcess(self, inputs, law, log_ratio + gaussian_constant(noise))

    def _units(self, points: ArrayLike, centres: ArrayLike) -> Float[Array, "n K"]:
        """Units that white components are multiplied by: modes, or those of the kernel at centres."""
        points = jnp.asarray(points, default_float())
        if isinstance(self.basis, Spectrum):
            require_inside(self.basis.domain, points, "points")
            return jax.vmap(self.basis.features)(points)
        nodes = Nodes(self.basis, centres)
        return nodes.whiten(self.basis.matrix(nodes.points, points)).T

    def _mean(self, points: ArrayLike) -> Float[Array, " n"]:
        if self.mean is None:
            return jnp.zeros(len(points))
        return jax.vmap(self.mean)(jnp.asarray(points, default_float()))


class ConditionedProcess(eqx.Module):
    """A Gaussian process given data: the Gaussian law of its white components."""

    process: GaussianProcess
    inputs: Float[Array, "n d"]
    law: TallLaw
    log_evidence: Float[Array, ""]

    def mean(self, points: ArrayLike) -> Float[Array, " n"]:
        """Posterior mean."""
        return self._units(points) @ self.law.mean() + self.process._mean(points)

    def covariance(self, points: ArrayLike) -> Float[Array, "n n"]:
        """Posterior covariance; of a kernel, with what units at the data leave out."""
        units = self._units(points)
        return self.law.covariance(units) + self._tail(points, units)

    def variance(self, points: ArrayLike) -> Float[Array, " n"]:
        """Posterior variance, without the covariances."""
        units = self._units(points)
        variance = self.law.variance(units)
        if isinstance(self.process.basis, Spectrum):
            return variance
        own = self.process.basis.diagonal(jnp.asarray(points, default_float()))
        return variance + jnp.maximum(own - jnp.sum(units**2, axis=1), 0.0)

    def draw(
        self, key: PRNGKeyArray, points: ArrayLike, num_draws: int = 1
    ) -> Float[Array, "draws n"]:
        """Posterior paths at the given points."""
        require_count("num_draws", num_draws)
        first, second = jax.random.split(key)
        units = self._units(points)
        drawn = jax.vmap(self.law.draw)(jax.random.split(first, num_draws)) @ units.T
        if not isinstance(self.process.basis, Spectrum):
            tail = self._tail(points, units)
            jitter = 1e-9 * jnp.mean(self.process.basis.diagonal(jnp.asarray(points)))
            root = jnp.linalg.cholesky(tail + jitter * jnp.eye(len(tail)))
            drawn = drawn + jax.random.normal(second, drawn.shape) @ root.T
        return drawn + self.process._mean(points)[None]

    def _units(self, points: ArrayLike) -> Float[Array, "n K"]:
        return self.process._units(points, self.inputs)

    def _tail(self, points: ArrayLike, units: Float[Array, "n K"]) -> Float[Array, "n n"]:
        if isinstance(self.process.basis, Spectrum):
            return jnp.zeros((len(units),) * 2)
        points = jnp.asarray(points, default_float())
        return self.process.basis.matrix(points, points) - units @ units.T
