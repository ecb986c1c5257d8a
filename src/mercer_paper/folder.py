"""A run folder: config.json, the arrays of each stage, metrics.json, figures and a report page."""

import datetime
import difflib
import json
import os
import platform
import shutil
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import jax
import numpy as np

import mercer

Arrays = dict[str, Any]
CONFIG, METRICS, REPORT = "config.json", "metrics.json", "report.html"
# Two runs are the same if these entries of their configurations agree.
IDENTITY = ("experiment", "scale", "seed", "settings")


def nearest(word: str, choices: tuple[str, ...], kind: str) -> str:
    """The word if it is one of the choices; otherwise an error that suggests the nearest."""
    if word in choices:
        return word
    close = difflib.get_close_matches(word, choices, 1)
    hint = f" did you mean '{close[0]}'?" if close else ""
    raise ValueError(f"no {kind} '{word}':{hint} There are: {', '.join(choices)}.")


def prepare(folder: Path, config: dict[str, Any], resume: bool, overwrite: bool) -> None:
    """Make a run folder, or accept the one that holds this very run; refuse any other."""
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{folder} is a file; choose another --out.")
    folder.mkdir(parents=True, exist_ok=True)
    is_empty = not any(folder.iterdir())
    if not (is_empty or (folder / CONFIG).exists()):
        raise ValueError(f"{folder} is not empty and was not made by mercer; choose another --out.")
    if not (is_empty or resume or overwrite):
        raise ValueError(
            f"{folder} holds an earlier run; add --resume to go on with it, --overwrite to replace "
            "it, or choose another --out."
        )
    if not (is_empty or overwrite):
        return _require_same(folder, config)
    for name in ("arrays", "draws", "figures"):
        shutil.rmtree(folder / name, ignore_errors=True)
    for name in (METRICS, REPORT):
        (folder / name).unlink(missing_ok=True)
    return write_json(folder / CONFIG, config)


def make_config(name: str, scale: str, seed: int, settings: Any) -> dict[str, Any]:
    """The configuration of a run: name, scale, seed, settings, versions, machine and time."""
    packages = ("jax", "equinox", "blackjax", "numpy")
    return {
        "experiment": name, "scale": scale, "seed": seed, "settings": settings,
        "versions": {"mercer": mercer.__version__} | {p: metadata.version(p) for p in packages},
        "device": jax.devices()[0].device_kind, "python": platform.python_version(),
        "started": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }  # fmt: skip


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON file, or say in a sentence why it cannot be read."""
    try:
        return json.loads(path.read_text())
    except FileNotFoundError:
        message = f"{path.parent} holds no {path.name}, so it is no run of mercer."
    except json.JSONDecodeError as error:
        message = f"{path} is damaged ({error}); run it again with --overwrite."
    raise ValueError(message)


def write_json(path: Path, value: dict[str, Any]) -> None:
    """Write an indented JSON file, completely or not at all."""
    _replace(path, lambda part: part.write_text(json.dumps(value, indent=2, default=vars) + "\n"))


def write_arrays(folder: Path, stage: str, arrays: Arrays) -> None:
    """Write the arrays of a stage, completely or not at all."""
    path = folder / "arrays" / f"{stage}.npz"
    _replace(path, lambda part: np.savez_compressed(part, **arrays))


def read_arrays(folder: Path, stage: str) -> Arrays | None:
    """Read the arrays of a stage; None if it is not done."""
    path = folder / "arrays" / f"{stage}.npz"
    if not path.exists():
        return None
    with np.load(path) as file:
        return {name: file[name] for name in file.files}


def _replace(path: Path, write: Callable[[Path], Any]) -> None:
    """Write to a temporary file, then rename it, so that no half-written file is left behind."""
    part = path.with_name(f"part-{path.name}")
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        write(part)
        os.replace(part, path)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise OSError(
            f"could not write {path} ({error.strerror or error}); what was done before is kept, "
            "and --resume goes on once there is room."
        ) from error


def _require_same(folder: Path, config: dict[str, Any]) -> None:
    """Refuse to resume a folder whose configuration differs from this one."""
    earlier, current = read_json(folder / CONFIG), json.loads(json.dumps(config, default=vars))
    different = [name for name in IDENTITY if earlier.get(name) != current[name]]
    if earlier.get("versions", {}).get("mercer") != mercer.__version__:
        different.append("version of mercer")
    if different:
        raise ValueError(
            f"{folder} holds another run: its {' and '.join(different)} differ; choose another "
            "--out, or --overwrite it."
        )
