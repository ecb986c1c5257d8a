"""Nearest rows, densities of rows given them, and the tail conditioned on them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import mercer
from mercer.estimators.conditional import condition_on_neighbours, conditional_density
from mercer.estimators.hyperparameters import as_kind, unpack
from mercer.estimators.model import Columns
from mercer.kernels import named_kernel
from mercer.neighbours import Search, nearest_earlier, nearest_others
from mercer.tail import Neighbours

RANDOM = np.random.default_rng(0)
X = RANDOM.uniform(0, 1, (60, 2))
Y = np.sin(6 * X[:, 0]) * np.cos(4 * X[:, 1]) + 0.1 * RANDOM.standard_normal(60)
NEW = RANDOM.uniform(0, 1, (7, 2))
KERNEL = named_kernel("matern32", 0.4)


@pytest.mark.parametrize(("count", "dimension"), [(50, 1), (300, 2), (200, 20)])
def test_neighbours_are_those_of_all_distances(count, dimension):
    rows = RANDOM.standard_normal((count, dimension))
    distances = np.sum((rows[:, None] - rows[None]) ** 2, axis=-1)
    earlier, present = nearest_earlier(rows, 8)
    for i in range(count):
        expected = set(np.argsort(distances[i, :i])[:8])
        assert set(earlier[i][present[i]]) == expected
    others = nearest_others(rows, np.arange(count), 8)
    np.fill_diagonal(distances, np.inf)
    np.testing.assert_array_equal(np.sort(others), np.sort(np.argsort(distances)[:, :8]))
    np.testing.assert_array_equal(Search(rows).nearest(rows, 1)[:, 0], np.arange(count))


def test_a_density_given_neighbours_is_a_ratio_of_densities():
    root = RANDOM.standard_normal((6, 6))
    covariance, noise, y = root @ root.T, RANDOM.uniform(0.1, 1, 6), RANDOM.standard_normal(6)

    def ratio(covariance, noise):
        both = covariance + jnp.diag(noise)
        density = jax.scipy.stats.multivariate_normal.logpdf
        return density(y, jnp.zeros(6), both) - density(y[:5], jnp.zeros(5), both[:5, :5])

    assert conditional_density(covariance, noise, y) == pytest.approx(ratio(covariance, noise))
    ours = jax.grad(conditional_density, (0, 1))(covariance, noise, y)
    theirs = jax.grad(ratio, (0, 1))(covariance, noise)
    np.testing.assert_allclose(ours[0] + ours[0].T, theirs[0] + theirs[0].T, atol=1e-10)
    np.testing.assert_allclose(ours[1], theirs[1], atol=1e-10)


def test_all_other_rows_as_neighbours_leave_one_out():
    hyper = unpack(jnp.log(jnp.array([0.4, 0.4, 1.0, 1e-4, 0.1])), as_kind("matern32"))
    columns = Columns(X, Y, np.zeros(60), np.ones(60))
    rows = condition_on_neighbours(columns, X, np.array([3, 11]), 59)
    mean, variance = rows.predictions(hyper)
    points = jnp.asarray(X)
    covariance = np.asarray(hyper.covariance.matrix(points, points)) + 0.01 * np.eye(60)
    for place, row in enumerate((3, 11)):
        others = np.delete(np.arange(60), row)
        gain = np.linalg.solve(covariance[np.ix_(others, others)], covariance[others, row])
        assert mean[place] == pytest.approx(gain @ Y[others], abs=1e-6)
        left = covariance[row, row] - gain @ covariance[others, row]
        assert variance[place] == pytest.approx(left, rel=1e-5)


def make_frozen(tail, units=10, noise=0.1):
    prior = mercer.Prior(energy := mercer.Nodes(KERNEL, X[:units]), mercer.Radial(energy))
    return mercer.Frozen(mercer.Posterior(prior, mercer.Gaussian(noise), (X, Y), tail=tail))


@pytest.mark.parametrize("noise", [0.1, np.linspace(0.05, 0.3, 60)], ids=["one", "a row"])
def test_with_all_rows_as_neighbours_few_units_are_the_process(noise):
    process = mercer.GaussianProcess(KERNEL).condition(X, Y, noise)
    frozen = make_frozen(Neighbours(59, 60), noise=noise)
    mean, variance = frozen.moments(NEW)
    np.testing.assert_allclose(mean, process.mean(NEW), atol=1e-5)
    np.testing.assert_allclose(variance, process.variance(NEW), atol=1e-5)
    assert frozen.log_evidence == pytest.approx(float(process.log_evidence), abs=1e-3)


def test_neighbours_are_nearer_the_process_than_an_independent_tail():
    process = mercer.GaussianProcess(KERNEL).condition(X, Y, 0.1)
    errors = {
        tail: float(jnp.max(jnp.abs(make_frozen(tail).moments(NEW)[0] - process.mean(NEW))))
        for tail in ("independent", "neighbours")
    }
    assert errors["neighbours"] < 0.02 < errors["independent"]


def test_the_density_of_rows_given_neighbours_is_that_of_the_closed_form():
    """log p(y | readout) + log N(readout) − log evidence is the log density of the exact law."""
    frozen = make_frozen(Neighbours(12, 12))
    key = jax.random.key(0)
    params = frozen.draw(key)
    joint = frozen(params) - frozen.log_evidence
    law = frozen.law
    z = params["latent"][0]
    factor = np.asarray(law.factor)
    expected = stats.multivariate_normal.logpdf(z, law.mean(), np.linalg.inv(factor.T @ factor))
    assert joint == pytest.approx(expected, abs=1e-6)
    chosen = jnp.array([5, 40, 2])
    terms = frozen.posterior.row_terms(frozen.original(params))
    some = frozen.posterior.row_terms(frozen.original(params), chosen)
    np.testing.assert_allclose(some, terms[chosen], rtol=1e-9)


def test_white_coordinates_carry_the_neighbours():
    """The density in white coordinates less the posterior's is the same for every readout."""
    density = mercer.NonCentred(make_frozen(Neighbours(12, 12)).posterior)
    keys = jax.random.split(jax.random.key(1), 3)
    points = [density.init(key) for key in keys]
    gaps = [float(density(p) - density.posterior(density.original(p))) for p in points]
    np.testing.assert_allclose(gaps, gaps[0], atol=1e-6)


def test_draws_of_a_posterior_predict_as_the_closed_form_does():
    """Mean and sd of 4,000 exact draws, paths drawn jointly, and densities of new data."""
    frozen = make_frozen(Neighbours(24, 24))
    mean, variance = map(np.asarray, frozen.moments(NEW))
    draws = mercer.sample(jax.random.key(2), frozen, num_draws=1000, num_chains=4, progress=False)
    predicted = draws.predict(NEW)
    np.testing.assert_allclose(predicted.mean, mean, atol=4 * np.sqrt(variance.max() / 4000))
    np.testing.assert_allclose(predicted.sd, np.sqrt(variance), rtol=4 / np.sqrt(8000))
    observed = draws.predict(NEW, noise_key=jax.random.key(3))
    np.testing.assert_allclose(observed.sd, np.sqrt(variance + 0.01), rtol=4 / np.sqrt(8000))
    targets = mean + 0.05
    scores = np.exp(draws.log_densities(NEW, targets)).mean(0)
    expected = stats.norm.pdf(targets, mean, np.sqrt(variance + 0.01))
    np.testing.assert_allclose(scores, expected, rtol=0.02)


def test_paths_are_drawn_jointly(monkeypatch):
    """The covariance of paths at new rows is that of the exact process, which units do not have."""
    process = mercer.GaussianProcess(KERNEL).condition(X, Y, 0.1)
    frozen = make_frozen(Neighbours(59, 60), units=5)
    new = jnp.asarray(np.concatenate([NEW, NEW + 0.02, NEW - 0.03]))
    white = jax.vmap(frozen.draw)(jax.random.split(jax.random.key(4), 8000))["latent"][0]
    local = frozen.posterior.local
    # Rounds of one row and on, so that rows close to each other are in different ones.
    monkeypatch.setattr("mercer.tail.FIRST_ROUND", 1)
    paths = local.draw(jax.random.key(5), new, white, frozen.posterior.targets)
    exact = np.asarray(process.covariance(new))
    error = np.abs(np.cov(paths.T) - exact)
    assert np.max(error) < 5 * np.sqrt(2 / 8000) * exact.max()
    np.testing.assert_allclose(paths.mean(0), process.mean(new), atol=4 * exact.max() ** 0.5 / 89)


def test_what_neighbours_cannot_do_is_told():
    prior = mercer.Prior(energy := mercer.Nodes(KERNEL, X[:10]), mercer.Radial(energy))
    with pytest.raises(ValueError, match="Gaussian noise"):
        mercer.Posterior(prior, mercer.Poisson(), (X, np.ones(60)), tail="neighbours")
    with pytest.raises(ValueError, match="not a hyperprior"):
        noise = mercer.Gaussian(mercer.hyper.LogNormal(0.1, 1.0))
        mercer.Posterior(prior, noise, (X, Y), tail="neighbours")
    frozen = make_frozen("neighbours")
    with pytest.raises(ValueError, match=r"outside of jax\.jit"):
        jax.jit(lambda x: frozen.moments(x))(NEW)
