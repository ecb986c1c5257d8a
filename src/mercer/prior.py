"""The Mercer prior over the parameters of networks, and the usual one of independent parameters."""

import math
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, PRNGKeyArray

from .checks import PyTree, Real, is_concrete, require_float64, require_positive
from .density import Density
from .domains import Domain, require_inside
from .energy import Energy, Function, Quadrature
from .linear import Law, after, condition, log_integral, require_solver, safe_solver
from .parameters import (
    Network,
    Params,
    Where,
    default_where,
    features,
    is_network,
    offset,
    random_parameters,
)
from .terms import (
    NUM_WATCHED,
    Term,
    check_terms,
    find_obstacle,
    make_terms,
    watch_term,
    watched_points,
    white_components,
)

# Share of the process's largest variance that a network may be off by without a warning.
MISFIT = 0.9
# Fewer units are an example, whose user knows that it is one: to look closer takes seconds to compile.
MIN_WIDTH = 32


class FidelityWarning(UserWarning):
    """A network that cannot follow the process that it is given."""


class Rows(NamedTuple):
    """M and r of the rows exp(−½|Mz + r|²) by which an energy sees a white readout z = w/σ."""

    mixing: Float[Array, "K W"]
    residual: Float[Array, " K"]


class Misfit(NamedTuple):
    """Where a network's variance is furthest from the process's, its share of that, and the
    difference over the largest variance of the process."""

    point: Float[Array, " d"]
    share: Float[Array, ""]
    error: Float[Array, ""]

    @classmethod
    def between(
        cls, points: Float[Array, "p d"], own: Float[Array, " p"], wanted: Float[Array, " p"]
    ) -> "Misfit":
        """That of variances at some points."""
        off = jnp.abs(own - wanted)
        worst = jnp.argmax(off)
        return cls(points[worst], own[worst] / wanted[worst], off[worst] / jnp.max(wanted))

    def warn(self, stacklevel: int) -> None:
        """Warn, in one sentence, where the error passes `MISFIT`."""
        if self.error > MISFIT:
            warnings.warn(
                f"this network cannot follow its process: at x = {np.round(self.point, 4)} it has "
                f"{float(self.share):.2g} times the variance; use mercer.design(spectrum, key=key), "
                "or follow mercer.fidelity(prior).advice.",
                FidelityWarning,
                stacklevel=stacklevel + 1,
            )


class Prior(Density):
    """The Mercer prior p(θ) ∝ N(θ; 0, σ²) exp(−E(u_θ − m)) over the parameters of a network.

    `network` is a callable u(x) -> scalar or a pytree of them, with one energy for all or a
    pytree of energies to match (None: the reference alone). `reference` is σ; None leaves the
    paper's density, which is improper. `mean` is m, or a pytree of means. `trainable` says which
    leaves are random: a function of a leaf, or a pytree of booleans like the network; by default
    every float array that its class does not mark as `constant()`. `readout` says where the last,
    linear layer is, by default the attribute of that name.

    `normalised` divides by the integral over the readout, so that the density integrates to one
    and `draw` gives exact draws of it. It is the default where the energy is deterministic and
    the readout linear. `solver` factorises the readout's precision: "cholesky", fast, or "qr", for
    stiff ones; "auto" takes the faster one that is accurate at the parameters given, and "qr"
    where these are traced.

    >>> import mercer
    >>> network = mercer.FourierMLP(1, 50, boundary="dirichlet", key=jax.random.key(0))
    >>> prior = mercer.Prior(mercer.Quadrature(mercer.BrownianBridge(50)), network)
    >>> prior(prior.params).shape
    ()
    """

    energy: PyTree[Energy]
    parameters: Params
    static: PyTree
    mean: PyTree[Function] | None
    where: Where = eqx.field(static=True)
    reference: float | None = eqx.field(static=True)
    normalised: bool = eqx.field(static=True)
    solver: str = eqx.field(static=True)
    obstacle: str | None = eqx.field(static=True)

    def __init__(
        self,
        energy: PyTree[Energy],
        network: PyTree,
        reference: Real | None = 1.0,
        mean: PyTree[Function] | None = None,
        trainable: Callable[[Any], bool] | PyTree[bool] | None = None,
        normalised: bool | None = None,
        readout: Where = default_where,
        solver: str = "auto",
    ):
        chosen = random_parameters(network) if trainable is None else trainable
        self.parameters, self.static = eqx.partition(network, chosen)
        self.energy = energy
        self.mean = mean
        self.where = readout
        self.reference = None if reference is None else float(reference)
        terms = make_terms(network, energy, mean)
        check_terms(self.parameters, terms, self.reference)
        self.obstacle = find_obstacle(terms, self.parameters, readout, self.reference)
        self.solver = self._choose_solver(solver)
        if normalised:
            self.require_exact()
        closed = self.obstacle is None and (_has_float64() or not self._energies())
        self.normalised = closed if normalised is None else normalised
        if normalised is None and self.obstacle is None and not closed:
            warnings.warn(
                "with 32-bit floats the prior is left un-normalised and has no exact draws; "
                'jax.config.update("jax_enable_x64", True) gives both.',
                stacklevel=2,
            )

    @property
    def params(self) -> Params:
        return self.parameters

    def network(self, params: Params) -> PyTree:
        """The network, or pytree of networks, with these parameters."""
        return eqx.combine(params, self.static)

    def terms(self, params: Params) -> list[Term]:
        """The networks with these parameters, each with its energy and its mean."""
        return make_terms(self.network(params), self.energy, self.mean)

    @property
    def is_deterministic(self) -> bool:
        return all(energy.is_deterministic for energy in self._energies())

    def batch(self, key: PRNGKeyArray) -> list[Any]:
        """All the randomness of one evaluation, one entry a network."""
        terms = self.terms(self.params)
        keys = jax.random.split(key, len(terms))
        return [t.energy.batch(k) if t.energy else None for t, k in zip(terms, keys, strict=True)]

    def __call__(self, params: Params, batch: list[Any] | None = None) -> Float[Array, ""]:
        terms = self.terms(params)
        batches = [None] * len(terms) if batch is None else batch
        value = self._reference_log_density(params)
        for term, own_batch in zip(terms, batches, strict=True):
            value = value - self._energy(term, own_batch, value)
        return value

    @property
    def is_exact(self) -> bool:
        return self.normalised

    def require_exact(self) -> None:
        """Raise, and say why, unless the closed forms for a linear readout apply."""
        require_float64("the closed form for a linear readout")
        if self.obstacle is not None:
            raise ValueError(self.obstacle)
        if not self._energies():
            raise ValueError(
                "independent Gaussian parameters have no energy, so there is no closed form to "
                "compare or whiten; sample the posterior with mercer.nuts()."
            )

    def draw(self, key: PRNGKeyArray) -> Params:
        """An exact, independent draw of all parameters: hidden ones from the reference, the
        readout from its Gaussian law given them."""
        if not self.normalised:
            if self.obstacle is None and self._energies():
                require_float64("the closed form for a linear readout")
            raise ValueError(
                self.obstacle
                or "this prior is not normalised, so it has no exact draws; leave "
                "normalised= alone."
            )
        return self._draw_normalised(key)

    def init(self, key: PRNGKeyArray) -> Params:
        """An exact draw of the normalised density where its closed form is known, else of the
        reference, else the parameters that the prior was made with."""
        if self.reference is None:
            return self.params
        if self.obstacle is None and _has_float64():
            return self._draw_normalised(key)
        return self.draw_reference(key)

    def draw_reference(self, key: PRNGKeyArray) -> Params:
        """A draw of all parameters from the Gaussian reference alone."""
        if self.reference is None:
            raise ValueError(
                "reference=None is improper and cannot be drawn from; give a reference."
            )
        flat, unravel = ravel_pytree(self.params)
        return unravel(self.reference * jax.random.normal(key, flat.shape, flat.dtype))

    def with_readouts(self, params: Params, weights: list[Any]) -> Params:
        """The parameters with these flat readout weights, one a network; None leaves it alone."""
        parts, structure = jax.tree.flatten(params, is_leaf=is_network)
        for i, flat in enumerate(weights):
            if flat is not None:
                unravel = ravel_pytree(self.where(parts[i]))[1]
                parts[i] = eqx.tree_at(self.where, parts[i], unravel(flat))
        return jax.tree.unflatten(structure, parts)

    def watch(self, params: Params) -> dict[str, Array]:
        """Functions to judge a chain by: values at points, the leading components of R u(points),
        N(0, 1) under the process, and the energy, one set a network; without any energy, a few of
        the parameters."""
        watched: dict[str, Array] = {}
        terms = self.terms(params)
        for i, term in enumerate(terms):
            name = f"_{i}" if len(terms) > 1 else ""
            watched |= {key + name: value for key, value in watch_term(term).items()}
        if not self._energies():
            flat = ravel_pytree(params)[0]
            watched["parameters"] = flat[:: -(-flat.shape[0] // NUM_WATCHED)]
            watched["norm"] = 0.5 * jnp.sum(flat**2)
        return watched

    def coefficients(self, params: Params) -> list[Float[Array, " K"]]:
        """cₙ/√λₙ of each network with a Quadrature energy: N(0, 1) under the process."""
        terms = [t for t in self.terms(params) if isinstance(t.energy, Quadrature)]
        return [white_components(term) for term in terms]

    def require_inside(self, points: Float[Array, "n d"], name: str = "X") -> None:
        """Raise if a point lies outside the domain of a network, and say how far."""
        for term in self.terms(self.params):
            if term.energy is not None:
                require_inside(term.energy.domain, points, name)
            elif isinstance(term.domain, Domain) and points.shape[1] != term.domain.dimension:
                raise ValueError(
                    f"{name} has {points.shape[1]} columns, the network takes "
                    f"{term.domain.dimension}; give one column an input."
                )

    def energy_rows(self, term: Term) -> Rows:
        """M = σ R f(points) and r = R (g − m)(points), for u = g + f·w and w = σ z."""
        energy = term.energy

        def rest(x):
            value = offset(term.network, self.where, x)
            return value if term.mean is None else value - term.mean(x)

        values = jax.vmap(lambda x: features(term.network, self.where, x))(energy.points)
        residual = energy.whiten(jax.vmap(rest)(energy.points))
        return Rows(self.reference * energy.whiten(values), residual)

    def readout_law(self, term: Term) -> Law:
        """The Gaussian law of one network's white readout z = w/σ given its hidden parameters."""
        return condition(*self.energy_rows(term), self.solver)

    def misfit(self, term: Term, rows: Rows) -> Misfit:
        """How far the variance of one network, given its hidden layer, is from the process's."""
        points = watched_points(term)
        # Fast, and accurate enough to tell a network that is far off.
        law = condition(*rows, "cholesky")
        variances = law.variance(self.white_features(term.network, points))
        return Misfit.between(points, variances, term.energy.kernel.diagonal(points))

    def white_features(self, network: Network, x: Float[Array, "n d"]) -> Float[Array, "n W"]:
        """What the white readout z = w/σ is multiplied by at each row."""
        return self.reference * jax.vmap(lambda p: features(network, self.where, p))(x)

    def _energies(self) -> list[Energy]:
        is_energy = lambda node: isinstance(node, Energy)  # noqa: E731
        return [e for e in jax.tree.leaves(self.energy, is_leaf=is_energy) if is_energy(e)]

    def _choose_solver(self, solver: str) -> str:
        """The solver to use; where it is left to the rows, warn of a network that is far off."""
        if solver != "auto":
            require_solver(solver)
            return solver
        if self.obstacle is not None or not _has_float64():
            return "qr"
        terms = [term for term in self.terms(self.params) if term.energy is not None]
        if not is_concrete(terms):
            return "qr"
        with jax.ensure_compile_time_eval():
            surveys = [_survey(self, term) for term in terms]
        for _, misfit in surveys:
            misfit.warn(stacklevel=4)
        return safe_solver(max((float(size) for size, _ in surveys), default=0.0))

    def _energy(self, term: Term, batch: Any, previous: Array) -> Float[Array, ""]:
        if term.energy is None:
            return jnp.zeros(())
        if self.normalised:
            rows = after(self.energy_rows(term), previous)
            white = ravel_pytree(self.where(term.network))[0] / self.reference
            energy = 0.5 * jnp.sum(jnp.square(rows.mixing @ white + rows.residual))
            return energy + log_integral(*rows, self.solver)
        return term.energy(term.deviation, batch)

    def _draw_normalised(self, key: PRNGKeyArray) -> Params:
        reference_key, *keys = jax.random.split(key, 1 + len(self.terms(self.params)))
        params = self.draw_reference(reference_key)
        weights: list[Array | None] = []
        for term, term_key in zip(self.terms(params), keys, strict=True):
            if term.energy is None:
                weights.append(None)
                continue
            rows = after(self.energy_rows(term), [w for w in weights if w is not None])
            weights.append(self.reference * condition(*rows, self.solver).draw(term_key))
        return self.with_readouts(params, weights)

    def _reference_log_density(self, params: Params) -> Float[Array, ""]:
        if self.reference is None:
            return jnp.zeros(())
        flat = ravel_pytree(params)[0]
        scale = flat.shape[0] * (math.log(self.reference) + 0.5 * math.log(2 * math.pi))
        return -0.5 * jnp.sum(jnp.square(flat / self.reference)) - scale


class IsotropicPrior(Prior):
    """p(θ) = N(θ; 0, σ²): independent Gaussian parameters, and nothing said of the function.

    The `Prior` of no energy: any sampler, any likelihood. `network` is a callable u(x) -> scalar or
    a pytree of them, `scale` is σ, and `trainable` says what is random, as for `Prior`.

    >>> import mercer
    >>> prior = IsotropicPrior(mercer.MLP(1, width=8, key=jax.random.key(0)))
    >>> data = jnp.array([[0.2], [0.7]]), jnp.array([0.1, -0.3])
    >>> posterior = mercer.Posterior(prior, mercer.Gaussian(0.1), data)
    >>> posterior(prior.draw(jax.random.key(1))).shape
    ()
    """

    def __init__(
        self,
        network: PyTree,
        scale: Real = 1.0,
        trainable: Callable[[Any], bool] | PyTree[bool] | None = None,
    ):
        require_positive("scale", scale)
        Prior.__init__(self, None, network, scale, trainable=trainable)


@eqx.filter_jit
def _survey(prior: Prior, term: Term) -> tuple[Float[Array, ""], Misfit]:
    """|M|² of the energy's rows, and how far the network's variance is from the process's."""
    rows = prior.energy_rows(term)
    size = jnp.sum(jnp.square(rows.mixing))
    if rows.mixing.shape[1] < MIN_WIDTH:
        return size, Misfit(term.energy.points[0], jnp.ones(()), jnp.zeros(()))
    return size, prior.misfit(term, rows)


def _has_float64() -> bool:
    return bool(jax.config.read("jax_enable_x64"))
