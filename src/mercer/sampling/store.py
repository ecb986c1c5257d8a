"""Draws on disk: a Zarr store that fills as a run goes on, and the state to go on from.

Rows are written first and the checkpoint after them, so that whatever moment a run is killed at,
the rows that the last checkpoint counts are whole; a resumed run writes over what came after. The
arrays have their full length from the start, NaN where no draw is yet, so that they can be read
at any moment.
"""

import json
import os
import shutil
from pathlib import Path
from typing import Any, cast

import jax
import numpy as np
import zarr

from .devices import agree

CHUNK_BYTES = 2**23


class Store:
    """A folder with `draws.zarr` and `checkpoints`, for one run; only the first process writes."""

    def __init__(self, folder: Path, identity: str, resume: bool, num_draws: int):
        self.folder: Path = Path(folder).expanduser().absolute()
        self.num_draws = num_draws
        self.group: zarr.Group
        self.writes: bool = jax.process_index() == 0
        refusal = self._open(identity, resume) if self.writes else None
        if agree(int(refusal is None)) == 0:
            raise refusal or ValueError(f"the first process was refused {self.folder}.")
        self.group = zarr.open_group(str(self.folder / "draws.zarr"), mode="r+")

    def write(self, arrays: dict[str, np.ndarray], begin: int) -> None:
        if not self.writes:
            return
        for name, value in arrays.items():
            if name not in self.group:
                self._create(name, value)
            self._array(name)[:, begin : begin + value.shape[1]] = value

    def read(self, name: str, draws: slice) -> np.ndarray:
        return np.asarray(self._array(name)[:, draws])

    def cut(self, count: int) -> None:
        """Drop the room for draws that were not made."""
        if self.writes:
            for array in self._arrays():
                array.resize((array.shape[0], count, *array.shape[2:]))

    def checkpoint(self, state: Any, count: int) -> None:
        """Keep the state after `count` draws, then drop the checkpoint before."""
        import orbax.checkpoint as ocp

        if count in self.counts():
            return
        with ocp.StandardCheckpointer() as checkpointer:
            checkpointer.save(self.folder / "checkpoints" / str(count), jax.tree.leaves(state))
        if self.writes:
            for other in self.counts():
                if other != count:
                    shutil.rmtree(self.folder / "checkpoints" / str(other), ignore_errors=True)

    def restore(self, template: Any) -> tuple[Any, int]:
        """The last state, as NumPy arrays, and how many draws it counts."""
        import orbax.checkpoint as ocp

        count = max(self.counts())
        leaves, structure = jax.tree.flatten(template)
        blank = [np.zeros(leaf.shape, leaf.dtype) for leaf in leaves]
        with ocp.StandardCheckpointer() as checkpointer:
            restored = checkpointer.restore(self.folder / "checkpoints" / str(count), blank)
        return jax.tree.unflatten(structure, [np.asarray(leaf) for leaf in restored]), count

    def counts(self) -> list[int]:
        """After how many draws there are checkpoints."""
        folder = self.folder / "checkpoints"
        names = [path.name for path in folder.iterdir()] if folder.exists() else []
        return [int(name) for name in names if name.isdigit()]

    def _open(self, identity: str, resume: bool) -> ValueError | None:
        """Make room for the run; why not, where that cannot be."""
        try:
            self._claim(identity, resume)
        except ValueError as refusal:
            return refusal
        self.group = zarr.open_group(str(self.folder / "draws.zarr"), mode="a")
        for array in self._arrays():
            if array.shape[1] < self.num_draws:
                array.resize((array.shape[0], self.num_draws, *array.shape[2:]))
        return None

    def _claim(self, identity: str, resume: bool) -> None:
        """Take an empty folder, or one that holds this very run."""
        record = self.folder / "run.json"
        begun = any(self.folder.glob("draws.zarr/*/*/zarr.json"))
        if record.exists() and (begun or resume):
            if _read(record) != identity:
                raise ValueError(
                    f"{self.folder} belongs to another density, seed, algorithm, version or kind of "
                    "machine; choose another store."
                )
            if not resume:
                raise ValueError(f"{self.folder} holds a run already; resume=True goes on with it.")
            return
        if self.folder.is_dir() and any(self.folder.iterdir()) and not record.exists():
            raise ValueError(
                f"{self.folder} is not empty and is no store of mercer; choose another."
            )
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            temporary = record.with_suffix(".part")
            temporary.write_text(json.dumps({"identity": identity}))
            os.replace(temporary, record)
        except OSError as error:
            raise ValueError(
                f"cannot write to {self.folder} ({error.strerror}); choose another store."
            ) from None

    def _create(self, name: str, value: np.ndarray) -> None:
        num_chains, _, *rest = value.shape
        row_bytes = max(1, num_chains * int(np.prod(rest)) * value.dtype.itemsize)
        rows = int(np.clip(CHUNK_BYTES // row_bytes, 1, min(1000, self.num_draws)))
        own = [f"{name.split('/')[-1]}_{i}" for i in range(len(rest))]
        self.group.create_array(
            name,
            shape=(num_chains, self.num_draws, *rest),
            chunks=(num_chains, rows, *rest),
            dtype=value.dtype,
            fill_value=np.nan if np.issubdtype(value.dtype, np.floating) else 0,
            dimension_names=["chain", "draw", *own],
        )

    def _array(self, name: str) -> zarr.Array:
        return cast(zarr.Array, self.group[name])

    def _arrays(self) -> list[zarr.Array]:
        return [array for _, group in self.group.groups() for _, array in group.arrays()]


def _read(record: Path) -> str | None:
    """Whose folder it is, or None where that cannot be read."""
    try:
        return json.loads(record.read_text())["identity"]
    except (json.JSONDecodeError, KeyError, TypeError):
        return None
