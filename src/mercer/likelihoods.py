"""log p(y | u): what was observed of a function, and with what noise.

A likelihood is called with the network (or pytree of networks), inputs X of shape (n, d) and
targets y, and returns one log density a row. `observe(u, X)` is the forward map R, by default
the values of u at X; it may solve a differential equation instead. Of several networks it is
the sum of their values, unless the likelihood has a name for each.
"""

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy import stats
from jax.scipy.special import gammaln
from jaxtyping import Array, ArrayLike, Float, Int, PRNGKeyArray, PyTree

from .checks import default_float, require_positive
from .unknowns import Unknown

Observe = Callable[[Any, Float[Array, "n d"]], Any]


Positive = ArrayLike | list | tuple | Unknown


def values_at(u: Any, inputs: Float[Array, "n d"]) -> Any:
    """The values of a network, or of each in a pytree of networks, at the rows of X."""
    is_network = lambda node: isinstance(node, eqx.Module) or callable(node)  # noqa: E731
    return jax.tree.map(lambda network: jax.vmap(network)(inputs), u, is_leaf=is_network)


def _is_unknown(node: Any) -> bool:
    return isinstance(node, Unknown)


class Likelihood(eqx.Module):
    """log p(y | u) a row; quantities given as `LogNormal` are learned with the network.

    Several networks are added up; a likelihood that has a use for each overrides `combine`.
    """

    observe: eqx.AbstractVar[Observe | None]

    @abstractmethod
    def log_prob(self, predicted: Any, targets: Array) -> Float[Array, " n"]:
        """Log density of each target given what the forward map predicts."""

    @abstractmethod
    def draw(self, key: PRNGKeyArray, predicted: Any) -> Array:
        """New targets given what the forward map predicts, noise and all."""

    @abstractmethod
    def check(self, targets: Array) -> None:
        """Raise if targets of this kind cannot have been observed."""

    def __call__(self, u: Any, inputs: Float[Array, "n d"], targets: Array) -> Float[Array, " n"]:
        return self.log_prob(self.predict(u, inputs), targets)

    def predict(self, u: Any, inputs: Float[Array, "n d"]) -> Any:
        """What the forward map makes of u at the inputs."""
        return (
            self.combine(values_at(u, inputs)) if self.observe is None else self.observe(u, inputs)
        )

    def combine(self, values: Any) -> Any:
        """What is observed of the values of one network, or of each in a pytree of them."""
        if isinstance(values, dict) and set(values) == {"mean", "scale"}:
            raise ValueError('networks {"mean": …, "scale": …} are those of Heteroscedastic.')
        return sum(jax.tree.leaves(values))

    @property
    def observes_points(self) -> bool:
        """Whether the rows of X are points of the network's own domain."""
        return self.observe is None

    @property
    def params(self) -> PyTree:
        """Standardised values of the learned quantities, zero at the median."""
        unknown = eqx.filter(self, _is_unknown, is_leaf=_is_unknown)
        return [jnp.zeros(()) for _ in jax.tree.leaves(unknown, is_leaf=_is_unknown)]

    def with_params(self, params: PyTree) -> "Likelihood":
        """The likelihood with its learned quantities at these values."""
        leaves, structure = jax.tree.flatten(self, is_leaf=_is_unknown)
        values = iter(params)
        known = [leaf(next(values)) if _is_unknown(leaf) else leaf for leaf in leaves]
        return jax.tree.unflatten(structure, known)

    def require_any_row(self) -> None:
        """Raise if noise was given one a row: there is none for new observations."""
        for name in ("scale", "degrees"):
            _for_any_row(name, getattr(self, name, 0.0))

    def at_rows(self, rows: Int[Array, " n"]) -> "Likelihood":
        """The likelihood of some rows of the data: noise that is given a row is cut alike."""
        cut = self
        for name in ("scale", "degrees"):
            value: Any = getattr(self, name, 0.0)
            if not isinstance(value, Unknown) and jnp.ndim(value) == 1:
                cut = eqx.tree_at(
                    lambda likelihood, n=name: getattr(likelihood, n), cut, value[rows]
                )
        return cut


class Gaussian(Likelihood):
    """y = R(u) + N(0, scale²); `scale` is a number, one a row, or `LogNormal` to be learned.

    >>> likelihood = Gaussian(0.1)
    >>> likelihood.log_prob(jnp.zeros(2), jnp.zeros(2)).shape
    (2,)
    """

    scale: Positive = eqx.field(converter=lambda s: _positive("scale", s))
    observe: Observe | None = eqx.field(default=None)

    def log_prob(self, predicted: Any, targets: Array) -> Float[Array, " n"]:
        predicted = one_a_row(predicted, targets)
        return stats.norm.logpdf(targets, predicted, self.scale)

    def draw(self, key: PRNGKeyArray, predicted: Any) -> Array:
        noise = jax.random.normal(key, predicted.shape, predicted.dtype)
        return predicted + _for_any_row("scale", self.scale) * noise

    def check(self, targets: Array) -> None:
        _check_rows("scale", self.scale, targets)


class Heteroscedastic(Likelihood):
    """y = m(x) + N(0, σ(x)²) for a pytree of networks {"mean": m, "scale": s}, σ = transform(s)."""

    transform: Callable[[Array], Array] = eqx.field(default=jax.nn.softplus)
    observe: Observe | None = eqx.field(default=None)

    def log_prob(self, predicted: Any, targets: Array) -> Float[Array, " n"]:
        if not isinstance(predicted, dict) or set(predicted) != {"mean", "scale"}:
            raise ValueError('Heteroscedastic needs networks {"mean": …, "scale": …}.')
        mean = one_a_row(predicted["mean"], targets)
        return stats.norm.logpdf(targets, mean, self.transform(predicted["scale"]))

    def draw(self, key: PRNGKeyArray, predicted: Any) -> Array:
        mean, scale = predicted["mean"], self.transform(predicted["scale"])
        return mean + scale * jax.random.normal(key, mean.shape, mean.dtype)

    def combine(self, values: Any) -> Any:
        return values

    def check(self, targets: Array) -> None:
        _check_rows("scale", 1.0, targets)


class StudentT(Likelihood):
    """y = R(u) + scale · t with `degrees` of freedom: Gaussian that forgives outliers."""

    degrees: Positive = eqx.field(converter=lambda s: _positive("degrees", s))
    scale: Positive = eqx.field(converter=lambda s: _positive("scale", s))
    observe: Observe | None = eqx.field(default=None)

    def log_prob(self, predicted: Any, targets: Array) -> Float[Array, " n"]:
        predicted = one_a_row(predicted, targets)
        return stats.t.logpdf(targets, self.degrees, predicted, self.scale)

    def draw(self, key: PRNGKeyArray, predicted: Any) -> Array:
        degrees = _for_any_row("degrees", self.degrees)
        noise = jax.random.t(key, degrees, predicted.shape, predicted.dtype)
        return predicted + _for_any_row("scale", self.scale) * noise

    def check(self, targets: Array) -> None:
        _check_rows("scale", self.scale, targets)


class Bernoulli(Likelihood):
    """y ∈ {0, 1} with P(y = 1) = sigmoid(R(u))."""

    observe: Observe | None = eqx.field(default=None)

    def log_prob(self, predicted: Any, targets: Array) -> Float[Array, " n"]:
        predicted = one_a_row(predicted, targets)
        return -jax.nn.softplus(jnp.where(targets == 1, -predicted, predicted))

    def draw(self, key: PRNGKeyArray, predicted: Any) -> Array:
        return jax.random.bernoulli(key, jax.nn.sigmoid(predicted)).astype(int)

    def check(self, targets: Array) -> None:
        _check_rows("y", 1.0, targets)
        if not np.all(np.isin(np.asarray(targets), (0, 1))):
            raise ValueError("Bernoulli targets must be 0 or 1.")


class Poisson(Likelihood):
    """Counts y with rate exp(R(u))."""

    observe: Observe | None = eqx.field(default=None)

    def log_prob(self, predicted: Any, targets: Array) -> Float[Array, " n"]:
        predicted = one_a_row(predicted, targets)
        return targets * predicted - jnp.exp(predicted) - gammaln(targets + 1.0)

    def draw(self, key: PRNGKeyArray, predicted: Any) -> Array:
        return jax.random.poisson(key, jnp.exp(predicted))

    def check(self, targets: Array) -> None:
        _check_rows("y", 1.0, targets)
        counts = np.asarray(targets)
        if np.any(counts < 0) or np.any(counts != np.round(counts)):
            raise ValueError("Poisson targets must be whole numbers, zero or more.")


def one_a_row(predicted: Any, targets: Array) -> Float[Array, " n"]:
    """What the forward map predicts, or an error unless it is one number for each target."""
    shape = getattr(predicted, "shape", None)
    if shape != targets.shape:
        got = f"shape {shape}" if shape is not None else f"a {type(predicted).__name__}"
        raise ValueError(
            f"the network, or `observe`, must predict one number a row, shape {targets.shape}; "
            f"got {got}."
        )
    return predicted


def _positive(name: str, value: Positive) -> Array | Unknown:
    if isinstance(value, Unknown):
        return value
    array = jnp.asarray(value, default_float())
    require_positive(name, array)
    return array


def _for_any_row(name: str, value: Any) -> Any:
    """A quantity that is the same for all rows, or an error: new rows have no number of theirs."""
    if jnp.ndim(value) > 0:
        raise ValueError(
            f"{name} was given one a row of the data, so there is none for new observations."
        )
    return value


def _check_rows(name: str, value: Any, targets: Array) -> None:
    if targets.ndim != 1:
        raise ValueError(f"y must have shape (n,), got {targets.shape}.")
    if isinstance(value, Unknown):
        return
    if jnp.ndim(value) > 0 and jnp.shape(value) != targets.shape:
        raise ValueError(
            f"{name} must be one number or one a row, {targets.shape[0]} of them; got {jnp.shape(value)}."
        )
