"""Empirical Bayes: the hyperparameters of largest posterior density, by stochastic ascent.

Chains of the posterior, and of the prior where it is not normalised, go on while the
hyperparameters climb along the gradient that they estimate. Once it is within its noise, a few
Newton steps with more draws each end at the maximum, with the error that the draws leave.
"""

import dataclasses
import threading
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, PRNGKeyArray

from ..checks import PyTree, Real, require_count, require_key, require_positive
from ..density import evaluate
from ..diagnostics import ess
from ..sampling.progress import Bar, interrupts
from .chains import advance, begin, with_metric
from .joint import Joint

BLOCK = 50
# Newton steps at most, blocks of the chains for each, and draws that its curvature is taken from.
NUM_NEWTON, NUM_NEWTON_BLOCKS, NUM_CURVED = 8, 12, 256
# Below this acceptance, hyperparameters are held until the chains catch up.
LAGGING = 0.35
# How far one Newton step may go, in standard deviations of the hyperprior.
LONGEST = 1.0


@dataclasses.dataclass(frozen=True)
class EmpiricalBayes:
    """Where the ascent ended. Dicts are by hyperparameter; `white` and `error` in standard normal
    numbers, `path` one row a step in the order of the names.

    `error` is the Monte Carlo error of finitely many draws, `spread` the posterior standard
    deviation that the curvature gives. `posterior` is the density there and `params` draws of it,
    one a chain, to go on from: `sample(key, result.posterior, …, init=result.params)`.
    """

    values: dict[str, float]
    white: dict[str, float]
    error: dict[str, float]
    spread: dict[str, float]
    path: np.ndarray
    converged: bool
    posterior: Any
    params: PyTree


def empirical_bayes(
    key: PRNGKeyArray,
    joint: Joint,
    hyper: dict[str, Any] | None = None,
    *,
    num_chains: int = 16,
    max_steps: int = 4000,
    learning_rate: Real = 0.05,
    progress: bool = True,
) -> EmpiricalBayes:
    """Maximise log p(y | λ) + log p(z) by the hyperparameters, from `hyper`, given as standard normal
    numbers, or the medians.

    `learning_rate` is Adam's. Ctrl-C ends with what there is.
    """
    require_key(key)
    require_count("num_chains", num_chains, at_least=2)
    require_count("max_steps", max_steps)
    require_positive("learning_rate", learning_rate)
    climb = _Climb(joint, num_chains, float(learning_rate))
    start_key, run_key = jax.random.split(key)
    with interrupts() as stop, Bar(progress, max_steps, 0) as bar:
        climb.start(start_key, hyper)
        return climb.run(run_key, max_steps, bar, stop)


def make_step(joint: Joint, key: PRNGKeyArray, num_chains: int) -> tuple[Any, Any]:
    """One compiled step of the ascent, (state, key) -> state, and the state to begin with."""
    climb = _Climb(joint, num_chains, 0.05)
    climb.start(key, None)

    @jax.jit
    def step(state, key):
        return climb._block(state, key[None], jnp.asarray(True))[0]

    return step, (climb.chains, climb.vector, climb.state)


class _Climb:
    """The chains, the hyperparameters as one vector, and the compiled blocks that move both."""

    def __init__(self, joint: Joint, num_chains: int, learning_rate: float):
        self.joint, self.num_chains = joint, num_chains
        self.optimiser: Any = optax.adam(learning_rate)
        self.unravel = ravel_pytree(joint.template.params)[1]
        self.network_unravel = ravel_pytree(joint.prior.params)[1]
        self.needs_prior = not joint.prior.normalised
        log_densities = [(self.posterior, joint.template)]
        if self.needs_prior:
            log_densities.append((self.prior, joint.prior))
        self.steps = [partial(advance, f, law.is_deterministic) for f, law in log_densities]
        self.hessians = [
            jax.jit(jax.vmap(jax.hessian(f, argnums=1), (0, None, None))) for f, _ in log_densities
        ]
        self.block = jax.jit(self._block)

    def named(self, vector: Any) -> dict[str, Any]:
        return dict(zip(self.joint.hyperpriors, vector, strict=True))

    def posterior(self, flat: Array, vector: Array, key: PRNGKeyArray) -> Array:
        return evaluate(self.joint.at(self.named(vector)), self.unravel(flat), key)

    def prior(self, flat: Array, vector: Array, key: PRNGKeyArray) -> Array:
        return evaluate(self.joint.at(self.named(vector)).prior, self.network_unravel(flat), key)

    def start(self, key: PRNGKeyArray, hyper: dict[str, Any] | None) -> None:
        names = list(self.joint.hyperpriors)
        white = dict.fromkeys(names, 0.0) | (hyper or {})
        if set(white) != set(names):
            raise ValueError(f"hyper must name {names}, got {list(hyper or {})}.")
        self.vector = jnp.stack([jnp.asarray(white[name], float) for name in names])

        @jax.jit
        def draw(key):
            density = self.joint.at(self.named(self.vector))
            laws = [density, density.prior][: len(self.steps)]
            keys = [jax.random.split(k, self.num_chains) for k in jax.random.split(key, len(laws))]
            return [
                jax.vmap(lambda k, law=law: ravel_pytree(law.init(k))[0])(chain_keys)
                for law, chain_keys in zip(laws, keys, strict=True)
            ]

        self.chains = [begin(positions, len(names)) for positions in draw(key)]
        self.state = self.optimiser.init(self.vector)

    def run(
        self, key: PRNGKeyArray, max_steps: int, bar: Bar, stop: threading.Event
    ) -> EmpiricalBayes:
        path, quiet, done = [], 0, 0
        for index in range(4):
            self._advance(jax.random.fold_in(key, index), False)
        while done < max_steps and quiet < 3 and not stop.is_set():
            done += BLOCK
            slopes, vectors = self._advance(jax.random.fold_in(key, 4 + done), True)
            path.append(vectors)
            bar.move(min(done, max_steps), "climbing")
            mean, error = _batch_means(slopes.mean(axis=1))
            quiet = quiet + 1 if np.all(np.abs(mean) < 2 * error) else 0
        self.vector = jnp.asarray(np.concatenate(path)[-2 * BLOCK :].mean(axis=0))
        error, spread, settled = self._polish(jax.random.fold_in(key, 1), path, stop)
        return self._result(np.concatenate(path), settled, error, spread)

    def _polish(
        self, key: PRNGKeyArray, path: list[np.ndarray], stop: threading.Event
    ) -> tuple[np.ndarray, np.ndarray, bool]:
        """Newton steps at fixed hyperparameters until one is within its error: that error, the
        posterior standard deviations, and whether the steps settled."""
        for index in range(NUM_NEWTON):
            chain_key, curve_key = jax.random.split(jax.random.fold_in(key, index))
            self._advance(chain_key, False)
            slopes, _ = self._advance(jax.random.fold_in(chain_key, 1), False, NUM_NEWTON_BLOCKS)
            effective = np.asarray(ess(np.swapaxes(slopes, 0, 1), "mean"))
            error = slopes.reshape(-1, slopes.shape[-1]).std(axis=0) / np.sqrt(effective)
            inverse = _invert(self._curvature(curve_key))
            move = inverse @ slopes.mean(axis=(0, 1))
            uncertain = np.sqrt(np.square(inverse) @ np.square(error))
            longest = np.max(np.abs(move))
            self.vector = self.vector + jnp.asarray(move * min(1.0, LONGEST / max(longest, 1e-300)))
            path.append(np.asarray(self.vector)[None])
            if np.all(np.abs(move) < np.maximum(uncertain, 1e-6)) or stop.is_set():
                break
        settled = bool(np.all(np.abs(move) < np.maximum(3 * uncertain, 1e-6)))
        return uncertain, np.sqrt(np.diag(inverse)), settled

    def _curvature(self, key: PRNGKeyArray) -> np.ndarray:
        """−∇² of log p(y | λ) + log p(z), by Louis's identity: E[∇²] + Cov[∇] of posterior less prior."""
        total = -np.eye(len(self.vector))
        laws = zip((1, -1), self.hessians, self.chains, self.hyper_slopes, strict=False)
        for sign, hessian, chains, slopes in laws:
            mean = np.asarray(hessian(chains.positions, self.vector, key)).mean(axis=0)
            flat = slopes[-NUM_CURVED:].reshape(-1, slopes.shape[-1])
            total += sign * (mean + np.cov(flat, rowvar=False))
        return -total

    def _advance(
        self, key: PRNGKeyArray, ascends: bool, num_blocks: int = 1
    ) -> tuple[np.ndarray, np.ndarray]:
        """Blocks of steps: gradients (step, chain, name), and the hyperparameters after each step."""
        carry, blocks = (self.chains, self.vector, self.state), []
        for block_key in jax.random.split(key, num_blocks):
            carry, block = self.block(carry, jax.random.split(block_key, BLOCK), ascends)
            blocks.append(jax.tree.map(np.asarray, block))
        chains, self.vector, self.state = carry
        self.chains = [with_metric(each) for each in chains]
        concatenated = jax.tree.map(lambda *parts: np.concatenate(parts), *blocks)
        self.hyper_slopes, vectors, hyperprior_slopes = concatenated
        slopes = self.hyper_slopes[0] + hyperprior_slopes[:, None]
        return slopes - self.hyper_slopes[1] if self.needs_prior else slopes, vectors

    def _block(self, carry: Any, keys: Array, ascends: Any) -> Any:
        """Steps of the chains, one a key, and of the hyperparameters where it `ascends`."""

        def body(carry, key):
            chains, vector, state = carry
            step_keys = jax.random.split(key, len(chains))
            moves = zip(self.steps, chains, step_keys, strict=True)
            chains = [step(each, vector, step_key) for step, each, step_key in moves]
            hyper_slopes = [each.hyper_slopes for each in chains]
            slope = hyper_slopes[0].mean(axis=0) - vector
            if self.needs_prior:
                slope = slope - hyper_slopes[1].mean(axis=0)
            change, climbed = self.optimiser.update(-slope, state)
            acceptance = jnp.min(jnp.stack([each.acceptance for each in chains]))
            moved = vector + jnp.where(ascends & (acceptance > LAGGING), change, 0.0)
            state = jax.tree.map(lambda new, old: jnp.where(ascends, new, old), climbed, state)
            return (chains, moved, state), (hyper_slopes, moved, -vector)

        return jax.lax.scan(body, carry, keys)

    def _result(
        self, path: np.ndarray, converged: bool, error: np.ndarray, spread: np.ndarray
    ) -> EmpiricalBayes:
        white = self.named(map(float, self.vector))
        return EmpiricalBayes(
            values={n: float(v) for n, v in self.joint.values(white).items()},
            white=white,
            error=self.named(map(float, error)),
            spread=self.named(map(float, spread)),
            path=path,
            converged=converged,
            posterior=self.joint.at(self.named(self.vector)),
            params=jax.vmap(self.unravel)(self.chains[0].positions),
        )


def _batch_means(series: np.ndarray, num_batches: int = 5) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard error of a correlated series (step, name)."""
    means = np.stack([part.mean(axis=0) for part in np.array_split(series, num_batches)])
    return means.mean(axis=0), means.std(axis=0, ddof=1) / np.sqrt(num_batches)


def _invert(curvature: np.ndarray) -> np.ndarray:
    """The inverse of a symmetric matrix, eigenvalues taken positive: an ascent whatever they are."""
    sizes, axes = np.linalg.eigh((curvature + curvature.T) / 2)
    return (axes / np.maximum(np.abs(sizes), 1e-3)) @ axes.T
