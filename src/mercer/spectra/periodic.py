"""Exactly periodic processes with a period that need not divide the domain."""

import warnings

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float

from ..checks import default_float, is_concrete, require_count, require_positive
from ..domains import Box, Domain
from .base import Derived
from .finite_rank import FiniteRank


class Periodic(Derived):
    """The squared exponential wrapped onto a period ρ, with unit variance.

    k(r) = Σₙ qₙ cos(2πnr/ρ) with q₀ ∝ 1, qₙ ∝ 2 exp(−2(πnℓ/ρ)²), Σ qₙ = 1, n ≤ num_harmonics;
    ℓ is in the units of the domain. Harmonics are orthogonal on a whole period only, so the
    eigenpairs on the domain come from `FiniteRank`.

    >>> from mercer import Interval
    >>> wave = Periodic(0.18, 0.05, Interval(0, 1), num_harmonics=5)
    >>> round(float(wave.kernel(0.1, 0.28)), 6)
    1.0
    """

    period: Float[Array, ""]
    lengthscale: Float[Array, ""]
    spectrum: FiniteRank

    def __init__(
        self, period: ArrayLike, lengthscale: ArrayLike, domain: Domain, num_harmonics: int
    ):
        require_positive("period", period)
        require_positive("lengthscale", lengthscale)
        require_count("num_harmonics", num_harmonics)
        if not isinstance(domain, Box) or domain.dimension != 1:
            raise ValueError(f"a periodic process lives on an Interval, got {domain}.")
        _warn_if_longer(period, domain)
        self.period = jnp.asarray(period, default_float())
        self.lengthscale = jnp.asarray(lengthscale, default_float())
        n = jnp.arange(1, num_harmonics + 1)
        log_decay = -2 * jnp.square(jnp.pi * n * self.lengthscale / self.period)
        _check_decay(log_decay)
        decay = jnp.exp(log_decay)
        total = 1 + 2 * jnp.sum(decay)
        weights = jnp.concatenate([jnp.ones(1), 2 * decay, 2 * decay]) / total
        functions = Harmonics(2 * jnp.pi * n / self.period)
        # A traced period is taken to be no shorter than a sixteenth of the domain.
        cycles = domain.measure / float(period) if is_concrete(period) else 16.0
        num_points = 32 + 4 * int(np.ceil(cycles * num_harmonics))
        self.spectrum = FiniteRank(functions, weights, domain, num_points)


class Harmonics(eqx.Module):
    """A constant, cosines and sines of these frequencies."""

    frequencies: Float[Array, " n"]

    def __call__(self, x: Float[Array, " 1"]) -> Float[Array, " M"]:
        angles = self.frequencies * x[0]
        return jnp.concatenate([jnp.ones(1), jnp.cos(angles), jnp.sin(angles)])


def _warn_if_longer(period: ArrayLike, domain: Box) -> None:
    if is_concrete(period) and float(period) > domain.measure:
        warnings.warn(
            f"a period of {float(period):.4g} is longer than the domain, {float(domain.measure):.4g}: "
            "nothing repeats, and data cannot tell such a period from a trend.",
            stacklevel=3,
        )


def _check_decay(log_decay: Float[Array, " n"]) -> None:
    if not is_concrete(log_decay):
        return
    logs = np.asarray(log_decay)
    lost = logs < 4 * np.log(np.finfo(default_float()).eps)
    if np.any(lost):
        harmonic = int(np.argmax(lost)) + 1
        raise ValueError(
            f"harmonic {harmonic} has log weight {logs[harmonic - 1]:.4g} and underflows beside the "
            f"constant; use num_harmonics={harmonic - 1} or a lengthscale well below the period."
            if harmonic > 1
            else f"harmonic 1 has log weight {logs[0]:.4g}, so nothing but a constant would be left; "
            "use a lengthscale below the period."
        )
