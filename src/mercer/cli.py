"""The command line: `mercer list`, `mercer reproduce NAME`, `mercer report DIR`.

The experiments are in the package `mercer_paper`, which the commands import when they need it.
"""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import jax
import typer
from rich.console import Console
from rich.table import Table

from .sampling import SamplingError

if TYPE_CHECKING:
    from mercer_paper.experiment import Experiment

HELP = "Reproduce the experiments of the paper."
app: typer.Typer = typer.Typer(add_completion=False, no_args_is_help=True, help=HELP)
console: Console = Console()


@app.command("list")
def list_experiments() -> None:
    """The experiments that can be reproduced."""
    from mercer_paper import EXPERIMENTS

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
    from mercer_paper import EXPERIMENTS
    from mercer_paper.experiment import SCALES
    from mercer_paper.folder import nearest

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
    from mercer_paper import EXPERIMENTS
    from mercer_paper.report import find_experiment

    _report(find_experiment(folder, EXPERIMENTS), folder)


def _report(experiment: "Experiment", folder: Path) -> None:
    """Draw the figures and write the report page."""
    from mercer_paper.runner import draw_figures

    draw_figures(experiment, folder)
    _write_page(experiment, folder)


def _write_page(experiment: "Experiment", folder: Path) -> None:
    """Write the report page and say where it is."""
    from mercer_paper.report import write_report

    page = write_report(folder, {experiment.name: experiment})
    console.print(f"report: {page}", soft_wrap=True)


def _run(
    experiment: "Experiment", scale: str, folder: Path, seed: int, resume: bool, overwrite: bool
) -> None:
    """Run one experiment and show its numbers; an interrupted run is reported as far as it got."""
    from mercer_paper.runner import reproduce as run_experiment

    def tell(words: str) -> None:
        console.print(words, highlight=False, markup=False)

    _warn_of_time(experiment, scale)
    try:
        metrics = run_experiment(
            experiment, scale, seed, folder, tell, resume=resume, overwrite=overwrite
        )
    except (KeyboardInterrupt, SamplingError) as error:
        _report(experiment, folder)
        console.print(
            "stopped; what is done is kept, and the same command with --resume, without "
            "--overwrite, goes on",
            soft_wrap=True,
        )
        if isinstance(error, KeyboardInterrupt):
            raise typer.Exit(130) from None
        raise
    title = f"{experiment.name}, scale {scale}, seed {seed}"
    table = Table("", "ours", "paper", "verdict", title=title)
    for row in experiment.table(metrics, scale):
        table.add_row(*row)
    console.print(table)
    _write_page(experiment, folder)


def _warn_of_time(experiment: "Experiment", scale: str) -> None:
    """Say how long the paper's size takes without an accelerator."""
    if scale == "paper" and jax.default_backend() == "cpu":
        console.print("no GPU here; timing a few draws …")
        hours = experiment.estimate(experiment.settings[scale]) / 3600
        console.print(
            f"this will take about {hours:.1f} hours on this machine; Ctrl-C keeps what is done, and "
            "--resume goes on. --scale quick takes minutes.",
            soft_wrap=True,
        )


def main() -> None:
    """Run the command line; a mistake prints one line and exits with code 2."""
    jax.config.update("jax_enable_x64", True)
    try:
        app()
    except (ValueError, OSError, SamplingError) as error:
        console.print(f"[bold red]mercer:[/] {error}", highlight=False, soft_wrap=True)
        sys.exit(2)


if __name__ == "__main__":
    main()
