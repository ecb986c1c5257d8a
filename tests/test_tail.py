"""The part of the process that a network's units leave out: its variance, in the noise and in predictions."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import mercer
from mercer.fidelity import network_covariance

POINTS = np.linspace(0.05, 1.0, 9)[:, None]
INPUTS = np.random.default_rng(0).uniform(0.05, 1.0, (14, 1))
TARGETS = np.sin(5 * INPUTS[:, 0])
BROWNIAN = mercer.BrownianMotion(40)
ENERGIES = {
    "modes": (mercer.Quadrature(BROWNIAN), lambda t: t),
    "nodes": (mercer.Nodes("matern12", np.linspace(0, 1, 30)[:, None]), np.ones_like),
    "nodes of a spectrum": (mercer.Nodes(BROWNIAN, np.linspace(0.1, 1, 30)[:, None]), lambda t: t),
}


@pytest.fixture(autouse=True)
def _allow_key_reuse():
    with jax.debug_key_reuse(False):
        yield


def make_prior(energy, width=12, reference=2.0):
    network = mercer.FourierMLP(
        1, width, num_frequencies=4, boundary=("dirichlet", "neumann"), key=jax.random.key(0)
    )
    return mercer.Prior(energy, network, reference)


def make_posterior(likelihood, tail="independent", energy="modes", **options):
    prior = make_prior(ENERGIES[energy][0])
    return mercer.Posterior(prior, likelihood, (INPUTS, TARGETS), tail=tail, **options)


def network_kernel(prior, points):
    """Covariance of the network: features times the readout's, whose precision is written out."""
    network, points = prior.network(prior.params), jnp.asarray(points)

    def values(readout, x):
        return jax.vmap(eqx.tree_at(lambda n: n.readout, network, readout))(x)

    slopes = jax.jacobian(values)
    whitened = prior.energy.whiten(slopes(network.readout, prior.energy.points))
    precision = np.eye(network.width) / prior.reference**2 + whitened.T @ whitened
    here = np.asarray(slopes(network.readout, points))
    return here @ np.linalg.solve(precision, here.T)


@pytest.mark.parametrize("name", ENERGIES)
def test_tail_is_the_variance_of_the_process_less_the_networks(name):
    energy, variance = ENERGIES[name]
    prior = make_prior(energy)
    posterior = mercer.Posterior(prior, mercer.Gaussian(0.1), (INPUTS, TARGETS))
    for points in (POINTS, INPUTS):
        kept = np.diag(network_kernel(prior, points))
        exact = np.maximum(variance(points[:, 0]) - kept, 0)
        assert exact.max() > 0.01
        found = posterior.tail_variances(jnp.asarray(points))
        np.testing.assert_allclose(found, exact, atol=1e-7)
    np.testing.assert_allclose(posterior.tail_rows, exact, atol=1e-7)
    (term,) = prior.terms(prior.params)
    np.testing.assert_allclose(
        network_kernel(prior, POINTS), network_covariance(prior, term, jnp.asarray(POINTS)),
        atol=1e-7,
    )  # fmt: skip


def given(posterior, tail):
    """Mean, variance and evidence of the network given data, noise² + tail at each row."""
    points = np.concatenate([INPUTS, POINTS])
    covariance, n = network_kernel(posterior.prior, points), len(INPUTS)
    data = covariance[:n, :n] + np.diag(posterior.likelihood.scale**2 + tail * np.ones(n))
    gain = np.linalg.solve(data, covariance[:n, n:]).T
    evidence = stats.multivariate_normal.logpdf(TARGETS, np.zeros(n), data)
    return gain @ TARGETS, np.diag(covariance[n:, n:] - gain @ covariance[:n, n:]), evidence


@pytest.mark.parametrize("noise", [0.1, np.linspace(0.05, 0.3, 14)], ids=["one", "a row"])
@pytest.mark.parametrize("energy", ENERGIES)
def test_with_gaussian_noise_the_posterior_is_linear_algebra(energy, noise):
    posterior = make_posterior(mercer.Gaussian(noise), energy=energy)
    process = ENERGIES[energy][1]
    tail = np.maximum(process(INPUTS[:, 0]) - np.diag(network_kernel(posterior.prior, INPUTS)), 0)
    there = np.maximum(process(POINTS[:, 0]) - np.diag(network_kernel(posterior.prior, POINTS)), 0)
    mean, variance, evidence = given(posterior, tail)
    frozen = mercer.Frozen(posterior)
    np.testing.assert_allclose(frozen.log_evidence, evidence, atol=1e-5)
    found, spread = frozen.moments(jnp.asarray(POINTS))
    np.testing.assert_allclose(found, mean, atol=1e-5)
    np.testing.assert_allclose(spread, variance + there, atol=1e-5)


def test_row_terms_have_the_tail_in_their_noise():
    posterior = make_posterior(mercer.Gaussian(0.1))
    params = posterior.init(jax.random.key(0))
    values = jax.vmap(posterior.network(params))(jnp.asarray(INPUTS))
    scale = np.sqrt(0.01 + np.asarray(posterior.tail_rows))
    np.testing.assert_allclose(
        posterior.row_terms(params), stats.norm.logpdf(TARGETS, values, scale), rtol=1e-9
    )
    chosen = jnp.array([3, 1, 8])
    np.testing.assert_allclose(
        posterior.row_terms(params, chosen), posterior.row_terms(params)[chosen], rtol=1e-9
    )


def test_the_tail_of_a_learned_noise_and_of_a_network_of_scales():
    """Noise² + tail, whatever tells the noise: of the mean alone where another network does."""
    posterior = make_posterior(mercer.Gaussian(mercer.hyper.LogNormal(0.2, 0.5)))
    params = posterior.params | {"likelihood": {"scale": jnp.asarray(1.0)}}
    scale = np.sqrt((0.2 * np.exp(0.5)) ** 2 + np.asarray(posterior.tail_rows))
    np.testing.assert_allclose(posterior.row_likelihood(params).scale, scale, rtol=1e-9)
    single = make_prior(ENERGIES["modes"][0])
    networks = dict.fromkeys(("mean", "scale"), single.network(single.params))
    prior = mercer.Prior(ENERGIES["modes"][0], networks, 2.0)
    both = mercer.Posterior(prior, mercer.Heteroscedastic(jnp.exp), (INPUTS, TARGETS))
    np.testing.assert_allclose(both.tail_rows, posterior.tail_rows, atol=1e-12)
    values = jax.vmap(both.network(both.params)["mean"])(jnp.asarray(INPUTS))
    wide = np.sqrt(np.exp(2 * np.asarray(values)) + np.asarray(both.tail_rows))
    terms = stats.norm.logpdf(TARGETS, values, wide)
    np.testing.assert_allclose(both.row_terms(both.params), terms, rtol=1e-9)


def test_tails_of_a_sum_add_up():
    single = make_prior(ENERGIES["modes"][0])
    networks = dict.fromkeys("uv", single.network(single.params))
    energies = {"u": ENERGIES["modes"][0], "v": ENERGIES["nodes"][0]}
    prior = mercer.Prior(energies, networks, 2.0)
    posterior = mercer.Posterior(prior, mercer.Gaussian(0.1), (INPUTS, TARGETS))
    alone = [make_posterior(mercer.Gaussian(0.1), energy=name) for name in ("modes", "nodes")]
    np.testing.assert_allclose(posterior.tail_rows, sum(one.tail_rows for one in alone), atol=1e-7)


@pytest.fixture(scope="module")
def draws():
    """Exact draws of the same posterior with the tail and without."""

    def sample(tail):
        frozen = mercer.Frozen(make_posterior(mercer.Gaussian(0.1), tail))
        return mercer.sample(
            jax.random.key(1), frozen, mercer.exact(), num_draws=2000, num_chains=2, progress=False
        )

    with jax.debug_key_reuse(False):
        return {tail: sample(tail) for tail in ("independent", "none")}


@pytest.mark.parametrize("quantiles", [(), (0.025, 0.975)], ids=["streamed", "quantiles"])
def test_predictions_include_the_tail(draws, quantiles):
    posterior = draws["independent"].density
    tail = np.asarray(posterior.tail_variances(jnp.asarray(POINTS)))
    mean, variance, _ = given(posterior, np.asarray(posterior.tail_rows))
    found = draws["independent"].predict(POINTS, quantiles)
    assert np.all(np.abs(found.mean - mean) < 4.5 * np.sqrt(variance / 4000))
    values = draws["independent"].values(POINTS)
    own = values.std(axis=0, ddof=1)
    assert np.all(np.abs(own**2 / variance - 1) < 4.5 * np.sqrt(2 / 4000))
    np.testing.assert_allclose(found.sd, np.sqrt(own**2 + tail), rtol=1e-9)
    if quantiles:
        raw = np.quantile(values, quantiles, axis=0) - values.mean(0)
        widened = values.mean(0) + raw * found.sd / own
        np.testing.assert_allclose(found.quantiles, widened, rtol=1e-6, atol=1e-9)


def test_observations_include_the_tail(draws):
    posterior = draws["independent"].density
    tail = np.asarray(posterior.tail_variances(jnp.asarray(POINTS)))
    _, variance, _ = given(posterior, np.asarray(posterior.tail_rows))
    seen = draws["independent"].predict(POINTS, (), noise_key=jax.random.key(3))
    ratio = seen.sd**2 / (variance + tail + 0.01)
    assert np.all(np.abs(ratio - 1) < 4.5 * np.sqrt(2 / 4000))
    scores = draws["independent"].log_densities(POINTS, POINTS[:, 0])
    values = draws["independent"].values(POINTS)
    exact = stats.norm.logpdf(POINTS[:, 0], values, np.sqrt(0.01 + tail))
    np.testing.assert_allclose(scores, exact, rtol=1e-8)


def test_without_a_tail_it_is_the_network_alone(draws):
    posterior = draws["none"].density
    assert posterior.tail_rows is None
    assert posterior.tail_variances(jnp.asarray(POINTS)) is None
    mean, variance, evidence = given(posterior, 0.0)
    frozen = mercer.Frozen(posterior)
    np.testing.assert_allclose(frozen.log_evidence, evidence, atol=1e-5)
    found, spread = frozen.moments(jnp.asarray(POINTS))
    np.testing.assert_allclose(found, mean, atol=1e-5)
    np.testing.assert_allclose(spread, variance, atol=1e-5)
    predicted = draws["none"].predict(POINTS, ())
    own = draws["none"].values(POINTS).std(axis=0, ddof=1)
    np.testing.assert_allclose(predicted.sd, own, rtol=1e-9)


def test_a_tail_is_for_values_of_networks_in_closed_form():
    def integral(u, x):
        return jnp.cumsum(jax.vmap(u)(x))

    assert make_posterior(mercer.Gaussian(0.1, observe=integral)).tail is None
    data = INPUTS, TARGETS
    lattice = make_prior(mercer.Lattice(BROWNIAN, 32))
    assert mercer.Posterior(lattice, mercer.Gaussian(0.1), data).tail is None
    flat = mercer.IsotropicPrior(mercer.MLP(1, width=4, key=jax.random.key(0)))
    assert mercer.Posterior(flat, mercer.Gaussian(0.1), data).tail is None
    with pytest.raises(ValueError, match="tail must be one of"):
        make_posterior(mercer.Gaussian(0.1), tail="both")


def test_a_gap_in_the_data_stays_honest(draws):
    """Predictions are never narrower than the network's own, and far wider where units are few."""
    wide, narrow = (draws[tail].predict(POINTS, ()).sd for tail in ("independent", "none"))
    assert np.all(wide > narrow)
    assert np.max(wide / narrow) > 2


@pytest.mark.parametrize(("noise", "share"), [(1e-3, 1.0), (10.0, 0.0)])
def test_auto_goes_from_independent_to_none_as_noise_grows(noise, share):
    faded = make_posterior(mercer.Gaussian(noise), tail="auto")
    whole = make_posterior(mercer.Gaussian(noise), tail="independent")
    np.testing.assert_allclose(faded.tail_rows, share * whole.tail_rows, atol=1e-6)


def test_units_at_the_rows_keep_their_tail_between_them():
    """There the posterior is that of the process itself, whatever the noise."""
    energy = mercer.Nodes("matern12", INPUTS)
    prior = mercer.Prior(energy, mercer.Radial(energy))
    frozen = mercer.Frozen(mercer.Posterior(prior, mercer.Gaussian(0.5), (INPUTS, TARGETS)))
    exact = mercer.GaussianProcess("matern12").condition(INPUTS, TARGETS, 0.5)
    mean, variance = frozen.moments(POINTS)
    np.testing.assert_allclose(mean, exact.mean(POINTS), atol=1e-5)
    np.testing.assert_allclose(variance, exact.variance(POINTS), atol=1e-5)
