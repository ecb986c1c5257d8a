"""Networks with dimensionless parameters and a linear readout: Fourier features, layers, radial units."""

import math
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float, PRNGKeyArray

from .checks import Real, default_float, require_count, require_positive
from .domains import Box, Domain, PointLike
from .energy import Nodes
from .parameters import constant
from .spectra.boundary import Boundary, BoundaryLike, parse_boundary

LAWS = ("normal", "cauchy")
ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "sigmoid": jax.nn.sigmoid,
    "tanh": jnp.tanh,
    "relu": jax.nn.relu,
    "gelu": jax.nn.gelu,
    "softplus": jax.nn.softplus,
    "sin": jnp.sin,
}
Activation = str | Callable[[Array], Array]


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
    `activation` is a name ("sigmoid", "tanh", "relu", "gelu", "softplus", "sin") or a function.

    >>> network = FourierMLP(1, width=50, boundary="dirichlet", key=jax.random.key(0))
    >>> network(jnp.array([0.0])).shape
    ()
    """

    weights: tuple[Float[Array, "_ _"], ...]
    biases: tuple[Float[Array, " _"], ...]
    readout: Float[Array, " W"]
    factor: Vanishing | None
    domain: Box
    activation: Activation = eqx.field(static=True)
    frequencies: Float[Array, "F d"] = constant()
    hidden_scale: Float[Array, ""] = constant()
    readout_scale: Float[Array, ""] = constant()

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
        activation: Activation = "sigmoid",
        domain: Domain | None = None,
    ):
        _require_counts(in_size=in_size, width=width, depth=depth, num_frequencies=num_frequencies)
        self.hidden_scale = _scale("hidden_scale", hidden_scale)
        self.readout_scale = _scale("readout_scale", readout_scale)
        require_positive("frequency_scale", frequency_scale)
        frequency_key, *keys = jax.random.split(key, 2 + 2 * depth)
        self.frequencies = _draw_frequencies(
            frequency_key, num_frequencies, in_size, law, frequency_scale
        )
        self.weights, self.biases, self.readout = _draw_layers(
            keys, [2 * num_frequencies, *[width] * depth]
        )
        self.domain = _input_domain(domain, in_size)
        self.factor = None if boundary is None else Vanishing(boundary, in_size, saturation)
        self.activation = name_activation(activation)

    @property
    def boundary(self) -> Boundary | None:
        """The sides where the network vanishes."""
        return None if self.factor is None else self.factor.boundary

    @property
    def width(self) -> int:
        return self.readout.shape[0]

    def __call__(self, x: PointLike) -> Float[Array, ""]:
        t = self.domain.to_unit(x)
        angles = self.frequencies.astype(t.dtype) @ t
        inputs = math.sqrt(2) * jnp.concatenate([jnp.cos(angles), jnp.sin(angles)])
        hidden = _last_layer(self, inputs, self.hidden_scale)
        value = self.readout_scale * jnp.dot(self.readout, hidden) / math.sqrt(self.width)
        return value if self.factor is None else self.factor(t) * value


class MLP(eqx.Module):
    """Layers activation(W h/√n + b) and a linear readout, on inputs scaled to [−1, 1].

    Every random parameter has the scale one, so that a weight of a unit with n inputs is a priori
    N(0, 1/n): the constants of the forward pass are `weight_scale` of the hidden layers and
    `readout_scale` of the last. Inputs are scaled by `domain`, by default the unit box.

    >>> network = MLP(1, width=64, depth=3, key=jax.random.key(0))
    >>> network(jnp.array([0.5])).shape
    ()
    """

    weights: tuple[Float[Array, "_ _"], ...]
    biases: tuple[Float[Array, " _"], ...]
    readout: Float[Array, " W"]
    offset: Float[Array, ""]
    domain: Box
    activation: Activation = eqx.field(static=True)
    weight_scale: Float[Array, ""] = constant()
    readout_scale: Float[Array, ""] = constant()

    def __init__(
        self,
        in_size: int,
        width: int = 64,
        depth: int = 3,
        *,
        key: PRNGKeyArray,
        weight_scale: Real = 1.0,
        readout_scale: Real = 1.0,
        activation: Activation = "tanh",
        domain: Domain | None = None,
    ):
        _require_counts(in_size=in_size, width=width, depth=depth)
        self.weight_scale = _scale("weight_scale", weight_scale)
        self.readout_scale = _scale("readout_scale", readout_scale)
        offset_key, *keys = jax.random.split(key, 2 + 2 * depth)
        self.weights, self.biases, self.readout = _draw_layers(keys, [in_size, *[width] * depth])
        self.offset = jax.random.normal(offset_key)
        self.domain = _input_domain(domain, in_size)
        self.activation = name_activation(activation)

    @property
    def width(self) -> int:
        return self.readout.shape[0]

    def __call__(self, x: PointLike) -> Float[Array, ""]:
        hidden = _last_layer(self, 2 * self.domain.to_unit(x) - 1, self.weight_scale)
        value = jnp.dot(self.readout, hidden) / math.sqrt(self.width) + self.offset
        return self.readout_scale * value


class Radial(eqx.Module):
    """s_w Σⱼ wⱼ φⱼ(x) with the white units φ = L⁻¹ k(z, ·) of a kernel at centres z, K = LLᵀ.

    Its energy under `Nodes(kernel, centres)`, the argument, is ½ s_w²|w|² with every mode, so that
    the readout scale alone says how wide the reference is: a large one leaves the process as it is.

    >>> energy = Nodes("matern32", jnp.linspace(0, 1, 8)[:, None])
    >>> Radial(energy)(jnp.array([0.3])).shape
    ()
    """

    readout: Float[Array, " W"]
    energy: Nodes = constant()
    readout_scale: Float[Array, ""] = constant()

    def __init__(self, energy: Nodes, readout_scale: ArrayLike = 1e4):
        self.energy = energy
        self.readout = jnp.zeros(energy.points.shape[0])
        self.readout_scale = _scale("readout_scale", readout_scale)

    @property
    def width(self) -> int:
        return self.readout.shape[0]

    def __call__(self, x: PointLike) -> Float[Array, ""]:
        units = self.energy.units(self.energy.domain.point(x))
        return self.readout_scale * jnp.dot(self.readout, units)


def activation_function(activation: Activation) -> Callable[[Array], Array]:
    """The function that an activation's name stands for."""
    return ACTIVATIONS[activation] if isinstance(activation, str) else activation


def name_activation(activation: Activation) -> Activation:
    """An activation by its name where it has one, so that a network can be saved."""
    if isinstance(activation, str):
        if activation not in ACTIVATIONS:
            known = sorted(ACTIVATIONS)
            raise ValueError(
                f"activation must be a function or one of {known}, got {activation!r}."
            )
        return activation
    return {function: name for name, function in ACTIVATIONS.items()}.get(activation, activation)


def _require_counts(**counts: int) -> None:
    for name, count in counts.items():
        require_count(name, count)


def _scale(name: str, value: ArrayLike) -> Float[Array, ""]:
    require_positive(name, value)
    return jnp.asarray(value, default_float())


def _last_layer(
    network: FourierMLP | MLP, inputs: Float[Array, " n"], scale: Float[Array, ""]
) -> Float[Array, " W"]:
    """The last hidden layer, each of activation(scale · (W h/√n + b))."""
    hidden, activation = inputs, activation_function(network.activation)
    for weight, bias in zip(network.weights, network.biases, strict=True):
        before = weight @ hidden / math.sqrt(hidden.shape[0]) + bias
        hidden = activation(scale * before)
    return hidden


def _draw_layers(keys: list[Any], sizes: list[int]) -> tuple[tuple, tuple, Float[Array, " W"]]:
    """Weights, biases and the readout of layers with these sizes, all standard normal."""
    readout_key, *keys = keys
    depth = len(sizes) - 1
    shapes = list(zip(sizes[1:], sizes[:-1], strict=True))
    weights = [jax.random.normal(k, s) for k, s in zip(keys[:depth], shapes, strict=True)]
    biases = [jax.random.normal(k, s[:1]) for k, s in zip(keys[depth:], shapes, strict=True)]
    return tuple(weights), tuple(biases), jax.random.normal(readout_key, sizes[-1:])


def _input_domain(domain: Domain | None, in_size: int) -> Box:
    if domain is None:
        return Box([0.0] * in_size, [1.0] * in_size)
    if not isinstance(domain, Box) or domain.dimension != in_size:
        raise ValueError(f"domain must be a Box in {in_size} dimensions (in_size), got {domain}.")
    return domain


def _draw_frequencies(
    key: PRNGKeyArray, count: int, dimension: int, law: str, scale: ArrayLike
) -> Float[Array, "F d"]:
    if law not in LAWS:
        raise ValueError(f"law must be one of {LAWS}, got {law!r}.")
    direction, radius = jax.random.split(key)
    draws = jax.random.normal(direction, (count, dimension), default_float())
    if law == "cauchy":
        # The multivariate Cauchy is a normal vector over an independent half-normal number.
        draws = draws / jnp.abs(jax.random.normal(radius, (count, 1), default_float()))
    return scale * draws
