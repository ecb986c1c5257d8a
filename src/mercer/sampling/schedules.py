"""Step sizes that change with the number of steps taken."""

from collections.abc import Callable

import jax.numpy as jnp
from jaxtyping import Array, Float

from ..checks import Real, require_count, require_positive

Schedule = Callable[[Float[Array, ""]], Float[Array, ""]]


def as_schedule(step_size: Real | Schedule) -> Schedule:
    """A number as the constant schedule; a schedule as it is."""
    if callable(step_size):
        return step_size
    require_positive("step_size", step_size)
    return lambda count: jnp.asarray(step_size, float)


def polynomial(first: Real, delay: Real = 1.0, power: Real = 0.55) -> Schedule:
    """first · (1 + count/delay)^(−power); powers in (½, 1] make SGLD exact in the limit."""
    for name, value in (("first", first), ("delay", delay), ("power", power)):
        require_positive(name, value)
    return lambda count: first * (1 + count / delay) ** -power


def cosine(first: Real, num_steps: int, last: Real = 0.0) -> Schedule:
    """From `first` to `last` along half a cosine, then `last`."""
    require_positive("first", first)
    require_count("num_steps", num_steps)

    def schedule(count):
        phase = jnp.minimum(count / num_steps, 1.0)
        return last + (first - last) * 0.5 * (1 + jnp.cos(jnp.pi * phase))

    return schedule


def cyclical(first: Real, period: int) -> Schedule:
    """Half a cosine from `first` to zero, again and again."""
    require_positive("first", first)
    require_count("period", period)
    return lambda count: first * 0.5 * (1 + jnp.cos(jnp.pi * jnp.mod(count, period) / period))
