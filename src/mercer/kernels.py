"""Covariance functions k(s, t) of two points: by name, by spectrum, or any callable."""

import math
from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float, Int

from .checks import default_float, require_positive
from .spectra import Spectrum

NAMES = ("matern12", "matern32", "matern52", "squared-exponential")
KernelLike = Any


class Kernel(eqx.Module):
    """A covariance function, at one pair of points or at all pairs of two sets."""

    @abstractmethod
    def __call__(self, s: Float[Array, " d"], t: Float[Array, " d"]) -> Float[Array, ""]:
        """k(s, t)."""

    def matrix(self, s: Float[Array, "n d"], t: Float[Array, "m d"]) -> Float[Array, "n m"]:
        """k at all pairs."""
        return jax.lax.map(lambda a: jax.vmap(lambda b: self(a, b))(t), s)

    def diagonal(self, x: Float[Array, "n d"]) -> Float[Array, " n"]:
        """k(x, x) at each row."""
        return jax.lax.map(lambda a: self(a, a), x, batch_size=min(len(x), 1024))

    def scaled(self, x: Float[Array, "n d"]) -> Float[Array, "n d"]:
        """Coordinates in which near rows are the correlated ones."""
        return x

    def __add__(self, other: "Kernel") -> "Kernel":
        return Sum(self, as_kernel(other))


class Stationary(Kernel):
    """variance · profile(|(s − t)/lengthscale|), of the kind that its name says.

    `lengthscale` is one for all columns or one a column. The kind is a number, so that one
    compiled program serves all of them.

    >>> float(named_kernel("matern12", lengthscale=1.0)(jnp.zeros(1), jnp.zeros(1)))
    1.0
    """

    kind: Int[Array, ""]
    lengthscale: Float[Array, "..."]
    variance: Float[Array, ""]

    def __call__(self, s: Float[Array, " d"], t: Float[Array, " d"]) -> Float[Array, ""]:
        squared = jnp.sum(jnp.square((s - t) / self.lengthscale))
        return self.variance * self._profile(squared)

    def matrix(self, s: Float[Array, "n d"], t: Float[Array, "m d"]) -> Float[Array, "n m"]:
        scale = jnp.broadcast_to(self.lengthscale, s.shape[1:])[None]
        a, b = s / scale, t / scale
        squares = jnp.sum(a * a, 1)[:, None] + jnp.sum(b * b, 1)[None] - 2 * a @ b.T
        return self.variance * self._profile(squares)

    def diagonal(self, x: Float[Array, "n d"]) -> Float[Array, " n"]:
        return jnp.full(x.shape[0], self.variance)

    def scaled(self, x: Float[Array, "n d"]) -> Float[Array, "n d"]:
        return x / jnp.broadcast_to(self.lengthscale, x.shape[1:])[None]

    def _profile(self, squares: Array) -> Array:
        # The root has no derivative at zero: there the distance is taken to be constant.
        apart = squares > 0
        distance = jnp.where(apart, jnp.sqrt(jnp.where(apart, squares, 1.0)), 0.0)
        return jax.lax.switch(self.kind, PROFILES, distance)


class Linear(Kernel):
    """A random plane: variance · (1 + slope² s·t / d)."""

    variance: Float[Array, ""]
    slope: Float[Array, ""]

    def __call__(self, s: Float[Array, " d"], t: Float[Array, " d"]) -> Float[Array, ""]:
        return self.variance * (1 + self.slope**2 * jnp.dot(s, t) / s.shape[0])

    def matrix(self, s: Float[Array, "n d"], t: Float[Array, "m d"]) -> Float[Array, "n m"]:
        return self.variance * (1 + self.slope**2 * s @ t.T / s.shape[1])

    def diagonal(self, x: Float[Array, "n d"]) -> Float[Array, " n"]:
        return self.variance * (1 + self.slope**2 * jnp.sum(x * x, axis=1) / x.shape[1])


class Sum(Kernel):
    """Covariance of the sum of two independent processes."""

    first: Kernel
    second: Kernel

    def __call__(self, s: Float[Array, " d"], t: Float[Array, " d"]) -> Float[Array, ""]:
        return self.first(s, t) + self.second(s, t)

    def matrix(self, s: Float[Array, "n d"], t: Float[Array, "m d"]) -> Float[Array, "n m"]:
        return self.first.matrix(s, t) + self.second.matrix(s, t)

    def diagonal(self, x: Float[Array, "n d"]) -> Float[Array, " n"]:
        return self.first.diagonal(x) + self.second.diagonal(x)

    def scaled(self, x: Float[Array, "n d"]) -> Float[Array, "n d"]:
        return self.first.scaled(x)


class SpectrumKernel(Kernel):
    """The covariance of the process that a spectrum names, every mode included."""

    spectrum: Spectrum

    def __call__(self, s: Float[Array, " d"], t: Float[Array, " d"]) -> Float[Array, ""]:
        return self.spectrum.kernel(s, t)


class FunctionKernel(Kernel):
    """A function k(s, t) of two points, such as a kernel of another library."""

    function: Callable[[Any, Any], Any]

    def __call__(self, s: Float[Array, " d"], t: Float[Array, " d"]) -> Float[Array, ""]:
        return jnp.reshape(self.function(s, t), ())


def named_kernel(name: str, lengthscale: ArrayLike = 1.0, variance: ArrayLike = 1.0) -> Stationary:
    """A stationary kernel by its name."""
    if name not in NAMES:
        raise ValueError(f"kernel must be one of {NAMES}, a spectrum or k(s, t); got {name!r}.")
    require_positive("lengthscale", lengthscale)
    require_positive("variance", variance)
    scales = (jnp.asarray(value, default_float()) for value in (lengthscale, variance))
    return Stationary(jnp.asarray(NAMES.index(name)), *scales)


def as_kernel(kernel: KernelLike) -> Kernel:
    """A name, a spectrum, or any k(s, t) of two points as a `Kernel`.

    Kernels of tinygp, whose calls take sets of points, are asked by their method `evaluate`.
    """
    if isinstance(kernel, Kernel):
        return kernel
    if isinstance(kernel, str):
        return named_kernel(kernel)
    if isinstance(kernel, Spectrum):
        return SpectrumKernel(kernel)
    function = getattr(kernel, "evaluate", kernel)
    if not callable(function):
        raise ValueError(f"kernel must be one of {NAMES}, a spectrum or k(s, t); got {kernel!r}.")
    return FunctionKernel(function)


def _matern32(r: Array) -> Array:
    scaled = math.sqrt(3) * r
    return (1 + scaled) * jnp.exp(-scaled)


def _matern52(r: Array) -> Array:
    scaled = math.sqrt(5) * r
    return (1 + scaled + scaled**2 / 3) * jnp.exp(-scaled)


# By distance in length scales, in the order of the names.
PROFILES: tuple[Callable[[Array], Array], ...] = (
    lambda r: jnp.exp(-r),
    _matern32,
    _matern52,
    lambda r: jnp.exp(-0.5 * r**2),
)
