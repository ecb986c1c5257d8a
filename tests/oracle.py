"""A posterior that is Gaussian exactly: a network linear in its parameters, correlated, uneven."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import mercer
from mercer.diagnostics import ess

DOMAIN = mercer.Interval(0.0, 1.0)


class Features(eqx.Module):
    """Four overlapping functions of unequal size."""

    readout: jax.Array

    def __call__(self, x):
        t = x[0]
        return jnp.dot(
            self.readout, jnp.stack([t, 2 * t**2, jnp.sin(3 * t), 0.5 * t * jnp.exp(-t)])
        )


def make_posterior(energy=None, batch_size=None):
    rng = np.random.default_rng(0)
    x = rng.uniform(0, 1, 12)
    y = np.sin(2 * x) + 0.3 * rng.normal(size=12)
    spectrum = mercer.BrownianMotion(12, DOMAIN)
    energy = energy(spectrum) if energy else mercer.Quadrature(spectrum)
    prior = mercer.Prior(energy, Features(jnp.zeros(4)))
    return mercer.Posterior(
        prior, mercer.Gaussian(0.3), (x[:, None], y), batch_size=batch_size, tail="none"
    )


def exact_moments(posterior=None):
    """Mean and covariance, by the Hessian of a function that is quadratic to rounding."""
    posterior = make_posterior() if posterior is None else posterior
    flat = lambda w: posterior(Features(w))  # noqa: E731
    precision = -jax.hessian(flat)(jnp.zeros(4))
    covariance = np.linalg.inv(np.asarray(precision))
    return covariance @ np.asarray(jax.grad(flat)(jnp.zeros(4))), covariance


def whiten(values, covariance, mean):
    return (np.asarray(values) - mean) @ np.linalg.cholesky(np.linalg.inv(covariance))


def z_scores(values, covariance, mean):
    """z of means, variances and products in white coordinates, by each one's own ESS."""
    white = whiten(values, covariance, mean)
    products = np.stack([white[..., i] * white[..., j] for i in range(4) for j in range(i + 1)], -1)
    expected = np.array([float(i == j) for i in range(4) for j in range(i + 1)])
    spread = np.where(expected == 1, np.sqrt(2), 1.0)
    means = white.reshape(-1, 4).mean(0) * np.sqrt(ess(white, "mean"))
    second = (products.reshape(-1, 10).mean(0) - expected) / spread * np.sqrt(ess(products, "mean"))
    return np.concatenate([means, second])


def run(algorithm, posterior=None, num_draws=3000, num_warmup=500, thin=1, seed=1):
    return mercer.sample(
        jax.random.key(seed), posterior or make_posterior(), algorithm, num_draws=num_draws,
        num_warmup=num_warmup, num_chains=4, thin=thin, record=lambda p: p.readout,
        progress=False,
    )  # fmt: skip
