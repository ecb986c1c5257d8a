"""Learns the hyperparameters of networks of known units from one data set, and fits networks with them."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int
from scipy.cluster.vq import kmeans2

from .evidence import Evidence, Mixture, chain_draws, find_mode, mix, weighted_draws
from .hyperparameters import Hyper, ModalKernel, unpack
from .minibatch import Drawn, draw_readout
from .model import Fitted, fit, leave_one_out, make_centres, make_rows
from .noise import learn_noise, mixed_log_density

# Rows that hyperparameters are learned from: at first, and in the end.
FIRST_ROWS, LEARNING_ROWS = 256, 640
# Rows beyond which every row no longer has a unit of its own.
NUM_CENTRES = 1000
# Hyperparameters to average over, and the fewest by NUTS: one draw tells less than the mode.
NUM_HYPER, FEWEST = 24, 8
# A kernel that is less probable than the best by this, in log evidence, is left out.
CLOSE = 5.0
# Multiply-adds that fits with several hyperparameters may take.
BUDGET = 1e11
# Rounds of learning noise that varies, and the mean again.
NUM_ROUNDS = 2


class Learner:
    """Learns hyperparameters and fits networks to the rows of one data set; kernels by their names."""

    def __init__(
        self,
        x: np.ndarray,
        y: np.ndarray,
        kernels: dict[str, Int[Array, ""] | ModalKernel],
        random: np.random.Generator,
    ):
        self.x, self.y, self.kernels = x, y, kernels
        self.order = random.permutation(len(y))
        self.centres = make_centres(choose_centres(x, random))

    def evidence(
        self, kernel: str, known: np.ndarray | None, count: int = LEARNING_ROWS
    ) -> Evidence:
        rows = self.order[:count]
        own = None if known is None else known[rows]
        return Evidence(make_rows(self.x[rows], self.y[rows], own), self.kernels[kernel])

    def find_modes(self, known: np.ndarray | None) -> dict[str, np.ndarray]:
        """Modes by kernel, the most probable first: on a few rows, and of the best on more."""
        few = {name: self.evidence(name, known, FIRST_ROWS) for name in self.kernels}
        modes = {name: find_mode(one) for name, one in few.items()}
        if len(self.y) <= FIRST_ROWS:
            return _best(modes, few)
        more = {name: self.evidence(name, known) for name in _best(modes, few)}
        return _best({n: e.minimise(modes[n], 100)[1] for n, e in more.items()}, more)

    def hyper(self, flat: np.ndarray, kernel: str) -> Hyper:
        return unpack(jnp.asarray(flat), self.kernels[kernel])

    def fit(self, hyper: Hyper, known: np.ndarray | None) -> Fitted:
        return fit(hyper, self.centres, make_rows(self.x, self.y, known))

    def draw(self, hyper: Hyper, known: np.ndarray | None, seed: int) -> Drawn:
        """The same by minibatches."""
        rows = make_rows(self.x, self.y, known)
        return draw_readout(jax.random.key(seed), hyper, self.centres, rows)

    def vary(self, modes: dict[str, np.ndarray], forced: bool) -> tuple:
        """(modes, noise, its variances at the rows). Keeps varying noise if the leave-one-out log
        density gains more than two standard errors, or if it is forced."""
        kernel, mode = next(iter(modes.items()))
        same = float(np.exp(2 * mode[-1]))
        level = np.full(len(self.y), np.log(same)), np.zeros(len(self.y))
        scores, residuals = self._leave_out(kernel, mode, None, level)
        varied = mode
        for _ in range(NUM_ROUNDS):
            noise, *level = learn_noise(self.x, residuals, self.centres, self.order[:LEARNING_ROWS])
            variances = np.exp(level[0])
            _, varied = self.evidence(kernel, variances).minimise(varied, 100)
            found, residuals = self._leave_out(kernel, varied, variances, tuple(level))
        gain = found - scores
        if forced or gain.mean() > 2 * gain.std() / np.sqrt(len(gain)):
            return {kernel: varied}, noise, variances
        return modes, None, None

    def average(
        self, modes: dict[str, np.ndarray], known: np.ndarray | None, inference: str, seed: int
    ) -> Mixture:
        """Hyperparameters about the modes with their weights, as many as there is time to fit; of the
        most probable kernel alone by NUTS, and its mode alone for "laplace" and "sgld"."""
        draw = chain_draws if inference == "nuts" else weighted_draws
        if inference != "exact":
            modes = dict([next(iter(modes.items()))])
        cost = len(self.y) * float(len(self.centres)) ** 2
        most = 1 if inference in ("laplace", "sgld") else NUM_HYPER // len(modes)
        least = FEWEST if inference == "nuts" else 1
        count = int(np.clip(BUDGET / cost / len(modes), least, most))
        return mix(
            {
                kernel: draw(self.evidence(kernel, known), mode, count, seed)
                for kernel, mode in modes.items()
            }
        )

    def _leave_out(self, kernel, mode, known, level: tuple) -> tuple[np.ndarray, np.ndarray]:
        """Log density of each row given the others, and residuals with the noise's own variance."""
        noise = np.exp(level[0])
        fitted = self.fit(self.hyper(mode, kernel), known)
        residuals, spread = leave_one_out(fitted, self.x, self.y, noise)
        rest = np.maximum(spread - noise, 0.0)
        return mixed_log_density(residuals, rest, level), residuals * np.sqrt(noise / spread)


def _best(modes: dict[str, np.ndarray], evidences: dict[str, Evidence]) -> dict[str, np.ndarray]:
    """The two most probable kernels with their modes, if they are close."""
    losses = {name: evidences[name](mode)[0] for name, mode in modes.items()}
    order = sorted(modes, key=losses.__getitem__)
    return {n: modes[n] for n in order[:2] if losses[n] < losses[order[0]] + CLOSE}


def choose_centres(x: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Where the units sit: at every row, or at the means of clusters where there are too many."""
    if len(x) <= NUM_CENTRES:
        return x
    some = x[random.permutation(len(x))[: 10 * NUM_CENTRES]]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return kmeans2(some, some[:NUM_CENTRES], iter=5, minit="matrix")[0]
