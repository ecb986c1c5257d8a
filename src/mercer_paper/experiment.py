"""Experiments: stages that compute arrays, figures drawn from the arrays, and numbers to judge."""

import dataclasses
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from matplotlib.figure import Figure
from rich.console import Console
from rich.progress import track

import mercer

from .folder import Arrays, read_arrays, write_arrays

SCALES = ("smoke", "quick", "paper")
Results = Mapping[str, Arrays]


@dataclasses.dataclass(frozen=True)
class Chains:
    """Numbers of Markov chains, of draws of each chain, and of warm-up steps."""

    num_chains: int
    num_draws: int
    num_warmup: int

    @property
    def counts(self) -> dict[str, int]:
        """The numbers as keyword arguments of `mercer.sample`."""
        return dataclasses.asdict(self)


@dataclasses.dataclass(frozen=True)
class Run:
    """One stage in progress: its settings, its own random key, the key that all stages share, and
    the folder for its draws."""

    settings: Any
    key: jax.Array
    shared: jax.Array
    folder: Path
    tell: Callable[[str], None]
    progress: bool = True

    def each(self, words: str, items: Sequence[Any]) -> Iterator[Any]:
        """Iterate over the items with a progress bar."""
        console = Console(stderr=True)
        hidden = not (self.progress and console.is_terminal)
        yield from track(items, f"      {words}", console=console, transient=True, disable=hidden)

    def keep_each(
        self, words: str, compute: Callable[[Any], Arrays], items: Sequence[Any]
    ) -> list[Arrays]:
        """Compute arrays for each item; a stage that was stopped reads those it has finished."""
        results = []
        for item in self.each(words, items):
            arrays = read_arrays(self.folder, f"{words} {item}")
            if arrays is None:
                arrays = compute(item)
                write_arrays(self.folder, f"{words} {item}", arrays)
            results.append(arrays)
        return results

    def sample(
        self, name: str, density: Any, algorithm: Any = None, **options: Any
    ) -> mercer.draws.Draws:
        """`mercer.sample` with a store, so that a stage that was stopped continues its chains.

        The key depends on the stage and the name alone: an interruption does not change the draws.
        """
        key, store = fold(self.key, name), self.folder / name
        options = {"store": store, "resume": True, "progress": self.progress} | options
        return mercer.sample(key, density, algorithm, **options).complete()


@dataclasses.dataclass(frozen=True)
class Stage:
    """A step of an experiment, whose arrays are kept once it is done."""

    name: str
    title: str
    compute: Callable[[Run], Arrays]


@dataclasses.dataclass(frozen=True)
class Picture:
    """A figure drawn from the arrays of the stages it needs, without sampling again."""

    name: str
    caption: str
    needs: tuple[str, ...]
    draw: Callable[[Results], Figure]


@dataclasses.dataclass(frozen=True)
class Quantity:
    """A number of the report: the paper's value, and the limit ours must meet at each scale."""

    name: str
    words: str
    paper: float | None = None
    limits: Mapping[str, float] = dataclasses.field(default_factory=dict)
    at_least: bool = False

    def verdict(self, value: float, scale: str) -> str:
        """The comparison in words; empty if there is nothing to compare with."""
        if scale in self.limits:
            limit = self.limits[scale]
            good = value >= limit if self.at_least else value <= limit
            side = "at least" if self.at_least else "at most"
            return f"{'as asked' if good else 'NOT as asked'}: {side} {limit:g}"
        if self.paper is not None:
            return "closer than the paper" if value <= self.paper else "farther than the paper"
        return ""


@dataclasses.dataclass(frozen=True)
class Experiment:
    """A named experiment; `estimate(settings)` predicts its seconds on this machine."""

    name: str
    title: str
    settings: Mapping[str, Any]
    stages: tuple[Stage, ...]
    pictures: tuple[Picture, ...]
    quantities: tuple[Quantity, ...]
    measure: Callable[[Results], dict[str, Any]]
    estimate: Callable[[Any], float]

    def table(self, metrics: dict[str, Any], scale: str) -> list[tuple[str, str, str, str]]:
        """Rows of the report: words, our number, the paper's number, and the verdict."""
        return [
            (
                quantity.words,
                show(metrics[quantity.name]),
                "" if quantity.paper is None else f"{quantity.paper:g}",
                quantity.verdict(metrics[quantity.name], scale),
            )
            for quantity in self.quantities
            if metrics.get(quantity.name) is not None
        ]


def fold(key: jax.Array, name: str) -> jax.Array:
    """A random key for each name."""
    return jax.random.fold_in(key, zlib.crc32(name.encode()))


def strings(values: Iterable[Any]) -> np.ndarray:
    """Labels as an array of strings that npz stores without pickling."""
    return np.array([str(value) for value in values])


def show(value: float) -> str:
    """A number for readers: integers with separators, others with four digits."""
    return f"{value:,}" if isinstance(value, int) else f"{value:.4g}"
