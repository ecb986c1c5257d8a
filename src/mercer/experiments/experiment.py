"""What an experiment is: stages that make arrays, figures drawn from them, numbers to judge."""

import dataclasses
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from matplotlib.figure import Figure
from rich.console import Console
from rich.progress import track

from ..draws import Draws
from ..sampling import Algorithm, nuts, sample
from .folder import Arrays, read_arrays, write_arrays

SCALES = ("smoke", "quick", "paper")
WHITE = nuts(adaptation="step", initial_step=0.2)
Results = Mapping[str, Arrays]


@dataclasses.dataclass(frozen=True)
class Chains:
    """How many chains, draws of each, and steps to warm up."""

    num_chains: int
    num_draws: int
    num_warmup: int

    @property
    def counts(self) -> dict[str, int]:
        """As `mercer.sample` takes them."""
        return dataclasses.asdict(self)


@dataclasses.dataclass(frozen=True)
class Run:
    """What a stage has at hand: its settings, a key of its own and one that all stages share, and a
    folder for its draws."""

    settings: Any
    key: jax.Array
    shared: jax.Array
    folder: Path
    tell: Callable[[str], None]
    progress: bool = True

    def each(self, words: str, items: Sequence[Any]) -> Iterator[Any]:
        """The items one by one, with a bar that tells the time left."""
        console = Console(stderr=True)
        shown = self.progress and console.is_terminal
        yield from track(
            items, f"      {words}", console=console, transient=True, disable=not shown
        )

    def keep_each(
        self, words: str, compute: Callable[[Any], Arrays], items: Sequence[Any]
    ) -> list[Arrays]:
        """What is computed of each item, kept as it comes, so that a stage that is stopped goes on
        with the next."""
        found = []
        for item in self.each(words, items):
            name = f"{words} {item}"
            held = read_arrays(self.folder, name)
            if held is None:
                held = compute(item)
                write_arrays(self.folder, name, held)
            found.append(held)
        return found

    def sample(self, name: str, density: Any, algorithm: Any, **options: Any) -> Draws:
        """`mercer.sample` with a store, so that a stage that is stopped goes on where it was.

        Draws do not depend on where the run stopped: the key is that of the stage and the name.
        """
        draws = sample(
            fold(self.key, name),
            density,
            algorithm,
            store=self.folder / name,
            resume=True,
            progress=self.progress,
            **options,
        )
        return draws.complete()

    def sample_white(
        self,
        name: str,
        density: Any,
        chains: Chains,
        record: Callable[[Any], Any],
        algorithm: Algorithm = WHITE,
    ) -> Draws:
        """Chains on a density whose coordinates are nearly white, NUTS with its step alone adapted
        unless another algorithm is given."""
        keys = jax.random.split(fold(self.key, f"starts of {name}"), chains.num_chains)
        starts = jax.jit(jax.vmap(density.draw))(keys)
        return self.sample(name, density, algorithm, init=starts, record=record, **chains.counts)


@dataclasses.dataclass(frozen=True)
class Stage:
    """A part of an experiment that is kept once it is done."""

    name: str
    title: str
    compute: Callable[[Run], Arrays]


@dataclasses.dataclass(frozen=True)
class Picture:
    """A figure made from what stages left, never by sampling again."""

    name: str
    caption: str
    needs: tuple[str, ...]
    draw: Callable[[Results], Figure]


@dataclasses.dataclass(frozen=True)
class Quantity:
    """A number of the report: what the paper prints for it, and what ours has to be at a scale."""

    name: str
    words: str
    paper: float | None = None
    limits: Mapping[str, float] = dataclasses.field(default_factory=dict)
    at_least: bool = False

    def verdict(self, value: float, scale: str) -> str:
        """In words, or nothing where there is nothing to compare with."""
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
    """A named experiment. `estimate(settings)` tells how many seconds it would take here."""

    name: str
    title: str
    settings: Mapping[str, Any]
    stages: tuple[Stage, ...]
    pictures: tuple[Picture, ...]
    quantities: tuple[Quantity, ...]
    measure: Callable[[Results], dict[str, Any]]
    estimate: Callable[[Any], float]


def fold(key: jax.Array, name: str) -> jax.Array:
    """A key of its own for each name."""
    return jax.random.fold_in(key, zlib.crc32(name.encode()))


def strings(values: Any) -> np.ndarray:
    """Labels as an array that npz keeps without pickling."""
    return np.array([str(v) for v in values])
