"""What a run is, so that a store goes on with no other.

Functions, structure and whole numbers count exactly. Arrays of floats are often computed, by a
factorisation say, and another machine rounds otherwise: they count by weighted means, which agree
to rounding where the arrays do. So a run that began on one node of a cluster goes on on another.
"""

import dataclasses
import hashlib
import re
from types import FunctionType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..version import __version__

LAYOUT_VERSION = 3
# Each array is told by so many means, and by these digits of them.
NUM_PARTS = 64
TOLERANCE = 1e-8


@dataclasses.dataclass(frozen=True)
class Identity:
    """A hash of what is exact; of each array of floats, how far its means may be off, and they."""

    exact: str
    floats: list[list[float]]

    @classmethod
    def of(cls, *parts: Any) -> "Identity":
        """Of pytrees: their structure, the names of their functions and every array in them."""
        digest = hashlib.sha256(f"{LAYOUT_VERSION} {__version__}".encode())
        floats: list[list[float]] = []
        for part in parts:
            leaves, structure = jax.tree.flatten(part)
            digest.update(_without_addresses(str(structure)))
            for leaf in leaves:
                digest.update(_exact(leaf, floats))
        return cls(digest.hexdigest(), floats)

    def matches(self, other: "Identity") -> bool:
        """Whether both are one run, but for rounding."""
        if (self.exact, len(self.floats)) != (other.exact, len(other.floats)):
            return False
        return all(
            np.allclose(mine, theirs, rtol=0, atol=allowed, equal_nan=True)
            for (allowed, *mine), (_, *theirs) in zip(self.floats, other.floats, strict=True)
        )


def _exact(leaf: Any, floats: list[list[float]]) -> bytes:
    """The bytes that tell a leaf; what may round goes to `floats`."""
    if isinstance(leaf, jax.Array) and jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        leaf = jax.random.key_data(leaf)
    if isinstance(leaf, jax.Array | np.ndarray) and jax.dtypes.issubdtype(leaf.dtype, np.floating):
        floats.append(_means(np.asarray(leaf)))
        return f"{leaf.dtype} {leaf.shape}".encode()
    if isinstance(leaf, jax.Array | np.ndarray | float | int):
        return np.ascontiguousarray(np.asarray(leaf)).tobytes()
    # Our own functions and JAX's are known by their names; the version stands for what is in them.
    if isinstance(leaf, FunctionType) and leaf.__module__.split(".")[0] not in ("mercer", "jax"):
        return _code(leaf, floats)
    return _without_addresses(repr(leaf))


def _means(array: np.ndarray) -> list[float]:
    """Weighted means of the parts of an array, after how far they may be off."""
    flat = array.ravel()
    weights = np.random.default_rng(0)
    with np.errstate(invalid="ignore", over="ignore"):
        means = [
            float(np.mean(part * weights.standard_normal(len(part))))
            for part in np.array_split(flat, min(NUM_PARTS, max(1, flat.size)))
            if part.size
        ]
    finite = np.abs(flat[np.isfinite(flat)], dtype=float)
    size = float(np.mean(finite)) if finite.size else 0.0
    return [max(TOLERANCE, 10 * float(jnp.finfo(array.dtype).eps)) * size, *means]


def _code(function: FunctionType, floats: list[list[float]]) -> bytes:
    """What a function does: its instructions, its constants, and the values that it closes over."""
    cells = [cell.cell_contents for cell in function.__closure__ or ()]
    held = [leaf for leaf in jax.tree.leaves(cells) if leaf is not function]
    code = function.__code__
    text = _without_addresses(repr((code.co_names, code.co_consts, function.__defaults__)))
    return b"".join([code.co_code, text, *(_exact(leaf, floats) for leaf in held)])


def _without_addresses(text: str) -> bytes:
    return re.sub(r"0x[0-9a-f]+", "", text).encode()
