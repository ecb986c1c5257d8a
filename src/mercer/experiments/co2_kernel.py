"""The paper's custom kernel: why it cannot run as printed, and the one that does."""

import jax
import jax.numpy as jnp
import numpy as np

from ..domains import Interval
from ..spectra import Periodic
from .co2_model import DOMAIN, NUM_HARMONICS, PRINTED_PERIOD, fit_scales
from .experiment import Arrays, Run

NUM_NODES = 200


def printed_functions(times: np.ndarray) -> np.ndarray:
    """The paper's eleven functions, orthonormal on one period; one a column."""
    angles = 2 * np.pi * np.outer(times, np.arange(1, NUM_HARMONICS + 1)) / PRINTED_PERIOD
    waves = np.sqrt(2) * np.concatenate([np.cos(angles), np.sin(angles)], axis=1)
    return np.concatenate([np.ones((len(times), 1)), waves], axis=1) / np.sqrt(PRINTED_PERIOD)


def compare_kernels(run: Run) -> Arrays:
    """Log eigenvalues in three readings, and how far the functions are from orthonormal.

    As printed, λₙ = exp(−2(nπ/ρ)²) is lost beside λ₀ = 1 in any float. With a length scale ℓ it is
    exp(−2(nπℓ/ρ)²); a product instead of a quotient, exp(−2(nπρ)²), decays rapidly, too.
    """
    n = np.arange(1, NUM_HARMONICS + 1)
    scales = fit_scales("four_weekly", "ours")
    length = scales.season_length * PRINTED_PERIOD
    working = Periodic(PRINTED_PERIOD, length, NUM_HARMONICS, DOMAIN)
    return {
        "harmonics": n,
        "log_printed": -2 * (n * np.pi / PRINTED_PERIOD) ** 2,
        "log_working": -2 * (n * np.pi * length / PRINTED_PERIOD) ** 2,
        "log_product": -2 * (n * np.pi * PRINTED_PERIOD) ** 2,
        "log_eigenvalues": np.asarray(working.log_eigenvalues),
        "season_length": length,
        "refusal": _refusal(),
        "gram_error_one_period": _printed_gram_error(PRINTED_PERIOD),
        "gram_error_unit_interval": _printed_gram_error(1.0),
        "gram_error_working": _gram_error(working),
    }


def _refusal() -> str:
    """What the library says to the kernel as printed, whose length scale is one."""
    try:
        Periodic(PRINTED_PERIOD, 1.0, NUM_HARMONICS, DOMAIN)
    except ValueError as error:
        return str(error)
    raise ValueError("the printed kernel was accepted, though its eigenvalues are lost.")


def _printed_gram_error(end: float) -> float:
    """max |∫ φᵢφⱼ − δᵢⱼ| of the printed functions over [0, end]."""
    nodes, rule = Interval(0.0, end).quadrature(NUM_NODES)
    values = printed_functions(np.asarray(nodes)[:, 0])
    return float(
        np.max(np.abs(values.T @ (np.asarray(rule)[:, None] * values) - np.eye(values.shape[1])))
    )


def _gram_error(spectrum: Periodic) -> float:
    """The same of a spectrum's own functions on its domain."""
    nodes, rule = spectrum.domain.quadrature(NUM_NODES)
    values = jax.vmap(spectrum.eigenfunctions)(nodes)
    gram = values.T @ (rule[:, None] * values)
    return float(jnp.max(jnp.abs(gram - jnp.eye(spectrum.num_modes))))
