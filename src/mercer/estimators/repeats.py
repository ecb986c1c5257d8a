"""Repeated rows of data merged into one, and the least noise that targets can have."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

# Targets of fewer distinct values than this share of the rows are taken to be quantised.
QUANTISED = 0.5
# Repeats that are fewer than this share of the rows are not asked for the noise of all the others.
TELLING = 0.1
# The least standard deviation of noise, relative to the targets': below it data are as good as exact.
LEAST = 1e-3


class Merged(NamedTuple):
    """Distinct rows with the means of their targets, how many observations each stands for, and the
    targets' scatter about these means: degrees of freedom and sum of squares."""

    x: Float[np.ndarray, "n d"]
    y: Float[np.ndarray, " n"]
    counts: Float[np.ndarray, " n"]
    freedom: float = 0.0
    scatter: float = 0.0


def merge_rows(x: Float[np.ndarray, "n d"], y: Float[np.ndarray, " n"]) -> Merged:
    """Equal rows as one. Those with equal targets too are copies, and count once, unless targets take
    few values, so that equal ones are to be expected."""
    if len(np.unique(y)) > QUANTISED * len(y):
        first = np.unique(np.column_stack([x, y]), axis=0, return_index=True)[1]
        x, y = x[np.sort(first)], y[np.sort(first)]
    _, first, groups, counts = np.unique(
        x, axis=0, return_index=True, return_inverse=True, return_counts=True
    )
    groups = groups.ravel()
    means = np.bincount(groups, y) / counts
    scatter = float(np.sum((y - means[groups]) ** 2))
    order = np.argsort(first)
    rows = x[first[order]], means[order], counts[order].astype(float)
    freedom = float(len(y) - len(first))
    return Merged(*rows, freedom, scatter) if freedom > TELLING * len(first) else Merged(*rows)


def rounding_variance(y: Float[np.ndarray, " n"]) -> float:
    """Variance of the rounding errors of targets that are multiples of a step, at least `LEAST`² of
    that of the targets."""
    steps = np.diff(np.unique(y))
    least = (LEAST * np.std(y)) ** 2
    if len(steps) == 0:
        return least
    smallest = steps.min()
    on_grid = np.allclose(steps / smallest, np.round(steps / smallest), atol=1e-3)
    return max(smallest**2 / 12, least) if on_grid else least
