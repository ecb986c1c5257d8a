"""Draws on disk: a Zarr store that grows by chunks, and the state to go on from.

A chunk is written first and the checkpoint after it, so that whatever moment a run is killed at,
the rows that the last checkpoint counts are whole; a resumed run writes over what came after.
"""

import hashlib
import json
import os
import shutil
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import numpy as np
import orbax.checkpoint as ocp
import zarr

VERSION = 1


def fingerprint(*parts: Any) -> str:
    """A hash of pytrees: their structure and every array in them."""
    digest = hashlib.sha256(f"mercer store {VERSION}".encode())
    for part in parts:
        leaves = jax.tree.leaves(part)
        arrays = [leaf for leaf in leaves if eqx.is_array(leaf) or isinstance(leaf, float | int)]
        digest.update(f"{len(leaves)} {jax.tree.structure(part).num_nodes}".encode())
        for leaf in arrays:
            if isinstance(leaf, jax.Array) and jax.dtypes.issubdtype(
                leaf.dtype, jax.dtypes.prng_key
            ):
                leaf = jax.random.key_data(leaf)
            digest.update(np.ascontiguousarray(np.asarray(leaf)).tobytes())
    return digest.hexdigest()


class Store:
    """A folder with `draws.zarr` and `checkpoints`, for one run."""

    def __init__(self, folder: Path, identity: str, resume: bool):
        self.folder = Path(folder).absolute()
        self.identity = identity
        record = self.folder / "run.json"
        if record.exists():
            held = json.loads(record.read_text())
            if held["identity"] != identity:
                raise ValueError(
                    f"{folder} belongs to another density, seed, algorithm or version; "
                    "choose another store."
                )
            if not resume:
                raise ValueError(f"{folder} holds a run already; resume=True goes on with it.")
        elif self.folder.exists() and any(self.folder.iterdir()):
            raise ValueError(f"{folder} is not empty and is no store of mercer; choose another.")
        self.folder.mkdir(parents=True, exist_ok=True)
        _write(record, json.dumps({"identity": identity}))
        self.group = zarr.open_group(str(self.folder / "draws.zarr"), mode="a")

    def append(self, arrays: dict[str, np.ndarray], begin: int) -> None:
        """Write a chunk of draws, each array with shape (chain, draw, …), from row `begin` on."""
        for name, value in arrays.items():
            end = begin + value.shape[1]
            if name not in self.group:
                self.group.create_array(
                    name,
                    shape=(value.shape[0], 0, *value.shape[2:]),
                    chunks=(value.shape[0], value.shape[1], *value.shape[2:]),
                    dtype=value.dtype,
                    dimension_names=[
                        "chain",
                        "draw",
                        *(f"{name}_{i}" for i in range(value.ndim - 2)),
                    ],
                )
            array = self.group[name]
            array.resize((value.shape[0], end, *value.shape[2:]))
            array[:, begin:end] = value

    def checkpoint(self, state: Any, count: int) -> None:
        """Keep the state after `count` draws, then drop the checkpoint before."""
        with ocp.StandardCheckpointer() as checkpointer:
            checkpointer.save(self.folder / "checkpoints" / str(count), _plain(state))
        for other in self.counts():
            if other != count:
                shutil.rmtree(self.folder / "checkpoints" / str(other), ignore_errors=True)

    def restore(self, template: Any) -> tuple[Any, int]:
        """The last state and how many draws it counts; the template and 0 where there is none."""
        counts = self.counts()
        if not counts:
            return template, 0
        with ocp.StandardCheckpointer() as checkpointer:
            found = checkpointer.restore(
                self.folder / "checkpoints" / str(max(counts)), _plain(template)
            )
        return _typed(found, template), max(counts)

    def read(self, count: int) -> dict[str, np.ndarray]:
        """All arrays, their first `count` draws."""
        return {name: np.asarray(array[:, :count]) for name, array in self.group.arrays()}

    def counts(self) -> list[int]:
        """After how many draws there are checkpoints."""
        folder = self.folder / "checkpoints"
        return (
            [int(p.name) for p in folder.iterdir() if p.name.isdigit()] if folder.exists() else []
        )


def _plain(state: Any) -> list:
    return [np.asarray(leaf) for leaf in jax.tree.leaves(state)]


def _typed(found: list, template: Any) -> Any:
    structure = jax.tree.structure(template)
    return jax.tree.unflatten(structure, [jax.numpy.asarray(leaf) for leaf in found])


def _write(path: Path, text: str) -> None:
    temporary = path.with_suffix(".part")
    temporary.write_text(text)
    os.replace(temporary, path)
