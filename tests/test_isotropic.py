"""Networks with independent Gaussian parameters, as a density like any other."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree
from scipy import stats

import mercer
from cases import DOMAIN, Polynomial
from mercer import MLP, IsotropicPrior, diagnostics


@pytest.fixture
def linear_case():
    """A network linear in its parameters: prior N(0, 4), data, and the posterior's mean and sd."""
    rng = np.random.default_rng(1)
    x = rng.uniform(0.5, 2.0, 9)
    y = np.sin(x) + 0.2 * rng.normal(size=9)
    prior = IsotropicPrior(Polynomial(jnp.zeros(4)), scale=2.0)
    posterior = mercer.Posterior(prior, mercer.Gaussian(0.2), (x[:, None], y))
    t = x - 0.5
    features = np.stack([t, t**2, np.sin(3 * t), t * np.exp(-t)], -1)
    precision = np.eye(4) / 4 + features.T @ features / 0.04
    mean = np.linalg.solve(precision, features.T @ (y - t**2) / 0.04)
    return posterior, mean, np.linalg.inv(precision)


def test_density_is_that_of_independent_normals(key):
    prior = IsotropicPrior(MLP(2, width=5, depth=2, key=key), scale=0.7)
    params = prior.draw(jax.random.key(1))
    flat = np.asarray(ravel_pytree(params)[0])
    assert flat.size == 2 * 5 + 5 * 5 + 5 + 5 + 5 + 1
    np.testing.assert_allclose(prior(params), stats.norm.logpdf(flat, 0, 0.7).sum(), rtol=1e-12)
    np.testing.assert_allclose(prior(params, prior.batch(jax.random.key(7))), prior(params))
    assert prior.is_deterministic


def test_draws_have_the_moments_of_the_prior(key):
    prior = IsotropicPrior(MLP(1, width=4, depth=1, key=key), scale=1.5)
    draws = mercer.sample(
        jax.random.key(2), prior, mercer.exact(), num_draws=2_000, num_warmup=0, num_chains=2,
        record=lambda p: ravel_pytree(p)[0], progress=False,
    )  # fmt: skip
    flat = draws.recorded.reshape(4_000, -1)
    assert np.all(np.abs(flat.mean(0)) < 4.5 * 1.5 / np.sqrt(4_000))
    assert np.all(np.abs(flat.var(0) / 2.25 - 1) < 4.5 * np.sqrt(2 / 4_000))


def test_weights_have_the_variance_of_one_over_the_inputs(key):
    network = MLP(3, width=400, depth=1, key=key, activation=lambda x: x)
    prior = IsotropicPrior(network)
    x = jnp.array([0.9, 0.2, 0.5])

    def value(one):
        return prior.network(prior.draw(one))(x)

    values = np.asarray(jax.lax.map(value, jax.random.split(jax.random.key(3), 3_000)))
    # Var of the readout's sum is that of a unit, |2x − 1|²/3 + 1, and the offset adds one.
    exact = np.sum((2 * np.asarray(x) - 1) ** 2) / 3 + 2
    assert abs(values.var() / exact - 1) < 4.5 * np.sqrt(2 / 3_000)


def test_nuts_finds_the_posterior_of_a_linear_network(linear_case):
    posterior, mean, covariance = linear_case
    with jax.debug_key_reuse(False):  # BlackJAX's samplers do not pass that check
        draws = mercer.sample(
            jax.random.key(4), posterior, mercer.nuts(), num_draws=1_000, num_warmup=500,
            record=lambda p: p.readout, progress=False,
        )  # fmt: skip
    values = draws.recorded
    effective = diagnostics.ess(values, "mean")
    sd = np.sqrt(np.diag(covariance))
    assert np.all(np.abs(values.mean((0, 1)) - mean) < 4.5 * sd / np.sqrt(effective))
    spread = values.reshape(-1, 4).std(0) / sd
    assert np.all(np.abs(spread - 1) < 4.5 / np.sqrt(2 * diagnostics.ess(values**2, "mean").min()))


def test_chains_and_predictions_without_a_record(key):
    posterior = mercer.Posterior(
        IsotropicPrior(MLP(1, width=4, depth=2, key=key, domain=DOMAIN)),
        mercer.Gaussian(mercer.hyper.LogNormal(0.1, 0.5)),
        (jnp.array([[0.6], [1.0], [1.9]]), jnp.array([0.0, 0.4, -0.2])),
    )
    with jax.debug_key_reuse(False):
        draws = mercer.sample(
            jax.random.key(5), posterior, mercer.hmc(3), num_draws=20, num_warmup=0, num_chains=2,
            progress=False,
        )  # fmt: skip
    assert set(draws.recorded) == {"parameters", "norm", "values", "scale"}
    np.testing.assert_allclose(draws.recorded["scale"], draws.likelihood["scale"], rtol=1e-9)
    assert np.isfinite(draws.predict([[0.7], [2.5]]).mean).all()  # beyond the domain, too
    assert draws.log_densities([[0.7]], [0.1]).shape == (40, 1)


def test_stochastic_gradients_take_batches(key):
    data = jnp.linspace(0, 1, 12)[:, None], jnp.zeros(12)
    prior = IsotropicPrior(MLP(1, width=4, depth=1, key=key))
    posterior = mercer.Posterior(prior, mercer.Gaussian(0.5), data, batch_size=4)
    with jax.debug_key_reuse(False):
        draws = mercer.sample(
            jax.random.key(6), posterior, mercer.sgld(1e-4), num_draws=10, num_warmup=0,
            num_chains=2, progress=False,
        )  # fmt: skip
    assert np.isfinite(draws.recorded["norm"]).all()


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda key: MLP(1, width=0, key=key), "width must be at least 1"),
        (lambda key: MLP(1, key=key, weight_scale=0.0), "weight_scale must be positive"),
        (lambda key: MLP(2, key=key, domain=DOMAIN), "domain must be a Box in 2 dimensions"),
        (lambda key: IsotropicPrior(MLP(1, key=key), scale=-1.0), "scale must be positive"),
        (lambda key: IsotropicPrior(MLP(1, key=key), trainable=lambda leaf: False), "is random"),
        (lambda key: mercer.fidelity(IsotropicPrior(MLP(1, key=key))), "no energy"),
    ],
)
def test_mistakes_are_named(make, words, key):
    with pytest.raises(ValueError, match=words):
        make(key)


def test_a_posterior_needs_one_column_an_input(linear_case, key):
    prior = IsotropicPrior(MLP(1, width=4, key=key))
    with pytest.raises(ValueError, match="X has 2 columns, the network takes 1"):
        mercer.Posterior(prior, mercer.Gaussian(0.1), (jnp.zeros((3, 2)), jnp.zeros(3)))
    with pytest.raises(ValueError, match="no energy"):
        mercer.Frozen(linear_case[0])
