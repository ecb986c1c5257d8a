"""The readout of a network by minibatches: SGLD with control variates.

In coordinates where some of the rows, standing for all, make the posterior N(0, I), the mode
is a few passes over the data away, and steps of one size suit every direction. With a
control variate at the mode a batch of b rows adds noise of about W/b to a gradient whose own
variance is one; a step h raises the temperature by h/2 times that.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.scipy.linalg import cho_solve, solve_triangular
from jax.scipy.sparse.linalg import cg
from jaxtyping import Array, ArrayLike, Float, Int, PRNGKeyArray

from ..density import Density
from ..linear import map_rows
from ..sampling import sample, sgld_control_variates
from ..sampling.devices import at_least_chains
from ..tail import Tail
from .hyperparameters import Hyper
from .model import Rows, make_prior, noise_variances

NUM_CHAINS, NUM_DRAWS = 4, 150
# Rows of a batch; rows for the coordinates, a multiple of the units; passes to the mode.
BATCH, ROWS_PER_UNIT, NUM_PASSES = 512, 3, 60
# What the steps and the batches may add to the variance of a readout.
EXCESS = 0.02


class Drawn(eqx.Module):
    """A network given data, by its mode and draws of its white readout, a column each."""

    tail: Tail
    root: Float[Array, "m m"]
    mode: Float[Array, " m"]
    readouts: Float[Array, "m s"]

    def units(self, x: Float[Array, "n d"]) -> Float[Array, "n m"]:
        """What the white readout is multiplied by at each row."""
        prior = self.tail.prior
        return prior.white_features(prior.network(prior.params), x) @ self.root

    def moments(self, x: ArrayLike) -> tuple[Array, Array]:
        """Mean and variance of u at each row, tail included."""
        return _moments(self, jnp.asarray(x))

    def draw(self, key: PRNGKeyArray, x: ArrayLike, count: int) -> Array:
        """Functions at the rows, jointly; the tail is independent from row to row."""
        first, second = jax.random.split(key)
        x = jnp.asarray(x)
        chosen = jax.random.randint(first, (count,), 0, self.readouts.shape[1])
        paths = (self.units(x) @ self.readouts[:, chosen]).T
        noise = jax.random.normal(second, paths.shape)
        return paths + jnp.sqrt(self.tail.variances(x))[None] * noise


@eqx.filter_jit
def _moments(drawn: Drawn, x: Float[Array, "n d"]) -> tuple[Array, Array]:
    units = drawn.units(x)
    away = units @ (drawn.readouts - drawn.mode[:, None])
    return units @ drawn.mode, jnp.mean(away**2, axis=1) + drawn.tail.variances(x)


class BatchedReadout(Density):
    """log p(z | data) for units and targets over each row's noise, by batches of rows."""

    units: Float[Array, "n m"]
    targets: Float[Array, " n"]
    factor: Float[Array, "m m"]
    centre: Float[Array, " m"]

    @property
    def params(self) -> Float[Array, " m"]:
        return jnp.zeros_like(self.centre)

    @property
    def is_deterministic(self) -> bool:
        return False

    def init(self, key: PRNGKeyArray) -> Float[Array, " m"]:
        return jax.random.normal(key, self.centre.shape)

    def readout(self, z: Float[Array, " m"]) -> Float[Array, " m"]:
        """The white readout at these coordinates."""
        return self.centre + solve_triangular(self.factor, z, lower=True, trans=1)

    def batch(self, key: PRNGKeyArray) -> Int[Array, " b"]:
        return jax.random.randint(key, (BATCH,), 0, self.targets.shape[0])

    def __call__(self, z: Float[Array, " m"], batch: Any = None) -> Float[Array, ""]:
        readout = self.readout(z)
        missed = self.targets[batch] - self.units[batch] @ readout
        share = self.targets.shape[0] / batch.shape[0]
        return -0.5 * jnp.sum(readout**2) - 0.5 * share * jnp.sum(missed**2)

    def slope(self, z: Float[Array, " m"]) -> Float[Array, " m"]:
        """The gradient by all rows."""
        readout = self.readout(z)
        pull = self.units.T @ (self.targets - self.units @ readout) - readout
        return solve_triangular(self.factor, pull, lower=True)


def draw_readout(
    key: PRNGKeyArray, hyper: Hyper, centres: Float[Array, "W d"], rows: Rows
) -> Drawn:
    """The posterior of the readout by draws."""
    choice_key, start_key, run_key = jax.random.split(key, 3)
    (tail, root), density = _prepare(choice_key, hyper, centres, rows)
    mode = _find_mode(density)
    num_units = len(mode)
    step = EXCESS * 2 / (1 + num_units / BATCH)
    num_chains = at_least_chains(NUM_CHAINS)
    starts = mode[None] + jax.random.normal(start_key, (num_chains, num_units))
    draws = sample(
        run_key,
        density,
        sgld_control_variates(step, mode, density.slope(mode)),
        num_draws=NUM_DRAWS,
        num_warmup=int(3 / step),
        num_chains=num_chains,
        thin=int(1 / step),
        record=density.readout,
        init=starts,
        keep_params=False,
        progress=False,
    ).complete()
    drawn = jnp.asarray(draws.recorded.reshape(-1, num_units).T)
    return Drawn(tail, root, density.readout(mode), drawn)


@eqx.filter_jit
def _prepare(key: PRNGKeyArray, hyper: Hyper, centres: Float[Array, "W d"], rows: Rows):
    """The tail and the readout's root, and the density in coordinates that some rows give."""
    prior = make_prior(hyper, centres)
    tail = Tail(prior)
    root = tail.laws[0].root()

    def scale(block):
        x, y, noise = block
        inverse = 1 / jnp.sqrt(noise + tail.variances(x))
        units = prior.white_features(prior.network(prior.params), x) @ root
        return units * inverse[:, None], y * inverse

    units, targets = map_rows(scale, (rows.x, rows.y, noise_variances(hyper, rows)))
    count = min(len(targets), ROWS_PER_UNIT * units.shape[1])
    some = jax.random.permutation(key, len(targets))[:count]
    share = len(targets) / count
    matrix = share * units[some].T @ units[some] + jnp.eye(units.shape[1])
    factor = jnp.linalg.cholesky(matrix)
    centre = cho_solve((factor, True), share * units[some].T @ targets[some])
    return (tail, root), BatchedReadout(units, targets, factor, centre)


@eqx.filter_jit
def _find_mode(density: BatchedReadout) -> Float[Array, " m"]:
    """By conjugate gradients, a pass over the data each."""
    begin = density.slope(jnp.zeros(density.centre.shape))
    return cg(lambda z: begin - density.slope(z), begin, tol=1e-9, maxiter=NUM_PASSES)[0]
