"""Networks with dimensionless parameters: Fourier features, hidden layers, a linear readout."""

import math
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float, PRNGKeyArray

from .checks import Real, default_float, is_concrete, require_count, require_positive
from .domains import Box, Domain, PointLike
from .spectra.boundary import Boundary, BoundaryLike, parse_boundary

LAWS = ("normal", "cauchy")


class Vanishing(eqx.Module):
    """A factor that is zero on the Dirichlet sides of the unit box and positive elsewhere.

    The product over those sides of t, the distance to the side; or, with a `saturation` δ,
    of t/(t + δ), which leaves the side within a distance δ and then stays near one.

    >>> float(Vanishing("dirichlet", 1)(jnp.array([0.25])))  # t(1 − t)
    0.1875
    """

    boundary: Boundary = eqx.field(static=True)
    saturation: Real | None = eqx.field(static=True)

    def __init__(self, boundary: BoundaryLike, dimension: int, saturation: Real | None = None):
        if saturation is not None:
            require_positive("saturation", saturation)
        self.boundary = parse_boundary(boundary, dimension)
        self.saturation = saturation

    def __call__(self, t: Float[Array, " d"]) -> Float[Array, ""]:
        value = jnp.ones((), t.dtype)
        for axis, (lower, upper) in enumerate(self.boundary):
            for side, distance in ((lower, t[axis]), (upper, 1 - t[axis])):
                if side == "dirichlet":
                    value = value * self._leave(distance)
        return value

    def _leave(self, distance: Float[Array, ""]) -> Float[Array, ""]:
        if self.saturation is None:
            return distance
        return distance / (distance + self.saturation)


class FourierMLP(eqx.Module):
    """factor(t) · (s_w/√W) Σⱼ wⱼ hⱼ(t): Fourier features, sigmoid layers, a linear readout.

    Every random parameter has the scale one; the network's own scales are constants:
    `readout_scale` s_w, `hidden_scale`, and `num_frequencies` fixed frequencies drawn with
    `frequency_scale`, in radians over the domain, by a "normal" or a heavy-tailed "cauchy"
    law. `boundary` names the sides where the network vanishes, in the words of `Laplacian`;
    `saturation` makes it leave them faster. Inputs are scaled to the unit box of `domain`.

    >>> network = FourierMLP(1, width=50, boundary="dirichlet", key=jax.random.key(0))
    >>> network(jnp.array([0.0])).shape
    ()
    """

    frequencies: np.ndarray
    weights: tuple[Float[Array, "_ _"], ...]
    biases: tuple[Float[Array, " _"], ...]
    readout: Float[Array, " W"]
    factor: Vanishing | None
    domain: Box
    activation: Callable[[Array], Array]
    hidden_scale: np.ndarray
    readout_scale: np.ndarray

    def __init__(
        self,
        in_size: int,
        width: int,
        depth: int = 1,
        num_frequencies: int = 32,
        frequency_scale: ArrayLike = 10.0,
        boundary: BoundaryLike | None = None,
        *,
        key: PRNGKeyArray,
        law: str = "normal",
        saturation: Real | None = None,
        hidden_scale: ArrayLike = 4.0,
        readout_scale: ArrayLike = 30.0,
        activation: Callable[[Array], Array] = jax.nn.sigmoid,
        domain: Domain | None = None,
    ):
        _check_sizes(in_size, width, depth, num_frequencies)
        for name, value in (
            ("frequency_scale", frequency_scale),
            ("hidden_scale", hidden_scale),
            ("readout_scale", readout_scale),
        ):
            require_positive(name, value)
        if not is_concrete((key, frequency_scale, hidden_scale, readout_scale)):
            raise ValueError(
                "the frequencies and scales of a FourierMLP are constants: make its key and its scales "
                "outside of functions that are traced, such as a Joint's or jax.jit's."
            )
        # Frequencies are constants, also where a network is made within a compiled function.
        with jax.ensure_compile_time_eval():
            frequency_key, readout_key, *keys = jax.random.split(key, 2 + 2 * depth)
            self.frequencies = _draw_frequencies(
                frequency_key, num_frequencies, in_size, law, frequency_scale
            )
        sizes = [2 * num_frequencies, *[width] * depth]
        shapes = list(zip(sizes[1:], sizes[:-1], strict=True))
        self.domain = _network_domain(domain, in_size)
        self.weights = tuple(
            jax.random.normal(k, s) for k, s in zip(keys[:depth], shapes, strict=True)
        )
        self.biases = tuple(
            jax.random.normal(k, s[:1]) for k, s in zip(keys[depth:], shapes, strict=True)
        )
        self.readout = jax.random.normal(readout_key, (width,))
        self.factor = None if boundary is None else Vanishing(boundary, in_size, saturation)
        self.activation = activation
        self.hidden_scale = np.asarray(hidden_scale, default_float())
        self.readout_scale = np.asarray(readout_scale, default_float())

    @property
    def boundary(self) -> Boundary | None:
        """The sides where the network vanishes."""
        return None if self.factor is None else self.factor.boundary

    @property
    def width(self) -> int:
        return self.readout.shape[0]

    def __call__(self, x: PointLike) -> Float[Array, ""]:
        t = self.domain.to_unit(x)
        angles = jnp.asarray(self.frequencies, t.dtype) @ t
        hidden = math.sqrt(2) * jnp.concatenate([jnp.cos(angles), jnp.sin(angles)])
        for weight, bias in zip(self.weights, self.biases, strict=True):
            before = weight @ hidden / math.sqrt(hidden.shape[0]) + bias
            hidden = self.activation(self.hidden_scale * before)
        value = self.readout_scale * jnp.dot(self.readout, hidden) / math.sqrt(self.width)
        return value if self.factor is None else self.factor(t) * value


def _check_sizes(in_size: int, width: int, depth: int, num_frequencies: int) -> None:
    for name, value in (
        ("in_size", in_size),
        ("width", width),
        ("depth", depth),
        ("num_frequencies", num_frequencies),
    ):
        require_count(name, value)


def _network_domain(domain: Domain | None, in_size: int) -> Box:
    if domain is None:
        return Box([0.0] * in_size, [1.0] * in_size)
    if not isinstance(domain, Box) or domain.dimension != in_size:
        raise ValueError(f"domain must be a Box in {in_size} dimensions (in_size), got {domain}.")
    return domain


def _draw_frequencies(
    key: PRNGKeyArray, count: int, dimension: int, law: str, scale: ArrayLike
) -> np.ndarray:
    """Fixed frequencies: NumPy, so that they are no random parameters."""
    if law not in LAWS:
        raise ValueError(f"law must be one of {LAWS}, got {law!r}.")
    direction, radius = jax.random.split(key)
    draws = np.asarray(jax.random.normal(direction, (count, dimension)), default_float())
    if law == "cauchy":
        # The multivariate Cauchy is a normal vector over an independent half-normal number.
        draws = draws / np.abs(np.asarray(jax.random.normal(radius, (count, 1))))
    return np.asarray(scale) * draws
