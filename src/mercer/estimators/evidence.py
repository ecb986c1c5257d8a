"""Hyperparameters of radial networks by their marginal likelihood: the mode, and weighted draws.

log p(y | X, hyper) + log p(hyper) is known for Gaussian noise. It is maximised from a few starts on
a part of the rows, then on more of them; draws of the normal law at the mode, weighted by what the
density is there, or draws by NUTS, stand for the posterior of the hyperparameters.
"""

import math
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int
from scipy.optimize import minimize

from ..sampling import nuts, sample
from ..sampling.devices import at_least_chains
from .conditional import ConditionedRows
from .hyperparameters import ModalKernel, log_prior, start, unpack
from .model import Rows

# Logarithms beyond which nothing changes for standardised columns.
LOWEST, HIGHEST = -9.0, 6.0
# The smallest curvature that is believed: flat directions have the prior's own, about this.
FLATTEST = 0.1
# Weights, relative to the largest, that are worth a network.
SMALLEST = 0.01
STARTS = (0.3, 1.0, 3.0)
# Chains of NUTS over hyperparameters, draws of each, and steps to warm up.
NUM_CHAINS, NUM_DRAWN, NUM_WARMED = 4, 60, 40


def _loss(flat: Float[Array, " p"], rows: Rows | ConditionedRows, kernel: Any) -> Float[Array, ""]:
    """Minus the log posterior density of the hyperparameters."""
    hyper = unpack(flat, kernel)
    return -rows.log_evidence(hyper) - log_prior(hyper)


_slope = eqx.filter_jit(jax.value_and_grad(_loss))


class Evidence:
    """The posterior density of hyperparameters given rows, as SciPy wants it."""

    rows: Rows | ConditionedRows
    kernel: Int[Array, ""] | ModalKernel
    num_lengthscales: int

    def __init__(self, rows: Rows | ConditionedRows, kernel: Int[Array, ""] | ModalKernel):
        self.rows, self.kernel = rows, kernel
        self.num_lengthscales = 0 if isinstance(kernel, ModalKernel) else rows.x.shape[-1]

    def __call__(self, flat: np.ndarray) -> tuple[float, np.ndarray]:
        value, slope = _slope(jnp.asarray(flat), self.rows, self.kernel)
        if not np.isfinite(value):
            return 1e10, np.zeros_like(flat)
        return float(value), np.asarray(slope)

    def minimise(self, flat: np.ndarray, num_steps: int) -> tuple[float, np.ndarray]:
        """The mode near a start: minus the log density there, and where it is."""
        bounds = [(LOWEST, HIGHEST)] * len(flat)
        found = minimize(
            self, flat, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": num_steps}
        )
        return float(found.fun), found.x

    def curvature(self, flat: np.ndarray, step: float = 1e-3) -> np.ndarray:
        """The Hessian by differences of gradients."""
        rows = [
            (self(flat + step * axis)[1] - self(flat - step * axis)[1]) / (2 * step)
            for axis in np.eye(len(flat))
        ]
        return (np.array(rows) + np.array(rows).T) / 2


def find_mode(evidence: Evidence) -> np.ndarray:
    """From the best of a few starts."""
    starts = [start(evidence.num_lengthscales, spread) for spread in STARTS]
    begun = [evidence.minimise(one, 15) for one in starts]
    return evidence.minimise(min(begun, key=lambda pair: pair[0])[1], 100)[1]


def weighted_draws(
    evidence: Evidence, mode: np.ndarray, count: int, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """The mode and draws about it (one a row), with the logarithms of their weights.

    Importance sampling from the Laplace approximation; weights of several kernels compare.
    """
    values, axes = np.linalg.eigh(evidence.curvature(mode))
    spread = 1 / np.sqrt(np.maximum(values, FLATTEST))
    white = np.random.default_rng(seed).standard_normal((count, len(mode)))
    white[0] = 0.0
    draws = np.clip(mode + (white * spread) @ axes.T, LOWEST, HIGHEST)
    log_proposal = -0.5 * np.sum(white**2, axis=1) - np.sum(np.log(spread))
    return draws, np.array([-evidence(draw)[0] for draw in draws]) - log_proposal - math.log(count)


def chain_draws(
    evidence: Evidence, mode: np.ndarray, count: int, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Draws by NUTS (one a row), with the logarithms of their weights, all equal."""
    values, axes = np.linalg.eigh(evidence.curvature(mode))
    root, middle = jnp.asarray(axes / np.sqrt(np.maximum(values, FLATTEST))), jnp.asarray(mode)
    sample_key, start_key = jax.random.split(jax.random.key(seed))
    num_chains = at_least_chains(NUM_CHAINS)
    found = sample(
        sample_key,
        lambda z: -_loss(middle + root @ z, evidence.rows, evidence.kernel),
        nuts(adaptation="step", initial_step=0.5),
        num_draws=NUM_DRAWN,
        num_warmup=NUM_WARMED,
        num_chains=num_chains,
        record=lambda z: middle + root @ z,
        init=0.5 * jax.random.normal(start_key, (num_chains, len(mode))),
        progress=False,
    ).complete()
    drawn = found.recorded.reshape(-1, len(mode))
    kept = drawn[np.linspace(0, len(drawn) - 1, count).astype(int)]
    return np.clip(kept, LOWEST, HIGHEST), np.zeros(count)


class Mixture(NamedTuple):
    """Hyperparameters of several kernels, with weights that add to one."""

    kernels: list[str]
    draws: list[np.ndarray]
    weights: np.ndarray


def mix(parts: dict[str, tuple[np.ndarray, np.ndarray]]) -> Mixture:
    """Draws of each kernel with their log weights, those that hardly count left out."""
    kernels = [name for name, (draws, _) in parts.items() for _ in draws]
    draws = [draw for held, _ in parts.values() for draw in held]
    logs = np.concatenate([log_weights for _, log_weights in parts.values()])
    weights = np.exp(logs - logs.max())
    kept = np.flatnonzero(weights >= SMALLEST)
    chosen = weights[kept] / weights[kept].sum()
    return Mixture([kernels[i] for i in kept], [draws[i] for i in kept], chosen)
