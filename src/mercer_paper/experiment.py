"""Experiments: stages that compute arrays, figures drawn from the arrays, and numbers to judge."""

import dataclasses
import functools
import inspect
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
from rich.console import Console
from rich.progress import track

import mercer

from .folder import Arrays, read_arrays, write_arrays

SCALES = ("smoke", "quick", "paper")
Results = Mapping[str, Arrays]
Limit = float | Mapping[str, float] | None


class Settings(SimpleNamespace):
    """Sizes of a run, by name."""

    def but(self, **changes: Any) -> "Settings":
        """The same sizes, some of them changed."""
        return Settings(**vars(self) | changes)


@dataclasses.dataclass(frozen=True)
class Chains:
    """Numbers of chains, of their draws and warm-up steps: `mercer.sample(…, **vars(chains))`."""

    num_chains: int
    num_draws: int
    num_warmup: int = 0

    @property
    def num_steps(self) -> int:
        """Steps of all chains together."""
        return self.num_chains * (self.num_draws + self.num_warmup)


@dataclasses.dataclass(frozen=True)
class Run:
    """One stage in progress: its settings, its own key, that of all stages, a folder for draws."""

    settings: Settings
    key: jax.Array
    shared: jax.Array
    folder: Path
    tell: Callable[[str], None]
    progress: bool = True

    def key_of(self, name: str) -> jax.Array:
        """A random key of this stage for each name."""
        return fold(self.key, name)

    def shared_key_of(self, name: str) -> jax.Array:
        """A random key for each name, the same in all stages."""
        return fold(self.shared, name)

    def each(self, words: str, items: Sequence[Any]) -> Iterator[Any]:
        """Iterate over the items with a progress bar."""
        console = Console(stderr=True)
        hidden = not (self.progress and console.is_terminal)
        yield from track(items, f"      {words}", console=console, transient=True, disable=hidden)

    def keep_each(self, words: str, compute: Callable, items: Sequence[Any]) -> list[Arrays]:
        """Compute arrays for each item; a stage that was stopped reads those it has finished."""
        results = []
        for item in self.each(words, items):
            if (arrays := read_arrays(self.folder, f"{words} {item}")) is None:
                arrays = compute(item)
                write_arrays(self.folder, f"{words} {item}", arrays)
            results.append(arrays)
        return results

    def sample(self, name: str, density: Any, algorithm: Any = None, **options: Any) -> Any:
        """`mercer.sample` with a store, so that a stage that was stopped continues its chains: the
        key depends on the stage and the name alone."""
        key, store = self.key_of(name), self.folder / name
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
    """A figure that `draw(figure, *arrays of the stages it needs)` fills, without sampling again.

    `Picture.of` makes one of a function `draw_NAME`, whose docstring is the caption and whose
    parameters, after those that are bound and the figure, name the stages.
    """

    name: str
    caption: str
    needs: tuple[str, ...]
    draw: Callable[..., None]

    @staticmethod
    def of(draw: Callable[..., None], *bound: Any) -> "Picture":
        """The picture that a function draws."""
        needs = tuple(inspect.signature(draw).parameters)[len(bound) + 1 :]
        name, caption = draw.__name__.removeprefix("draw_"), " ".join(draw.__doc__.split())
        return Picture(name, caption, needs, functools.partial(draw, *bound))


@dataclasses.dataclass(frozen=True)
class Quantity:
    """A number of the report: where it comes from, the paper's value, and the limit ours must meet.

    `source` is "stage.array", or a function of the results, or None for what the experiment's
    `measure` tells. Without words it is a metric that the report does not show. A limit holds at
    every scale but smoke, or is given by scale.
    """

    name: str
    words: str = ""
    source: str | Callable[[Results], Any] | None = None
    paper: float | None = None
    at_most: Limit = None
    at_least: Limit = None

    def value(self, results: Results) -> Any:
        """The number, from the arrays of the stages."""
        if callable(self.source):
            return np.asarray(self.source(results)).item()
        stage, array = str(self.source).split(".")
        return np.asarray(results[stage][array]).item()

    def verdict(self, value: float, scale: str) -> str:
        """The comparison in words; empty if there is nothing to compare with."""
        for side, limit, sign in (("most", self.at_most, 1), ("least", self.at_least, -1)):
            by_scale = limit if isinstance(limit, Mapping) else {"quick": limit, "paper": limit}
            if (bound := by_scale.get(scale)) is not None:
                good = sign * value <= sign * bound
                return f"{'as asked' if good else 'NOT as asked'}: at {side} {bound:g}"
        if self.paper is not None:
            return "closer than the paper" if value <= self.paper else "farther than the paper"
        return ""


@dataclasses.dataclass(frozen=True)
class Experiment:
    """A named experiment; `measure` tells what quantities do not, `estimate` predicts seconds."""

    name: str
    title: str
    settings: Mapping[str, Settings]
    stages: tuple[Stage, ...]
    pictures: tuple[Picture, ...]
    quantities: tuple[Quantity, ...]
    measure: Callable[[Results], dict[str, Any]]
    estimate: Callable[[Settings], float]

    def metrics(self, results: Results) -> dict[str, Any]:
        """Every number of a finished run."""
        sourced = (quantity for quantity in self.quantities if quantity.source is not None)
        return {q.name: q.value(results) for q in sourced} | self.measure(results)

    def table(self, metrics: dict[str, Any], scale: str) -> list[tuple[str, str, str, str]]:
        """Rows of the report: words, our number, the paper's number, and the verdict."""
        rows = [(q, metrics.get(q.name)) for q in self.quantities if q.words]
        return [
            (q.words, show(v), "" if q.paper is None else f"{q.paper:g}", q.verdict(v, scale))
            for q, v in rows
            if v is not None
        ]


def fold(key: jax.Array, name: str) -> jax.Array:
    """A random key for each name."""
    return jax.random.fold_in(key, zlib.crc32(name.encode()))


def show(value: float) -> str:
    """A number for readers: integers with separators, others with four digits."""
    return f"{value:,}" if isinstance(value, int) else f"{value:.4g}"
