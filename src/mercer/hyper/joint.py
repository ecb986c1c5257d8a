"""One density over parameters and hyperparameters.

The normalised Mercer prior integrates to one for every hyperparameter λ, so that

    p(θ, λ | y) ∝ p(λ) p(θ | λ) p(y | θ, λ)

needs no partition function, and any sampler of densities takes it.
"""

import copy
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.stats import norm
from jaxtyping import Array, Float, PRNGKeyArray

from ..checks import PyTree
from ..coordinates import Coordinates
from ..density import Density
from ..hyperpriors import Hyperprior
from ..posterior import Posterior

Params = dict[str, PyTree]
Hyper = dict[str, Float[Array, ""]]
# Standard deviations of its prior that a hyperparameter is tried at.
EXTREME = 3.0
# Share of its prior variance that a direction keeps if the data say next to nothing about it.
FLAT = 0.8


class Joint(Density):
    """Parameters and hyperparameters together, for `mercer.sample`.

    `make_posterior` takes a dict of values and returns a `Posterior`, or one in other coordinates
    (`NonCentred` is the fastest by far); `hyperpriors` holds a prior for each name. `params` is
    {"hyper": {name: z}, "network": …} with every z standard normal a priori.

    >>> import mercer
    >>> x = jnp.linspace(0.1, 0.9, 5)[:, None]
    >>> network = mercer.FourierMLP(1, 20, key=jax.random.key(0))
    >>> def make_posterior(hyper):
    ...     spectrum = mercer.Matern(1.5, hyper["lengthscale"], 1.0, mercer.Interval(0, 1), 30)
    ...     prior = mercer.Prior(mercer.Quadrature(spectrum), network)
    ...     return mercer.Posterior(prior, mercer.Gaussian(0.1), (x, jnp.sin(x[:, 0])))
    >>> joint = mercer.hyper.Joint(make_posterior, {"lengthscale": mercer.hyper.LogNormal(0.3, 1.0)})
    >>> joint(joint.params).shape
    ()
    """

    make_posterior: Callable[[Hyper], Any] = eqx.field(static=True)
    hyperpriors: dict[str, Hyperprior]
    template: Any
    in_original: bool = eqx.field(static=True)

    def __init__(self, make_posterior: Callable[[Hyper], Any], hyperpriors: Mapping[str, Any]):
        _check_hyperpriors(hyperpriors)
        self.make_posterior = make_posterior
        self.hyperpriors = dict(hyperpriors)
        self.in_original = False
        self.template = make_posterior(self.values(dict.fromkeys(hyperpriors, jnp.zeros(()))))
        if not isinstance(self.template, Posterior | Coordinates):
            raise ValueError(
                "make_posterior(values) must return a posterior, such as mercer.Posterior; got "
                f"{type(self.template).__name__}."
            )
        for name in hyperpriors:
            self._try_extremes(name)

    @property
    def prior(self) -> Any:
        """That of the network, hyperparameters at their medians."""
        return self.template.prior

    @property
    def params(self) -> Params:
        """A starting point, and the structure of the parameters."""
        hyper = {name: jnp.zeros(()) for name in self.hyperpriors}
        template = self.template.target if self.in_original else self.template
        return {"hyper": hyper, "network": template.params}

    def values(self, hyper: Mapping[str, Any]) -> dict[str, Float[Array, "..."]]:
        """The hyperparameters as the model has them, from their standard normal numbers."""
        return {name: f(jnp.asarray(hyper[name], float)) for name, f in self.hyperpriors.items()}

    def at(self, hyper: Mapping[str, Any]) -> Any:
        """The posterior with these hyperparameters, given as standard normal numbers.

        Its structure is that of the one at the medians: what was decided there, such as how a
        matrix is factorised, is decided for all.
        """
        leaves = jax.tree.leaves(self.make_posterior(self.values(hyper)))
        structure = jax.tree.structure(self.template)
        if len(leaves) != structure.num_leaves:
            raise ValueError("make_posterior must build the same model whatever the values.")
        posterior = jax.tree.unflatten(structure, leaves)
        return posterior.target if self.in_original else posterior

    @property
    def target(self) -> "Joint":
        """The same with the posterior in its own parameters."""
        if self.in_original or self.template.target is self.template:
            return self
        return _in_original(self)

    def original(self, params: Params) -> Params:
        network = self.at(params["hyper"]).original(params["network"])
        return {"hyper": params["hyper"], "network": network}

    def resolve(self, params: Params) -> tuple[Posterior, PyTree]:
        """The posterior with these hyperparameters, and its own parameters."""
        density = self.at(params["hyper"])
        return density.target, density.original(params["network"])

    def learned(self, group: str, params: Mapping[str, Any]) -> dict[str, Array]:
        """Learned quantities in the user's units, from their standardised values."""
        if group == "hyper":
            return self.values(params)
        return self.template.target.learned(group, params)

    def __call__(self, params: Params, batch: None = None) -> Float[Array, ""]:
        self.require_normalised()
        return self.log_hyperprior(params["hyper"]) + self.at(params["hyper"])(params["network"])

    def log_hyperprior(self, hyper: Mapping[str, Any]) -> Float[Array, ""]:
        """log p(z), standard normal."""
        return sum((norm.logpdf(z) for z in hyper.values()), start=jnp.zeros(()))

    def require_normalised(self) -> None:
        """Raise unless the prior integrates to one whatever the hyperparameters."""
        if not (self.prior.normalised and self.template.is_deterministic):
            raise ValueError(
                "the normaliser of this prior is unknown and depends on the hyperparameters: use "
                "a Quadrature energy and a network with a linear readout, whose prior is "
                "normalised, or mercer.hyper.nested_sgld, which estimates what is missing."
            )

    def init(self, key: PRNGKeyArray) -> Params:
        """A draw of the hyperprior, and a start of the network given it."""
        network_key, *keys = jax.random.split(key, 1 + len(self.hyperpriors))
        hyper = {n: jax.random.normal(k) for n, k in zip(self.hyperpriors, keys, strict=True)}
        return {"hyper": hyper, "network": self.at(hyper).init(network_key)}

    def network(self, params: Params) -> PyTree:
        """The network, or pytree of networks, with these parameters."""
        return self.at(params["hyper"]).network(params["network"])

    def require_inputs(self, inputs: Float[Array, "n d"], name: str = "X") -> None:
        """Raise where the likelihood looks at points and one lies outside the domain."""
        self.template.target.require_inputs(inputs, name)

    def watch(self, params: Params) -> dict[str, Array]:
        """The hyperparameters' values."""
        return self.values(params["hyper"])

    def tell_flat_directions(self, hyper: Mapping[str, Any]) -> list[str]:
        """A sentence for each direction that draws, leaves of any equal shape, have learned nothing
        about: there the posterior is as wide as the prior."""
        white = np.stack([np.ravel(hyper[name]) for name in self.hyperpriors], axis=1)
        variances, axes = np.linalg.eigh(np.atleast_2d(np.cov(white, rowvar=False)))
        return [
            self._tell_flat(variance, axis)
            for variance, axis in zip(variances, axes.T, strict=True)
            if variance >= FLAT
        ]

    def _tell_flat(self, variance: float, axis: np.ndarray) -> str:
        weights = dict(zip(self.hyperpriors, axis, strict=True))
        large = {name: weight for name, weight in weights.items() if abs(weight) > 0.3}
        if len(large) == 1:
            return f"the data say next to nothing about {next(iter(large))}."
        names = " and ".join(f"{name} ({weight:+.2f})" for name, weight in large.items())
        return (
            f"the data do not tell {names} apart: along this direction the posterior keeps "
            f"{variance:.0%} of the prior's variance."
        )

    def _try_extremes(self, name: str) -> None:
        """Build the model where this hyperparameter is as far out as its prior takes it."""
        for z in (-EXTREME, EXTREME):
            hyper = dict.fromkeys(self.hyperpriors, jnp.zeros(())) | {name: jnp.asarray(z)}
            value = float(self.hyperpriors[name](jnp.asarray(z)))
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                try:
                    self.make_posterior(self.values(hyper))
                except ValueError as error:
                    raise ValueError(
                        f"the prior of {name} reaches {value:.4g}, which cannot be: {error} "
                        "Give it a narrower prior, or a limit by mercer.hyper.Above or .Between."
                    ) from error
            for warning in caught:
                warnings.warn(
                    f"the prior of {name} reaches {value:.4g}: {warning.message}", stacklevel=4
                )


def _check_hyperpriors(hyperpriors: Any) -> None:
    if not isinstance(hyperpriors, Mapping) or not hyperpriors:
        raise ValueError(
            f"hyperpriors must be a dict of a prior for each hyperparameter, got {hyperpriors!r}."
        )
    for name, hyperprior in hyperpriors.items():
        if not isinstance(hyperprior, Hyperprior):
            raise ValueError(
                f"{name} needs a proper prior, such as mercer.hyper.LogNormal(median, spread), "
                f"Normal, Above or Between; got {hyperprior!r}."
            )


def _in_original(joint: Joint) -> Joint:
    """A copy of a joint density whose posterior is in its own parameters."""
    converted = copy.copy(joint)
    object.__setattr__(converted, "in_original", True)
    return converted
