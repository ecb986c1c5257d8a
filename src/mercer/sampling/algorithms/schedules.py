"""Step sizes that change with the number of steps taken."""

from collections.abc import Callable

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ...checks import Real, require_count, require_positive

Schedule = Callable[[Float[Array, ""]], Float[Array, ""]]


class Constant(eqx.Module):
    """The same step always."""

    value: float

    def __call__(self, count: Float[Array, ""]) -> Float[Array, ""]:
        return jnp.asarray(self.value, float)


class Polynomial(eqx.Module):
    """first · (1 + count/delay)^(−power)."""

    first: float
    delay: float
    power: float

    def __call__(self, count: Float[Array, ""]) -> Float[Array, ""]:
        return self.first * (1 + count / self.delay) ** -self.power


class Cosine(eqx.Module):
    """From `first` to `last` along half a cosine; then `last`, or from `first` again."""

    first: float
    last: float
    num_steps: int
    repeats: bool

    def __call__(self, count: Float[Array, ""]) -> Float[Array, ""]:
        phase = count / self.num_steps
        phase = jnp.mod(phase, 1.0) if self.repeats else jnp.minimum(phase, 1.0)
        return self.last + (self.first - self.last) * 0.5 * (1 + jnp.cos(jnp.pi * phase))


def as_schedule(step_size: Real | Schedule) -> Schedule:
    """A number as the constant schedule; a schedule as it is."""
    if callable(step_size):
        return step_size
    require_positive("step_size", step_size)
    return Constant(float(step_size))


def polynomial(first: Real, delay: Real = 1.0, power: Real = 0.55) -> Schedule:
    """first · (1 + count/delay)^(−power); powers in (½, 1] make SGLD exact in the limit."""
    for name, value in (("first", first), ("delay", delay), ("power", power)):
        require_positive(name, value)
    return Polynomial(float(first), float(delay), float(power))


def cosine(first: Real, num_steps: int, last: Real = 0.0) -> Schedule:
    """From `first` to `last` along half a cosine, then `last`."""
    require_positive("first", first)
    require_count("num_steps", num_steps)
    return Cosine(float(first), float(last), num_steps, False)


def cyclical(first: Real, period: int) -> Schedule:
    """Half a cosine from `first` to zero, again and again."""
    require_positive("first", first)
    require_count("period", period)
    return Cosine(float(first), 0.0, period, True)
