"""A linear network with its prior, posterior and evidence in plain NumPy, and a small network."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import mercer
from mercer.diagnostics import covariance_error

DOMAIN = mercer.Interval(0.5, 2.0)


class Polynomial(eqx.Module):
    """Linear in its parameters: the oracle. Offset t², so that nothing is zero by chance."""

    readout: jax.Array

    def __call__(self, x):
        t = x[0] - 0.5
        return t**2 + jnp.dot(self.readout, jnp.stack([t, t**2, jnp.sin(3 * t), t * jnp.exp(-t)]))


class Oracle:
    """The same prior, posterior and evidence in plain NumPy."""

    def __init__(self, spectrum, sigma, noise, x, y):
        nodes, weights = np.polynomial.legendre.leggauss(300)
        t = 0.75 * (nodes + 1)
        self.features = lambda t: np.stack([t, t**2, np.sin(3 * t), t * np.exp(-t)], -1)
        n = np.arange(1, spectrum.num_modes + 1)
        frequency = np.pi * (n - 0.5) / 1.5
        basis = np.sqrt(2 / 1.5) * np.sin(np.outer(t, frequency))
        project = (0.75 * weights)[:, None] * basis
        mixing = frequency[:, None] * (project.T @ self.features(t))
        rest = frequency * (project.T @ (t**2 - self.mean(t)))
        self.precision = np.eye(4) / sigma**2 + mixing.T @ mixing
        self.center = -np.linalg.solve(self.precision, mixing.T @ rest)
        design = self.features(x - 0.5)
        target = y - (x - 0.5) ** 2
        self.posterior_precision = self.precision + design.T @ design / noise**2
        information = self.precision @ self.center + design.T @ target / noise**2
        self.posterior_mean = np.linalg.solve(self.posterior_precision, information)
        covariance = noise**2 * np.eye(len(x)) + design @ np.linalg.inv(self.precision) @ design.T
        self.log_evidence = stats.multivariate_normal.logpdf(
            target, design @ self.center, covariance
        )

    @staticmethod
    def mean(t):
        return 0.3 * t


@pytest.fixture
def oracle_case():
    """Prior, posterior and oracle."""
    rng = np.random.default_rng(0)
    x = rng.uniform(0.5, 2.0, 12)
    y = np.sin(x) + 0.1 * rng.normal(size=12)
    spectrum = mercer.BrownianMotion(30, DOMAIN)
    prior = mercer.Prior(
        mercer.Quadrature(spectrum, 120),
        Polynomial(jnp.zeros(4)),
        reference=2.0,
        mean=lambda point: 0.3 * (point[0] - 0.5),
    )
    posterior = mercer.Posterior(prior, mercer.Gaussian(0.1), (x[:, None], y), tail="none")
    return prior, posterior, Oracle(spectrum, 2.0, 0.1, x, y)


def small_network(width, seed=0, readout_scale=3.0):
    return mercer.FourierMLP(
        1,
        width,
        num_frequencies=2,
        frequency_scale=3.0,
        boundary=("dirichlet", "neumann"),
        key=jax.random.key(seed),
        domain=DOMAIN,
        readout_scale=readout_scale,
    )


def assert_law(values, mean, covariance):
    """Independent draws of shape (chain, draw, point) have this mean and covariance."""
    count = values.shape[0] * values.shape[1]
    z = (values.mean((0, 1)) - mean) / np.sqrt(np.diag(covariance) / count)
    assert np.max(np.abs(z)) < 4
    error, standard = covariance_error(values - mean, covariance)
    assert np.all(error < 4.5 * standard)
