"""A run folder: config.json, arrays of each stage, metrics.json, figures and a report page."""

import datetime
import difflib
import json
import os
import platform
import shutil
from importlib import metadata
from pathlib import Path
from typing import Any

import jax
import numpy as np

from ..version import __version__

Arrays = dict[str, Any]
CONFIG = "config.json"
METRICS = "metrics.json"
# What makes two runs the same run.
IDENTITY = ("experiment", "scale", "seed", "settings")


def nearest(word: str, choices: tuple[str, ...], kind: str) -> str:
    """The word if it is a choice; an error that names the nearest and lists them if not."""
    if word in choices:
        return word
    close = difflib.get_close_matches(word, choices, 1)
    hint = f" did you mean '{close[0]}'?" if close else ""
    raise ValueError(f"no {kind} '{word}':{hint} There are: {', '.join(choices)}.")


def prepare(folder: Path, config: dict[str, Any], resume: bool, overwrite: bool) -> None:
    """Make the folder, go on with one that holds this very run, or refuse what it holds."""
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{folder} is a file; choose another --out.")
    if folder.exists() and any(folder.iterdir()):
        if not (folder / CONFIG).exists():
            raise ValueError(
                f"{folder} is not empty and was not made by mercer; choose another --out."
            )
        if overwrite:
            _clear(folder)
        elif not resume:
            raise ValueError(
                f"{folder} holds an earlier run; add --resume to go on with it, --overwrite to "
                "replace it, or choose another --out."
            )
        else:
            _require_same(folder, config)
            return
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / CONFIG, config)


def make_config(name: str, scale: str, seed: int, settings: dict[str, Any]) -> dict[str, Any]:
    """What a run is: name, scale, seed, settings, versions, machine and time."""
    packages = ("jax", "equinox", "blackjax", "numpy")
    return {
        "experiment": name,
        "scale": scale,
        "seed": seed,
        "settings": settings,
        "versions": {"mercer": __version__} | {p: metadata.version(p) for p in packages},
        "device": jax.devices()[0].device_kind,
        "python": platform.python_version(),
        "started": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }


def read_json(path: Path) -> dict[str, Any]:
    """A JSON file, or a sentence about what is wrong with it."""
    try:
        return json.loads(path.read_text())
    except FileNotFoundError:
        raise ValueError(
            f"{path.parent} holds no {path.name}, so it is no run of mercer."
        ) from None
    except json.JSONDecodeError as error:
        raise ValueError(f"{path} is damaged ({error}); run it again with --overwrite.") from None


def write_json(path: Path, value: dict[str, Any]) -> None:
    """Write a JSON file that people can read, whole or not at all."""
    _replace(path, lambda part: part.write_text(json.dumps(value, indent=2) + "\n"))


def arrays_path(folder: Path, stage: str) -> Path:
    """Where the arrays of a stage are kept."""
    return folder / "arrays" / f"{stage}.npz"


def write_arrays(folder: Path, stage: str, arrays: Arrays) -> None:
    """Keep the arrays of a stage, whole or not at all."""
    path = arrays_path(folder, stage)
    path.parent.mkdir(parents=True, exist_ok=True)

    def write(part: Path) -> None:
        with part.open("wb") as file:
            np.savez_compressed(file, **arrays)

    _replace(path, write)


def read_arrays(folder: Path, stage: str) -> Arrays | None:
    """The arrays of a stage, or None where it is not done."""
    path = arrays_path(folder, stage)
    if not path.exists():
        return None
    with np.load(path) as held:
        return {name: held[name] for name in held.files}


def draws_folder(folder: Path, stage: str) -> Path:
    """Where a stage keeps its draws until it is done."""
    return folder / "draws" / stage


def _replace(path: Path, write: Any) -> None:
    part = path.with_name(path.name + ".part")
    try:
        write(part)
        os.replace(part, path)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise OSError(
            f"could not write {path} ({error.strerror or error}); what was done before is kept, and "
            "--resume goes on once there is room."
        ) from error


def _clear(folder: Path) -> None:
    """Remove what a run made, and nothing else."""
    for name in ("arrays", "draws", "figures"):
        shutil.rmtree(folder / name, ignore_errors=True)
    for name in (METRICS, "report.html"):
        (folder / name).unlink(missing_ok=True)


def _require_same(folder: Path, config: dict[str, Any]) -> None:
    held = read_json(folder / CONFIG)
    wanted = json.loads(json.dumps(config))
    different = [name for name in IDENTITY if held.get(name) != wanted[name]]
    if held.get("versions", {}).get("mercer") != __version__:
        different.append("version of mercer")
    if different:
        raise ValueError(
            f"{folder} holds another run: its {' and '.join(different)} differ; choose another --out, "
            "or --overwrite it."
        )
