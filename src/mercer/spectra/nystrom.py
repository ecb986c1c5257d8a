"""The spectrum of any kernel function, from its values on a point set."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..checks import default_float, is_concrete, require_count
from ..domains import Domain, Empirical, PointLike
from ..lattice import rank_one_lattice
from ..quadrature import Rule
from .base import Spectrum

MAX_NODES = 6144


class Nystrom(Spectrum):
    """Eigenpairs of a kernel by the Nyström method.

    With nodes xᵢ and weights wᵢ of the domain's measure, W^½ K W^½ = V M Vᵀ gives λ = M and
    φₙ(x) = Mₙ⁻¹ Σᵢ √wᵢ Vᵢₙ k(x, xᵢ). Nodes: Gauss–Legendre to three dimensions, a lattice
    above, the points themselves for an `Empirical` domain.

    >>> from mercer import Interval
    >>> process = Nystrom(lambda s, t: jnp.exp(-jnp.sum((s - t) ** 2)), Interval(0, 1), num_modes=6)
    >>> round(abs(float(process.kept_kernel(0.2, 0.7) - process.kernel(0.2, 0.7))), 6)
    0.0
    """

    covariance: Callable[[Array, Array], Array]
    domain: Domain
    log_eigenvalues: Float[Array, " K"]
    nodes: Float[Array, "n d"]
    weights: Float[Array, " n"]
    transform: Float[Array, "K n"]

    def __init__(
        self,
        kernel: Callable[[Array, Array], Array],
        domain: Domain,
        num_modes: int,
        num_points: int | None = None,
    ):
        require_count("num_modes", num_modes)
        nodes, weights = _nodes(domain, num_modes, num_points)
        if num_modes > nodes.shape[0]:
            raise ValueError(
                f"{nodes.shape[0]} points carry at most as many modes, got num_modes={num_modes}."
            )
        values = jax.vmap(lambda s: jax.vmap(lambda t: kernel(s, t))(nodes))(nodes)
        if values.shape != (nodes.shape[0],) * 2:
            raise ValueError(f"kernel(s, t) must return a scalar, got shape {values.shape[2:]}.")
        root = jnp.sqrt(weights)
        eigenvalues, vectors = jnp.linalg.eigh(root[:, None] * values * root[None])
        eigenvalues, vectors = eigenvalues[::-1][:num_modes], vectors[:, ::-1][:, :num_modes]
        _check_modes(values, eigenvalues)
        self.covariance = kernel
        self.domain = domain
        self.nodes, self.weights = nodes, weights
        self.log_eigenvalues = jnp.log(eigenvalues)
        self.transform = vectors.T * root[None] / eigenvalues[:, None]

    @property
    def trace(self) -> Float[Array, ""]:
        return jnp.sum(self.weights * jax.vmap(lambda x: self.covariance(x, x))(self.nodes))

    def eigenfunctions(self, x: PointLike) -> Float[Array, " K"]:
        x = self.domain.point(x)
        return self.transform @ jax.vmap(lambda node: self.covariance(x, node))(self.nodes)

    def kernel(self, s: PointLike, t: PointLike) -> Float[Array, ""]:
        return self.covariance(self.domain.point(s), self.domain.point(t))

    def quadrature_points(self) -> int | tuple[int, ...]:
        if isinstance(self.domain, Empirical) or self.domain.dimension > 3:
            return self.nodes.shape[0]
        return round(self.nodes.shape[0] ** (1 / self.domain.dimension))


def _nodes(domain: Domain, num_modes: int, num_points: int | None) -> Rule:
    """The nodes and weights of the domain's measure."""
    dimension = domain.dimension
    if isinstance(domain, Empirical):
        count = domain.points.shape[0]
        if count > MAX_NODES:
            raise ValueError(
                f"Nystrom on {count} points would factorise a {count} x {count} matrix; make the "
                f"domain of at most {MAX_NODES} of them, for example Empirical(points[::{-(-count // 2048)}])."
            )
        return domain.quadrature(count)
    if num_points is None:
        num_points = 4096 if dimension > 3 else (max(256, 3 * num_modes), 40, 14)[dimension - 1]
    require_count("num_points", num_points)
    if dimension > 3:
        unit = jnp.asarray(rank_one_lattice(num_points, dimension), default_float())
        unit = 1 - jnp.abs(2 * jnp.mod(unit + 0.5 / num_points, 1.0) - 1)
        return domain.from_unit(unit), jnp.full((num_points,), domain.measure / num_points)
    if num_points**dimension > MAX_NODES:
        raise ValueError(
            f"Nystrom with {num_points**dimension} nodes is over {MAX_NODES}; ask for fewer modes or points."
        )
    return domain.quadrature(num_points)


def _check_modes(values: Array, eigenvalues: Array) -> None:
    if not is_concrete((values, eigenvalues)):
        return
    table, kept = np.asarray(values), np.asarray(eigenvalues)
    if not np.allclose(table, table.T, rtol=1e-4, atol=1e-6 * np.abs(table).max()):
        raise ValueError("kernel(s, t) must be symmetric and finite; it is not on these points.")
    lost = ~(kept > 100 * np.finfo(kept.dtype).eps * kept[0])
    if lost[0]:
        raise ValueError(
            f"the kernel is not positive on these points: its largest eigenvalue is {kept[0]:.3g}."
        )
    if np.any(lost):
        mode = int(np.argmax(lost)) + 1
        raise ValueError(
            f"mode {mode} of this kernel has eigenvalue {kept[mode - 1]:.3g}, lost in rounding "
            f"beside the first, {kept[0]:.3g}; use num_modes={mode - 1} or fewer."
        )
