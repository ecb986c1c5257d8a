"""What a list of eigenvalues says: whether it can define a prior, and how fast it decays."""

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
    if np.any(np.isnan(logs) | (logs == np.inf)):
        mode = int(np.argmax(np.isnan(logs) | (logs == np.inf))) + 1
        raise ValueError(
            f"mode {mode} has log eigenvalue {logs[mode - 1]}, so the variance is not summable."
        )
    if np.any(np.diff(logs) > 1e-6 * (1 + np.abs(logs[1:]))):
        mode = int(np.argmax(np.diff(logs) > 1e-6 * (1 + np.abs(logs[1:])))) + 2
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
    """Raise if the rounding of a coefficient, squared and over λ, would drown the energy."""
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
    n = np.arange(1, count + 1)[count // 2 :]
    tail = log_eigenvalues[count // 2 :]
    algebraic, *_ = np.polyfit(np.log(n), tail, 1, full=True)
    exponential, *_ = np.polyfit(n.astype(float), tail, 1, full=True)
    misfit = [
        np.ptp(tail - np.polyval(algebraic, np.log(n))),
        np.ptp(tail - np.polyval(exponential, n)),
    ]
    if misfit[1] < 0.5 * misfit[0] and -algebraic[0] > 4:
        return float("inf")
    return float(-algebraic[0] * dimension / 2)
