"""Priors of numbers to be learned: each is an increasing function of a standard normal number.

Samplers and optimisers see z ~ N(0, 1); the model sees `hyperprior(z)`, in the user's own units.
"""

import math
from abc import abstractmethod

import equinox as eqx
import jax
from jax import numpy as jnp
from jaxtyping import Array, Float

from .checks import Real, require_positive


class Hyperprior(eqx.Module):
    """The prior of a number: an increasing function of z ~ N(0, 1)."""

    @abstractmethod
    def __call__(self, z: Float[Array, "..."]) -> Float[Array, "..."]:
        """The number at z."""


class LogNormal(Hyperprior):
    """A positive number, a priori median · exp(spread · N(0, 1)).

    >>> noise = LogNormal(median=0.1, spread=1.0)
    """

    median: Real
    spread: Real

    def __check_init__(self) -> None:
        require_positive("median", self.median)
        require_positive("spread", self.spread)

    def __call__(self, z: Float[Array, "..."]) -> Float[Array, "..."]:
        return self.median * jnp.exp(self.spread * z)


class Normal(Hyperprior):
    """Any number, a priori N(mean, spread²)."""

    mean: Real
    spread: Real

    def __check_init__(self) -> None:
        if not math.isfinite(self.mean):
            raise ValueError(f"mean must be finite, got {self.mean}.")
        require_positive("spread", self.spread)

    def __call__(self, z: Float[Array, "..."]) -> Float[Array, "..."]:
        return self.mean + self.spread * z


class Above(Hyperprior):
    """A number above a limit, a priori lower + median · exp(spread · N(0, 1)).

    >>> power = Above(0.5, median=1.0, spread=0.5)  # of a Laplacian in one dimension
    """

    lower: Real
    median: Real
    spread: Real

    def __check_init__(self) -> None:
        if not math.isfinite(self.lower):
            raise ValueError(f"lower must be finite, got {self.lower}.")
        require_positive("median", self.median)
        require_positive("spread", self.spread)

    def __call__(self, z: Float[Array, "..."]) -> Float[Array, "..."]:
        return self.lower + self.median * jnp.exp(self.spread * z)


class Between(Hyperprior):
    """A number between two limits, a priori uniform.

    >>> round(float(Between(1.0, 3.0)(jnp.zeros(()))), 6)
    2.0
    """

    lower: Real
    upper: Real

    def __check_init__(self) -> None:
        if not (math.isfinite(self.lower) and math.isfinite(self.upper)):
            raise ValueError(
                f"limits must be finite, got {self.lower} and {self.upper}: a uniform prior "
                "without them is improper; use LogNormal or Normal."
            )
        if not self.lower < self.upper:
            raise ValueError(f"lower must be below upper, got {self.lower} and {self.upper}.")

    def __call__(self, z: Float[Array, "..."]) -> Float[Array, "..."]:
        return self.lower + (self.upper - self.lower) * jax.scipy.special.ndtr(z)
