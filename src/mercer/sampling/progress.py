"""What a user sees and does while a run goes on: a bar with the time left, and Ctrl-C."""

import contextlib
import signal
import threading
import time
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
from rich.console import Console
from rich.progress import Progress, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from ..checks import PyTree

LONGEST_NAP = 0.05


@contextlib.contextmanager
def interrupts() -> Iterator[threading.Event]:
    """An event that the first Ctrl-C sets; a second one interrupts at once."""
    stop = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    before = signal.getsignal(signal.SIGINT)

    def handle(number, frame):
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()

    signal.signal(signal.SIGINT, handle)
    try:
        yield stop
    finally:
        signal.signal(signal.SIGINT, before)


def wait(tree: PyTree, stop: threading.Event | None = None) -> PyTree:
    """The pytree once it is computed; with `stop`, Ctrl-C ends the waiting at once."""
    nap = 0.0005
    arrays: list[Any] = [x for x in jax.tree.leaves(tree) if isinstance(x, jax.Array)]
    while not all(array.is_ready() for array in arrays):
        if stop is not None and stop.is_set():
            raise KeyboardInterrupt
        time.sleep(nap)
        nap = min(1.5 * nap, LONGEST_NAP)
    return jax.block_until_ready(tree)


class Bar:
    """Draws done, time left, acceptance, step size and divergences, on standard error."""

    def __init__(self, show: bool, total: int, done: int):
        columns = (
            *Progress.get_default_columns()[:2],
            TextColumn("{task.completed}/{task.total} draws"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[statistics]}"),
        )
        self.bar: Progress = Progress(
            *columns, console=Console(stderr=True), transient=True, disable=not show
        )
        self.task: TaskID = self.bar.add_task(
            "compiling", total=total, completed=done, statistics=""
        )
        self.divergences: int = 0

    def __enter__(self) -> "Bar":
        self.bar.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self.bar.stop()

    def announce(self, words: str | None) -> None:
        """Print a line that stays, about what was chosen for this run."""
        if words is not None and not self.bar.disable:
            self.bar.console.print(f"mercer: {words}", highlight=False)

    def say(self, words: str) -> None:
        """Describe work that makes no draws."""
        self.bar.update(self.task, description=words)

    def move(self, done: int, words: str) -> None:
        """Show how far work without statistics is."""
        self.bar.update(self.task, completed=done, description=words)

    def tell(self, done: int, statistics: dict[str, np.ndarray]) -> None:
        """Show how far the run is, and the statistics of its last chunk."""
        self.divergences += int(np.nansum(statistics["divergent"]))
        words = [
            f"{name} {np.mean(statistics[key]):.3g}"
            for name, key in (("acceptance", "acceptance"), ("step", "step_size"))
            if np.all(np.isfinite(statistics[key]))
        ]
        if self.divergences:
            words.append(f"{self.divergences} divergences")
        self.bar.update(
            self.task, completed=done, description="sampling", statistics=", ".join(words)
        )
