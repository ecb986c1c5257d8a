"""Noise that depends on the inputs, learned from residuals by a second radial network.

If a row's residual is σ(x) times a standard normal number, log of its square is log σ² plus noise
of known mean and variance, those of log χ² with one degree of freedom. So log σ² is learned by
regression with known noise, from leave-one-out residuals of the mean's network; the mean is then
learned again with that noise. Whether it is worth it is told by the leave-one-out densities.
"""

import math
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy import special, stats

from .evidence import Evidence, find_mode
from .hyperparameters import as_kind, unpack
from .model import Columns, Fitted, fit, leave_one_out

# Mean and variance of log χ² with one degree of freedom.
LOG_MEAN, LOG_VARIANCE = -1.2703628454614782, math.pi**2 / 2
# That of log σ².
KERNEL = "squared-exponential"
# Squares below this share of their mean are as good as zero: logarithms are cut there.
SMALLEST = 1e-4
# The least that variances are multiplied by: rows that were left out are a sample.
LEAST_FACTOR = 0.5
# Nodes and weights of the average over log σ²'s uncertainty: three-point Gauss–Hermite.
NODES = np.array([-math.sqrt(3.0), 0.0, math.sqrt(3.0)])
SHARES = np.array([1 / 6, 2 / 3, 1 / 6])


class VaryingNoise(eqx.Module):
    """log σ²(x), a network given the residuals' logarithms, about their mean `level`.

    σ² is added to variances or, where it `multiplies`, a factor of them, `LEAST_FACTOR` or more.
    """

    network: Fitted
    level: Float[Array, ""]
    multiplies: Float[Array, ""]

    def log_variance(self, x: Float[Array, "n d"]) -> tuple[Array, Array]:
        """Mean and variance of log σ² at the rows."""
        mean, variance = self.network.moments(x)
        return self.level + mean, variance

    def widen(
        self, variances: Float[np.ndarray, "c n"], level: np.ndarray, spread: np.ndarray
    ) -> Float[np.ndarray, "cs n"]:
        """Variances with the noise, one for each of the nodes, given mean and variance of log σ²."""
        noise = np.exp(level + NODES[:, None] * np.sqrt(spread))
        factor = np.maximum(noise, LEAST_FACTOR)
        both = variances[:, None] * factor if self.multiplies else variances[:, None] + noise
        return both.reshape(-1, variances.shape[1])


def learn_noise(
    x: np.ndarray, residuals: np.ndarray, centres: Array, rows: np.ndarray
) -> tuple[VaryingNoise, np.ndarray, np.ndarray]:
    """From residuals that are σ(x) times a standard normal number; `rows` are for its evidence.

    With it mean and variance of log σ² at each row as the other rows tell it: a row's own residual
    would make its noise look as it needs to be.
    """
    squares = residuals**2
    logs = np.log(np.maximum(squares, SMALLEST * squares.mean())) - LOG_MEAN
    level = logs.mean()
    known = np.full(len(logs), LOG_VARIANCE)
    columns = Columns(x, logs - level, known, np.zeros(len(logs)))
    kernel = as_kind(KERNEL)
    hyper = unpack(jnp.asarray(find_mode(Evidence(columns.at(rows).padded(), kernel))), kernel)
    fitted = fit(hyper, centres, columns.padded())
    missed, spread = leave_one_out(hyper, columns)
    noise = VaryingNoise(fitted, jnp.asarray(level), jnp.zeros(()))
    return noise, logs - missed, np.maximum(spread - LOG_VARIANCE, 0.0)


def mixed_log_density(
    residuals: np.ndarray, variances: np.ndarray, noise: tuple[Any, ...]
) -> np.ndarray:
    """log p of residuals whose variance is `variances` plus σ², over log σ² of this mean and
    variance."""
    level, spread = noise
    terms = [
        np.log(share) + stats.norm.logpdf(residuals, 0.0, np.sqrt(variances + np.exp(at)))
        for share, at in zip(
            SHARES, (level + node * np.sqrt(spread) for node in NODES), strict=True
        )
    ]
    return special.logsumexp(terms, axis=0)
