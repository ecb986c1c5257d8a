"""Facts about arguments that can be checked before anything is computed."""

from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike

if TYPE_CHECKING:
    # To type checkers any value, which jaxtyping's own leaves unknown.
    from typing_extensions import TypeAliasType, TypeVar

    Leaf = TypeVar("Leaf", default=Any)
    PyTree = TypeAliasType("PyTree", Any, type_params=(Leaf,))
else:
    from jaxtyping import PyTree as PyTree

Real = float | int | np.number


def is_concrete(value: object) -> bool:
    """Whether the value is known now, that is, not a tracer of a JAX transformation."""
    return not any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(value))


def require_positive(name: str, value: ArrayLike) -> None:
    """Raise unless a concrete number is positive and finite."""
    if is_concrete(value) and not (np.all(np.isfinite(value)) and np.all(np.asarray(value) > 0)):
        raise ValueError(f"{name} must be positive and finite, got {value}.")


def require_count(name: str, value: object, at_least: int = 1) -> None:
    """Raise unless a count is a whole number that is large enough."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise ValueError(f"{name} must be a whole number, got {value!r}.")
    if value < at_least:
        raise ValueError(f"{name} must be at least {at_least}, got {value}.")


def require_finite(name: str, value: ArrayLike) -> None:
    """Raise if a concrete array has a NaN or an infinity, and say where the first one is."""
    if not is_concrete(value):
        return
    bad = np.argwhere(~np.isfinite(np.asarray(value)))
    if bad.size:
        where = tuple(int(i) for i in bad[0])
        raise ValueError(
            f"{name} has {len(bad)} entries that are NaN or infinite, the first at index {where}; "
            "remove or impute them first."
        )


def as_real(name: str, value: object) -> Array:
    """The value as an array of real numbers; raises where it is none."""
    if is_concrete(value):
        try:
            array = np.asarray(value)
        except ValueError as error:
            raise ValueError(f"{name} must be a rectangular array: {error}") from error
        if array.dtype.kind not in "biuf":
            raise ValueError(
                f"{name} must hold real numbers, got {array.dtype}; encode or remove the others."
            )
    return jnp.asarray(value)


def require_key(key: object) -> None:
    """Raise unless it is an array, as random keys are."""
    if not isinstance(key, jax.Array):
        raise ValueError(f"key must be a random key, got {key!r}; use jax.random.key(0).")


def require_float64(what: str) -> None:
    """Raise unless 64-bit floats are on."""
    if not jax.config.read("jax_enable_x64"):
        raise ValueError(
            f"{what} factorises a matrix that 32-bit floats cannot carry; "
            'call jax.config.update("jax_enable_x64", True) before making any array.'
        )


def default_float() -> np.dtype:
    """The float type that JAX computes in now."""
    return np.dtype(jnp.zeros(()).dtype)
