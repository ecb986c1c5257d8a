"""The process itself against scikit-learn and tinygp, which know nothing of eigenpairs."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tinygp
from scipy import stats
from sklearn.gaussian_process import GaussianProcessRegressor, kernels

import mercer
from mercer.kernels import named_kernel

DOMAIN = mercer.Interval(-5.0, 6.0)


@pytest.fixture
def data():
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 2, 25)
    return x[:, None], np.sin(3 * x) + 0.1 * rng.normal(size=25)


@pytest.fixture
def process():
    # Far from the sides, the reflected process is the stationary one.
    return mercer.GaussianProcess(mercer.SquaredExponential(0.5, 1.3, DOMAIN, 150))


def test_posterior_and_evidence_are_scikit_learns(data, process):
    x, y = data
    kernel = kernels.ConstantKernel(1.3, "fixed") * kernels.RBF(0.5, "fixed")
    judge = GaussianProcessRegressor(kernel, alpha=0.1**2, optimizer=None).fit(x, y)
    points = np.linspace(-1, 2, 20)[:, None]
    mean, covariance = judge.predict(points, return_cov=True)
    ours = process.condition(x, y, 0.1)
    np.testing.assert_allclose(ours.mean(jnp.asarray(points)), mean, atol=1e-7)
    np.testing.assert_allclose(ours.covariance(jnp.asarray(points)), covariance, atol=1e-7)
    np.testing.assert_allclose(ours.variance(jnp.asarray(points)), np.diag(covariance), atol=1e-7)
    np.testing.assert_allclose(
        process.log_evidence(x, y, 0.1), judge.log_marginal_likelihood_value_, rtol=1e-7
    )


def test_noise_of_each_row_is_tinygps(data, process):
    x, y = data
    noise = np.linspace(0.05, 0.4, len(y))
    kernel = 1.3 * tinygp.kernels.ExpSquared(0.5)
    judge = tinygp.GaussianProcess(kernel, jnp.asarray(x[:, 0]), diag=noise**2)
    points = np.linspace(-1, 2, 9)
    _, conditioned = judge.condition(jnp.asarray(y), jnp.asarray(points))
    ours = process.condition(x, y, noise)
    np.testing.assert_allclose(ours.mean(jnp.asarray(points)[:, None]), conditioned.loc, atol=1e-7)
    np.testing.assert_allclose(ours.log_evidence, judge.log_probability(jnp.asarray(y)), rtol=1e-7)


def test_draws_have_the_covariance(process):
    points = jnp.linspace(-1, 2, 6)[:, None]
    draws = np.asarray(process.draw(jax.random.key(0), points, 20_000))
    exact = np.asarray(process.covariance(points))
    error = np.sqrt((np.outer(np.diag(exact), np.diag(exact)) + exact**2) / len(draws))
    assert np.all(np.abs(draws.T @ draws / len(draws) - exact) < 4.5 * error)


def test_conditioned_draws_have_the_posterior(data, process):
    ours = process.condition(*data, 0.1)
    points = jnp.array([[0.3], [2.4]])
    draws = np.asarray(ours.draw(jax.random.key(0), points, 5000))
    scaled = (draws - np.asarray(ours.mean(points))) / np.sqrt(np.asarray(ours.variance(points)))
    assert all(stats.kstest(column, "norm").pvalue > 1e-3 for column in scaled.T)


def test_whole_numbers_are_data_too(process):
    x, y = np.array([[0.0], [0.5], [1.0]]), np.array([0, 1, 0])
    whole = process.condition(x, y, 0.1).log_evidence
    np.testing.assert_allclose(whole, process.condition(x, y.astype(float), 0.1).log_evidence)
    assert np.isfinite(whole)


def test_evidence_at_small_noise(data, process):
    x, y = data
    kernel = 1.3 * np.exp(-((x - x.T) ** 2) / (2 * 0.5**2)) + 1e-4**2 * np.eye(len(y))
    exact = stats.multivariate_normal(cov=kernel, allow_singular=False).logpdf(y)
    np.testing.assert_allclose(process.log_evidence(x, y, 1e-4), exact, rtol=1e-6)


def test_mean_function_is_added_and_removed(data):
    x, y = data
    spectrum = mercer.SquaredExponential(0.5, 1.3, DOMAIN, 150)
    plain = mercer.GaussianProcess(spectrum)
    shifted = mercer.GaussianProcess(spectrum, mean=lambda point: 3.0 + point[0])
    np.testing.assert_allclose(
        shifted.log_evidence(x, y + 3.0 + x[:, 0], 0.1), plain.log_evidence(x, y, 0.1), rtol=1e-9
    )


NAMED = {
    "matern12": kernels.Matern(0.5, nu=0.5),
    "matern32": kernels.Matern(0.5, nu=1.5),
    "matern52": kernels.Matern(0.5, nu=2.5),
    "squared-exponential": kernels.RBF(0.5),
}


@pytest.mark.parametrize("name", NAMED)
def test_a_kernel_by_name_is_scikit_learns(name, data):
    x, y = data
    judge = GaussianProcessRegressor(1.3 * NAMED[name], alpha=0.1**2, optimizer=None).fit(x, y)
    # Units at the data have a jitter of 1e-8 of the variance, beside a noise of 1e-2: beyond the data
    # the directions of a very smooth kernel that are smaller still are felt at 1e-4.
    ends = (-1, 2) if name == "squared-exponential" else (-3, 4)
    points = np.linspace(*ends, 20)[:, None]
    mean, covariance = judge.predict(points, return_cov=True)
    process = mercer.GaussianProcess(named_kernel(name, 0.5, 1.3))
    ours = process.condition(x, y, 0.1)
    np.testing.assert_allclose(ours.mean(points), mean, atol=1e-5)
    np.testing.assert_allclose(ours.covariance(points), covariance, atol=1e-5)
    np.testing.assert_allclose(ours.variance(points), np.diag(covariance), atol=1e-5)
    np.testing.assert_allclose(ours.log_evidence, judge.log_marginal_likelihood_value_, atol=1e-5)
    np.testing.assert_allclose(process.covariance(points), 1.3 * NAMED[name](points), atol=1e-6)


def test_a_name_alone_has_unit_scales_in_any_dimension():
    rng = np.random.default_rng(5)
    x, y, points = rng.uniform(size=(30, 3)), rng.normal(size=30), rng.uniform(size=(6, 3))
    judge = GaussianProcessRegressor(kernels.Matern(1.0, nu=1.5), alpha=0.04, optimizer=None)
    judge.fit(x, y)
    mean, sd = judge.predict(points, return_std=True)
    ours = mercer.GaussianProcess("matern32").condition(x, y, 0.2)
    np.testing.assert_allclose(ours.mean(points), mean, atol=1e-6)
    np.testing.assert_allclose(jnp.sqrt(ours.variance(points)), sd, atol=1e-6)
    np.testing.assert_allclose(ours.log_evidence, judge.log_marginal_likelihood_value_, rtol=1e-6)


def test_draws_of_a_kernel_given_data_have_its_covariance(data):
    """Between the data, where most of the variance is what the units leave out."""
    ours = mercer.GaussianProcess("matern12", mean=lambda x: x[0]).condition(*data, 0.1)
    points = np.array([[0.3], [2.4], [2.6], [6.0]])
    draws = np.asarray(ours.draw(jax.random.key(0), points, 20_000)) - np.asarray(ours.mean(points))
    exact = np.asarray(ours.covariance(points))
    error = np.sqrt((np.outer(np.diag(exact), np.diag(exact)) + exact**2) / len(draws))
    assert np.all(np.abs(draws.T @ draws / len(draws) - exact) < 4.5 * error)
