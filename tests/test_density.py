"""The prior against closed forms that share no code with it."""

import warnings

import blackjax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree
from scipy import stats

import mercer
from cases import DOMAIN, Polynomial, small_network
from mercer.diagnostics import ess
from mercer.parameters import random_parameters


def test_linear_prior_is_the_gaussian_it_should_be(oracle_case):
    prior, _, oracle = oracle_case
    assert prior.normalised
    exact = stats.multivariate_normal(oracle.center, np.linalg.inv(oracle.precision))
    for w in np.random.default_rng(1).normal(size=(5, 4)):
        np.testing.assert_allclose(prior(Polynomial(jnp.asarray(w))), exact.logpdf(w), rtol=1e-8)


def test_exact_draws_of_the_linear_prior(oracle_case):
    prior, _, oracle = oracle_case
    keys = jax.random.split(jax.random.key(3), 20_000)
    draws = np.asarray(jax.vmap(lambda k: prior.draw(k).readout)(keys))
    white = (draws - oracle.center) @ np.linalg.cholesky(oracle.precision)
    assert np.all(np.abs(white.mean(0)) < 4 / np.sqrt(len(white)))
    error = np.cov(white.T) - np.eye(4)
    assert np.all(np.abs(error) < 4 * np.sqrt((1 + np.eye(4)) / len(white)))
    assert all(stats.kstest(column, "norm").pvalue > 1e-3 for column in white.T)


@pytest.mark.slow
@pytest.mark.optimised
def test_nuts_on_the_normalised_density_has_the_law_of_exact_draws():
    prior = mercer.Prior(mercer.Quadrature(mercer.BrownianMotion(6, DOMAIN)), small_network(4))
    grid = jnp.linspace(0.6, 2.0, 5)[:, None]

    def values(params):
        return jax.vmap(prior.network(params))(grid)

    exact = np.asarray(
        jax.vmap(lambda k: values(prior.draw(k)))(jax.random.split(jax.random.key(0), 4000))
    )

    def chain(key):
        start_key, warm_key, run_key = jax.random.split(key, 3)
        warmup = blackjax.window_adaptation(blackjax.nuts, prior)
        (state, parameters), _ = warmup.run(warm_key, prior.draw(start_key), 300)
        kernel = blackjax.nuts(prior, **parameters).step

        def step(state, key):
            state, _ = kernel(key, state)
            return state, values(state.position)

        return jax.lax.scan(step, state, jax.random.split(run_key, 4000))[1]

    with jax.debug_key_reuse(False):  # BlackJAX's adaptation does not pass that check
        chains = np.asarray(jax.vmap(chain)(jax.random.split(jax.random.key(1), 4)))
    # Nearly independent, which is what the test of Kolmogorov and Smirnov takes them for.
    every = int(np.ceil(2 * chains[..., 0].size / ess(chains, "mean").min()))
    assert every < 200
    thinned = chains[:, ::every].reshape(-1, 5)
    for ours, theirs in zip(thinned.T, exact.T, strict=True):
        assert stats.ks_2samp(ours, theirs).pvalue > 1e-3
    ratio = chains.reshape(-1, 5).var(0) / exact.var(0)
    assert np.all(np.abs(np.log(ratio)) < 0.25)


def test_mean_shifts_the_process():
    prior = mercer.Prior(
        mercer.Quadrature(mercer.BrownianMotion(40, DOMAIN)),
        small_network(60, readout_scale=100.0),
        mean=lambda x: 2.0 * (x[0] - 0.5),
    )
    draws = jax.vmap(lambda k: prior.network(prior.draw(k))(jnp.array([1.5])))
    values = np.asarray(draws(jax.random.split(jax.random.key(0), 2000)))
    assert abs(values.mean() - 2.0) < 0.2


def test_pytree_of_networks_adds_energies():
    first = mercer.Quadrature(mercer.BrownianMotion(10, DOMAIN))
    second = mercer.Quadrature(mercer.Matern(1.5, 0.4, 1.0, DOMAIN, 12))
    networks = {
        "mean": small_network(6),
        "scale": mercer.FourierMLP(1, 5, num_frequencies=2, key=jax.random.key(1), domain=DOMAIN),
    }
    both = mercer.Prior({"mean": first, "scale": second}, networks)
    alone = [mercer.Prior(first, networks["mean"]), mercer.Prior(second, networks["scale"])]
    np.testing.assert_allclose(both(both.params), sum(p(p.params) for p in alone), rtol=1e-10)
    drawn = both.network(both.draw(jax.random.key(0)))
    assert set(drawn) == {"mean", "scale"}
    results = mercer.fidelity(both)
    # Of the same hidden layer: the averages over hidden layers are over others.
    apart = mercer.fidelity(alone[1])
    np.testing.assert_allclose(results["scale"].covariance, apart.covariance, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(results["scale"].max_error, apart.max_error, rtol=1e-9)


def test_network_with_no_energy_has_the_reference_alone():
    networks = {"u": small_network(4), "v": small_network(3, seed=1)}
    energy = mercer.Quadrature(mercer.BrownianMotion(10, DOMAIN))
    prior = mercer.Prior({"u": energy, "v": None}, networks)
    alone = mercer.Prior(energy, networks["u"])
    flat = ravel_pytree(eqx.filter(networks["v"], random_parameters(networks["v"])))[0]
    expected = alone(alone.params) + jnp.sum(jax.scipy.stats.norm.logpdf(flat))
    np.testing.assert_allclose(prior(prior.params), expected, rtol=1e-10)


def test_trainable_filter_freezes_the_hidden_layer():
    network = small_network(15)
    frozen = jax.tree.map(lambda _: False, network)
    only_readout = eqx.tree_at(lambda n: n.readout, frozen, True)
    prior = mercer.Prior(
        mercer.Quadrature(mercer.BrownianMotion(10, DOMAIN)), network, trainable=only_readout
    )
    assert [leaf.shape for leaf in jax.tree.leaves(prior.params)] == [(15,)]
    drawn = prior.network(prior.draw(jax.random.key(0)))
    np.testing.assert_array_equal(drawn.weights[0], network.weights[0])
    assert not np.allclose(drawn.readout, network.readout)


def test_any_equinox_module_works():
    class Wrapped(eqx.Module):
        mlp: eqx.nn.MLP

        def __call__(self, x):
            return (x[0] - 0.5) * self.mlp(x)[0]

    network = Wrapped(eqx.nn.MLP(1, 1, 16, 1, jnp.tanh, key=jax.random.key(0)))
    energy = mercer.Quadrature(mercer.BrownianMotion(20, DOMAIN))
    plain = mercer.Prior(energy, network)
    assert not plain.normalised
    assert not plain.is_exact
    assert np.isfinite(plain(plain.init(jax.random.key(1))))
    with pytest.raises(ValueError, match="not linear in its readout"):
        plain.draw(jax.random.key(1))
    prior = mercer.Prior(
        energy, network, readout=lambda n: (n.mlp.layers[-1].weight, n.mlp.layers[-1].bias)
    )
    assert prior.normalised
    assert np.isfinite(prior(prior.draw(jax.random.key(1))))


@pytest.mark.float32
def test_gradient_is_finite_in_the_floats_at_hand():
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "with 32-bit floats")
        prior = mercer.Prior(
            mercer.Quadrature(mercer.BrownianMotion(50, DOMAIN)), small_network(30)
        )
    assert prior.normalised == jax.config.read("jax_enable_x64")
    slope = jax.grad(prior)(prior.params)
    assert all(bool(jnp.all(jnp.isfinite(leaf))) for leaf in jax.tree.leaves(slope))


def test_densities_go_through_jit_as_functions():
    prior = mercer.Prior(mercer.Quadrature(mercer.BrownianMotion(10, DOMAIN)), small_network(5))
    np.testing.assert_allclose(jax.jit(prior)(prior.params), prior(prior.params), rtol=1e-10)
    drawn = jax.jit(prior.draw)(jax.random.key(0))
    again = eqx.filter_jit(lambda p, params: p(params))(prior, drawn)
    np.testing.assert_allclose(again, prior(drawn), rtol=1e-10)


def test_printed_density_is_improper_and_says_so():
    energy = mercer.Quadrature(mercer.BrownianMotion(10, DOMAIN))
    with pytest.warns(UserWarning, match="improper"):
        prior = mercer.Prior(energy, small_network(5), reference=None)
    assert not prior.normalised
    np.testing.assert_allclose(
        prior(prior.params), -energy(prior.network(prior.params)), rtol=1e-12
    )
