"""Closed forms for a network that is linear in its last layer, given the layers before.

With u = g + f·w for readout weights w, features f and an offset g, and coefficients
M = σ Λ^(−½) ⟨φ, f⟩ and r = Λ^(−½) ⟨φ, g − m⟩,

    ∫ exp(−E(u − m)) N(w; 0, σ²) dw = det(I + MMᵀ)^(−½) exp(−½ rᵀ(I + MMᵀ)⁻¹ r)

and w given the hidden parameters is Gaussian with precision (I + MᵀM)/σ².
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Float, PRNGKeyArray

from .checks import is_concrete
from .energy import Function, Quadrature

Network = Any
Where = Callable[[Network], Any]
LINEARITY_TOLERANCE = 1e-3
# |M|² beyond which rounding errors of I + MᵀM, relative to its smallest eigenvalue, pass 1e-6.
STIFF = 1e9


def default_where(network: Network) -> Any:
    """The readout leaf of a network: its attribute `readout`."""
    return network.readout


def linear_in_readout(network: Network, where: Where, points: Float[Array, "n d"]) -> bool:
    """Whether u is affine in the readout: its slopes are the same at two different readouts.

    Taken on trust where the network's parameters are not known yet.
    """
    try:
        readout = where(network)
    except (AttributeError, IndexError, KeyError, TypeError):
        return False
    if not is_concrete((network, points)):
        return True
    with jax.ensure_compile_time_eval():
        doubled = jax.tree.map(lambda leaf: 2 * leaf + 1, readout)
        moved = eqx.tree_at(where, network, doubled)
        slope, other = _slopes(network, where, points), _slopes(moved, where, points)
    size = np.max(np.abs(slope))
    return bool(size > 0 and np.max(np.abs(slope - other)) <= LINEARITY_TOLERANCE * size)


@eqx.filter_jit
def _slopes(network: Network, where: Where, points: Float[Array, "n d"]) -> Float[Array, "n W"]:
    """Features at the points, compiled as one program."""
    return jax.vmap(lambda x: features(network, where, x))(points)


def features(network: Network, where: Where, x: Float[Array, " d"]) -> Float[Array, " W"]:
    """f(x): the derivative of the output by the readout weights, flattened."""
    slopes = jax.grad(lambda readout: eqx.tree_at(where, network, readout)(x))(where(network))
    return ravel_pytree(slopes)[0]


def offset(network: Network, where: Where, x: Float[Array, " d"]) -> Float[Array, ""]:
    """g(x): the output with the readout at zero."""
    zero = jax.tree.map(jnp.zeros_like, where(network))
    return eqx.tree_at(where, network, zero)(x)


class Readout(eqx.Module):
    """The Gaussian law of the readout weights given everything else in the network.

    `mixing` is M (K × W), `residual` is r, `scale` is σ, and `factor` the triangle R with
    RᵀR = I + MᵀM or, if the network is wider than the modes are many, I + MMᵀ.
    """

    mixing: Float[Array, "K W"]
    residual: Float[Array, " K"]
    factor: Float[Array, "m m"]
    scale: float = eqx.field(static=True)
    is_stiff: bool = eqx.field(static=True)

    @property
    def is_wide(self) -> bool:
        return self.mixing.shape[1] > self.mixing.shape[0]

    @property
    def log_normaliser(self) -> Float[Array, ""]:
        """log ∫ exp(−E(u − m)) N(w; 0, σ²) dw."""
        return _log_normaliser(self.is_stiff, self.mixing, self.residual)

    def energy(self, weights: Float[Array, " W"]) -> Float[Array, ""]:
        """E(u − m) at these weights."""
        return 0.5 * jnp.sum(jnp.square(self.mixing @ weights / self.scale + self.residual))

    def mean(self) -> Float[Array, " W"]:
        """Mean of the weights."""
        return self.scale * self._whitened_mean()

    def draw(self, key: PRNGKeyArray) -> Float[Array, " W"]:
        """An exact draw of the weights."""
        first, second = jax.random.split(key)
        dtype = self.mixing.dtype
        white = jax.random.normal(first, (self.mixing.shape[1],), dtype)
        if not self.is_wide:
            return self.place(white)
        # A reference draw, corrected by what it would have to explain.
        noise = jax.random.normal(second, self.residual.shape, dtype)
        misfit = self.mixing @ white + noise + self.residual
        return self.scale * (white - self.mixing.T @ self._solve(misfit))

    def place(self, white: Float[Array, " W"]) -> Float[Array, " W"]:
        """The weights mean + Tz for white z, with T as `root` gives it."""
        if self.is_wide:
            return self.mean() + self.root() @ white
        pulled = solve_triangular(self.factor.T, self.mixing.T @ self.residual, lower=True)
        return self.scale * solve_triangular(self.factor, white - pulled)

    def covariance(self, values: Float[Array, "p W"]) -> Float[Array, "p p"]:
        """Covariance of f·w for features given as rows."""
        if not self.is_wide:
            half = solve_triangular(self.factor.T, values.T, lower=True)
            return self.scale**2 * half.T @ half
        cross = solve_triangular(self.factor.T, self.mixing @ values.T, lower=True)
        return self.scale**2 * (values @ values.T - cross.T @ cross)

    def root(self) -> Float[Array, "W W"]:
        """A matrix T with TTᵀ the weights' covariance: weights = mean + Tz for white z."""
        if not self.is_wide:
            return self.scale * solve_triangular(self.factor, jnp.eye(self.mixing.shape[1]))
        _, sizes, rows = jnp.linalg.svd(self.mixing, full_matrices=False)
        shrink = 1 - 1 / jnp.sqrt(1 + sizes**2)
        return self.scale * (jnp.eye(rows.shape[1]) - rows.T @ (shrink[:, None] * rows))

    def _whitened_mean(self) -> Float[Array, " W"]:
        if self.is_wide:
            return -self.mixing.T @ self._solve(self.residual)
        return -self._solve(self.mixing.T @ self.residual)

    def _solve(self, right: Float[Array, "m ..."]) -> Float[Array, "m ..."]:
        return solve_triangular(self.factor, solve_triangular(self.factor.T, right, lower=True))


def condition_readout(
    energy: Quadrature,
    network: Network,
    where: Where,
    scale: float,
    mean: Function | None,
    is_stiff: bool = True,
) -> Readout:
    """The law of the readout weights under reference N(0, scale²) and the energy of u − mean."""

    def rest(x):
        value = offset(network, where, x)
        return value if mean is None else value - mean(x)

    mixing = mix(energy, network, where, scale)
    residual = jnp.exp(-0.5 * energy.spectrum.log_eigenvalues) * energy.coefficients(rest)
    return make_law(mixing, residual, scale, is_stiff)


def mix(energy: Quadrature, network: Network, where: Where, scale: float) -> Float[Array, "K W"]:
    """M = σ Λ^(−½) ⟨φ, f⟩."""
    roots = jnp.exp(-0.5 * energy.spectrum.log_eigenvalues)
    values = jax.vmap(lambda x: features(network, where, x))(energy.points)
    return (scale * roots)[:, None] * (energy.projector @ values)


def make_law(
    mixing: Float[Array, "K W"],
    residual: Float[Array, " K"],
    scale: float = 1.0,
    is_stiff: bool = True,
) -> Readout:
    """The law ∝ N(w; 0, σ²) exp(−½|Mw/σ + r|²).

    A stiff one is factorised by QR; others by Cholesky, several times as fast on a CPU and a
    hundred times on a GPU, whose rounding errors are those of |M|² beside one.
    """
    return Readout(mixing, residual, _factorise(mixing, is_stiff), scale, is_stiff)


def is_stiff(energy: Quadrature, network: Network, where: Where, scale: float) -> bool:
    """Whether I + MᵀM is too uneven for Cholesky; taken to be where M is not known yet."""
    if not is_concrete((network, energy)):
        return True
    with jax.ensure_compile_time_eval():
        return bool(_size(energy, network, where, scale) > STIFF)


@eqx.filter_jit
def _size(energy: Quadrature, network: Network, where: Where, scale: float) -> Float[Array, ""]:
    """|M|²."""
    return jnp.sum(jnp.square(mix(energy, network, where, scale)))


def _factorise(mixing: Float[Array, "K W"], is_stiff: bool) -> Float[Array, "m m"]:
    tall = mixing if mixing.shape[1] <= mixing.shape[0] else mixing.T
    one = jnp.eye(tall.shape[1], dtype=tall.dtype)
    if is_stiff:
        return jnp.linalg.qr(jnp.concatenate([tall, one]), mode="r")
    return jnp.linalg.cholesky(one + tall.T @ tall, upper=True)


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def _log_normaliser(is_stiff: bool, mixing: Float[Array, "K W"], residual: Float[Array, " K"]):
    """−½ log det(I + MMᵀ) − ½ rᵀ(I + MMᵀ)⁻¹ r, with a derivative that needs no factor's own."""
    return _evaluate_normaliser(is_stiff, mixing, residual)[0]


def _evaluate_normaliser(is_stiff: bool, mixing: Float[Array, "K W"], residual: Float[Array, " K"]):
    """The value, and s = (I + MMᵀ)⁻¹ r and P = (I + MMᵀ)⁻¹ M."""
    law = make_law(mixing, residual, 1.0, is_stiff)
    if law.is_wide:
        both = law._solve(jnp.concatenate([mixing, residual[:, None]], axis=1))
        projected, solved = both[:, :-1], both[:, -1]
    else:
        # (I + MMᵀ)⁻¹M = M(I + MᵀM)⁻¹, and (I + MMᵀ)⁻¹ = I − M(I + MᵀM)⁻¹Mᵀ.
        right = jnp.concatenate([mixing.T, (mixing.T @ residual)[:, None]], axis=1)
        both = law._solve(right)
        projected, solved = both[:, :-1].T, residual - mixing @ both[:, -1]
    value = -jnp.sum(jnp.log(jnp.abs(jnp.diag(law.factor)))) - 0.5 * jnp.dot(residual, solved)
    return value, solved, projected


@_log_normaliser.defjvp
def _differentiate_normaliser(is_stiff, primals, tangents):
    value, solved, projected = _evaluate_normaliser(is_stiff, *primals)
    mixing, mixing_dot, residual_dot = primals[0], *tangents
    along = jnp.sum(projected * mixing_dot) - jnp.dot(solved, mixing_dot @ (mixing.T @ solved))
    return value, -along - jnp.dot(solved, residual_dot)
