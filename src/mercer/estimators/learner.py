"""Learns the hyperparameters of networks of known units from one data set, and fits networks with them.

To `EXACT_ROWS` rows there is a unit at each: the process itself, averaged over hyperparameters by their
evidence. Beyond, `LocalLearner` (in local.py) learns from the densities of rows given their neighbours.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from .calibration import Calibration, calibrate
from .evidence import Evidence, Mixture, chain_draws, find_mode, mix, weighted_draws
from .hyperparameters import Hyper, ModalKernel, unpack
from .minibatch import Drawn, draw_readout
from .model import Columns, Fitted, fit, leave_one_out, make_centres
from .noise import NODES, SHARES, VaryingNoise, learn_noise, mixed_log_density

# Rows up to which each has a unit of its own.
EXACT_ROWS = 1500
# Rows that hyperparameters are learned from: at first, and in the end.
FIRST_ROWS, LEARNING_ROWS = 256, 640
# Hyperparameters to average over, and the fewest by NUTS: one draw tells less than the mode.
NUM_HYPER, FEWEST = 24, 8
# A kernel that is less probable than the best by this, in log evidence, is left out.
CLOSE = 5.0
# Multiply-adds that fits with several hyperparameters may take.
BUDGET = 1e11
# Rounds of learning noise that varies, and the mean again.
NUM_ROUNDS = 2
# A varying noise is kept if the leave-one-out log density gains more than this many standard errors.
SURE = 2.0

Kind = Int[Array, ""] | ModalKernel


class Learned(NamedTuple):
    """Networks given data with their hyperparameters and weights; the varying noise, if any; the
    variance of the noise of a new observation by each, without what varies; and the calibration."""

    components: list[Any]
    hyper: list[Hyper]
    weights: np.ndarray
    varying: VaryingNoise | None
    noise: np.ndarray
    calibration: Calibration


class ExactLearner:
    """Learns hyperparameters by the evidence of the process, kernels by their names."""

    columns: Columns
    kernels: dict[str, Kind]
    order: np.ndarray
    centres: Array

    def __init__(self, columns: Columns, kernels: dict[str, Kind], random: np.random.Generator):
        self.columns, self.kernels = columns, kernels
        self.order = random.permutation(len(columns.y))
        self.centres = make_centres(columns.x)

    def learn(self, may_vary: bool, must_vary: bool, inference: str, seed: int) -> Learned:
        """Hyperparameters, noise that varies or not, and networks given the data."""
        modes, varying, level = self.find_modes(), None, None
        if may_vary or must_vary:
            modes, varying, level = self.vary(modes, must_vary)
        mixture = self.average(modes, inference, seed)
        pairs = list(zip(mixture.draws, mixture.kernels, strict=True))
        hyper = [self.hyper(draw, kernel) for draw, kernel in pairs]
        if inference == "sgld":
            components: list[Any] = [self.draw(hyper[0], seed)]
        else:
            components = [self.fit(one) for one in hyper]
        calibration = self.calibrate(*pairs[int(np.argmax(mixture.weights))], level)
        noise = np.array([0.0 if varying else new_noise(self.columns, one) for one in hyper])
        return Learned(components, hyper, mixture.weights, varying, noise, calibration)

    def evidence(self, kernel: str, count: int = LEARNING_ROWS) -> Evidence:
        return Evidence(self.columns.at(self.order[:count]).padded(), self.kernels[kernel])

    def find_modes(self) -> dict[str, np.ndarray]:
        """Modes by kernel, the most probable first: on a few rows, and of the best on more."""
        few = {name: self.evidence(name, FIRST_ROWS) for name in self.kernels}
        modes = {name: find_mode(evidence) for name, evidence in few.items()}
        if len(self.columns.y) <= FIRST_ROWS:
            return _best(modes, few)
        more = {name: self.evidence(name) for name in _best(modes, few)}
        return _best({n: e.minimise(modes[n], 100)[1] for n, e in more.items()}, more)

    def hyper(self, flat: np.ndarray, kernel: str) -> Hyper:
        return unpack(jnp.asarray(flat), self.kernels[kernel])

    def fit(self, hyper: Hyper) -> Fitted:
        return fit(hyper, self.centres, self.columns.padded())

    def draw(self, hyper: Hyper, seed: int) -> Drawn:
        """The same by minibatches."""
        return draw_readout(jax.random.key(seed), hyper, self.centres, self.columns.padded())

    def vary(self, modes: dict[str, np.ndarray], forced: bool) -> tuple[Any, ...]:
        """(modes, noise, its level at the rows). Keeps varying noise if the leave-one-out log density
        gains more than two standard errors, or if it is forced."""
        kernel, mode = next(iter(modes.items()))
        constant, varied = self.columns, mode
        scores, residuals = self._leave_out(kernel, mode, self._constant_level(mode))
        for _ in range(NUM_ROUNDS):
            rows = self.order[:LEARNING_ROWS]
            noise, *level = learn_noise(constant.x, residuals, self.centres, rows)
            self.columns = constant.with_noise(np.exp(level[0]))
            _, varied = self.evidence(kernel).minimise(varied, 100)
            varied_scores, residuals = self._leave_out(kernel, varied, tuple(level))
        if forced or is_gain(varied_scores - scores):
            return {kernel: varied}, noise, tuple(level)
        self.columns = constant
        return modes, None, None

    def average(self, modes: dict[str, np.ndarray], inference: str, seed: int) -> Mixture:
        """Hyperparameters about the modes with their weights, as many as there is time to fit; of the
        most probable kernel alone by NUTS, and its mode alone for "laplace" and "sgld"."""
        draw = chain_draws if inference == "nuts" else weighted_draws
        if inference != "exact":
            modes = dict([next(iter(modes.items()))])
        cost = len(self.columns.y) * float(len(self.centres)) ** 2
        most = 1 if inference in ("laplace", "sgld") else NUM_HYPER // len(modes)
        least = FEWEST if inference == "nuts" else 1
        count = int(np.clip(BUDGET / cost / len(modes), least, most))
        return mix({k: draw(self.evidence(k), mode, count, seed) for k, mode in modes.items()})

    def calibrate(
        self, flat: np.ndarray, kernel: str, level: tuple[Any, ...] | None
    ) -> Calibration:
        """By the rows left out one by one."""
        level = self._constant_level(flat) if level is None else level
        residuals, rest, _ = self._left_out(kernel, flat, level)
        noise = [np.exp(level[0] + node * np.sqrt(level[1])) for node in NODES]
        return calibrate(residuals, rest[None] + np.stack(noise), SHARES)

    def _constant_level(self, flat: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Mean and variance of the logarithm of the noise's variance at each row."""
        noise = self.columns.known + self.columns.learns * np.exp(2 * flat[-1])
        return np.log(noise), np.zeros(len(noise))

    def _left_out(
        self, kernel: str, flat: np.ndarray, level: tuple[Any, ...]
    ) -> tuple[np.ndarray, ...]:
        """Residual of each row given the others, its variance without and with noise."""
        noise = np.exp(level[0])
        residuals, spread = leave_one_out(self.hyper(flat, kernel), self.columns)
        return residuals, np.maximum(spread - noise, 0.0), spread

    def _leave_out(self, kernel: str, flat: np.ndarray, level: tuple[Any, ...]) -> tuple[Any, ...]:
        """Log density of each row given the others, and residuals with the noise's own variance."""
        residuals, rest, spread = self._left_out(kernel, flat, level)
        own = residuals * np.sqrt(np.exp(level[0]) / spread)
        return mixed_log_density(residuals, rest, level), own


def is_gain(gain: np.ndarray) -> bool:
    """Whether differences of log densities are larger than chance makes them."""
    return bool(gain.mean() > SURE * gain.std() / np.sqrt(len(gain)))


def new_noise(columns: Columns, hyper: Hyper) -> float:
    """Variance of the noise of a new observation where it is the same everywhere."""
    learned = float(np.exp(2 * hyper.noise)) if np.any(columns.learns > 0) else 0.0
    # Of repeated rows a single observation is meant.
    return learned + float(np.mean(columns.known))


def _best(modes: dict[str, np.ndarray], evidences: dict[str, Evidence]) -> dict[str, np.ndarray]:
    """The two most probable kernels with their modes, if they are close."""
    losses = {name: evidences[name](mode)[0] for name, mode in modes.items()}
    order = sorted(modes, key=losses.__getitem__)
    return {n: modes[n] for n in order[:2] if losses[n] < losses[order[0]] + CLOSE}
