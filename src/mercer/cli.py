"""The command line: `mercer list`, `mercer reproduce NAME`, `mercer report DIR`."""

import sys
from pathlib import Path
from typing import Annotated, Any

import jax
import typer
from rich.console import Console
from rich.table import Table

from .experiments import EXPERIMENTS
from .experiments.experiment import SCALES, Experiment
from .experiments.folder import nearest
from .experiments.report import find_experiment, show, write_report
from .experiments.runner import draw_figures
from .experiments.runner import reproduce as run_experiment
from .sampling import SamplingError

app = typer.Typer(add_completion=False, no_args_is_help=True, help=__doc__)
console = Console()


@app.command("list")
def list_experiments() -> None:
    """The experiments that can be reproduced."""
    for experiment in EXPERIMENTS.values():
        console.print(f"{experiment.name:12s} {experiment.title}")


@app.command()
def reproduce(
    name: Annotated[str, typer.Argument(help="an experiment, or 'all'")],
    scale: Annotated[str, typer.Option(help="smoke, quick or paper")] = "quick",
    out: Annotated[Path | None, typer.Option(help="the folder to write")] = None,
    seed: Annotated[int, typer.Option(help="the same seed gives the same numbers")] = 0,
    resume: Annotated[bool, typer.Option(help="go on with the run in the folder")] = False,
    overwrite: Annotated[bool, typer.Option(help="replace an earlier run in the folder")] = False,
) -> None:
    """Run an experiment: numbers here, figures and a report page in the folder."""
    names = tuple(EXPERIMENTS)
    nearest(scale, SCALES, "scale")
    chosen = names if name == "all" else (nearest(name, (*names, "all"), "experiment"),)
    if resume and overwrite:
        raise ValueError("--resume goes on with a run and --overwrite replaces it: choose one.")
    for each in chosen:
        folder = (out or Path("runs") / f"{each}-{scale}") / (each if len(chosen) > 1 else "")
        _run(EXPERIMENTS[each], scale, folder, seed, resume, overwrite)


@app.command()
def report(folder: Annotated[Path, typer.Argument(help="a run folder")]) -> None:
    """Draw the figures of a run folder again and write its report page."""
    draw_figures(find_experiment(folder, EXPERIMENTS), folder)
    console.print(f"report: {write_report(folder, EXPERIMENTS)}", soft_wrap=True)


def _run(
    experiment: Experiment, scale: str, folder: Path, seed: int, resume: bool, overwrite: bool
) -> None:
    _warn_of_time(experiment, scale)
    try:
        metrics = run_experiment(
            experiment, scale, seed, folder, _tell, resume=resume, overwrite=overwrite
        )
    except KeyboardInterrupt:
        _tell_of_stop(experiment, folder)
        raise typer.Exit(130) from None
    except SamplingError:
        _tell_of_stop(experiment, folder)
        raise
    console.print(_table(experiment, metrics, scale, seed))
    console.print(f"report: {write_report(folder, EXPERIMENTS)}", soft_wrap=True)


def _tell_of_stop(experiment: Experiment, folder: Path) -> None:
    """Where what was done is, and how to go on."""
    draw_figures(experiment, folder)
    page = write_report(folder, EXPERIMENTS)
    console.print(f"stopped; what is done is kept, and shown in {page}", soft_wrap=True)
    console.print("the same command with --resume, without --overwrite, goes on", soft_wrap=True)


def _tell(words: str) -> None:
    console.print(words, highlight=False, markup=False)


def _warn_of_time(experiment: Experiment, scale: str) -> None:
    """How long the paper's size takes without an accelerator; then it is done all the same."""
    if scale == "paper" and jax.default_backend() == "cpu":
        console.print("no GPU here; timing a few draws …")
        hours = experiment.estimate(experiment.settings[scale]) / 3600
        console.print(
            f"this will take about {hours:.1f} hours on this machine; Ctrl-C keeps what is done, and "
            "--resume goes on. --scale quick takes minutes.",
            soft_wrap=True,
        )


def _table(experiment: Experiment, metrics: dict[str, Any], scale: str, seed: int) -> Table:
    table = Table(
        "", "ours", "paper", "verdict", title=f"{experiment.name}, scale {scale}, seed {seed}"
    )
    for quantity in experiment.quantities:
        value = metrics.get(quantity.name)
        if value is not None:
            printed = "" if quantity.paper is None else f"{quantity.paper:g}"
            table.add_row(quantity.words, show(value), printed, quantity.verdict(value, scale))
    return table


def main() -> None:
    """Run the command line, with one line for a mistake and nothing lost on an interrupt."""
    jax.config.update("jax_enable_x64", True)
    try:
        app()
    except (ValueError, OSError, SamplingError) as error:
        console.print(f"[bold red]mercer:[/] {error}", highlight=False, soft_wrap=True)
        sys.exit(2)


if __name__ == "__main__":
    main()
