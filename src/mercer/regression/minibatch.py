"""The readout of a network by minibatches: SGLD with control variates.

In coordinates where some of the rows, standing for all, make the posterior N(0, I), the mode
is a few passes over the data away, and steps of one size suit every direction. With a
control variate at the mode a batch of b rows adds noise of about W/b to a gradient whose own
variance is one; a step h raises the temperature by h/2 times that.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.scipy.linalg import cho_solve, solve_triangular
from jax.scipy.sparse.linalg import cg
from jaxtyping import Array, Float, Int, PRNGKeyArray

from ..sampling import sample, sgld_control_variates
from ..sampling.devices import at_least_chains
from .fitted import Rows, in_blocks, noise_variances, with_tail
from .radial import Centres, Hyper, Network

NUM_CHAINS, NUM_DRAWS = 4, 150
# Rows of a batch; rows for the coordinates, a multiple of the units; passes to the mode.
BATCH, ROWS_PER_UNIT, NUM_PASSES = 512, 3, 60
# What the steps and the batches may add to the variance of a readout.
EXCESS = 0.02


class Drawn(eqx.Module):
    """A network given data, by its mode and draws of its readout, a column each."""

    network: Network
    mode: Float[Array, " m"]
    readouts: Float[Array, "m s"]
    noise: Float[Array, ""]

    def moments(self, x: Float[Array, "n d"]) -> tuple[Array, Array]:
        """Mean and variance of u at each row, tail included."""
        units = self.network.units(x)
        away = units @ (self.readouts - self.mode[:, None])
        return units @ self.mode, jnp.mean(away**2, axis=1) + self.network.tail(x, units)

    def draw(self, key: PRNGKeyArray, x: Float[Array, "n d"], count: int) -> Array:
        """Functions at the rows, jointly."""
        first, second = jax.random.split(key)
        chosen = jax.random.randint(first, (count,), 0, self.readouts.shape[1])
        return with_tail(second, self.network, self.readouts[:, chosen], x)


class _Batched(eqx.Module):
    """log p(z | data) for units and targets over each row's noise, by batches of rows."""

    units: Float[Array, "n m"]
    targets: Float[Array, " n"]
    factor: Float[Array, "m m"]
    centre: Float[Array, " m"]
    is_deterministic = False

    def readout(self, z: Float[Array, " m"]) -> Float[Array, " m"]:
        return self.centre + solve_triangular(self.factor, z, lower=True, trans=1)

    def batch(self, key: PRNGKeyArray) -> Int[Array, " b"]:
        return jax.random.randint(key, (BATCH,), 0, self.targets.shape[0])

    def __call__(self, z: Float[Array, " m"], batch: Int[Array, " b"]) -> Float[Array, ""]:
        readout = self.readout(z)
        missed = self.targets[batch] - self.units[batch] @ readout
        share = self.targets.shape[0] / batch.shape[0]
        return -0.5 * jnp.sum(readout**2) - 0.5 * share * jnp.sum(missed**2)

    def slope(self, z: Float[Array, " m"]) -> Float[Array, " m"]:
        """The gradient by all rows."""
        readout = self.readout(z)
        pull = self.units.T @ (self.targets - self.units @ readout) - readout
        return solve_triangular(self.factor, pull, lower=True)


def draw_readout(key: PRNGKeyArray, hyper: Hyper, centres: Centres, rows: Rows) -> Drawn:
    """The posterior of the readout by draws."""
    choice_key, start_key, run_key = jax.random.split(key, 3)
    network, density = _prepare(choice_key, hyper, centres, rows)
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
    noise = rows.learns * jnp.exp(2 * hyper.noise)
    return Drawn(network, density.readout(mode), drawn, noise)


@eqx.filter_jit
def _prepare(key: PRNGKeyArray, hyper: Hyper, centres: Centres, rows: Rows):
    """The network, and the density in coordinates that some rows give."""
    network = Network(hyper, centres)

    def scale(block):
        x, y, noise, present = block
        units = network.units(x)
        root = present / jnp.sqrt(noise + network.tail(x, units))
        return units * root[:, None], y * root

    blocks = in_blocks((rows.x, rows.y, noise_variances(hyper, rows), rows.present))
    units, targets = jax.lax.map(scale, blocks)
    units, targets = units.reshape(-1, units.shape[-1]), targets.ravel()
    count = min(len(targets), ROWS_PER_UNIT * units.shape[1])
    some = jax.random.permutation(key, len(targets))[:count]
    share = len(targets) / count
    matrix = share * units[some].T @ units[some] + jnp.eye(units.shape[1])
    factor = jnp.linalg.cholesky(matrix)
    centre = cho_solve((factor, True), share * units[some].T @ targets[some])
    return network, _Batched(units, targets, factor, centre)


@eqx.filter_jit
def _find_mode(density: _Batched) -> Float[Array, " m"]:
    """By conjugate gradients, a pass over the data each."""
    begin = density.slope(jnp.zeros(density.centre.shape))
    return cg(lambda z: begin - density.slope(z), begin, tol=1e-9, maxiter=NUM_PASSES)[0]
