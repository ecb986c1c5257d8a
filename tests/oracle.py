"""A posterior that is Gaussian exactly: a network linear in its parameters, correlated, uneven."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import mercer

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
    return mercer.Posterior(prior, mercer.Gaussian(0.3), (x[:, None], y), batch_size=batch_size)


def exact_moments(posterior=None):
    """Mean and covariance, by the Hessian of a function that is quadratic to rounding."""
    posterior = make_posterior() if posterior is None else posterior
    flat = lambda w: posterior(Features(w))  # noqa: E731
    precision = -jax.hessian(flat)(jnp.zeros(4))
    covariance = np.linalg.inv(np.asarray(precision))
    return covariance @ np.asarray(jax.grad(flat)(jnp.zeros(4))), covariance
