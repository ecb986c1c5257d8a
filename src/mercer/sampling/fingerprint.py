"""Fingerprint of a run: a store resumes only the run that began it.

Arrays count by every bit, functions by their instructions, constants, defaults and what they close
over. Arrays that were computed round otherwise on another kind of machine, which is another run then.
"""

import functools
import hashlib
import inspect
import re
from types import CodeType, FunctionType
from typing import Any

import jax
import numpy as np

from ..version import __version__

LAYOUT_VERSION = 3
# Modules whose functions are known by their names; the version stands for what is in them.
OUR_MODULES = ("mercer", "mercer_paper", "jax")


def fingerprint(*parts: Any) -> str:
    """A hash of pytrees: their structure, their functions and every array in them."""
    digest = hashlib.sha256(f"{LAYOUT_VERSION} {__version__}".encode())
    for part in parts:
        digest.update(_without_addresses(str(jax.tree.structure(part))))
        digest.update(_tree(part, ()))
    return digest.hexdigest()


def _tree(part: Any, within: tuple[Any, ...]) -> bytes:
    """The leaves of a pytree; `within` are the functions that it was found in."""
    return b"".join(_leaf(leaf, within) for leaf in jax.tree.leaves(part))


def _leaf(leaf: Any, within: tuple[Any, ...]) -> bytes:
    if isinstance(leaf, jax.Array) and jax.numpy.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        leaf = jax.random.key_data(leaf)
    if isinstance(leaf, jax.Array | np.ndarray | float | int):
        array = np.ascontiguousarray(np.asarray(leaf))
        return f"{array.dtype} {array.shape}".encode() + array.tobytes()
    if isinstance(leaf, functools.partial):
        return _tree((leaf.func, leaf.args, leaf.keywords), within)
    if callable(leaf):
        leaf = inspect.unwrap(leaf)
    if isinstance(leaf, FunctionType) and leaf.__module__.split(".")[0] not in OUR_MODULES:
        return b"" if leaf in within else _function(leaf, (*within, leaf))
    return _without_addresses(repr(leaf))


def _function(function: FunctionType, within: tuple[Any, ...]) -> bytes:
    cells = [cell.cell_contents for cell in function.__closure__ or ()]
    values = cells, function.__defaults__, function.__kwdefaults__
    return _code(function.__code__) + _tree(values, within)


def _code(code: CodeType) -> bytes:
    """Instructions, names and constants, those of functions within included."""
    return b"".join([code.co_code, repr(code.co_names).encode(), *map(_constant, code.co_consts)])


def _constant(value: Any) -> bytes:
    if isinstance(value, CodeType):
        return _code(value)
    if isinstance(value, frozenset):
        return b"".join(sorted(map(_constant, value)))
    return _without_addresses(repr(value))


def _without_addresses(text: str) -> bytes:
    return re.sub(r"0x[0-9a-f]+", "", text).encode()
