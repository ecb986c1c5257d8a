"""Hyperparameters of the estimator's process: a kernel, a random plane, noise; their prior.

The process is a² times a named kernel, or one with a given spectrum, plus a random plane, for columns and
targets that are standardised. Everything is by its logarithm.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.stats import norm
from jaxtyping import Array, Float, Int

from ..kernels import NAMES, Kernel, Linear, Stationary, Sum
from ..spectra import Spectrum

# Means, but for the length scales', and widths of the logarithms a priori.
MEANS = (0.0, -1.0, -1.5)
WIDTHS = (3.0, 3.0, 2.0, 3.0)


class ModalKernel(Kernel):
    """The kept modes of a spectrum, times a variance; a row x stands for the point centre + scale · x.

    The variance at a row is the process's own, so that the modes left out are in the tail.
    """

    spectrum: Spectrum
    centre: Float[Array, " d"]
    scale: Float[Array, " d"]
    variance: Float[Array, ""]

    def __call__(self, s: Float[Array, " d"], t: Float[Array, " d"]) -> Float[Array, ""]:
        return self.variance * self.spectrum.kept_kernel(self._point(s), self._point(t))

    def matrix(self, s: Float[Array, "n d"], t: Float[Array, "m d"]) -> Float[Array, "n m"]:
        features = jax.vmap(lambda x: self.spectrum.features(self._point(x)))
        return self.variance * features(s) @ features(t).T

    def diagonal(self, x: Float[Array, "n d"]) -> Float[Array, " n"]:
        points = jax.vmap(self._point)(x)
        return self.variance * jax.vmap(lambda p: self.spectrum.kernel(p, p))(points)

    def _point(self, x: Float[Array, " d"]) -> Float[Array, " d"]:
        return self.centre + self.scale * x


class Hyper(NamedTuple):
    """Logarithms of length scales, amplitude, slope and noise; the kernel by its place among the
    names, or a spectrum's modes, which have no length scales."""

    lengthscales: Float[Array, " d"]
    amplitude: Float[Array, ""]
    slope: Float[Array, ""]
    noise: Float[Array, ""]
    kernel: Int[Array, ""] | ModalKernel

    @property
    def covariance(self) -> Kernel:
        """The kernel of the process, plane included."""
        variance = jnp.exp(2 * self.amplitude)
        plane = Linear(jnp.ones(()), jnp.exp(self.slope))
        if isinstance(self.kernel, ModalKernel):
            modes = ModalKernel(
                self.kernel.spectrum, self.kernel.centre, self.kernel.scale, variance
            )
            return Sum(modes, plane)
        return Sum(Stationary(self.kernel, jnp.exp(self.lengthscales), variance), plane)


def as_kind(name: str) -> Int[Array, ""]:
    """A kernel's place among the names."""
    return jnp.asarray(NAMES.index(name))


def unpack(flat: Float[Array, " p"], kernel: Int[Array, ""] | ModalKernel) -> Hyper:
    """Hyperparameters from a vector of their logarithms."""
    return Hyper(flat[:-3], flat[-3], flat[-2], flat[-1], kernel)


def start(num_lengthscales: int, spread: float = 1.0) -> np.ndarray:
    """Logarithms at their prior's mean, length scales about √d times `spread`."""
    middle = 0.5 * math.log(max(num_lengthscales, 1)) + math.log(spread)
    return np.append(np.full(num_lengthscales, middle), MEANS)


def log_prior(hyper: Hyper) -> Float[Array, ""]:
    """Log density of the logarithms, for columns that are standardised: wide normals about `start`."""
    centre = start(hyper.lengthscales.shape[0])
    means = (centre[:-3], *MEANS)
    parts = zip(hyper[:4], means, WIDTHS, strict=True)
    return sum(norm.logpdf(value, mean, width).sum() for value, mean, width in parts)
