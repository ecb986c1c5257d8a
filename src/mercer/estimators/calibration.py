"""Predictive variances corrected by what leaving rows out says of them."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.optimize import minimize
from scipy.special import logsumexp

# Standard deviation of the logarithm of the factor a priori: of residuals that are many it says nothing.
SPREAD = 0.3


class Calibration(NamedTuple):
    """variance ↦ factor · variance + extra."""

    factor: float = 1.0
    extra: float = 0.0

    def __call__(self, variances: Float[np.ndarray, "..."]) -> Float[np.ndarray, "..."]:
        return self.factor * variances + self.extra


def calibrate(
    residuals: Float[np.ndarray, " n"],
    variances: Float[np.ndarray, "c n"],
    shares: Float[np.ndarray, " c"],
) -> Calibration:
    """The correction that makes left-out residuals most probable, for a mixture of variances.

    A model that is right has the factor one and no extra, up to chance; one that is overconfident,
    by a kernel too smooth or a noise too small, is widened to what the rows support. None is narrowed:
    the rows left out are a sample, and those to come may be worse.
    """
    typical = float(np.mean(np.abs(residuals))) ** 2
    if typical == 0:
        return Calibration()

    def loss(logs: np.ndarray) -> float:
        corrected = Calibration(np.exp(logs[0]), typical * np.exp(logs[1]))(variances)
        terms = -0.5 * (np.log(corrected) + residuals**2 / corrected)
        fit = logsumexp(terms, axis=0, b=shares[:, None]).sum()
        return -fit + 0.5 * (logs[0] / SPREAD) ** 2

    # For targets of unit variance: nothing is predicted worse than by their mean.
    bounds = [(0.0, 4.0), (-16.0, max(-np.log(typical), -15.0))]
    starts = [np.array([0.1, -8.0]), np.array([0.1, min(0.0, bounds[1][1])])]
    best = min(
        (minimize(loss, start, method="Nelder-Mead", bounds=bounds) for start in starts),
        key=lambda result: result.fun,
    )
    return Calibration(float(np.exp(best.x[0])), float(typical * np.exp(best.x[1])))
