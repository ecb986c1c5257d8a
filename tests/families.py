"""One member of every family of spectra, on shifted and stretched domains, with its judge.

Each judge is a formula or a library that shares no code with the spectrum.
"""

import jax.numpy as jnp
import numpy as np
from sklearn.gaussian_process import kernels

import mercer

LINE = mercer.Interval(-1.3, 2.2)
LENGTH = 3.5
BOX = mercer.Box([-1.0, 0.5], [1.0, 2.0])


def from_lower(s, t):
    return min(s[0], t[0]) + 1.3, max(s[0], t[0]) + 1.3


def brownian(s, t):
    return from_lower(s, t)[0]


def bridge(s, t):
    low, high = from_lower(s, t)
    return low * (LENGTH - high) / LENGTH


def cubic_spline(s, t):
    """Green's function of the squared Dirichlet Laplacian."""
    low, high = from_lower(s, t)
    return low * (LENGTH - high) * (2 * LENGTH * high - low**2 - high**2) / (6 * LENGTH)


def free_then_pinned(s, t):
    return LENGTH - from_lower(s, t)[1]


def neumann_screened(s, t, kappa=2**0.5):
    low, high = from_lower(s, t)
    return (
        np.cosh(kappa * low) * np.cosh(kappa * (LENGTH - high)) / (kappa * np.sinh(kappa * LENGTH))
    )


def periodic_screened(s, t, kappa=1.0):
    gap = abs(s[0] - t[0])
    return np.cosh(kappa * (LENGTH / 2 - gap)) / (2 * kappa * np.sinh(kappa * LENGTH / 2))


def brute_force_square(s, t, power=2.0, size=2000):
    """Dirichlet modes of the box on a full tensor grid."""
    n = np.arange(1, size + 1)
    first = np.pi * n / 2.0
    second = np.pi * n / 1.5
    x = np.sin(first * (s[0] + 1)) * np.sin(first * (t[0] + 1)) * 2 / 2.0
    y = np.sin(second * (s[1] - 0.5)) * np.sin(second * (t[1] - 0.5)) * 2 / 1.5
    return x @ (first[:, None] ** 2 + second[None] ** 2) ** -power @ y


def brute_force_mixed(s, t, size=2000):
    """Pinned then free on the first axis, periodic on the second."""
    first = np.pi * (np.arange(1, size + 1) - 0.5) / 2.0
    x = np.sin(first * (s[0] + 1)) * np.sin(first * (t[0] + 1)) * 2 / 2.0
    second = 2 * np.pi * np.arange(size + 1) / 1.5
    y = np.cos(second * (s[1] - t[1])) * 2 / 1.5
    y[0] /= 2
    return x @ (first[:, None] ** 2 + second[None] ** 2) ** -2.0 @ y


def with_images(kernel, spacing, sign=1.0, count=6):
    """The stationary kernel reflected at both ends of the line."""

    def judged(s, t):
        low, high = s[0] + 1.3, t[0] + 1.3
        shifts = 2 * spacing * np.arange(-count, count + 1)
        direct = kernel(np.zeros((1, 1)), (low - high + shifts)[:, None]).sum()
        return direct + sign * kernel(np.zeros((1, 1)), (low + high + shifts)[:, None]).sum()

    return judged


def matern_square(s, t, count=3):
    """Matérn-5/2 with its images in both axes."""
    kernel = kernels.Matern(0.4, nu=2.5)
    total = 0.0
    shifts = 2 * np.arange(-count, count + 1)
    for sign_x in (-1, 1):
        for sign_y in (-1, 1):
            gap_x = s[0] + 1 - sign_x * (t[0] + 1) + shifts * 2.0
            gap_y = s[1] - 0.5 - sign_y * (t[1] - 0.5) + shifts * 1.5
            grid = np.stack(np.meshgrid(gap_x, gap_y), -1).reshape(-1, 2)
            total += kernel(np.zeros((1, 2)), grid).sum()
    return 2.0 * total


def wrapped_gaussian(s, t, period=0.7, lengthscale=0.2):
    shifts = period * np.arange(-40, 41)
    values = np.exp(-((s[0] - t[0] + shifts) ** 2) / (2 * lengthscale**2))
    return values.sum() / np.exp(-(shifts**2) / (2 * lengthscale**2)).sum()


def gaussian(width):
    return lambda s, t: np.exp(-np.sum((np.asarray(s) - np.asarray(t)) ** 2) / (2 * width**2))


def quadratic(x):
    return jnp.array([1.0, x[0], x[0] ** 2])


def make_families() -> dict:
    """name -> (spectrum, independent kernel)."""
    three_halves = with_images(kernels.ConstantKernel(2.0) * kernels.Matern(0.3, nu=1.5), LENGTH)
    pinned = with_images(kernels.Matern(0.5, nu=2.5), LENGTH, sign=-1.0)
    smooth = with_images(kernels.ConstantKernel(2.0) * kernels.RBF(0.4), LENGTH)
    cloud = np.random.default_rng(0).normal(size=(400, 6))
    unit = mercer.Interval(0, 1)
    return {
        "brownian": (mercer.BrownianMotion(60, LINE), brownian),
        "bridge": (mercer.BrownianBridge(60, LINE), bridge),
        "laplacian": (mercer.Laplacian(LINE, 60) ** 2, cubic_spline),
        "laplacian_mixed": (mercer.Laplacian(LINE, 60, ("neumann", "dirichlet")), free_then_pinned),
        "laplacian_neumann": (mercer.Laplacian(LINE, 60, "neumann", shift=2.0), neumann_screened),
        "laplacian_periodic": (
            mercer.Laplacian(LINE, 61, "periodic", shift=1.0),
            periodic_screened,
        ),
        "laplacian_box": (mercer.Laplacian(BOX, 80) ** 2, brute_force_square),
        "laplacian_box_mixed": (
            mercer.Laplacian(BOX, 80, [("dirichlet", "neumann"), "periodic"]) ** 2,
            brute_force_mixed,
        ),
        "matern": (mercer.Matern(1.5, 0.3, 2.0, LINE, 100), three_halves),
        "matern_dirichlet": (mercer.Matern(2.5, 0.5, 1.0, LINE, 60, "dirichlet"), pinned),
        "matern_box": (mercer.Matern(2.5, 0.4, 2.0, BOX, 100), matern_square),
        "squared_exponential": (mercer.SquaredExponential(0.4, 2.0, LINE, 40), smooth),
        "squared_exponential_line": (
            mercer.SquaredExponential(0.5, 1.0, mercer.RealLine(1.5), 60),
            gaussian(0.5),
        ),
        "periodic": (mercer.Periodic(0.7, 0.2, LINE, 4), wrapped_gaussian),
        "sum": (
            mercer.BrownianMotion(40, LINE) + 3.0 * mercer.Matern(1.5, 0.3, 2.0, LINE, 30),
            lambda s, t: brownian(s, t) + 3 * three_halves(s, t),
        ),
        "tensor_product": (
            mercer.TensorProduct(
                mercer.BrownianBridge(30, LINE), mercer.BrownianMotion(30, unit), num_modes=100
            ),
            lambda s, t: bridge(s, t) * min(s[1], t[1]),
        ),
        "finite_rank": (
            mercer.FiniteRank(quadratic, [1.0, 2.0, 3.0], LINE),
            lambda s, t: 1 + 2 * s[0] * t[0] + 3 * s[0] ** 2 * t[0] ** 2,
        ),
        "nystrom": (
            mercer.Nystrom(lambda s, t: jnp.exp(-2 * jnp.sum((s - t) ** 2)), LINE, 12),
            gaussian(0.5),
        ),
        "nystrom_empirical": (
            mercer.Nystrom(
                lambda s, t: jnp.exp(-jnp.sum((s - t) ** 2) / 8), mercer.Empirical(cloud), 40
            ),
            gaussian(2.0),
        ),
        "scaled_truncated": (
            (2.5 * mercer.BrownianMotion(60, LINE))[:30],
            lambda s, t: 2.5 * brownian(s, t),
        ),
    }
