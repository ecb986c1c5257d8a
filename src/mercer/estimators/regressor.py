"""The estimator: networks with a Mercer prior behind scikit-learn's `fit` and `predict`."""

import warnings
from collections.abc import Callable
from numbers import Integral
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import logsumexp, ndtr
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils.validation import (
    check_array,
    check_is_fitted,
    check_random_state,
    validate_data,
)

from ..checks import require_count
from ..domains import require_inside
from ..kernels import NAMES
from ..spectra import Spectrum
from ..threads import SMALL, few_threads
from .hyperparameters import Hyper, ModalKernel, as_kind
from .learner import EXACT_ROWS, ExactLearner
from .local import LocalLearner
from .model import Columns, pad, padded_size
from .noise import NODES, SHARES
from .repeats import merge_rows, rounding_variance

# In units of the training range: beyond this a prediction is the prior's, more or less.
FAR = 0.5
CHUNK = 4096
KERNELS = ("auto", *NAMES)
NOISES = ("auto", "constant", "input-dependent")
INFERENCES = ("exact", "nuts", "sgld", "laplace")
# Rows below which nothing can be said of noise that varies.
ENOUGH_ROWS = 50


class MercerRegressor(RegressorMixin, BaseEstimator):
    """Regression by a network with a Mercer prior, hyperparameters learned.

    `kernel` names the process: "auto" learns its smoothness, else one of "matern12", "matern32",
    "matern52", "squared-exponential", whose units are radial functions; or it is a spectrum on a
    domain that holds the rows, whose modes are the units and of which the amplitude is learned.
    `noise` is "constant" or "input-dependent", both learned, "auto", the one of them that explains
    single rows better given the others, or an array of standard deviations, one a row of `fit`.
    Columns and target are scaled within.

    The readout is exact given the hyperparameters; `inference` says what is done about these:
    "exact" averages over draws about their modes, weighted by how well they explain the data, "nuts"
    over draws by NUTS, and "laplace" takes the mode. "sgld" takes the mode too and draws the readout
    from minibatches, which is slower here than its closed form. Predictions include the variance that
    the units leave out, so that gaps stay honest.

    >>> import numpy as np
    >>> x = np.linspace(0, 1, 30)[:, None]
    >>> model = MercerRegressor().fit(x, np.sin(6 * x[:, 0]))
    >>> mean, sd = model.predict(x, return_std=True)
    >>> bool(np.max(np.abs(mean - np.sin(6 * x[:, 0]))) < 0.01)
    True
    """

    lower_: np.ndarray
    upper_: np.ndarray
    x_mean_: np.ndarray
    x_scale_: np.ndarray
    y_mean_: float
    y_scale_: float
    weights_: np.ndarray
    hyper_: list[Hyper]
    components_: Any
    noise_: Any
    noise_variances_: np.ndarray
    calibration_: Any

    def __init__(
        self,
        kernel: str | Spectrum = "auto",
        noise: Any = "auto",
        inference: str = "exact",
        random_state: Any = 0,
        max_seconds: float = 60.0,
        max_memory: float = 1e9,
    ):
        self.kernel = kernel
        self.noise = noise
        self.inference = inference
        self.random_state = random_state
        self.max_seconds = max_seconds
        self.max_memory = max_memory

    def fit(self, X: Any, y: Any) -> "MercerRegressor":
        """Learn from rows X of shape (n, d) and targets y of shape (n,)."""
        X, y = validate_data(
            self, X, y, dtype=float, y_numeric=True, ensure_min_samples=2, multi_output=False
        )
        self._check_kernel(X)
        if self.inference not in INFERENCES:
            raise ValueError(f"inference must be one of {INFERENCES}, got {self.inference!r}.")
        known = self._known_noise(len(y))
        self.lower_, self.upper_ = X.min(0), X.max(0)
        self.x_mean_, self.x_scale_ = X.mean(0), _scale(X)
        self.y_mean_, self.y_scale_ = float(y.mean()), float(_scale(y[:, None])[0])
        inputs, targets = self._standardise(X), (y - self.y_mean_) / self.y_scale_
        with jax.enable_x64(True), few_threads(inputs[: SMALL + 1]):
            self._learn(inputs, targets, None if known is None else (known / self.y_scale_) ** 2)
        return self

    def predict(self, X: Any, return_std: bool = False, quantiles: Any = None) -> Any:
        """The mean at each row; with it the standard deviation of a new observation, or quantiles
        of one, shape (levels, n)."""
        means, variances = self._components(X)
        mean = self._shares @ means
        if quantiles is not None:
            return mean, self._quantiles(means, np.sqrt(variances), _levels(quantiles))
        if return_std:
            return mean, np.sqrt(self._shares @ (variances + (means - mean) ** 2))
        return mean

    def log_density(self, X: Any, y: Any) -> np.ndarray:
        """log p(y | X) of new observations, one a row."""
        means, variances = self._components(X)
        y = check_array(y, ensure_2d=False, dtype=float, input_name="y")
        if y.shape != means.shape[1:]:
            raise ValueError(
                f"X has {means.shape[1]} rows, y has shape {y.shape}; one row a target."
            )
        terms = -0.5 * np.log(2 * np.pi * variances) - 0.5 * (y - means) ** 2 / variances
        return logsumexp(terms, axis=0, b=self._shares[:, None])

    def sample(self, X: Any, n: int = 1, random_state: int = 0) -> np.ndarray:
        """Functions at the rows, drawn jointly from the posterior, shape (n, rows)."""
        require_count("n", n)
        inputs = self._inputs(X)
        counts = np.random.default_rng(random_state).multinomial(n, self.weights_)
        keys = jax.random.split(jax.random.key(random_state), len(counts))
        with jax.enable_x64(True):
            drawn = [
                np.asarray(component.draw(key, inputs, int(counts.max())))[:count]
                for component, key, count in zip(self.components_, keys, counts, strict=True)
                if count
            ]
        return self.y_mean_ + self.y_scale_ * np.concatenate(drawn)

    def _learn(self, x: np.ndarray, y: np.ndarray, known: np.ndarray | None) -> None:
        seed = self._seed()
        random, columns = np.random.default_rng(seed), make_columns(x, y, known)
        if len(columns.y) <= EXACT_ROWS:
            learner: Any = ExactLearner(columns, self._kernels(), random)
        else:
            budget = self.max_seconds, self.max_memory
            learner = LocalLearner(columns, self._kernels(), random, *budget)
        learns = known is None and np.ptp(y) > 0
        may_vary = learns and self.noise == "auto" and len(y) >= ENOUGH_ROWS
        must_vary = learns and self.noise == "input-dependent"
        learned = learner.learn(may_vary, must_vary, self.inference, seed)
        self.weights_, self.hyper_ = learned.weights, learned.hyper
        self.components_, self.noise_ = _kept(learned.components), _kept(learned.varying)
        self.noise_variances_, self.calibration_ = learned.noise, learned.calibration

    def _seed(self) -> int:
        """The seed itself, or one drawn from scikit-learn's other ways to give it."""
        if isinstance(self.random_state, Integral):
            return int(self.random_state)
        return int(check_random_state(self.random_state).randint(2**31 - 1))

    def _check_kernel(self, X: np.ndarray) -> None:
        if isinstance(self.kernel, Spectrum):
            self._require_inside(X)
        elif self.kernel not in KERNELS:
            raise ValueError(f"kernel must be a spectrum or one of {KERNELS}, got {self.kernel!r}.")

    def _require_inside(self, X: np.ndarray) -> None:
        with jax.enable_x64(True):
            require_inside(self.kernel.domain, jnp.asarray(X))

    def _kernels(self) -> dict[str, Any]:
        """What is to be tried, by name."""
        if isinstance(self.kernel, Spectrum):
            units = jnp.asarray(self.x_mean_), jnp.asarray(self.x_scale_)
            return {"spectrum": ModalKernel(self.kernel, *units, jnp.ones(()))}
        names = NAMES if self.kernel == "auto" else (self.kernel,)
        return {name: as_kind(name) for name in names}

    def _components(self, X: Any) -> tuple[np.ndarray, np.ndarray]:
        """Mean and variance of a new observation by each component, shape (components, n)."""
        inputs = self._inputs(X)
        with jax.enable_x64(True):
            moments = [_in_blocks(component.moments, inputs) for component in self.components_]
            means, variances = (np.stack(parts) for parts in zip(*moments, strict=True))
            variances = variances + self.noise_variances_[:, None]
            if self.noise_ is not None:
                level = _in_blocks(self.noise_.log_variance, inputs)
                means = np.repeat(means, len(NODES), axis=0)
                variances = self.noise_.widen(variances, *level)
            else:
                variances = self.calibration_(variances)
        return self.y_mean_ + self.y_scale_ * means, self.y_scale_**2 * variances

    @property
    def lengthscales_(self) -> np.ndarray:
        """Length scale of each column in its own units, averaged over what was learned."""
        check_is_fitted(self)
        return self.x_scale_ * np.exp(self._average(lambda hyper: hyper.lengthscales))

    @property
    def amplitude_(self) -> float:
        """Standard deviation of the process in units of the target."""
        check_is_fitted(self)
        return float(self.y_scale_ * np.exp(self._average(lambda hyper: hyper.amplitude)))

    @property
    def noise_scale_(self) -> float:
        """Standard deviation of the noise in units of the target, where it is the same everywhere."""
        check_is_fitted(self)
        return float(self.y_scale_ * np.exp(self._average(lambda hyper: hyper.noise)))

    def _average(self, part: Callable[[Hyper], Any]) -> Any:
        """A logarithm among the hyperparameters, averaged with their weights."""
        values = [np.asarray(part(hyper)) for hyper in self.hyper_]
        return sum(w * v for w, v in zip(self.weights_, values, strict=True))

    @property
    def _shares(self) -> np.ndarray:
        """Weights of the components that `_components` tells of."""
        return self.weights_ if self.noise_ is None else np.outer(self.weights_, SHARES).ravel()

    def _quantiles(self, means: np.ndarray, sds: np.ndarray, levels: np.ndarray) -> np.ndarray:
        """Of the mixture over components, by bisection."""
        below = np.repeat((means - 9 * sds).min(0)[None], len(levels), axis=0)
        above = np.repeat((means + 9 * sds).max(0)[None], len(levels), axis=0)
        for _ in range(40):
            middle = (below + above) / 2
            share = np.stack([self._shares @ ndtr((m - means) / sds) for m in middle])
            low = share < levels[:, None]
            below, above = np.where(low, middle, below), np.where(low, above, middle)
        return (below + above) / 2

    def _inputs(self, X: Any) -> np.ndarray:
        check_is_fitted(self)
        X = validate_data(self, X, dtype=float, reset=False)
        if isinstance(self.kernel, Spectrum):
            self._require_inside(X)
        room = FAR * (self.upper_ - self.lower_)
        outside = np.any((self.lower_ - room > X) | (self.upper_ + room < X), axis=1)
        if np.any(outside & np.any(room > 0)):
            warnings.warn(
                f"{int(outside.sum())} of {len(X)} rows lie far outside the training data; "
                "predictions there follow the prior.",
                stacklevel=3,
            )
        return self._standardise(X)

    def _standardise(self, X: np.ndarray) -> np.ndarray:
        return (X - self.x_mean_) / self.x_scale_

    def _known_noise(self, count: int) -> np.ndarray | None:
        """Standard deviations that were given, or None where noise is to be learned."""
        if isinstance(self.noise, str):
            if self.noise not in NOISES:
                raise ValueError(f"noise must be an array or one of {NOISES}, got {self.noise!r}.")
            return None
        noise = np.asarray(self.noise, float)
        if noise.shape not in ((), (count,)):
            raise ValueError(f"noise must be one number or one a row ({count}), got {noise.shape}.")
        if not (np.all(np.isfinite(noise)) and np.all(noise > 0)):
            raise ValueError("noise must be positive and finite, one number or one a row.")
        return np.broadcast_to(noise, (count,))


def make_columns(x: np.ndarray, y: np.ndarray, known: np.ndarray | None) -> Columns:
    """Rows with known noise as they are; with noise to be learned, equal ones merged."""
    if known is not None:
        return Columns(x, y, known, np.zeros(len(y)))
    merged = merge_rows(x, y)
    floor = rounding_variance(y) / merged.counts
    return Columns(merged.x, merged.y, floor, 1 / merged.counts, merged.freedom, merged.scatter)


def _levels(quantiles: Any) -> np.ndarray:
    """Quantiles as numbers between 0 and 1."""
    try:
        levels = np.atleast_1d(np.asarray(quantiles, float))
    except (TypeError, ValueError):
        levels = np.array([np.nan])
    if levels.ndim != 1 or not np.all((levels > 0) & (levels < 1)):
        raise ValueError(f"quantiles must be numbers between 0 and 1, got {quantiles!r}.")
    return levels


def _scale(columns: np.ndarray) -> np.ndarray:
    """Standard deviations, one for a column that is constant."""
    sd = columns.std(0)
    return np.where(sd > 1e-12 * np.maximum(np.abs(columns).max(0), 1e-300), sd, 1.0)


def _kept(found: Any) -> Any:
    """In NumPy's arrays, which keep their precision wherever they are read again."""
    return jax.tree.map(lambda leaf: np.asarray(leaf) if eqx.is_array(leaf) else leaf, found)


def _in_blocks(function: Callable, inputs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Two arrays that a function makes of rows, a block of rows at a time."""
    size = min(CHUNK, padded_size(len(inputs)))
    found = []
    for begin in range(0, len(inputs), size):
        rows = inputs[begin : begin + size]
        first, second = function(jnp.asarray(pad(rows, size)))
        found.append((np.asarray(first)[: len(rows)], np.asarray(second)[: len(rows)]))
    firsts, seconds = zip(*found, strict=True)
    return np.concatenate(firsts), np.concatenate(seconds)
