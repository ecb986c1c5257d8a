"""Networks that are added up, each with a process of its own: closed forms, and a learned period."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, stats

import mercer
from cases import assert_law
from mercer.diagnostics import ess
from mercer.parameters import features

DOMAIN = mercer.Interval(0.0, 1.0)
GRID = np.linspace(0.05, 0.95, 8)[:, None]
RNG = np.random.default_rng(3)
X = np.sort(RNG.uniform(0.0, 1.0, (25, 1)), axis=0)
Y = np.sin(2 * np.pi * X[:, 0] / 0.3) + 2 * X[:, 0] + 0.3 * RNG.normal(size=25)
PERIOD = mercer.hyper.LogNormal(0.32, 0.15)


@pytest.fixture(autouse=True)
def _allow_key_reuse():
    with jax.debug_key_reuse(False):
        yield


class Harmonics(eqx.Module):
    """A wave of any shape: exactly the functions that a periodic process of this period has."""

    period: jax.Array
    readout: jax.Array

    def __call__(self, x):
        angles = 2 * jnp.pi * jnp.arange(1, 3) * x[0] / self.period
        return jnp.dot(
            self.readout, jnp.concatenate([jnp.ones(1), jnp.cos(angles), jnp.sin(angles)])
        )


KEY = jax.random.key(0)
TREND = {"num_frequencies": 8, "frequency_scale": 3.0, "hidden_scale": 1.0, "readout_scale": 30.0}


def make_posterior(hyper):
    """A season of this period and a trend; hidden layers are as they are drawn."""
    networks = {
        "season": Harmonics(jnp.asarray(hyper["period"]), jnp.zeros(5)),
        "trend": mercer.FourierMLP(1, 16, key=KEY, **TREND),
    }
    energies = {
        "season": mercer.Quadrature(mercer.Periodic(hyper["period"], 0.1, DOMAIN, 2)),
        "trend": mercer.Quadrature(mercer.Matern(2.5, 0.6, 4.0, DOMAIN, 20)),
    }
    prior = mercer.Prior(energies, networks, 10.0, trainable=mercer.readout_only(networks))
    return mercer.Posterior(prior, mercer.Gaussian(0.3), (X, Y), tail="none")


def dense(posterior, points):
    """Mean and covariance at the points, and the evidence, by plain linear algebra."""
    both, parts = np.concatenate([X, points]), []
    for term in posterior.prior.terms(posterior.prior.params):
        slopes = jax.vmap(lambda x, t=term: features(t.network, posterior.prior.where, x))
        law = posterior.prior.readout_law(term)
        white = 10.0 * slopes(jnp.asarray(both))
        parts.append(np.asarray(law.covariance(white)))
    covariance, n = sum(parts), len(X)
    data = covariance[:n, :n] + 0.09 * np.eye(n)
    gain = np.linalg.solve(data, covariance[:n, n:]).T
    evidence = stats.multivariate_normal.logpdf(Y, np.zeros(n), data)
    return gain @ Y, covariance[n:, n:] - gain @ covariance[:n, n:], evidence


def test_a_sum_with_gaussian_noise_is_exact():
    posterior = make_posterior({"period": 0.3})
    frozen = mercer.Frozen(posterior)
    mean, covariance, evidence = dense(posterior, GRID)
    assert frozen.is_exact
    assert float(frozen.log_evidence) == pytest.approx(evidence, abs=1e-6)
    draws = mercer.sample(
        jax.random.key(1), frozen, mercer.exact(), num_draws=2500, num_chains=2, progress=False,
    )  # fmt: skip
    parts = draws.values(GRID)
    values = (parts["season"] + parts["trend"])[None]
    assert_law(values, mean, covariance)


def test_observations_of_a_sum_are_its_values_and_noise(key):
    posterior = make_posterior({"period": 0.3})
    params = posterior.prior.draw(key)
    made = posterior.network(params)
    expected = sum(jax.vmap(one)(jnp.asarray(GRID)) for one in made.values())
    keys = jax.random.split(key, 4000)
    drawn = jax.vmap(lambda k: posterior.draw_observations(k, params, jnp.asarray(GRID)))(keys)
    assert np.all(np.abs(drawn.mean(0) - expected) < 4.5 * 0.3 / np.sqrt(4000))
    assert np.all(np.abs(drawn.std(0) / 0.3 - 1) < 4.5 / np.sqrt(2 * 4000))
    terms = stats.norm.logpdf(Y, sum(jax.vmap(one)(jnp.asarray(X)) for one in made.values()), 0.3)
    np.testing.assert_allclose(posterior.row_terms(params), terms, rtol=1e-8)


def process_evidence(period):
    """log p(y | period) of the process itself, by its kernels."""
    parts = mercer.Periodic(period, 0.1, DOMAIN, 2), mercer.Matern(2.5, 0.6, 4.0, DOMAIN, 20)
    pairs = jax.vmap(
        lambda s: jax.vmap(lambda t: sum(part.kernel(s, t) for part in parts))(jnp.asarray(X))
    )(jnp.asarray(X))
    data = pairs + 0.09 * jnp.eye(len(X))
    return jax.scipy.stats.multivariate_normal.logpdf(jnp.asarray(Y), jnp.zeros(len(Y)), data)


@pytest.mark.slow
@pytest.mark.optimised
def test_a_period_is_learned_beside_a_trend():
    """Parameters and the period by HMC, against the evidence of the processes on a grid."""
    joint = mercer.hyper.Joint(
        lambda hyper: mercer.NonCentred(make_posterior(hyper)), {"period": PERIOD}
    )
    axis = np.linspace(-2, 1.5, 351)
    logs = jax.jit(jax.vmap(lambda z: process_evidence(PERIOD(z))))(jnp.asarray(axis))
    weights = np.exp(logs - 0.5 * axis**2 - np.max(logs))
    assert max(weights[0], weights[-1]) < 1e-8 * weights.max()
    grown = integrate.cumulative_trapezoid(weights, axis, initial=0)
    starts = jax.tree.map(lambda leaf: jnp.zeros((4, *leaf.shape)), joint.params)
    draws = mercer.sample(
        jax.random.key(4), joint, mercer.hmc(6, adaptation="step", initial_step=0.2),
        num_draws=200, num_warmup=60, num_chains=4, init=starts, progress=False,
        record=lambda p: p["hyper"]["period"], keep_params=True,
    )  # fmt: skip
    values = draws.recorded
    every = int(np.ceil(values.size / ess(values[..., None])[0]))
    assert every <= 5
    exact = functools.partial(np.interp, xp=axis, fp=grown / grown[-1])
    assert stats.kstest(values[:, ::every].ravel(), exact).pvalue > 0.01
    found = draws.hyper["period"]
    np.testing.assert_allclose(found, PERIOD(jnp.asarray(values)), rtol=1e-9)
    assert np.all(np.abs(found - 0.3) < 0.03)
