"""One density over parameters and hyperparameters.

The normalised Mercer prior integrates to one for every hyperparameter λ, so that

    p(θ, λ | y) ∝ p(λ) p(θ | λ) p(y | θ, λ)

needs no partition function, and any sampler of densities takes it.
"""

import warnings
from collections.abc import Callable, Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.stats import norm
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from ..unknowns import Unknown

Params = dict[str, PyTree]
Hyper = dict[str, Float[Array, ""]]
# Standard deviations of its prior that a hyperparameter is tried at.
EXTREME = 3.0
# Share of its prior variance that a direction keeps if the data say next to nothing about it.
FLAT = 0.8


class Joint(eqx.Module):
    """Parameters and hyperparameters together, for `mercer.sample`.

    `make_posterior` takes a dict of values and returns a `Posterior`, or one in other coordinates
    (`Conditioned` is the fastest by far); `unknowns` holds a prior for each name. `params` is
    {"hyper": {name: z}, "network": …} with every z standard normal a priori.

    >>> import mercer
    >>> x = jnp.linspace(0.1, 0.9, 5)[:, None]
    >>> network = mercer.FourierMLP(1, 20, key=jax.random.key(0))
    >>> def make_posterior(hyper):
    ...     spectrum = mercer.Matern(1.5, hyper["lengthscale"], 1.0, mercer.Interval(0, 1), 30)
    ...     prior = mercer.Prior(mercer.Quadrature(spectrum), network)
    ...     return mercer.Posterior(prior, mercer.Gaussian(0.1), (x, jnp.sin(x[:, 0])))
    >>> joint = mercer.Joint(make_posterior, {"lengthscale": mercer.LogNormal(0.3, 1.0)})
    >>> joint(joint.params).shape
    ()
    """

    make_posterior: Callable[[Hyper], Any]
    unknowns: dict[str, Unknown]
    template: Any
    is_deterministic = True
    __hash__ = object.__hash__

    def __init__(self, make_posterior: Callable[[Hyper], Any], unknowns: Mapping[str, Any]):
        _check_unknowns(unknowns)
        self.make_posterior = make_posterior
        self.unknowns = dict(unknowns)
        self.template = make_posterior(self.values(dict.fromkeys(unknowns, jnp.zeros(()))))
        if not hasattr(self.template, "prior"):
            raise ValueError(
                "make_posterior(values) must return a posterior, such as mercer.Posterior; got "
                f"{type(self.template).__name__}."
            )
        for name in unknowns:
            self._try_extremes(name)

    @property
    def prior(self) -> Any:
        """That of the network, hyperparameters at their medians."""
        return self.template.prior

    @property
    def params(self) -> Params:
        """A starting point, and the structure of the parameters."""
        hyper = {name: jnp.zeros(()) for name in self.unknowns}
        return {"hyper": hyper, "network": self.template.params}

    def values(self, hyper: Mapping[str, Any]) -> Hyper:
        """The hyperparameters as the model has them, from their standard normal numbers."""
        return {name: f(jnp.asarray(hyper[name], float)) for name, f in self.unknowns.items()}

    def at(self, hyper: Mapping[str, Any]) -> Any:
        """The posterior with these hyperparameters, given as standard normal numbers.

        Its structure is that of the one at the medians: what was decided there, such as how a
        matrix is factorised, is decided for all.
        """
        made = self.make_posterior(self.values(hyper))
        leaves, structure = jax.tree.flatten(made)
        if structure.num_leaves != jax.tree.structure(self.template).num_leaves:
            raise ValueError("make_posterior must build the same model whatever the values.")
        return jax.tree.unflatten(jax.tree.structure(self.template), leaves)

    def __call__(self, params: Params, batch: None = None) -> Float[Array, ""]:
        self.require_normalised()
        return self.log_hyperprior(params["hyper"]) + self.at(params["hyper"])(params["network"])

    def log_hyperprior(self, hyper: Mapping[str, Any]) -> Float[Array, ""]:
        """log p(z), standard normal."""
        return sum(norm.logpdf(z) for z in hyper.values())

    def require_normalised(self) -> None:
        """Raise unless the prior integrates to one whatever the hyperparameters."""
        if not (self.prior.normalised and self.template.is_deterministic):
            raise ValueError(
                "the normaliser of this prior is unknown and depends on the hyperparameters: use "
                "a Quadrature energy and a network with a linear readout, whose prior is "
                "normalised, or mercer.nested_sgld, which estimates what is missing."
            )

    def draw(self, key: PRNGKeyArray) -> Params:
        """A draw of the hyperprior, and of the network given it: a starting point."""
        network_key, *keys = jax.random.split(key, 1 + len(self.unknowns))
        hyper = {n: jax.random.normal(k) for n, k in zip(self.unknowns, keys, strict=True)}
        return {"hyper": hyper, "network": self.at(hyper).draw(network_key)}

    def network(self, params: Params) -> PyTree:
        """The network, or pytree of networks, with these parameters."""
        return self.at(params["hyper"]).network(params["network"])

    def row_terms(self, params: Params) -> Float[Array, " n"]:
        """log p(yᵢ | θ, λ) of each row of the data."""
        return self.at(params["hyper"]).row_terms(params["network"])

    def score(
        self, params: Params, inputs: Float[Array, "n d"], targets: Array
    ) -> Float[Array, " n"]:
        """log p(y | θ, λ) of each row of new data."""
        return self.at(params["hyper"]).score(params["network"], inputs, targets)

    def draw_observations(self, key: PRNGKeyArray, params: Params, inputs: Float[Array, "n d"]):
        """New targets at these inputs, noise and all."""
        return self.at(params["hyper"]).draw_observations(key, params["network"], inputs)

    def require_inputs(self, inputs: Float[Array, "n d"], name: str = "X") -> None:
        """Raise where the likelihood looks at points and one lies outside the domain."""
        self.template.require_inputs(inputs, name)

    def watch(self, params: Params) -> dict[str, Array]:
        """The hyperparameters' values."""
        return self.values(params["hyper"])

    def tell_flat_directions(self, hyper: Mapping[str, Any]) -> list[str]:
        """A sentence for each direction that draws, leaves of any equal shape, have learned nothing
        about: there the posterior is as wide as the prior."""
        white = np.stack([np.ravel(hyper[name]) for name in self.unknowns], axis=1)
        sizes, axes = np.linalg.eigh(np.atleast_2d(np.cov(white, rowvar=False)))
        told = []
        for size, axis in zip(sizes, axes.T, strict=True):
            parts = [
                f"{name} ({weight:+.2f})"
                for name, weight in zip(self.unknowns, axis, strict=True)
                if abs(weight) > 0.3
            ]
            if size < FLAT:
                continue
            if len(parts) == 1:
                told.append(f"the data say next to nothing about {parts[0].split(' ')[0]}.")
            else:
                told.append(
                    f"the data do not tell {' and '.join(parts)} apart: along this direction the "
                    f"posterior keeps {size:.0%} of the prior's variance."
                )
        return told

    def _try_extremes(self, name: str) -> None:
        """Build the model where this hyperparameter is as far out as its prior takes it."""
        for z in (-EXTREME, EXTREME):
            hyper = dict.fromkeys(self.unknowns, jnp.zeros(())) | {name: jnp.asarray(z)}
            value = float(self.unknowns[name](jnp.asarray(z)))
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                try:
                    self.make_posterior(self.values(hyper))
                except ValueError as error:
                    raise ValueError(
                        f"the prior of {name} reaches {value:.4g}, which cannot be: {error} "
                        "Give it a narrower prior, or a limit by mercer.Above or mercer.Between."
                    ) from error
            for one in caught:
                warnings.warn(
                    f"the prior of {name} reaches {value:.4g}: {one.message}", stacklevel=4
                )


def _check_unknowns(unknowns: Any) -> None:
    if not isinstance(unknowns, Mapping) or not unknowns:
        raise ValueError(
            f"unknowns must be a dict of a prior for each hyperparameter, got {unknowns!r}."
        )
    for name, unknown in unknowns.items():
        if not isinstance(unknown, Unknown):
            raise ValueError(
                f"{name} needs a proper prior, such as mercer.LogNormal(median, spread), "
                f"Normal, Above or Between; got {unknown!r}."
            )
