"""The tail: what the units of a network leave out of its process.

Write k = φᵀφ + k_r, the units' own covariance and that of the tail, a process too. It can be ignored
("none"); or join the noise of each row and the variance of each prediction as k_r(x, x) =
k(x, x) − |φ(x)|² ("independent"), so that a gap in the data stays honest; or be conditioned on the tail
at the nearest rows ("neighbours"), so that dense data are followed: the full-scale Vecchia
approximation.

Where the tail's variance is well below that of the noise, to ignore it is the better approximation: data
then tell a tail that is smooth, which independence denies. "auto" takes the level that the tail has at the
rows off its variance everywhere, unless that is above the noise's: units that sit at the rows, as radial
ones do, leave nothing there and all of it elsewhere. Units are those of the hidden layers that the prior
was made with.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import cho_solve
from jaxtyping import Array, ArrayLike, Bool, Float, Int, PRNGKeyArray

from .checks import PyTree, is_concrete
from .energy import JITTER
from .linear import Law, after, condition, map_rows
from .neighbours import Search, nearest_earlier
from .parameters import is_network, offset, rows
from .prior import Prior
from .terms import Term

LEVELS = ("auto", "none", "independent")
# How sharply a tail is faded in.
SHARPNESS = 8
# Rows of the first round of a joint draw.
FIRST_ROUND = 256
# Numbers in the units of the neighbours that one block of rows holds.
BLOCK_SIZE = 2**18


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


class Neighbours(NamedTuple):
    """The level "neighbours" with its numbers of nearest rows: in a fit, and for a prediction."""

    fitted: int = 24
    predicted: int = 48


class Whitening(eqx.Module):
    """What makes rows independent: v ↦ (vᵢ − Σⱼ bᵢⱼ v_N(i)ⱼ)/scaleᵢ, N(i) the neighbours of row i."""

    indices: Int[Array, "n m"] = rows()
    coefficients: Float[Array, "n m"] = rows()
    scale: Float[Array, " n"] = rows()

    def __call__(
        self, values: Float[Array, "n ..."], at_data: Float[Array, "N ..."]
    ) -> Float[Array, "n ..."]:
        """The whitened values of functions at some rows, one a column, given those at the data."""
        return self.innovations(values, at_data) / jnp.reshape(
            self.scale, (-1, *[1] * (values.ndim - 1))
        )

    def innovations(
        self, values: Float[Array, "n ..."], at_data: Float[Array, "N ..."]
    ) -> Float[Array, "n ..."]:
        """Values less what those at the neighbours predict."""

        def innovate(row):
            value, index, coefficients = row
            return value - coefficients @ at_data[index]

        each = values, self.indices, self.coefficients
        size = self.indices.shape[1] * (values.size // len(values))
        return jax.lax.map(innovate, each, batch_size=_batch(size, len(values)))

    def at_rows(self, chosen: Int[Array, " b"]) -> "Whitening":
        """That of some of the rows."""
        return jax.tree.map(lambda leaf: leaf[chosen], self)


class NeighbourTail(eqx.Module):
    """The tails of a prior's networks, added up, conditioned on those at the nearest rows of data.

    With neighbours N, K = k_r(N, N) + noise and c = k_r(N, x): b = K⁻¹c, and k_r(x, x) − b·c is left.
    """

    prior: Prior
    laws: list[Law]
    inputs: Float[Array, "N d"]
    noise: Float[Array, " N"]
    roots: list[Float[Array, "_ _"]]
    units: Float[Array, "N W"]
    at_zero: Float[Array, " N"]
    fitted: Whitening
    num_predicted: int = eqx.field(static=True)

    def __init__(self, prior: Prior, inputs: Array, noise: Array, counts: Neighbours):
        if not is_concrete((prior, inputs, noise)):
            raise ValueError(
                'tail="neighbours" searches among the rows on the host: make the posterior outside '
                "of jax.jit, jax.grad and hyper.Joint."
            )
        self.prior, self.inputs = prior, inputs
        self.laws = Tail(prior).laws
        jitter = JITTER * sum(jnp.mean(kernel.diagonal(inputs[:1])) for kernel in self._kernels())
        self.noise = jnp.broadcast_to(jnp.square(noise), inputs.shape[:1]) + jitter
        self.num_predicted = min(counts.predicted, len(inputs))
        self.roots = [law.root() for law in self.laws]
        self.units, self.at_zero = _data_units(self.laws, self.roots, prior, inputs)
        order = _spread_order(len(inputs))
        scaled = self._coordinates(inputs)
        earlier, present = nearest_earlier(scaled[order], min(counts.fitted, len(inputs) - 1 or 1))
        place = np.argsort(order)
        around = jnp.asarray(order[earlier][place]), jnp.asarray(present[place])
        self.fitted = _condition(self._near, inputs, self.units, *around, self.noise)

    def whitening(self, x: Float[Array, "p d"]) -> Whitening:
        """The tail at new rows given the data's, noise-free: `scale` is its own sd there."""
        if not is_concrete(x):
            raise ValueError(
                'tail="neighbours" searches for the rows next to a point on the host: predict '
                "outside of jax.jit."
            )
        search = Search(self._coordinates(self.inputs))
        closest = jnp.asarray(search.nearest(self._coordinates(x), self.num_predicted))
        everywhere = jnp.ones(closest.shape, bool)
        units, _ = self.units_at(x)
        return _condition(self._near, x, units, closest, everywhere, jnp.zeros(len(x)))

    def units_at(self, x: Float[Array, "p d"]) -> tuple[Float[Array, "p W"], Float[Array, " p"]]:
        """What the white coordinates of all networks are multiplied by at rows, and the sum of the
        networks where these are zero."""
        return _data_units(self.laws, self.roots, self.prior, x)

    def draw(
        self,
        key: PRNGKeyArray,
        x: Float[Array, "p d"],
        white: Float[Array, "s W"],
        targets: Float[Array, " N"],
    ) -> Float[np.ndarray, "s p"]:
        """Paths at new rows, jointly, for draws of the white coordinates given the data.

        Rows are drawn in rounds, each twice as long as the one before it and conditioned on the
        nearest rows of the data and of the rounds before: coarse first, then what is between.
        """
        count, data = len(x), len(self.inputs)
        order = _spread_order(count)
        units, at_zero = self.units_at(x[order])
        near = _Near(
            self._kernels(),
            jnp.concatenate([self.inputs, x[order]]),
            jnp.concatenate([self.units, units]),
            jnp.concatenate([self.noise, jnp.full(count, jnp.min(self.noise) * 1e-3)]),
        )
        scaled = self._coordinates(near.inputs)
        missed = np.asarray(targets - self.at_zero) - np.asarray(white @ self.units.T)
        tails = np.concatenate([missed, np.zeros((len(white), count))], axis=1)
        begin, end = 0, min(FIRST_ROUND, count)
        while begin < count:
            rows = np.arange(begin, end)
            closest = Search(scaled[: data + begin]).nearest(
                scaled[data + rows], self.num_predicted
            )
            everywhere, nothing = jnp.ones(closest.shape, bool), jnp.zeros(len(rows))
            chosen = x[order[rows]], units[rows], jnp.asarray(closest), everywhere, nothing
            around = _condition(near, *chosen)
            key, round_key = jax.random.split(key)
            noise = jax.random.normal(round_key, (len(white), len(rows)))
            seen = np.einsum("pm,spm->sp", np.asarray(around.coefficients), tails[:, closest])
            tails[:, data + rows] = seen + np.asarray(around.scale) * np.asarray(noise)
            begin, end = end, min(2 * end, count)
        paths = np.empty((len(white), count))
        paths[:, order] = np.asarray(at_zero) + np.asarray(white @ units.T) + tails[:, data:]
        return paths

    def _kernels(self) -> list[Any]:
        return [term.energy.kernel for term in self.prior.terms(self.prior.params)]

    def _coordinates(self, x: ArrayLike) -> Float[np.ndarray, "p d"]:
        """Rows by the length scales of the first kernel."""
        return np.asarray(self._kernels()[0].scaled(jnp.asarray(x)))

    @property
    def _near(self) -> "_Near":
        return _Near(self._kernels(), self.inputs, self.units, self.noise)


class _Near(NamedTuple):
    """What the tail at a row is conditioned on: kernels, and rows of data with units and noise."""

    kernels: list[Any]
    inputs: Float[Array, "N d"]
    units: Float[Array, "N W"]
    noise: Float[Array, " N"]


def _batch(size: int, count: int) -> int:
    """Rows of a block of which each has this many numbers."""
    return int(np.clip(BLOCK_SIZE // max(size, 1), 1, count))


@eqx.filter_jit
def _condition(
    near: _Near,
    x: Float[Array, "p d"],
    units: Float[Array, "p W"],
    indices: Int[Array, "p m"],
    present: Bool[Array, "p m"],
    noise: Float[Array, " p"],
) -> Whitening:
    """Coefficients of each row's neighbours, where present, and the sd that is left, noise and all."""

    def condition_row(row):
        point, unit, index, there, own_noise = row
        points = jnp.concatenate([near.inputs[index], point[None]])
        white = jnp.concatenate([near.units[index], unit[None]])
        covariance = sum(k.matrix(points, points) for k in near.kernels) - white @ white.T
        diagonal = jnp.where(there, near.noise[index], 1.0)
        own = jnp.where(there[:, None] & there[None], covariance[:-1, :-1], 0.0)
        cross = jnp.where(there, covariance[:-1, -1], 0.0)
        factor = jnp.linalg.cholesky(own + jnp.diag(diagonal))
        coefficients = cho_solve((factor, True), cross)
        left = jnp.maximum(covariance[-1, -1] - coefficients @ cross, 0.0)
        return coefficients, jnp.sqrt(left + own_noise)

    size = indices.shape[1] * (units.shape[1] + x.shape[1] + 2 * indices.shape[1])
    each = x, units, indices, present, noise
    found = jax.lax.map(condition_row, each, batch_size=_batch(size, len(x)))
    return Whitening(indices, *found)


@eqx.filter_jit
def _data_units(laws: list[Any], roots: list[Any], prior: Prior, x: Float[Array, "n d"]):
    terms = prior.terms(prior.params)

    def block(points):
        features = [prior.white_features(term.network, points) for term in terms]
        rest = sum(
            jax.vmap(lambda p, t=t: offset(t.network, prior.where, p))(points) for t in terms
        )
        means = sum(f @ law.mean() for f, law in zip(features, laws, strict=True))
        units = [f @ root for f, root in zip(features, roots, strict=True)]
        return jnp.concatenate(units, axis=1), rest + means

    return map_rows(block, x)


def _spread_order(count: int) -> Int[np.ndarray, " n"]:
    """An order of rows in which the first ones are spread over all, by the golden ratio."""
    return np.argsort(np.arange(count) * ((np.sqrt(5) - 1) / 2) % 1.0, kind="stable")


@eqx.filter_jit
def _laws(prior: Prior) -> list[Law | None]:
    terms = prior.terms(prior.params)
    laws: list[Law | None] = []
    for term in terms:
        rows = None if term.energy is None else after(prior.energy_rows(term), laws)
        laws.append(None if rows is None else condition(*rows, prior.solver))
    return laws


def make_tail(level: str, prior: Prior, applies: bool) -> Tail | None:
    """The tail of this level, None where it is to be ignored or the closed forms do not apply."""
    if level not in LEVELS:
        raise ValueError(f"tail must be one of {LEVELS} or mercer.Neighbours, got {level!r}.")
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
