"""log p(y | u): what was observed of a function, and with what noise.

A likelihood is called with the network (or pytree of networks), inputs X of shape (n, d) and
targets y, and returns one log density a row. `observe(u, X)` is the forward map R, by default
the values of u at X; it may solve a differential equation instead. Of several networks it is
the sum of their values, unless the likelihood has a name for each.
"""

import dataclasses
from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy import stats
from jax.scipy.special import gammaln
from jaxtyping import Array, ArrayLike, Float, Int, PRNGKeyArray

from .checks import default_float, require_positive
from .hyperpriors import Hyperprior
from .parameters import is_network

Observe = Callable[[Any, Float[Array, "n d"]], Any]
# Fields that may have one value a row of the data.
ROW_FIELDS = ("scale", "degrees")
Positive = ArrayLike | list[Any] | tuple[Any, ...] | Hyperprior


def values_at(u: Any, inputs: Float[Array, "n d"]) -> Any:
    """The values of a network, or of each in a pytree of networks, at the rows of X."""
    return jax.tree.map(lambda network: jax.vmap(network)(inputs), u, is_leaf=is_network)


def softplus(x: Array) -> Array:
    """log(1 + exp(x)), which keeps a scale positive."""
    return jax.nn.softplus(x)


class Likelihood(eqx.Module):
    """Log densities log p(y | u), one a row; quantities given as a hyperprior are learned with the network.

    Several networks are added up; a likelihood that has a use for each overrides `combine`.
    """

    observe: eqx.AbstractVar[Observe | None]

    @abstractmethod
    def log_prob(self, predicted: Any, targets: Array) -> Float[Array, " n"]:
        """Log density of each target given what the forward map predicts."""

    @abstractmethod
    def draw(self, key: PRNGKeyArray, predicted: Any) -> Array:
        """New targets given what the forward map predicts, noise and all."""

    def check(self, targets: Array) -> None:
        """Raise if targets of this kind cannot have been observed."""
        if targets.ndim != 1:
            raise ValueError(f"y must have shape (n,), got {targets.shape}.")
        scale = getattr(self, "scale", 1.0)
        if not isinstance(scale, Hyperprior) and jnp.shape(scale) not in ((), targets.shape):
            raise ValueError(
                f"scale must be one number or one a row, {targets.shape[0]} of them; got "
                f"{jnp.shape(scale)}."
            )

    def __call__(self, u: Any, inputs: Float[Array, "n d"], targets: Array) -> Float[Array, " n"]:
        return self.log_prob(self.predict(u, inputs), targets)

    def predict(self, u: Any, inputs: Float[Array, "n d"]) -> Any:
        """What the forward map makes of u at the inputs."""
        if self.observe is None:
            return self.combine(values_at(u, inputs))
        return self.observe(u, inputs)

    def combine(self, values: Any) -> Any:
        """What is observed of the values of one network, or of each in a pytree of them."""
        if isinstance(values, dict) and set(values) == {"mean", "scale"}:
            raise ValueError('networks {"mean": …, "scale": …} are those of Heteroscedastic.')
        return sum(jax.tree.leaves(values))

    @property
    def observes_points(self) -> bool:
        """Whether the rows of X are points of the network's own domain."""
        return self.observe is None

    def tail_variance(self, variances: Any) -> Float[Array, " n"]:
        """Variance of what is observed that is due to the variances the networks' units leave out."""
        return sum(jax.tree.leaves(variances))

    def noise_variance(self, targets: Array) -> Float[Array, ""]:
        """Variance of the noise: one over the mean information where predictions are zero."""
        zero = jnp.zeros(targets.shape, default_float())
        return 1 / jnp.mean(self.information(zero, targets))

    def widened(self, variance: Float[Array, " n"]) -> "Likelihood":
        """The likelihood with the units' tail added to the noise of each row, where that is Gaussian."""
        return self

    def information(self, predicted: Any, targets: Array) -> Any:
        """Fisher information of each prediction; here the size of the log density's curvature."""

        def slope(values):
            return jax.grad(lambda p: jnp.sum(self.log_prob(p, targets)))(values)

        ones = jax.tree.map(jnp.ones_like, predicted)
        return jax.tree.map(jnp.abs, jax.jvp(slope, (predicted,), (ones,))[1])

    @property
    def hyperpriors(self) -> dict[str, Hyperprior]:
        """The priors of the quantities that are learned, by name."""
        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return {name: value for name, value in values.items() if isinstance(value, Hyperprior)}

    @property
    def params(self) -> dict[str, Array]:
        """Standardised values of the learned quantities, zero at the median."""
        return {name: jnp.zeros(()) for name in self.hyperpriors}

    def learned(self, params: dict[str, Array]) -> dict[str, Array]:
        """The learned quantities in the user's units, from their standardised values."""
        return {name: prior(params[name]) for name, prior in self.hyperpriors.items()}

    def with_params(self, params: dict[str, Array]) -> "Likelihood":
        """The likelihood with its learned quantities at these standardised values."""
        likelihood = self
        for name, value in self.learned(params).items():
            likelihood = _replace(likelihood, name, value)
        return likelihood

    def require_any_row(self) -> None:
        """Raise if noise was given one a row: there is none for new observations."""
        for name in ROW_FIELDS:
            if jnp.ndim(getattr(self, name, 0.0)) > 0:
                raise ValueError(
                    f"{name} was given one a row of the data, so there is none for new observations."
                )

    def at_rows(self, rows: Int[Array, " n"]) -> "Likelihood":
        """The likelihood of some rows of the data: noise that is given a row is cut alike."""
        likelihood = self
        for name in ROW_FIELDS:
            value: Any = getattr(self, name, 0.0)
            if not isinstance(value, Hyperprior) and jnp.ndim(value) == 1:
                likelihood = _replace(likelihood, name, value[rows])
        return likelihood


class Gaussian(Likelihood):
    """y = R(u) + N(0, scale²); `scale` is a number, one a row, or a
    hyperprior, such as `mercer.hyper.LogNormal`, to be learned.

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
        return predicted + self.scale * noise

    def widened(self, variance: Float[Array, " n"]) -> "Gaussian":
        return _replace(self, "scale", jnp.sqrt(jnp.square(self.scale) + variance))

    def information(self, predicted: Any, targets: Array) -> Float[Array, " n"]:
        return jnp.broadcast_to(jnp.square(1 / self.scale), predicted.shape)


class Heteroscedastic(Likelihood):
    """y = m(x) + N(0, σ(x)²) for a pytree of networks {"mean": m, "scale": s}, σ = transform(s)."""

    transform: Callable[[Array], Array] = eqx.field(default=softplus, static=True)
    observe: Observe | None = eqx.field(default=None)
    extra_variance: Any = eqx.field(default=0.0, kw_only=True)

    def log_prob(self, predicted: Any, targets: Array) -> Float[Array, " n"]:
        _require_mean_and_scale(predicted)
        mean = one_a_row(predicted["mean"], targets)
        return stats.norm.logpdf(targets, mean, self.scale_at(predicted["scale"]))

    def scale_at(self, values: Array) -> Array:
        """σ of each row, the tail of the mean's units included."""
        return jnp.sqrt(jnp.square(self.transform(values)) + self.extra_variance)

    def draw(self, key: PRNGKeyArray, predicted: Any) -> Array:
        mean, scale = predicted["mean"], self.scale_at(predicted["scale"])
        return mean + scale * jax.random.normal(key, mean.shape, mean.dtype)

    def combine(self, values: Any) -> Any:
        return values

    def tail_variance(self, variances: Any) -> Float[Array, " n"]:
        _require_mean_and_scale(variances)
        return variances["mean"]

    def noise_variance(self, targets: Array) -> Float[Array, ""]:
        # Unknown until the network of the scale is: none, so that the tail counts.
        return jnp.zeros(())

    def widened(self, variance: Float[Array, " n"]) -> "Heteroscedastic":
        return _replace(self, "extra_variance", variance)

    def information(self, predicted: Any, targets: Array) -> dict[str, Float[Array, " n"]]:
        scale, slope = jax.jvp(
            self.scale_at, (predicted["scale"],), (jnp.ones_like(predicted["scale"]),)
        )
        return {"mean": 1 / scale**2, "scale": 2 * jnp.square(slope / scale)}

    def at_rows(self, rows: Int[Array, " n"]) -> "Heteroscedastic":
        if jnp.ndim(self.extra_variance) == 0:
            return self
        return _replace(self, "extra_variance", self.extra_variance[rows])


class StudentT(Likelihood):
    """y = R(u) + scale · t with `degrees` of freedom: Gaussian that forgives outliers."""

    degrees: Positive = eqx.field(converter=lambda s: _positive("degrees", s))
    scale: Positive = eqx.field(converter=lambda s: _positive("scale", s))
    observe: Observe | None = eqx.field(default=None)

    def log_prob(self, predicted: Any, targets: Array) -> Float[Array, " n"]:
        predicted = one_a_row(predicted, targets)
        return stats.t.logpdf(targets, self.degrees, predicted, self.scale)

    def draw(self, key: PRNGKeyArray, predicted: Any) -> Array:
        noise = jax.random.t(key, self.degrees, predicted.shape, predicted.dtype)
        return predicted + self.scale * noise

    def information(self, predicted: Any, targets: Array) -> Float[Array, " n"]:
        size = (self.degrees + 1) / (self.degrees + 3) / jnp.square(self.scale)
        return jnp.broadcast_to(size, predicted.shape)


class Bernoulli(Likelihood):
    """y ∈ {0, 1} with P(y = 1) = sigmoid(R(u))."""

    observe: Observe | None = eqx.field(default=None)

    def log_prob(self, predicted: Any, targets: Array) -> Float[Array, " n"]:
        predicted = one_a_row(predicted, targets)
        return -jax.nn.softplus(jnp.where(targets == 1, -predicted, predicted))

    def draw(self, key: PRNGKeyArray, predicted: Any) -> Array:
        return jax.random.bernoulli(key, jax.nn.sigmoid(predicted)).astype(int)

    def information(self, predicted: Any, targets: Array) -> Float[Array, " n"]:
        return jax.nn.sigmoid(predicted) * jax.nn.sigmoid(-predicted)

    def check(self, targets: Array) -> None:
        Likelihood.check(self, targets)
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

    def information(self, predicted: Any, targets: Array) -> Float[Array, " n"]:
        return jnp.exp(predicted)

    def check(self, targets: Array) -> None:
        Likelihood.check(self, targets)
        counts = np.asarray(targets)
        if np.any(counts < 0) or np.any(counts != np.round(counts)):
            raise ValueError("Poisson targets must be whole numbers, zero or more.")


def _require_mean_and_scale(values: Any) -> None:
    if not isinstance(values, dict) or set(values) != {"mean", "scale"}:
        raise ValueError('Heteroscedastic needs networks {"mean": …, "scale": …}.')


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


def _replace(likelihood: Any, name: str, value: Any) -> Any:
    """A copy with another value of one field, which may have been a hyperprior or a number."""
    return eqx.tree_at(
        lambda tree: getattr(tree, name),
        likelihood,
        value,
        is_leaf=lambda node: isinstance(node, Hyperprior),
    )


def _positive(name: str, value: Positive) -> Array | Hyperprior:
    if isinstance(value, Hyperprior):
        return value
    array = jnp.asarray(value, default_float())
    require_positive(name, array)
    return array
