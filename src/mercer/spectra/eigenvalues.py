"""Checks of eigenvalues, and the rate at which they decay."""

import warnings

import numpy as np
from jaxtyping import Array, Float

from ..checks import default_float, is_concrete


def check_eigenvalues(log_eigenvalues: Float[Array, " K"]) -> None:
    """Raise if eigenvalues are not numbers or out of order."""
    if not is_concrete(log_eigenvalues):
        return
    logs = np.asarray(log_eigenvalues, dtype=float)
    if logs.size == 0:
        raise ValueError("a spectrum needs at least one mode, got none.")
    infinite = np.isnan(logs) | (logs == np.inf)
    if np.any(infinite):
        mode = int(np.argmax(infinite)) + 1
        raise ValueError(
            f"mode {mode} has log eigenvalue {logs[mode - 1]}, so the variance is not summable."
        )
    rising = np.diff(logs) > 1e-6 * (1 + np.abs(logs[1:]))
    if np.any(rising):
        mode = int(np.argmax(rising)) + 2
        raise ValueError(
            f"modes must be ordered by decreasing eigenvalue, but mode {mode} is larger than "
            f"mode {mode - 1}."
        )


def warn_unless_summable(log_eigenvalues: Float[Array, " K"]) -> None:
    """Warn if eigenvalues decay too slowly for their sum to settle as more are kept."""
    if not is_concrete(log_eigenvalues):
        return
    logs = np.asarray(log_eigenvalues, dtype=float)
    decay = 2 * decay_order(logs, 1)
    if decay <= 1.02:
        warnings.warn(
            f"the eigenvalues decay like n^-{decay:.2g} up to mode {logs.size}: their sum does not "
            "settle as modes are added, so the process depends on where it is cut.",
            stacklevel=4,
        )


def require_invertible(log_eigenvalues: Float[Array, " K"]) -> None:
    """Raise if eigenvalues are so small that rounding errors dominate c²/λ."""
    if not is_concrete(log_eigenvalues):
        return
    logs = np.asarray(log_eigenvalues, dtype=float)
    if logs[0] < 0.9 * np.log(np.finfo(default_float()).tiny):
        raise ValueError(
            f"mode 1 has log eigenvalue {logs[0]:.4g}, which underflows in {default_float()}; "
            "rescale the spectrum, for example with_variance(1.0)."
        )
    kept = num_invertible(logs)
    if kept < logs.size:
        raise ValueError(
            f"mode {kept + 1} has log eigenvalue {logs[kept]:.4g}, {logs[0] - logs[kept]:.4g} below the "
            f"first: too small to divide by in {default_float()}; keep S[:{kept}] or choose a "
            "shorter length scale."
        )


def num_invertible(logs: np.ndarray) -> int:
    """How many leading modes an energy can divide by: ε² λ₁/λₙ must stay small."""
    limit = -2 * np.log(np.finfo(default_float()).eps) - 12
    return int(np.sum(logs[0] - logs <= limit))


def decay_order(log_eigenvalues: np.ndarray, dimension: int) -> float:
    """Sobolev order r with λₙ ∝ n^(−2r/d), from the later half of the modes."""
    count = log_eigenvalues.size
    if count < 8:
        return float("inf")
    n = np.arange(1, count + 1)[count // 2 :].astype(float)
    tail = log_eigenvalues[count // 2 :]
    slope, misfit = _fit_line(np.log(n), tail)
    _, exponential_misfit = _fit_line(n, tail)
    if exponential_misfit < 0.5 * misfit and -slope > 4:
        return float("inf")
    return float(-slope * dimension / 2)


def _fit_line(x: np.ndarray, y: np.ndarray) -> tuple[float, float]:
    """The slope of the least-squares line, and the range of its residuals."""
    line, *_ = np.polyfit(x, y, 1, full=True)
    return line[0], float(np.ptp(y - np.polyval(line, x)))
