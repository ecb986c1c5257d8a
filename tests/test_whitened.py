"""A frozen hidden layer: the Gaussian latent, exact draws, and the evidence."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import mercer
from cases import assert_law
from mercer.diagnostics import ess


@pytest.fixture(autouse=True)
def _allow_key_reuse():
    with jax.debug_key_reuse(False):
        yield


def make(width=40, modes=60, likelihood=None, targets=None, noise=0.1, mean=None):
    spectrum = (mercer.Laplacian(mercer.Interval(0, 1), modes) ** 2).with_variance(1.0)
    network = mercer.FourierMLP(
        1, width, num_frequencies=8, frequency_scale=5.0, boundary="dirichlet",
        key=jax.random.key(0), hidden_scale=2.0, saturation=0.1,
    )  # fmt: skip
    prior = mercer.Prior(mercer.Quadrature(spectrum), network, mean=mean)
    rng = np.random.default_rng(0)
    x = rng.uniform(0.05, 0.6, (15, 1))
    y = np.sin(6 * x[:, 0]) + 0.1 * rng.normal(size=15) if targets is None else targets(x[:, 0])
    return mercer.Posterior(prior, likelihood or mercer.Gaussian(noise), (x, y))


def dense(posterior, grid):
    """Posterior mean and covariance at the grid, and the evidence, by plain linear algebra."""
    prior = posterior.prior
    law = prior.readout_law(prior.terms(prior.params)[0])
    network = prior.network(prior.params)
    both = np.concatenate([np.asarray(posterior.inputs), grid])
    slopes = np.asarray(
        jax.vmap(
            jax.jacobian(lambda w, x: eqx.tree_at(lambda n: n.readout, network, w)(x)),
            (None, 0),
        )(network.readout, jnp.asarray(both))
    )
    prior_mean, covariance = (
        slopes @ np.asarray(law.mean()),
        np.asarray(law.covariance(jnp.asarray(slopes))),
    )
    n, noise = len(posterior.inputs), np.asarray(posterior.likelihood.scale) ** 2
    data = covariance[:n, :n] + np.diag(np.broadcast_to(noise, n))
    residual = np.asarray(posterior.targets) - prior_mean[:n]
    gain = np.linalg.solve(data, covariance[:n, n:]).T
    evidence = stats.multivariate_normal.logpdf(residual, np.zeros(n), data)
    return (
        prior_mean[n:] + gain @ residual,
        covariance[n:, n:] - gain @ covariance[:n, n:],
        evidence,
    )


GRID = np.linspace(0.03, 0.97, 12)[:, None]


@pytest.mark.parametrize("width", [40, 90], ids=["narrow", "wide"])
@pytest.mark.parametrize("noise", [0.1, np.linspace(0.05, 0.3, 15)], ids=["one", "a row"])
def test_gaussian_posterior_is_exact(width, noise):
    posterior = make(width, noise=noise, mean=lambda x: 0.5 * jnp.sin(jnp.pi * x[0]))
    frozen = mercer.Whitened(posterior)
    mean, covariance, evidence = dense(posterior, GRID)
    assert frozen.is_exact
    assert float(frozen.log_evidence) == pytest.approx(evidence, abs=1e-6)
    draws = mercer.sample(
        jax.random.key(1), frozen, mercer.exact(), num_draws=5000, num_chains=2, progress=False,
        record=lambda p: jax.vmap(frozen.network(p))(jnp.asarray(GRID)),
    )  # fmt: skip
    values = np.asarray(draws.recorded)
    assert_law(values, mean, covariance)


def test_nuts_takes_few_steps_in_the_latent_and_is_right():
    posterior = make()
    frozen = mercer.Whitened(posterior)
    mean, covariance, _ = dense(posterior, GRID)
    draws = mercer.sample(
        jax.random.key(2), frozen, mercer.nuts(), num_draws=1500, num_warmup=400, num_chains=2,
        record=lambda p: jax.vmap(frozen.network(p))(jnp.asarray(GRID)), progress=False,
    )  # fmt: skip
    values = np.asarray(draws.recorded)
    z = (values.mean((0, 1)) - mean) / np.sqrt(np.diag(covariance)) * np.sqrt(ess(values, "mean"))
    assert np.max(np.abs(z)) < 4
    assert np.mean(draws.statistics["num_gradients"]) < 40


def test_whitened_density_is_the_posterior_of_the_readout():
    """Log densities differ by the constant of the change of variables alone."""
    posterior = make(likelihood=mercer.StudentT(4.0, mercer.LogNormal(0.1, 0.5)))
    frozen = mercer.Whitened(posterior)
    keys = jax.random.split(jax.random.key(3), 5)
    gaps = []
    for k in keys:
        z = frozen.draw(k)
        full = {"network": frozen.network_params(z), "likelihood": z["likelihood"]}
        gaps.append(float(frozen(z) - posterior(full)))
    np.testing.assert_allclose(gaps, gaps[0], rtol=1e-8)
    assert not frozen.is_exact
    with pytest.raises(ValueError, match="the evidence is known for"):
        _ = frozen.log_evidence


def test_two_networks_and_a_forward_map(key):
    scale = make().prior
    networks = {"mean": scale.network(scale.params), "scale": scale.network(scale.params)}
    prior = mercer.Prior(scale.energy, networks)
    x = np.linspace(0.1, 0.9, 10)[:, None]
    both = mercer.Whitened(
        mercer.Posterior(prior, mercer.Heteroscedastic(), (x, np.sin(6 * x[:, 0])))
    )
    z = both.draw(key)
    through = both.posterior.row_terms(both.network_params(z))
    np.testing.assert_allclose(both.row_terms(z), through, rtol=1e-8)
    integral = mercer.Gaussian(0.1, observe=lambda u, x: jnp.cumsum(jax.vmap(u)(x)))
    mapped = mercer.Whitened(mercer.Posterior(scale, integral, (x, np.zeros(10))))
    assert not mapped.is_exact
    assert np.isfinite(float(mapped(mapped.draw(key))))


def test_minibatches_are_unbiased(key):
    posterior = make()
    small = mercer.Whitened(
        mercer.Posterior(posterior.prior, posterior.likelihood,
                         (posterior.inputs, posterior.targets), batch_size=5)
    )  # fmt: skip
    whole = mercer.Whitened(posterior)
    z = whole.draw(key)
    estimates = jax.vmap(lambda k: small(z, small.batch(k)))(jax.random.split(key, 4000))
    z_score = (estimates.mean() - whole(z)) / (estimates.std() / np.sqrt(4000))
    assert abs(float(z_score)) < 4
    with pytest.raises(ValueError, match="minibatches"):
        small(z)
