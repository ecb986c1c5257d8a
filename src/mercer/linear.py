"""The Gaussian linear model: a white vector z seen through rows, in closed form.

    p(z) ∝ N(z; 0, I) · exp(−½|Mz + r|²),     z ~ N(−(I + MᵀM)⁻¹ Mᵀr, (I + MᵀM)⁻¹)

is the law of a readout under its energy (M = σ R f, r = R(g − m)), of a readout given data with
Gaussian noise (M = features/noise, r = (g − y)/noise), of a process by its modes, and of all of these
stacked. Its integral over z is the evidence:

    ∫ N(z; 0, I) exp(−½|Mz + r|²) dz = det(I + MMᵀ)^(−½) exp(−½ rᵀ(I + MMᵀ)⁻¹ r)
"""

import math
from abc import abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Float, PRNGKeyArray

from .checks import PyTree

SOLVERS = ("cholesky", "qr")
# |M|² beyond which rounding errors of I + MᵀM, relative to its smallest eigenvalue, pass 1e-6.
STIFF = 1e9
BLOCK = 2048


class Law(eqx.Module):
    """A Gaussian law N(mean, TTᵀ) of a vector z."""

    @abstractmethod
    def mean(self) -> Float[Array, " W"]:
        """Mean of z."""

    @abstractmethod
    def draw(self, key: PRNGKeyArray) -> Float[Array, " W"]:
        """An exact draw of z."""

    @abstractmethod
    def root(self) -> Float[Array, "W W"]:
        """A matrix T with TTᵀ the covariance of z."""

    @abstractmethod
    def place(self, white: Float[Array, " W"]) -> Float[Array, " W"]:
        """mean + T · white."""

    @abstractmethod
    def covariance(self, values: Float[Array, "p W"]) -> Float[Array, "p p"]:
        """Covariance of values · z, features given as rows."""

    @abstractmethod
    def variance(self, values: Float[Array, "p W"]) -> Float[Array, " p"]:
        """Variance of values · z, row by row."""


class TallLaw(Law):
    """By the triangle R with RᵀR = I + MᵀM, and b = R⁻ᵀMᵀr."""

    factor: Float[Array, "W W"]
    pull: Float[Array, " W"]

    def mean(self) -> Float[Array, " W"]:
        return -solve_triangular(self.factor, self.pull)

    def draw(self, key: PRNGKeyArray) -> Float[Array, " W"]:
        return self.place(jax.random.normal(key, self.pull.shape, self.pull.dtype))

    def root(self) -> Float[Array, "W W"]:
        return solve_triangular(self.factor, jnp.eye(self.pull.shape[0], dtype=self.pull.dtype))

    def place(self, white: Float[Array, " W"]) -> Float[Array, " W"]:
        return solve_triangular(self.factor, white - self.pull)

    def covariance(self, values: Float[Array, "p W"]) -> Float[Array, "p p"]:
        half = solve_triangular(self.factor.T, values.T, lower=True)
        return half.T @ half

    def variance(self, values: Float[Array, "p W"]) -> Float[Array, " p"]:
        return jnp.sum(jnp.square(solve_triangular(self.factor.T, values.T, lower=True)), axis=0)


class WideLaw(Law):
    """By the triangle R with RᵀR = I + MMᵀ, for more weights than rows."""

    mixing: Float[Array, "K W"]
    residual: Float[Array, " K"]
    factor: Float[Array, "K K"]

    def mean(self) -> Float[Array, " W"]:
        return -self.mixing.T @ _solve(self.factor, self.residual)

    def draw(self, key: PRNGKeyArray) -> Float[Array, " W"]:
        first, second = jax.random.split(key)
        white = jax.random.normal(first, self.mixing.shape[1:], self.mixing.dtype)
        # A draw of N(0, I), corrected by what it would have to explain.
        noise = jax.random.normal(second, self.residual.shape, self.mixing.dtype)
        misfit = self.mixing @ white + noise + self.residual
        return white - self.mixing.T @ _solve(self.factor, misfit)

    def root(self) -> Float[Array, "W W"]:
        _, sizes, directions = jnp.linalg.svd(self.mixing, full_matrices=False)
        shrink = 1 - 1 / jnp.sqrt(1 + sizes**2)
        return jnp.eye(directions.shape[1]) - directions.T @ (shrink[:, None] * directions)

    def place(self, white: Float[Array, " W"]) -> Float[Array, " W"]:
        return self.mean() + self.root() @ white

    def covariance(self, values: Float[Array, "p W"]) -> Float[Array, "p p"]:
        seen = solve_triangular(self.factor.T, self.mixing @ values.T, lower=True)
        return values @ values.T - seen.T @ seen

    def variance(self, values: Float[Array, "p W"]) -> Float[Array, " p"]:
        seen = solve_triangular(self.factor.T, self.mixing @ values.T, lower=True)
        return jnp.maximum(jnp.sum(values**2, axis=1) - jnp.sum(seen**2, axis=0), 0.0)


def condition(mixing: Float[Array, "n W"], residual: Float[Array, " n"], solver: str = "qr") -> Law:
    """The law of z given rows M and r.

    The solver "qr" is exact to rounding for any M. "cholesky" is several times as fast on a CPU and
    a hundred times on a GPU, with rounding errors of |M|² beside one: `safe_solver` tells.
    """
    factor = factorise(mixing, solver)
    if mixing.shape[1] > mixing.shape[0]:
        return WideLaw(mixing, residual, factor)
    return TallLaw(factor, solve_triangular(factor.T, mixing.T @ residual, lower=True))


def factorise(mixing: Float[Array, "n W"], solver: str) -> Float[Array, "m m"]:
    """The triangle R with RᵀR = I + MᵀM or, if that is smaller, I + MMᵀ."""
    tall = mixing if mixing.shape[1] <= mixing.shape[0] else mixing.T
    identity = jnp.eye(tall.shape[1], dtype=tall.dtype)
    if solver == "qr":
        return jnp.linalg.qr(jnp.concatenate([tall, identity]), mode="r")
    return jnp.linalg.cholesky(identity + tall.T @ tall, upper=True)


def safe_solver(size: float) -> str:
    """The faster solver whose rounding errors pass no one's notice where |M|² is `size`."""
    return "cholesky" if size <= STIFF else "qr"


def require_solver(solver: str) -> None:
    """Raise unless the solver has one of the two names."""
    if solver not in SOLVERS:
        raise ValueError(f"solver must be one of {SOLVERS}, got {solver!r}.")


@partial(jax.custom_jvp, nondiff_argnums=(2,))
def log_integral(
    mixing: Float[Array, "n W"], residual: Float[Array, " n"], solver: str
) -> Float[Array, ""]:
    """log ∫ N(z; 0, I) exp(−½|Mz + r|²) dz, with a derivative that differentiates no factor."""
    return _integrate(mixing, residual, solver)[0]


def _integrate(mixing: Float[Array, "n W"], residual: Float[Array, " n"], solver: str):
    """The value, and s = (I + MMᵀ)⁻¹ r and P = (I + MMᵀ)⁻¹ M."""
    factor = factorise(mixing, solver)
    if mixing.shape[1] > mixing.shape[0]:
        both = _solve(factor, jnp.concatenate([mixing, residual[:, None]], axis=1))
        projected, solved = both[:, :-1], both[:, -1]
    else:
        # (I + MMᵀ)⁻¹M = M(I + MᵀM)⁻¹, and (I + MMᵀ)⁻¹ = I − M(I + MᵀM)⁻¹Mᵀ.
        right = jnp.concatenate([mixing.T, (mixing.T @ residual)[:, None]], axis=1)
        both = _solve(factor, right)
        projected, solved = both[:, :-1].T, residual - mixing @ both[:, -1]
    value = -jnp.sum(jnp.log(jnp.abs(jnp.diag(factor)))) - 0.5 * jnp.dot(residual, solved)
    return value, solved, projected


@log_integral.defjvp
def _differentiate(solver, primals, tangents):
    value, solved, projected = _integrate(*primals, solver)
    mixing, mixing_dot, residual_dot = primals[0], *tangents
    along = jnp.sum(projected * mixing_dot) - jnp.dot(solved, mixing_dot @ (mixing.T @ solved))
    return value, -along - jnp.dot(solved, residual_dot)


def _solve(factor: Float[Array, "m m"], right: Float[Array, "m ..."]) -> Float[Array, "m ..."]:
    return solve_triangular(factor, solve_triangular(factor.T, right, lower=True))


RowMaker = Callable[[PyTree], tuple[Float[Array, "b W"], Float[Array, " b"]]]


def condition_rows(make_rows: RowMaker, data: PyTree) -> tuple[TallLaw, Float[Array, ""]]:
    """The law of z given many rows, and the log of its integral: O(nW²) work, O(W²) memory.

    `make_rows` turns a block of `data`, arrays with a leading axis of rows, into M and r of that
    block. By Cholesky: M is meant to be features of bounded size over the noise.
    """
    shape = jax.eval_shape(make_rows, jax.tree.map(lambda x: x[:1], data))[0]
    zero = jnp.zeros((shape.shape[1],) * 2, shape.dtype), jnp.zeros(shape.shape[1], shape.dtype)

    def accumulate(total, block):
        mixing, residual = make_rows(block)
        return (total[0] + mixing.T @ mixing, total[1] + mixing.T @ residual)

    precision, vector = fold_rows(accumulate, zero, data)
    factor = jnp.linalg.cholesky(precision + jnp.eye(len(vector)), upper=True)
    law = TallLaw(factor, solve_triangular(factor.T, vector, lower=True))
    mode = law.mean()

    def misfit(total, block):
        mixing, residual = make_rows(block)
        return total + jnp.sum(jnp.square(mixing @ mode + residual))

    # The misfit and z at the mode: no difference of large numbers when noise is small.
    quadratic = fold_rows(misfit, jnp.zeros(()), data) + jnp.sum(jnp.square(mode))
    return law, -0.5 * quadratic - jnp.sum(jnp.log(jnp.diag(factor)))


def fold_rows(function: Callable[[Any, PyTree], Any], start: Any, data: PyTree) -> Any:
    """function(carry, block) over blocks of rows: whole blocks in one loop, then the rest."""
    count = jax.tree.leaves(data)[0].shape[0]
    whole = count - count % BLOCK
    carry = start
    if whole:
        blocks = jax.tree.map(lambda x: x[:whole].reshape(-1, BLOCK, *x.shape[1:]), data)
        carry = jax.lax.scan(lambda c, b: (function(c, b), None), carry, blocks)[0]
    return function(carry, jax.tree.map(lambda x: x[whole:], data)) if whole < count else carry


def map_rows(function: Callable[[PyTree], PyTree], data: PyTree) -> PyTree:
    """function(block) over blocks of rows, its results side by side."""
    count = jax.tree.leaves(data)[0].shape[0]
    whole = count - count % BLOCK
    parts = []
    if whole:
        blocks = jax.tree.map(lambda x: x[:whole].reshape(-1, BLOCK, *x.shape[1:]), data)
        mapped = jax.lax.map(function, blocks)
        parts.append(jax.tree.map(lambda x: x.reshape(whole, *x.shape[2:]), mapped))
    if whole < count:
        parts.append(function(jax.tree.map(lambda x: x[whole:], data)))
    return jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *parts)


def after(rows: PyTree, previous: PyTree) -> PyTree:
    """The rows, but not before `previous` is computed.

    Batched factorisations that run at once wait for each other's threads, on two cores for ever.
    """
    nothing = sum((0.0 * jnp.ravel(leaf)[0] for leaf in jax.tree.leaves(previous)), start=0.0)
    return jax.tree.map(lambda leaf: leaf + nothing, rows)


def leave_one_out(
    law: Law, mixing: Float[Array, "n W"], residual: Float[Array, " n"]
) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
    """Residual and variance of each row as the others predict it, in units of the row's noise.

    With h = Var(Mz) these are (Mz̄ + r)/(1 − h) and 1/(1 − h), for a row that the law has seen.
    """
    rest = jnp.maximum(1 - law.variance(mixing), 1e-6)
    return (mixing @ law.mean() + residual) / rest, 1 / rest


def gaussian_constant(noise: Float[Array, " n"]) -> Float[Array, ""]:
    """log of the factor by which the density of y exceeds exp(−½|residual/noise|²)."""
    return -jnp.sum(jnp.log(noise)) - 0.5 * noise.shape[0] * math.log(2 * math.pi)
