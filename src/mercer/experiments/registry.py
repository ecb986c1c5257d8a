"""The experiments that can be reproduced by name, and what a run folder holds."""

import dataclasses
import datetime
import difflib
import json
import platform
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import jax

SCALES = ("smoke", "quick", "paper")
MARK = "config.json"


@dataclasses.dataclass(frozen=True)
class Experiment:
    """A named experiment: `run(folder, scale, seed, tell)` fills a folder and returns metrics."""

    name: str
    title: str
    run: Callable[[Path, str, int, Callable[[str], None]], dict[str, Any]]


def nearest(word: str, choices: tuple[str, ...], kind: str) -> str:
    """The word if it is a choice; an error that names the nearest and lists them if not."""
    if word in choices:
        return word
    close = difflib.get_close_matches(word, choices, 1)
    hint = f" did you mean '{close[0]}'?" if close else ""
    raise ValueError(f"no {kind} '{word}':{hint} There are: {', '.join(choices)}.")


def prepare(folder: Path, overwrite: bool) -> None:
    """Make the folder, or refuse one that holds something else."""
    if folder.exists() and any(folder.iterdir()):
        if not (folder / MARK).exists():
            raise ValueError(
                f"{folder} is not empty and was not made by mercer; choose another --out."
            )
        if not overwrite:
            raise ValueError(
                f"{folder} holds an earlier run; choose another --out or add --overwrite."
            )
    folder.mkdir(parents=True, exist_ok=True)


def write_json(path: Path, value: dict[str, Any]) -> None:
    """Write a JSON file that people can read."""
    path.write_text(json.dumps(value, indent=2) + "\n")


def config(name: str, scale: str, seed: int) -> dict[str, Any]:
    """What a run was: name, scale, seed, versions, machine and time."""
    packages = ("mercer", "jax", "equinox", "numpy")
    return {
        "experiment": name,
        "scale": scale,
        "seed": seed,
        "versions": {p: metadata.version(p) for p in packages},
        "device": jax.devices()[0].device_kind,
        "python": platform.python_version(),
        "started": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }
