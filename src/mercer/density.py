"""Log densities over network parameters: `density(params, batch=None) -> scalar`."""

import math
import warnings
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from .checks import (
    Real,
    require_float64,
)
from .domains import require_inside
from .energy import Energy, Function, Quadrature
from .readout import Readout, Where, condition_readout, default_where, is_stiff
from .terms import (
    Term,
    check_terms,
    find_obstacle,
    is_network,
    make_terms,
    subtract,
    watch_term,
    white_coefficients,
)

Params = PyTree


def is_random(leaf: Any) -> bool:
    """Whether a leaf of a network is a random parameter by default: a JAX array of floats.

    NumPy arrays are constants.
    """
    return isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jnp.inexact)


class Prior(eqx.Module):
    """The Mercer prior p(θ) ∝ N(θ; 0, σ²) exp(−E(u_θ − m)) over the parameters of a network.

    `network` is a module u(x) -> scalar or a pytree of them, with one energy for all or a
    pytree of energies to match (None: the reference alone). `reference` is σ; None leaves the
    paper's density, which is improper. `mean` is m, or a pytree of means. `trainable` is a
    filter: a function of a leaf, or a pytree of booleans like the network; `readout` says where
    the last, linear layer is, by default the attribute of that name.

    `normalised` divides by the integral over the readout, so that the density integrates to one
    and `draw` gives exact draws of it. It is the default where the energy is deterministic and
    the readout linear.

    >>> import mercer
    >>> network = mercer.FourierMLP(1, 50, boundary="dirichlet", key=jax.random.key(0))
    >>> prior = mercer.Prior(mercer.Quadrature(mercer.BrownianBridge(50)), network)
    >>> prior(prior.params).shape
    ()
    """

    energy: PyTree[Energy]
    params: Params
    static: PyTree
    mean: PyTree[Function] | None
    where: Where
    reference: float | None = eqx.field(static=True)
    normalised: bool = eqx.field(static=True)
    is_stiff: bool = eqx.field(static=True)
    obstacle: str | None = eqx.field(static=True)
    # By identity, so that jax.jit takes a density as it takes any function.
    __hash__ = object.__hash__

    def __init__(
        self,
        energy: PyTree[Energy],
        network: PyTree,
        reference: Real | None = 1.0,
        mean: PyTree[Function] | None = None,
        trainable: Callable[[Any], bool] | PyTree[bool] = is_random,
        normalised: bool | None = None,
        readout: Where = default_where,
    ):
        self.params, self.static = eqx.partition(network, trainable)
        self.energy = energy
        self.mean = mean
        self.where = readout
        self.reference = None if reference is None else float(reference)
        check_terms(self.params, self.terms(self.params), self.reference)
        self.obstacle = find_obstacle(self.terms(self.params), self.params, readout, self.reference)
        self.is_stiff = True
        self.is_stiff = self.obstacle is not None or self._measure_stiffness()
        if normalised:
            self.require_exact()
        floats = bool(jax.config.read("jax_enable_x64"))
        self.normalised = floats and self.obstacle is None if normalised is None else normalised
        if normalised is None and self.obstacle is None and not floats:
            warnings.warn(
                "with 32-bit floats the prior is left un-normalised and has no exact draws; "
                'jax.config.update("jax_enable_x64", True) gives both.',
                stacklevel=2,
            )

    def network(self, params: Params) -> PyTree:
        """The network, or pytree of networks, with these parameters."""
        return eqx.combine(params, self.static)

    def batch(self, key: PRNGKeyArray) -> list:
        """All the randomness of one evaluation, one entry a network."""
        terms = self.terms(self.params)
        keys = jax.random.split(key, len(terms))
        return [t.energy.batch(k) if t.energy else None for t, k in zip(terms, keys, strict=True)]

    @property
    def is_deterministic(self) -> bool:
        """Whether the density needs no batch."""
        return all(t.energy is None or t.energy.is_deterministic for t in self.terms(self.params))

    def __call__(self, params: Params, batch: list | None = None) -> Float[Array, ""]:
        terms = self.terms(params)
        batches = [None] * len(terms) if batch is None else batch
        energies = [self._energy(t, b) for t, b in zip(terms, batches, strict=True)]
        return self._reference_log_density(params) - sum(energies)

    @property
    def is_exact(self) -> bool:
        """Whether `draw` gives exact draws of this density."""
        return self.normalised

    def require_exact(self) -> None:
        """Raise, and say why, unless the closed forms for a linear readout apply."""
        require_float64("the closed form for a linear readout")
        if self.obstacle is not None:
            raise ValueError(self.obstacle)

    def draw(self, key: PRNGKeyArray) -> Params:
        """An exact, independent draw of all parameters: hidden ones from the reference, the
        readout from its Gaussian law given them."""
        self.require_exact()
        reference_key, *keys = jax.random.split(key, 1 + len(self.terms(self.params)))
        params = self.draw_reference(reference_key)
        weights = [
            None if term.energy is None else self.readout_law(term).draw(term_key)
            for term, term_key in zip(self.terms(params), keys, strict=True)
        ]
        return self.with_readouts(params, weights)

    def with_readouts(self, params: Params, weights: list) -> Params:
        """The parameters with these flat readout weights, one a network; None leaves it alone."""
        parts, structure = jax.tree.flatten(params, is_leaf=is_network)
        for i, flat in enumerate(weights):
            if flat is not None:
                unravel = ravel_pytree(self.where(parts[i]))[1]
                parts[i] = eqx.tree_at(self.where, parts[i], unravel(flat))
        return jax.tree.unflatten(structure, parts)

    def watch(self, params: Params) -> dict[str, Array]:
        """Functions of the parameters to judge a chain by: values at points, the leading
        coefficients cₙ/√λₙ, N(0, 1) under the process, and the energy; one set a network."""
        watched: dict[str, Array] = {}
        terms = self.terms(params)
        for i, term in enumerate(terms):
            if term.energy is not None:
                name = f"_{i}" if len(terms) > 1 else ""
                watched |= {key + name: value for key, value in watch_term(term).items()}
        return watched

    def coefficients(self, params: Params) -> list[Float[Array, " K"]]:
        """cₙ/√λₙ of each network with a Quadrature energy: N(0, 1) under the process."""
        terms = [t for t in self.terms(params) if isinstance(t.energy, Quadrature)]
        return [white_coefficients(term) for term in terms]

    def require_inside(self, points: Float[Array, "n d"], name: str = "X") -> None:
        """Raise if a point lies outside the domain of a network, and say how far."""
        for term in self.terms(self.params):
            if term.energy is not None:
                require_inside(term.energy.spectrum.domain, points, name)

    def draw_reference(self, key: PRNGKeyArray) -> Params:
        """A draw of all parameters from the Gaussian reference alone."""
        if self.reference is None:
            raise ValueError(
                "reference=None is improper and cannot be drawn from; give a reference."
            )
        flat, unravel = ravel_pytree(self.params)
        return unravel(self.reference * jax.random.normal(key, flat.shape, flat.dtype))

    def readout_law(self, term: Term) -> Readout:
        """The Gaussian law of one network's readout given its hidden parameters."""
        return condition_readout(
            term.energy, term.network, self.where, self.reference, term.mean, self.is_stiff
        )

    def _measure_stiffness(self) -> bool:
        """Whether any network's readout, as its hidden layers are now, needs the slower closed form."""
        if not jax.config.read("jax_enable_x64"):
            return True
        terms = [term for term in self.terms(self.params) if term.energy is not None]
        return any(is_stiff(t.energy, t.network, self.where, self.reference) for t in terms)

    def _energy(self, term: Term, batch: Any) -> Float[Array, ""]:
        if term.energy is None:
            return jnp.zeros(())
        if self.normalised:
            law = self.readout_law(term)
            weights = ravel_pytree(self.where(term.network))[0]
            return law.energy(weights) + law.log_normaliser
        return term.energy(subtract(term.network, term.mean), batch)

    def _reference_log_density(self, params: Params) -> Float[Array, ""]:
        if self.reference is None:
            return jnp.zeros(())
        flat = ravel_pytree(params)[0]
        scale = flat.shape[0] * (math.log(self.reference) + 0.5 * math.log(2 * math.pi))
        return -0.5 * jnp.sum(jnp.square(flat / self.reference)) - scale

    def terms(self, params: Params) -> list[Term]:
        """The networks with these parameters, each with its energy and its mean."""
        return make_terms(self.network(params), self.energy, self.mean)
