"""One network with its energy and its mean, what can be wrong with the three, and when the closed
forms for a linear readout apply."""

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .checks import PyTree, default_float, is_concrete, require_positive
from .domains import Box, Domain
from .energy import Energy, Function, Quadrature, RootEnergy
from .parameters import Network, Where, is_network, linear_in_readout
from .spectra import Spectrum

# Points, and leading components, to judge a chain or a network by.
NUM_WATCHED = 16


class Term(NamedTuple):
    """One network with its energy and its mean."""

    network: Network
    energy: Energy | None
    mean: Function | None

    @property
    def deviation(self) -> Function:
        """u − m."""
        u, mean = self.network, self.mean
        return u if mean is None else lambda x: u(x) - mean(x)

    @property
    def domain(self) -> Domain | None:
        """That of the energy, or the one that a network without an energy was made for."""
        if self.energy is not None:
            return self.energy.domain
        return getattr(self.network, "domain", None)


def make_terms(networks: PyTree, energy: PyTree, mean: PyTree) -> list[Term]:
    """Each network with its energy and its mean, the same for all or one each."""
    leaves, structure = jax.tree.flatten(networks, is_leaf=is_network)
    energies = _match(energy, structure, "energy", lambda e: isinstance(e, Energy))
    means = _match(mean, structure, "mean", callable)
    return [Term(*parts) for parts in zip(leaves, energies, means, strict=True)]


def _match(tree: Any, structure: Any, name: str, is_member: Callable[[Any], bool]) -> list[Any]:
    """One entry of `tree` a network: the same for all, or one each."""
    if tree is None or is_member(tree):
        return [tree] * structure.num_leaves
    try:
        return structure.flatten_up_to(tree)
    except ValueError as error:
        raise ValueError(
            f"{name} must be one for all networks or a pytree like them: {error}"
        ) from None


def check_terms(params: PyTree, terms: list[Term], reference: float | None) -> None:
    """Raise for what cannot make a prior; warn of the density that is improper."""
    if not jax.tree.leaves(params):
        raise ValueError("no leaf of the network is random; check the `trainable` filter.")
    if reference is None:
        warnings.warn(
            "reference=None leaves the paper's density, which is improper: parameters wander "
            "freely where the kept modes do not see them. Give a reference to make it a prior.",
            stacklevel=3,
        )
    else:
        require_positive("reference", reference)
    for term in terms:
        if not callable(term.network):
            raise ValueError(f"a network must be callable, u(x) -> scalar, got {term.network!r}.")
        if term.energy is not None:
            _check_term(term)


def _check_term(term: Term) -> None:
    if not isinstance(term.energy, Energy):
        raise ValueError(f"energy must be an Energy or None, got {term.energy!r}.")
    domain = term.energy.domain
    example = jax.ShapeDtypeStruct((domain.dimension,), default_float())
    shape = jax.eval_shape(term.network, example).shape
    if shape != ():
        raise ValueError(
            f"a network must map a point of shape ({domain.dimension},) to a scalar, got shape {shape}."
        )
    own = getattr(term.network, "domain", None)
    if isinstance(own, Box) and isinstance(domain, Box) and not own.same_as(domain):
        raise ValueError(
            f"the network was made for {own}, the spectrum lives on {domain}; "
            "give the network domain=spectrum.domain."
        )
    if term.mean is not None:
        _check_mean(term.mean, example)
    vanishes = getattr(term.network, "boundary", None)
    if vanishes is not None and isinstance(term.energy, Quadrature) and isinstance(domain, Box):
        _check_sides(vanishes, term.energy.spectrum)


def _check_mean(mean: Any, example: jax.ShapeDtypeStruct) -> None:
    if not callable(mean):
        raise ValueError(f"mean must be a function of a point, or None; got {mean!r}.")
    shape = jnp.shape(jax.eval_shape(mean, example))
    if shape != ():
        raise ValueError(f"mean(x) must be a scalar, got shape {shape}.")


def _check_sides(vanishes: tuple[Any, ...], spectrum: Spectrum) -> None:
    """Raise if a network vanishes at a side where the process has variance."""
    domain = spectrum.domain
    middle = (np.array(domain.lower) + np.array(domain.upper)) / 2
    for axis, sides in enumerate(vanishes):
        for end, side, edge in zip(
            ("lower", "upper"), sides, (domain.lower, domain.upper), strict=True
        ):
            if side != "dirichlet":
                continue
            x = middle.copy()
            x[axis] = edge[axis]
            with jax.ensure_compile_time_eval():
                there, inside = spectrum.kernel(x, x), spectrum.kernel(middle, middle)
            if is_concrete((there, inside)) and there > 1e-6 * inside:
                raise ValueError(
                    f"the network vanishes at the {end} side of axis {axis}, where the process has "
                    f"variance {float(there):.3g}; drop that side from the network's boundary."
                )


def find_obstacle(
    terms: list[Term], params: PyTree, where: Where, reference: float | None
) -> str | None:
    """Why the closed forms for a linear readout do not apply, or None where they do."""
    if reference is None:
        return "reference=None is improper: it has no exact draws; give a reference."
    parts = jax.tree.leaves(params, is_leaf=is_network)
    for term, part in zip(terms, parts, strict=True):
        if term.energy is None:
            continue
        if not isinstance(term.energy, RootEnergy):
            return (
                "the closed form needs a deterministic energy, Quadrature or Nodes; got "
                f"{type(term.energy).__name__}."
            )
        every = max(1, term.energy.points.shape[0] // 16)
        if not linear_in_readout(term.network, where, term.energy.points[::every]):
            return (
                f"{type(term.network).__name__} is not linear in its readout (or `readout=` does "
                "not say where it is), so there is no closed form: sample the density instead."
            )
        if len(jax.tree.leaves(where(part))) < len(jax.tree.leaves(where(term.network))):
            return "the readout is not among the random parameters; let `trainable` take it."
    return None


def white_components(term: Term) -> Float[Array, " r"]:
    """R (u − m)(points), for a deterministic energy: white under the process."""
    return term.energy.whiten(jax.vmap(term.deviation)(term.energy.points))


def watched_points(term: Term) -> Float[Array, "p d"] | None:
    """A few points spread over the domain, or of an energy that has points of its own."""
    if isinstance(term.energy, RootEnergy) and not isinstance(term.energy, Quadrature):
        return term.energy.points[:: -(-len(term.energy.points) // NUM_WATCHED)]
    return term.domain.lattice(None, NUM_WATCHED) if isinstance(term.domain, Domain) else None


def watch_term(term: Term) -> dict[str, Array]:
    """Values at a few points and, for a deterministic energy, leading components and the energy."""
    points = watched_points(term)
    if points is None:
        return {}
    watched = {"values": jax.vmap(term.network)(points)}
    if isinstance(term.energy, RootEnergy):
        white = white_components(term)
        watched["coefficients"] = white[:NUM_WATCHED]
        watched["mercer_energy"] = 0.5 * jnp.sum(white**2)
    return watched
