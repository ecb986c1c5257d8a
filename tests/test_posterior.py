"""Posteriors and likelihoods against closed forms and SciPy."""

import blackjax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import mercer
from cases import DOMAIN, Polynomial, small_network


def test_linear_posterior_and_evidence(oracle_case):
    _, posterior, oracle = oracle_case
    exact = stats.multivariate_normal(
        oracle.posterior_mean, np.linalg.inv(oracle.posterior_precision)
    )
    for w in np.random.default_rng(2).normal(size=(5, 4)):
        # log p(w, y) − log p(w | y) is the log evidence, whatever w.
        evidence = posterior(Polynomial(jnp.asarray(w))) - exact.logpdf(w)
        np.testing.assert_allclose(evidence, oracle.log_evidence, rtol=1e-8)


@pytest.mark.float32
def test_posterior_minibatches_are_unbiased():
    rng = np.random.default_rng(0)
    x, y = rng.uniform(0.5, 2.0, (40, 1)), rng.normal(size=40)
    spectrum = mercer.BrownianMotion(10, DOMAIN)
    prior = mercer.Prior(mercer.Lattice(spectrum, 64), small_network(5))
    full = mercer.Posterior(prior, mercer.Gaussian(np.linspace(0.5, 1.0, 40)), (x, y))
    small = mercer.Posterior(
        prior, mercer.Gaussian(np.linspace(0.5, 1.0, 40)), (x, y), batch_size=7
    )
    exact = float(full.log_likelihood(prior.params))
    keys = jax.random.split(jax.random.key(0), 4000)
    values = np.asarray(
        jax.vmap(lambda k: small.log_likelihood(prior.params, small.batch(k).rows))(keys)
    )
    z = (values.mean() - exact) / (values.std() / np.sqrt(values.size))
    assert abs(z) < 4
    assert np.isfinite(small(prior.params, small.batch(jax.random.key(1))))


def likelihood_judges():
    rng = np.random.default_rng(3)
    u = rng.normal(size=6)
    y, ones, counts = rng.normal(size=6), rng.integers(0, 2, 6), rng.integers(0, 5, 6)
    p = 1 / (1 + np.exp(-u))
    return [
        (mercer.Gaussian(0.4), u, y, stats.norm.logpdf(y, u, 0.4)),
        (mercer.Gaussian(np.arange(1.0, 7.0)), u, y, stats.norm.logpdf(y, u, np.arange(1.0, 7.0))),
        (mercer.StudentT(4.0, 0.3), u, y, stats.t.logpdf(y, 4.0, u, 0.3)),
        (mercer.Bernoulli(), u, ones, stats.bernoulli.logpmf(ones, p)),
        (mercer.Poisson(), u, counts, stats.poisson.logpmf(counts, np.exp(u))),
        (
            mercer.Heteroscedastic(),
            {"mean": u, "scale": u[::-1]},
            y,
            stats.norm.logpdf(y, u, np.log1p(np.exp(u[::-1]))),
        ),
    ]


@pytest.mark.parametrize("case", likelihood_judges(), ids=lambda case: type(case[0]).__name__)
def test_likelihoods_are_scipys(case):
    likelihood, predicted, targets, judged = case
    predicted = jax.tree.map(jnp.asarray, predicted)
    np.testing.assert_allclose(
        likelihood.log_prob(predicted, jnp.asarray(targets)), judged, rtol=1e-10
    )


def test_learned_noise_is_a_parameter_with_a_log_normal_prior(oracle_case):
    prior, known, _ = oracle_case
    noise = mercer.hyper.LogNormal(median=0.2, spread=0.5)
    data = known.inputs, known.targets
    posterior = mercer.Posterior(prior, mercer.Gaussian(noise), data, tail="none")
    assert set(posterior.params) == {"network", "likelihood"}
    z = np.log(0.1 / 0.2) / 0.5
    params = {"network": prior.params, "likelihood": {"scale": jnp.asarray(z)}}
    expected = known(prior.params) + stats.norm.logpdf(z)
    np.testing.assert_allclose(posterior(params), expected, rtol=1e-10)
    assert float(posterior.watch(params)["scale"]) == pytest.approx(0.1)
    start = posterior.init(jax.random.key(0))
    assert jax.tree.structure(start) == jax.tree.structure(posterior.params)


def test_forward_map_may_be_anything():
    x = np.zeros((2, 1)) + 100.0  # not points of the domain: the forward map knows what they are
    prior = mercer.Prior(mercer.Quadrature(mercer.BrownianMotion(10, DOMAIN)), small_network(5))

    def integral(u, inputs):
        nodes, weights = DOMAIN.quadrature(20)
        return jnp.sum(weights * jax.vmap(u)(nodes)) * jnp.ones(inputs.shape[0])

    posterior = mercer.Posterior(prior, mercer.Gaussian(1.0, observe=integral), (x, np.zeros(2)))
    assert np.isfinite(posterior(posterior.params))


@pytest.mark.parametrize(
    "likelihood",
    [
        mercer.Gaussian(0.3),
        mercer.StudentT(4.0, mercer.hyper.LogNormal(0.3, 0.5)),
        mercer.Bernoulli(),
        mercer.Poisson(),
        mercer.Heteroscedastic(),
    ],
    ids=lambda likelihood: type(likelihood).__name__,
)
def test_every_likelihood_makes_a_posterior(likelihood):
    energy = mercer.Quadrature(mercer.BrownianMotion(10, DOMAIN))
    network = small_network(5)
    if isinstance(likelihood, mercer.Heteroscedastic):
        network = {"mean": network, "scale": small_network(4, seed=1)}
    prior = mercer.Prior(energy, network)
    x, y = np.linspace(0.6, 1.9, 6)[:, None], np.array([0, 1, 1, 0, 1, 0])
    full = mercer.Posterior(prior, likelihood, (x, y))
    cut = mercer.Posterior(prior, likelihood, (x, y), batch_size=6)
    params = full.init(jax.random.key(0))
    value = full(params)
    np.testing.assert_allclose(cut(params, cut.batch(jax.random.key(1))), value, rtol=1e-10)
    assert np.isfinite(value)


def test_minibatches_leave_the_forward_map_alone():
    class Weighted(eqx.Module):
        weights: jax.Array

        def __call__(self, u, inputs):
            return jnp.sum(self.weights) * jax.vmap(u)(inputs)

    prior = mercer.Prior(mercer.Quadrature(mercer.BrownianMotion(10, DOMAIN)), small_network(5))
    data = np.linspace(0.6, 1.9, 5)[:, None], np.zeros(5)
    likelihood = mercer.Gaussian(0.5, observe=Weighted(jnp.arange(5.0)))
    cut = mercer.Posterior(prior, likelihood, data, batch_size=5)
    rows = cut.batch(jax.random.key(0)).rows
    np.testing.assert_allclose(
        cut.log_likelihood(prior.params, rows), cut.log_likelihood(prior.params), rtol=1e-10
    )


def test_blackjax_takes_the_gradient_as_it_is():
    """The contract: jax.grad(density) with density.batch(key), no adapter."""
    rng = np.random.default_rng(0)
    prior = mercer.Prior(mercer.Lattice(mercer.BrownianMotion(10, DOMAIN), 64), small_network(5))
    data = rng.uniform(0.5, 2.0, (40, 1)), rng.normal(size=40)
    posterior = mercer.Posterior(prior, mercer.Gaussian(0.5), data, batch_size=8)
    algorithm = blackjax.sgld(jax.grad(posterior))
    batch_key, step_key = jax.random.split(jax.random.key(0))
    moved = algorithm.step(step_key, posterior.params, posterior.batch(batch_key), 1e-5)
    assert jax.tree.structure(moved) == jax.tree.structure(posterior.params)
    assert all(bool(jnp.all(jnp.isfinite(leaf))) for leaf in jax.tree.leaves(moved))
