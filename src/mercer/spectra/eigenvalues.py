"""What a list of eigenvalues says: whether it can define a prior, and how fast it decays."""

import numpy as np
from jaxtyping import Array, Float

from ..checks import default_float, is_concrete


def check_eigenvalues(log_eigenvalues: Float[Array, " K"]) -> None:
    """Raise if eigenvalues are not numbers, out of order, or cannot be inverted."""
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
    limit = np.log(np.finfo(default_float()).max) - 20
    if np.any(logs < -limit):
        mode = int(np.argmax(logs < -limit)) + 1
        raise ValueError(
            f"mode {mode} has log eigenvalue {logs[mode - 1]:.4g}, which underflows in "
            f"{default_float()} and cannot be inverted; keep S[:{mode - 1}] or choose a shorter "
            "length scale."
            if mode > 1
            else f"mode 1 has log eigenvalue {logs[0]:.4g}, which underflows in {default_float()}; "
            "rescale the spectrum, for example with_variance(1.0)."
        )
    if np.any(np.diff(logs) > 1e-6 * (1 + np.abs(logs[1:]))):
        mode = int(np.argmax(np.diff(logs) > 1e-6 * (1 + np.abs(logs[1:])))) + 2
        raise ValueError(
            f"modes must be ordered by decreasing eigenvalue, but mode {mode} is larger than "
            f"mode {mode - 1}."
        )


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
