"""Steps that may bring a network closer to its process: what the advice of a fidelity tries."""

import math
import zlib
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, PRNGKeyArray

from .energy import Quadrature
from .networks import FourierMLP
from .prior import Prior
from .terms import Term


def moves(prior: Prior) -> list[tuple[str, Prior]]:
    """Priors one step from this one, and the words for each step."""
    (term,) = prior.terms(prior.params)
    if isinstance(term.network, FourierMLP):
        steps = _network_moves(prior, term)
    else:
        wider = one_network(prior, term, reference=3 * prior.reference)
        steps = [("use a reference three times as wide", wider)]
    if not isinstance(term.energy, Quadrature):
        return steps
    count = 2 * term.energy.spectrum.num_modes
    try:
        finer = Quadrature(term.energy.spectrum.with_modes(count))
    except ValueError:
        return steps
    return [*steps, (f"keep {count} modes", one_network(prior, term, energy=finer))]


def _network_moves(prior: Prior, term: Term) -> list[tuple[str, Prior]]:
    network = term.network

    def changed(where: Callable[[FourierMLP], Any], value: Array) -> Prior:
        return one_network(prior, term, network=eqx.tree_at(where, network, value))

    scale = 3 * network.readout_scale
    wider = one_network(prior, term, network=widen(network, own_key(prior)))
    return [
        (f"widen the network to {2 * network.width} units", wider),
        ("double the frequency_scale", changed(lambda n: n.frequencies, 2 * network.frequencies)),
        ("halve the frequency_scale", changed(lambda n: n.frequencies, network.frequencies / 2)),
        (f"raise the readout_scale to {scale:g}", changed(lambda n: n.readout_scale, scale)),
    ]


def one_network(prior: Prior, term: Term, **changed: Any) -> Prior:
    """The prior of one network alone, with some part of it changed."""
    parts = {"energy": term.energy, "network": term.network, "mean": term.mean}
    parts |= {"reference": prior.reference} | changed
    # A step may make the readout stiff: this solver is exact for any.
    return Prior(**parts, normalised=True, readout=prior.where, solver="qr")


def widen(network: FourierMLP, key: PRNGKeyArray, factor: float = 2.0) -> FourierMLP:
    """The same network with more units; those it has stay, new ones are drawn alike."""
    width = math.ceil(network.width * factor)

    def grow(leaf: Array, axis: int, index: int) -> Array:
        shape = tuple(width - network.width if i == axis else n for i, n in enumerate(leaf.shape))
        new = jax.random.normal(jax.random.fold_in(key, 2 * index + axis), shape, leaf.dtype)
        return jnp.concatenate([leaf, new], axis)

    weights = [grow(w, 0, i) for i, w in enumerate(network.weights)]
    weights[1:] = [grow(w, 1, i) for i, w in enumerate(weights[1:], start=1)]
    biases = [grow(b, 0, 100 + i) for i, b in enumerate(network.biases)]
    parts = tuple(weights), tuple(biases), grow(network.readout, 0, len(weights))
    return eqx.tree_at(lambda n: (n.weights, n.biases, n.readout), network, parts)


def own_key(prior: Prior) -> PRNGKeyArray:
    """A random key that the prior's own parameters seed: the same prior, the same numbers."""
    flat = np.asarray(ravel_pytree(prior.params)[0])
    return jax.random.key(zlib.crc32(flat.tobytes()))
