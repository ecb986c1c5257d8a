"""The tail: what the units of a network leave out of its process.

Write k = φᵀφ + k_r, the units' own covariance and that of the tail. The tail can be ignored ("none"),
or join the noise of each row and the variance of each prediction as k_r(x, x) = k(x, x) − |φ(x)|²
("independent"), so that a gap in the data stays honest. Where its variance is well below that of the
noise the former is the better approximation: data then tell a tail that is smooth, which independence
denies. "auto" takes the level that the tail has at the rows off its variance everywhere, unless that is
above the noise's: units that sit at the rows, as radial ones do, leave nothing there and all of it
elsewhere. Units are those of the hidden layers
that the prior was made with.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from .linear import Law, after, condition, map_rows
from .parameters import is_network
from .prior import Prior
from .terms import Term

LEVELS = ("auto", "none", "independent")
# How sharply a tail is faded in.
SHARPNESS = 8


class Tail(eqx.Module):
    """Variances of the tails of a prior's networks, given the laws of their readouts."""

    prior: Prior
    laws: list[Law | None]

    def __init__(self, prior: Prior):
        prior.require_exact()
        self.prior = prior
        self.laws = _laws(prior)

    def variances(self, x: Float[Array, "n d"]) -> PyTree[Float[Array, " n"]]:
        """k_r(x, x) of each network at each row, a pytree like the networks."""
        networks = self.prior.network(self.prior.params)
        structure = jax.tree.structure(networks, is_leaf=is_network)
        terms = self.prior.terms(self.prior.params)
        values = [self._variance(*pair, x) for pair in zip(terms, self.laws, strict=True)]
        return jax.tree.unflatten(structure, values)

    def _variance(self, term: Term, law: Law | None, x: Float[Array, "n d"]) -> Float[Array, " n"]:
        if law is None:
            return jnp.zeros(x.shape[0])

        def missing(rows: Array) -> Array:
            kept = law.variance(self.prior.white_features(term.network, rows))
            return jnp.maximum(term.energy.kernel.diagonal(rows) - kept, 0.0)

        return map_rows(missing, x)


@eqx.filter_jit
def _laws(prior: Prior) -> list[Law | None]:
    terms = prior.terms(prior.params)
    laws: list[Law | None] = []
    for term in terms:
        rows = None if term.energy is None else after(prior.energy_rows(term), laws)
        laws.append(None if rows is None else condition(*rows, prior.solver))
    return laws


def make_tail(level: Any, prior: Prior, applies: bool) -> Tail | None:
    """The tail of this level, None where it is to be ignored or the closed forms do not apply."""
    if level not in LEVELS:
        raise ValueError(f"tail must be one of {LEVELS}, got {level!r}.")
    if level == "none" or not applies or not prior.normalised:
        return None
    return (
        Tail(prior) if any(term.energy is not None for term in prior.terms(prior.params)) else None
    )


@eqx.filter_jit
def tail_variances(tail: Tail, x: Float[Array, "n d"]) -> PyTree[Float[Array, " n"]]:
    """`tail.variances` as one compiled program."""
    return tail.variances(x)


def explained_tail(
    level: str, variance: Float[Array, " n"], noise_variance: Float[Array, ""]
) -> Float[Array, ""]:
    """The share 1/(1 + r⁸) of the tail's level at the rows that data tell, for "auto"; r is its mean
    variance there over that of the noise. None of it where the tail is independent."""
    if level == "independent":
        return jnp.zeros(())
    # By logarithms, whose derivatives stay finite whatever the ratio.
    tiny = jnp.finfo(variance.dtype).tiny
    log_ratio = jnp.log(jnp.mean(variance) + tiny) - jnp.log(noise_variance + tiny)
    return jax.nn.sigmoid(-SHARPNESS * log_ratio)
