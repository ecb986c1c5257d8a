"""Products of processes on the axes of a box."""

import math

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ..checks import is_concrete, require_count
from ..domains import Box, PointLike
from .base import Spectrum
from .boundary import Boundary
from .laplace_basis import smallest_sums

MAX_DEFAULT_MODES = 2**16


class TensorProduct(Spectrum):
    """k(s, t) = ∏ᵢ kᵢ(sᵢ, tᵢ): eigenvalues and eigenfunctions multiply.

    Keeps the `num_modes` largest products, all of them by default.

    >>> from mercer import BrownianBridge
    >>> sheet = TensorProduct(BrownianBridge(50), BrownianBridge(50), num_modes=100)
    >>> sheet.domain.dimension, sheet.num_modes
    (2, 100)
    """

    factors: tuple[Spectrum, ...]
    indices: Int[Array, "K f"]

    def __init__(self, *spectra: Spectrum, num_modes: int | None = None):
        if not spectra or not all(isinstance(s, Spectrum) for s in spectra):
            raise ValueError(f"TensorProduct takes one or more spectra, got {spectra!r}.")
        if not all(isinstance(s.domain, Box) for s in spectra):
            raise ValueError("each factor must live on an Interval or a Box.")
        num_modes = _count_products([s.num_modes for s in spectra], num_modes)
        with jax.ensure_compile_time_eval():
            eigenvalues = [s.log_eigenvalues for s in spectra]
        if not is_concrete(eigenvalues):
            raise ValueError(
                "TensorProduct orders its modes when it is made, so make it outside jit and grad."
            )
        self.factors = tuple(spectra)
        self.indices = jnp.asarray(smallest_sums([-np.asarray(e) for e in eigenvalues], num_modes))

    @property
    def domain(self) -> Box:
        lower = [a for s in self.factors for a in s.domain.lower]
        upper = [b for s in self.factors for b in s.domain.upper]
        return Box(lower, upper)

    @property
    def boundary(self) -> Boundary | None:
        parts = [s.boundary for s in self.factors]
        return None if None in parts else tuple(sides for part in parts for sides in part)

    @property
    def log_eigenvalues(self) -> Float[Array, " K"]:
        logs = [s.log_eigenvalues[self.indices[:, i]] for i, s in enumerate(self.factors)]
        return sum(logs[1:], logs[0])

    @property
    def trace(self) -> Float[Array, ""]:
        return jnp.prod(jnp.stack([s.trace for s in self.factors]))

    @property
    def rkhs_order(self) -> float:
        return min(s.rkhs_order for s in self.factors)

    @property
    def path_order(self) -> float:
        # Along each axis a path is as smooth as that factor's; mixed smoothness adds nothing.
        return min(s.path_order for s in self.factors)

    @property
    def decay(self) -> float:
        return min(s.decay for s in self.factors)

    def eigenfunctions(self, x: PointLike) -> Float[Array, " K"]:
        value = jnp.ones(self.indices.shape[0])
        for i, (factor, part) in enumerate(zip(self.factors, self._split(x), strict=True)):
            value = value * factor.eigenfunctions(part)[self.indices[:, i]]
        return value

    def kernel(self, s: PointLike, t: PointLike) -> Float[Array, ""]:
        value = jnp.ones(())
        for factor, a, b in zip(self.factors, self._split(s), self._split(t), strict=True):
            value = value * factor.kernel(a, b)
        return value

    def quadrature_points(self) -> tuple[int, ...]:
        used = np.asarray(self.indices).max(axis=0) + 1
        points: tuple[int, ...] = ()
        for factor, count in zip(self.factors, used, strict=True):
            part = factor[: int(count)].quadrature_points()
            points += (part,) * factor.domain.dimension if isinstance(part, int) else part
        return points

    def with_modes(self, num_modes: int) -> "TensorProduct":
        return TensorProduct(*self.factors, num_modes=num_modes)

    def _split(self, x: PointLike) -> list[Float[Array, " d"]]:
        x = self.domain.point(x)
        ends = np.cumsum([s.domain.dimension for s in self.factors])[:-1]
        return jnp.split(x, ends)


def _count_products(counts: list[int], num_modes: int | None) -> int:
    """How many products of modes to keep, all of them by default."""
    available = math.prod(counts)
    if num_modes is None:
        if available > MAX_DEFAULT_MODES:
            raise ValueError(
                f"there are {available} products of modes; say how many to keep by num_modes=."
            )
        return available
    require_count("num_modes", num_modes)
    if num_modes > available:
        raise ValueError(f"num_modes={num_modes}, but the factors have {available} products.")
    return num_modes
