"""Layout of the recorded arrays, and the backend in memory."""

import dataclasses
from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import jax
import numpy as np

from ..checks import PyTree


@dataclasses.dataclass(frozen=True)
class Layout:
    """Groups of pytrees as one dictionary of arrays, named "group/leaf", and back.

    `templates` holds a pytree of each group, with its leaves' names in place of the leaves.
    """

    templates: dict[str, PyTree]

    @classmethod
    def of(cls, groups: dict[str, PyTree]) -> "Layout":
        """The layout of a dictionary of pytrees."""
        templates = {}
        for group, tree in groups.items():
            paths, structure = jax.tree_util.tree_flatten_with_path(tree)
            names = [f"{group}/{_name(path)}" for path, _ in paths]
            templates[group] = jax.tree.unflatten(structure, names)
        return cls(templates)

    def names(self, group: str) -> list[str]:
        """Names of a group's arrays."""
        return jax.tree.leaves(self.templates[group])

    def flatten(self, groups: dict[str, PyTree]) -> dict[str, Any]:
        """The arrays by name."""
        return {
            name: leaf
            for group in self.templates
            for name, leaf in zip(self.names(group), jax.tree.leaves(groups[group]), strict=True)
        }

    def build(self, group: str, read: Callable[[str], Any]) -> PyTree:
        """A group's pytree, each leaf read by its name; None where nothing was kept."""
        return jax.tree.map(read, self.templates[group])


def _name(path: tuple[Any, ...]) -> str:
    words = jax.tree_util.keystr(path, simple=True, separator=".").strip(".")
    return words.replace("/", ".") or "value"


@runtime_checkable
class Rows(Protocol):
    """A backend that keeps draws, in memory or on disk."""

    def write(self, arrays: dict[str, np.ndarray], begin: int) -> None:
        """Keep arrays of shape (chain, rows, …) from draw `begin` on."""

    def read(self, name: str, draws: slice) -> np.ndarray:
        """One array, some of its draws."""
        ...


class Memory:
    """Draws in memory, allocated in full by the first write."""

    def __init__(self, num_draws: int):
        self.num_draws = num_draws
        self.arrays: dict[str, np.ndarray] = {}

    def write(self, arrays: dict[str, np.ndarray], begin: int) -> None:
        for name, value in arrays.items():
            if name not in self.arrays:
                shape = (value.shape[0], self.num_draws, *value.shape[2:])
                self.arrays[name] = np.empty(shape, value.dtype)
            self.arrays[name][:, begin : begin + value.shape[1]] = value

    def read(self, name: str, draws: slice) -> np.ndarray:
        return self.arrays[name][:, draws]
