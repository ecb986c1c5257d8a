"""The usual Bayesian neural network, independent Gaussian weights: what Mercer priors are held to."""

import math
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from .checks import Real, default_float, require_count, require_positive
from .density import Params, Prior, is_random
from .domains import Box, Domain, PointLike
from .terms import NUM_WATCHED


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
    activation: Callable[[Array], Array]
    weight_scale: np.ndarray
    readout_scale: np.ndarray

    def __init__(
        self,
        in_size: int,
        width: int = 64,
        depth: int = 3,
        *,
        key: PRNGKeyArray,
        weight_scale: Real = 1.0,
        readout_scale: Real = 1.0,
        activation: Callable[[Array], Array] = jnp.tanh,
        domain: Domain | None = None,
    ):
        for name, count in (("in_size", in_size), ("width", width), ("depth", depth)):
            require_count(name, count)
        require_positive("weight_scale", weight_scale)
        require_positive("readout_scale", readout_scale)
        sizes = [in_size, *[width] * depth]
        shapes = list(zip(sizes[1:], sizes[:-1], strict=True))
        keys = iter(jax.random.split(key, 2 + 2 * depth))
        self.weights = tuple(jax.random.normal(next(keys), shape) for shape in shapes)
        self.biases = tuple(jax.random.normal(next(keys), shape[:1]) for shape in shapes)
        self.readout = jax.random.normal(next(keys), (width,))
        self.offset = jax.random.normal(next(keys))
        self.domain = _input_domain(domain, in_size)
        self.activation = activation
        self.weight_scale = np.asarray(weight_scale, default_float())
        self.readout_scale = np.asarray(readout_scale, default_float())

    @property
    def width(self) -> int:
        return self.readout.shape[0]

    def __call__(self, x: PointLike) -> Float[Array, ""]:
        hidden = 2 * self.domain.to_unit(x) - 1
        for weight, bias in zip(self.weights, self.biases, strict=True):
            before = weight @ hidden / math.sqrt(hidden.shape[0]) + bias
            hidden = self.activation(self.weight_scale * before)
        value = jnp.dot(self.readout, hidden) / math.sqrt(self.width) + self.offset
        return self.readout_scale * value


class IsotropicPrior(Prior):
    """p(θ) = N(θ; 0, σ²): independent Gaussian parameters, and nothing said of the function.

    The `Prior` of no energy, with its contract: any sampler, any likelihood. `network` is a module
    u(x) -> scalar or a pytree of them, `scale` is σ, and `trainable` says what is random, as for
    `Prior`. It is a subclass because a prior without an energy has other things to watch.

    >>> import mercer
    >>> prior = IsotropicPrior(MLP(1, width=8, key=jax.random.key(0)))
    >>> data = jnp.array([[0.2], [0.7]]), jnp.array([0.1, -0.3])
    >>> posterior = mercer.Posterior(prior, mercer.Gaussian(0.1), data)
    >>> posterior(prior.draw(jax.random.key(1))).shape
    ()
    """

    def __init__(
        self,
        network: PyTree,
        scale: Real = 1.0,
        trainable: Callable[[Any], bool] | PyTree[bool] = is_random,
    ):
        require_positive("scale", scale)
        Prior.__init__(self, None, network, scale, trainable=trainable, normalised=False)

    @property
    def is_exact(self) -> bool:
        """Whether `draw` gives exact draws of this density: always."""
        return True

    def require_exact(self) -> None:
        """Raise: there is no energy that the closed forms for a linear readout could be of."""
        raise ValueError(
            "independent Gaussian parameters have no energy, so there is no closed form to compare "
            "or whiten; draw from the prior, or sample its posterior with mercer.nuts()."
        )

    def draw(self, key: PRNGKeyArray) -> Params:
        """An exact, independent draw of all parameters."""
        return self.draw_reference(key)

    def watch(self, params: Params) -> dict[str, Array]:
        """Functions of the parameters to judge a chain by: values at points of each network that
        says what its `domain` is, a few parameters, and half the sum of their squares."""
        flat = ravel_pytree(params)[0]
        every = -(-flat.shape[0] // NUM_WATCHED)
        watched = {"parameters": flat[::every], "norm": 0.5 * jnp.sum(flat**2)}
        for i, term in enumerate(self.terms(params)):
            domain = getattr(term.network, "domain", None)
            if isinstance(domain, Box):
                points = domain.lattice(jax.random.key(0), NUM_WATCHED)
                watched[f"values_{i}"] = jax.vmap(term.network)(points)
        return watched

    def require_inside(self, points: Float[Array, "n d"], name: str = "X") -> None:
        """Raise if a point has another dimension than the box that a network was made for."""
        for term in self.terms(self.params):
            domain = getattr(term.network, "domain", None)
            if isinstance(domain, Box) and points.shape[1] != domain.dimension:
                raise ValueError(
                    f"{name} has {points.shape[1]} columns, the network takes {domain.dimension}; "
                    "give one column an input."
                )


def _input_domain(domain: Domain | None, in_size: int) -> Box:
    if domain is None:
        return Box([0.0] * in_size, [1.0] * in_size)
    if not isinstance(domain, Box) or domain.dimension != in_size:
        raise ValueError(f"domain must be a Box in {in_size} dimensions (in_size), got {domain}.")
    return domain
