"""Learns from more rows than a process can be conditioned on: by rows given their neighbours.

Hyperparameters come from the densities of some rows given their nearest neighbours out of all rows; the
kernel is the one that foresees best, from all rows and from ever fewer of them, as it will have to next to
dense data and across gaps. The network's units carry what is far, its tail by neighbours what is near.
"""

import warnings
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int
from scipy.cluster.vq import kmeans2
from scipy.stats import norm

from ..coordinates import Frozen
from ..kernels import NAMES
from ..likelihoods import Gaussian
from ..posterior import Posterior
from ..tail import Neighbours
from .calibration import Calibration, calibrate
from .conditional import condition_on_neighbours, predictions
from .evidence import Evidence, chain_draws, find_mode
from .hyperparameters import Hyper, ModalKernel, start, unpack
from .learner import FEWEST, FIRST_ROWS, Kind, Learned, is_gain, new_noise
from .minibatch import Drawn, draw_readout
from .model import Columns, Fitted, make_centres, make_prior, noise_variances
from .noise import LEAST_FACTOR, VaryingNoise, learn_noise

# Rows that hyperparameters are learned from, neighbours of each, and steps of the rounds after which
# neighbours are found again.
LEARNING_ROWS, NUM_NEIGHBOURS, ROUNDS = 2048, 24, (25, 12, 12)
# Rows that tell how well a kernel foresees, and neighbours of each, out of each so many rows.
JUDGED_ROWS, NUM_JUDGED, THINNINGS = 400, 48, (1, 8, 64, 512)
# Numbers of neighbours of a prediction: the smallest that is worse by less than this, in log density.
PREDICTED, WORSE = (24, 48, 96), 0.01
# Rows that are left out for the noise and the calibration.
LEFT_OUT_ROWS = 1500
# Rows, and units, of the network that tells how variances vary.
NOISE_ROWS = 400
MAX_UNITS, MIN_UNITS = 1000, 16
# Multiply-adds a second that a fit is planned with.
SPEED = 1.5e9


class LocalLearner:
    """Learns hyperparameters by the densities of rows given their neighbours, kernels by names."""

    columns: Columns
    kernels: dict[str, Kind]
    random: np.random.Generator
    order: np.ndarray
    num_units: int

    def __init__(
        self,
        columns: Columns,
        kernels: dict[str, Kind],
        random: np.random.Generator,
        max_seconds: float,
        max_memory: float,
    ):
        self.columns, self.kernels, self.random = columns, kernels, random
        self.order = random.permutation(len(columns.y))
        self.num_units = plan_units(len(columns.y), max_seconds, max_memory)

    def learn(self, may_vary: bool, must_vary: bool, inference: str, seed: int) -> Learned:
        """Hyperparameters, noise that varies or not, and a network given the data."""
        kernel, flat = self.choose_kernel()
        count = self.count_neighbours(kernel, flat)
        calibration, varying = self.calibrate(kernel, flat, count), None
        if may_vary or must_vary:
            varying = self.vary(kernel, flat, count, must_vary)
        draws, weights = [flat], np.ones(1)
        if inference == "nuts":
            draws = list(chain_draws(self.evidence(kernel, flat), flat, FEWEST, seed)[0])
            weights = np.full(len(draws), 1 / len(draws))
        hyper = [self.hyper(draw, kernel) for draw in draws]
        components = [
            self.draw(one, seed) if inference == "sgld" else self.fit(one, count) for one in hyper
        ]
        noise = np.array([new_noise(self.columns, one) for one in hyper])
        return Learned(components, hyper, weights, varying, noise, calibration)

    def evidence(self, kernel: str, flat: np.ndarray) -> Evidence:
        """The density of hyperparameters, neighbours being near by those that are given."""
        coordinates = self.coordinates(kernel, flat)
        chosen = self.order[:LEARNING_ROWS]
        rows = condition_on_neighbours(self.columns, coordinates, chosen, NUM_NEIGHBOURS)
        return Evidence(rows, self.kernels[kernel])

    def choose_kernel(self) -> tuple[str, np.ndarray]:
        """The kernel that foresees best, and its mode; smoother or rougher ones are tried in turn."""
        names = [name for name in NAMES if name in self.kernels] or list(self.kernels)
        first = names[min(2, len(names) - 1)]
        modes = {first: self.find_mode(first, self.find_start(first), ROUNDS)}
        scores = {first: self.foresee(first, modes[first])}
        best = first
        for step in (-1, 1):
            place = names.index(first) + step
            while 0 <= place < len(names):
                name = names[place]
                modes[name] = self.find_mode(name, modes[best], ROUNDS[1:])
                scores[name] = self.foresee(name, modes[name])
                if scores[name] <= scores[best]:
                    break
                best, place = name, place + step
            if best != first:
                break
        return best, modes[best]

    def find_start(self, kernel: str) -> np.ndarray:
        """The more probable of the hyperparameters' medians and of the mode given a few rows."""
        few = Evidence(self.columns.at(self.order[:FIRST_ROWS]).padded(), self.kernels[kernel])
        starts = [start(few.num_lengthscales), find_mode(few)]
        return min(starts, key=lambda flat: self.evidence(kernel, flat)(flat)[0])

    def find_mode(self, kernel: str, flat: np.ndarray, rounds: tuple[int, ...]) -> np.ndarray:
        """The mode near a start, neighbours found again after each round."""
        for num_steps in rounds:
            _, flat = self.evidence(kernel, flat).minimise(flat, num_steps)
        return flat

    def foresee(self, kernel: str, flat: np.ndarray) -> float:
        """Mean log density of rows given neighbours out of all rows, and out of ever fewer."""
        total, chosen = 0.0, self.left_out[:JUDGED_ROWS]
        for thinning in THINNINGS:
            if len(self.order) < 2 * NUM_JUDGED * thinning:
                break
            residuals, variances = self.predict_rows(kernel, flat, chosen, NUM_JUDGED, thinning)
            total += np.mean(-0.5 * (np.log(variances) + residuals**2 / variances))
        return total

    def count_neighbours(self, kernel: str, flat: np.ndarray) -> int:
        """Neighbours that a prediction is worth."""
        scores = []
        for count in PREDICTED:
            residuals, variances = self.predict_rows(kernel, flat, self.left_out, count)
            scores.append(np.mean(-0.5 * (np.log(variances) + residuals**2 / variances)))
        return next(c for c, s in zip(PREDICTED, scores, strict=True) if s > max(scores) - WORSE)

    @property
    def left_out(self) -> Int[np.ndarray, " q"]:
        """Rows that are predicted by the others; hyperparameters have not seen them where rows are many."""
        return self.order[-LEFT_OUT_ROWS:]

    def predict_rows(
        self, kernel: str, flat: np.ndarray, chosen: np.ndarray, count: int, thinning: int = 1
    ) -> tuple[Float[np.ndarray, " q"], Float[np.ndarray, " q"]]:
        """Residuals of rows given their neighbours, and their variances, noise included."""
        coordinates = self.coordinates(kernel, flat)
        rows = condition_on_neighbours(self.columns, coordinates, chosen, count, thinning)
        mean, variance = predictions(rows, self.hyper(flat, kernel))
        return self.columns.y[chosen] - np.asarray(mean), np.asarray(variance)

    def coordinates(self, kernel: str, flat: np.ndarray) -> Float[np.ndarray, "n d"]:
        """Rows in coordinates where near ones are the correlated ones."""
        if isinstance(self.kernels[kernel], ModalKernel):
            return self.columns.x
        return self.columns.x * np.exp(-flat[:-3])

    def hyper(self, flat: np.ndarray, kernel: str) -> Hyper:
        return unpack(jnp.asarray(flat), self.kernels[kernel])

    def vary(self, kernel: str, flat: np.ndarray, count: int, forced: bool) -> VaryingNoise | None:
        """How predictive variances vary with the inputs beyond what the process says of them, kept if
        the log density of rows left out gains more than two standard errors, or if it is forced."""
        x = self.columns.x[self.left_out]
        residuals, variances = self.predict_rows(kernel, flat, self.left_out, count)
        constant = calibrate(residuals, variances[None], np.ones(1))(variances)
        scores = norm.logpdf(residuals, scale=np.sqrt(constant))
        ratios, every = residuals / np.sqrt(variances), np.arange(min(len(x), NOISE_ROWS))
        centres = make_centres(choose_centres(x, NOISE_ROWS, self.random))
        varying, level, spread = learn_noise(x, ratios, centres, every)
        factors = np.maximum(np.exp(level + spread / 2), LEAST_FACTOR)
        # The logarithms of small residuals hardly see large ones: the size is that of the squares.
        size = max(np.mean(ratios**2 / factors), 1.0)
        varied = norm.logpdf(residuals, scale=np.sqrt(size * factors * variances))
        if not (forced or is_gain(varied - scores)):
            return None
        changes = varying.level + np.log(size), jnp.ones(())
        return eqx.tree_at(lambda v: (v.level, v.multiplies), varying, changes)

    def calibrate(self, kernel: str, flat: np.ndarray, count: int) -> Calibration:
        """By rows left out of their own neighbourhoods."""
        residuals, variances = self.predict_rows(kernel, flat, self.left_out, count)
        return calibrate(residuals, variances[None], np.ones(1))

    def fit(self, hyper: Hyper, count: int) -> Fitted:
        """The posterior of the readout, the tail of its units by neighbours."""
        prior = make_prior(hyper, self.centres(hyper))
        scale = jnp.sqrt(noise_variances(hyper, self.columns))
        data = jnp.asarray(self.columns.x), jnp.asarray(self.columns.y)
        tail = Neighbours(NUM_NEIGHBOURS, count)
        return Fitted(Frozen(Posterior(prior, Gaussian(scale), data, tail=tail)))

    def draw(self, hyper: Hyper, seed: int) -> Drawn:
        """The posterior of the readout by minibatches, the tail independent."""
        centres, rows = self.centres(hyper), self.columns.padded()
        return draw_readout(jax.random.key(seed), hyper, centres, rows)

    def centres(self, hyper: Hyper) -> Any:
        """Where units sit: at means of clusters, near being as the kernel has it."""
        scale = np.exp(-np.asarray(hyper.lengthscales)) if len(hyper.lengthscales) else 1.0
        return make_centres(
            choose_centres(self.columns.x * scale, self.num_units, self.random) / scale
        )


def plan_units(count: int, max_seconds: float, max_memory: float) -> int:
    """How many units a fit to so many rows has time and memory for."""
    widths = np.arange(MAX_UNITS, MIN_UNITS, -1)
    seconds = count * (2 * NUM_NEIGHBOURS**2 * widths + widths**2.0) / SPEED
    affordable = widths[(seconds <= max_seconds) & (8.0 * count * widths <= max_memory)]
    return int(affordable[0]) if len(affordable) else MIN_UNITS


def choose_centres(
    x: Float[np.ndarray, "n d"], count: int, random: np.random.Generator
) -> Float[np.ndarray, "c d"]:
    """Means of clusters of some of the rows."""
    if len(x) <= count:
        return x
    some = x[random.permutation(len(x))[: 10 * count]]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return kmeans2(some, some[:count], iter=5, minit="matrix")[0]
