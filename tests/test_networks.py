"""Networks: factors that vanish where they should, scales that are constants."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mercer
from mercer.networks import Vanishing
from mercer.parameters import random_parameters

DOMAIN = mercer.Box([-1.0, 2.0], [1.0, 5.0])


@pytest.mark.float32
def test_network_vanishes_on_its_dirichlet_sides_only():
    network = mercer.FourierMLP(
        2,
        20,
        boundary=[("dirichlet", "neumann"), "dirichlet"],
        key=jax.random.key(0),
        domain=DOMAIN,
    )
    assert float(network([-1.0, 3.0])) == 0
    assert float(network([0.3, 2.0])) == 0
    assert float(network([0.3, 5.0])) == 0
    assert float(network([1.0, 3.0])) != 0


def test_factors_are_the_papers_or_saturate():
    t = jnp.array([0.2])
    assert float(Vanishing(("dirichlet", "neumann"), 1)(t)) == pytest.approx(0.2)
    assert float(Vanishing("dirichlet", 1)(t)) == pytest.approx(0.16)
    assert float(Vanishing(("dirichlet", "neumann"), 1, 0.1)(t)) == pytest.approx(0.2 / 0.3)
    assert float(Vanishing("neumann", 1)(t)) == 1.0
    assert float(Vanishing("dirichlet", 2)(jnp.array([0.2, 0.5]))) == pytest.approx(0.04)


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_random_leaves_are_weights_biases_and_readout(depth):
    network = mercer.FourierMLP(1, 10, depth, num_frequencies=3, key=jax.random.key(0))
    leaves = jax.tree.leaves(eqx.filter(network, random_parameters(network)))
    assert sum(leaf.size for leaf in leaves) == 10 * 6 + 10 + (depth - 1) * 110 + 10


def test_preactivations_are_of_order_one_whatever_the_sizes():
    for num_frequencies in (4, 64):
        network = mercer.FourierMLP(
            1,
            4000,
            num_frequencies=num_frequencies,
            key=jax.random.key(0),
            hidden_scale=1.0,
            activation=lambda z: z,
            readout_scale=1.0,
        )
        hidden = jax.grad(
            lambda w, n=network: eqx.tree_at(lambda m: m.readout, n, w)(jnp.array([0.3]))
        )
        values = hidden(network.readout) * np.sqrt(4000)
        assert float(jnp.std(values)) == pytest.approx(np.sqrt(2), rel=0.1)


def test_readout_scale_is_the_standard_deviation_of_the_sum():
    keys = jax.random.split(jax.random.key(0), 300)

    def value(key):
        network = mercer.FourierMLP(1, 200, key=key, readout_scale=7.0, activation=jnp.ones_like)
        return network(jnp.array([0.4]))

    values = np.array([value(k) for k in keys])
    assert np.std(values) == pytest.approx(7.0, rel=0.15)


def test_heavy_tailed_frequencies():
    spread = {}
    for law in ("normal", "cauchy"):
        network = mercer.FourierMLP(1, 2, num_frequencies=4000, law=law, key=jax.random.key(1))
        spread[law] = np.max(np.abs(network.frequencies))
        median = np.median(np.abs(network.frequencies))
        assert median == pytest.approx({"normal": 6.74, "cauchy": 10.0}[law], rel=0.1)
    assert spread["cauchy"] > 50 * spread["normal"]


def test_inputs_are_scaled_to_the_domain():
    unit = mercer.FourierMLP(2, 8, key=jax.random.key(0))
    there = mercer.FourierMLP(2, 8, key=jax.random.key(0), domain=DOMAIN)
    np.testing.assert_allclose(unit([0.25, 0.5]), there([-0.5, 3.5]), rtol=1e-12)


def test_a_network_can_be_made_within_a_compiled_function():
    known = jax.random.key(3)

    def value(x):
        return mercer.FourierMLP(1, 5, key=known)(x)

    with jax.debug_key_reuse(False):
        np.testing.assert_allclose(jax.jit(value)(jnp.ones(1)), value(jnp.ones(1)), rtol=1e-10)
        keys = jax.random.split(jax.random.key(4), 3)
        many = jax.vmap(lambda k: mercer.FourierMLP(1, 5, key=k)(jnp.ones(1)))(keys)
        alone = [mercer.FourierMLP(1, 5, key=k)(jnp.ones(1)) for k in keys]
        np.testing.assert_allclose(many, alone, rtol=1e-10)


def test_scales_and_frequencies_are_constants_whatever_they_are_made_of():
    """A number, an array, or one that is traced: no random parameter, and it can be learned."""
    for scale in (3.0, np.float64(3.0), jnp.asarray(3.0)):
        network = mercer.FourierMLP(
            1, 5, frequency_scale=scale, hidden_scale=scale, readout_scale=scale,
            key=jax.random.key(0),
        )  # fmt: skip
        chosen = random_parameters(network)
        assert not any((chosen.frequencies, chosen.hidden_scale, chosen.readout_scale))
        assert all((chosen.weights[0], chosen.biases[0], chosen.readout))

    def value(scale):
        return mercer.FourierMLP(1, 5, frequency_scale=scale, key=jax.random.key(0))(jnp.ones(1))

    with jax.debug_key_reuse(False):
        slope = jax.jit(jax.grad(value))(3.0)
        numeric = (value(3.0 + 1e-5) - value(3.0 - 1e-5)) / 2e-5
    np.testing.assert_allclose(slope, numeric, rtol=1e-6)


class Wave(eqx.Module):
    """A network of a user's own, with a constant of NumPy's, one of JAX's, and a readout."""

    frequency: jax.Array = mercer.parameters.constant()
    phase: np.ndarray = eqx.field()
    readout: jax.Array = eqx.field()

    def __call__(self, x):
        return jnp.sum(self.readout * jnp.sin(self.frequency * x[0] + self.phase))


def test_what_is_random_is_said_by_the_class_not_by_the_kind_of_array():
    wave = Wave(jnp.ones(3), np.zeros(3), jnp.ones(3))
    chosen = random_parameters({"u": wave, "v": (wave,)})
    for one in (chosen["u"], chosen["v"][0]):
        assert (one.frequency, one.phase, one.readout) == (False, True, True)
    only = mercer.readout_only({"u": wave})["u"]
    assert (only.frequency, only.phase, only.readout) == (False, False, True)


@pytest.mark.parametrize("name", ["sigmoid", "tanh", "relu", "gelu", "softplus", "sin"])
def test_activations_have_names(name):
    function = {"tanh": jnp.tanh, "sin": jnp.sin}.get(name) or getattr(jax.nn, name)
    named = mercer.FourierMLP(1, 5, activation=name, key=jax.random.key(0))
    given = mercer.FourierMLP(1, 5, activation=function, key=jax.random.key(0))
    np.testing.assert_array_equal(named([0.3]), given([0.3]))
    assert jax.tree.structure(named) == jax.tree.structure(given)
    with pytest.raises(ValueError, match="activation must be a function or one of"):
        mercer.FourierMLP(1, 5, activation="sigmund", key=jax.random.key(0))
