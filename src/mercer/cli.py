"""The command line: `mercer list`, `mercer reproduce NAME`, `mercer report DIR`."""

import sys
from pathlib import Path
from typing import Annotated

import jax
import typer
from rich.console import Console
from rich.table import Table

from .experiments import EXPERIMENTS
from .experiments.registry import SCALES, config, nearest, prepare, write_json
from .experiments.report import write_report

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
    overwrite: Annotated[bool, typer.Option(help="replace an earlier run in the folder")] = False,
) -> None:
    """Run an experiment: numbers here, figures and a report page in the folder."""
    names = tuple(EXPERIMENTS)
    nearest(scale, SCALES, "scale")
    chosen = names if name == "all" else (nearest(name, names, "experiment"),)
    for each in chosen:
        folder = (out or Path("runs") / f"{each}-{scale}") / (each if len(chosen) > 1 else "")
        _run(each, scale, folder, seed, overwrite)


@app.command()
def report(folder: Annotated[Path, typer.Argument(help="a run folder")]) -> None:
    """Write the report page of a run folder again."""
    console.print(f"report: {write_report(folder)}")


def _run(name: str, scale: str, folder: Path, seed: int, overwrite: bool) -> None:
    prepare(folder, overwrite)
    write_json(folder / "config.json", config(name, scale, seed))
    with console.status(f"{name}: starting") as status:
        metrics = EXPERIMENTS[name].run(
            folder, scale, seed, lambda words: status.update(f"{name}: {words}")
        )
    write_json(folder / "metrics.json", metrics)
    table = Table("quantity", "ours", "the paper's", title=f"{name}, scale {scale}, seed {seed}")
    for key, value in metrics.items():
        if isinstance(value, int | float):
            table.add_row(key, f"{value:.4g}", str(metrics["paper"].get(key, "")))
    console.print(table)
    console.print(f"report: {write_report(folder)}")


def main() -> None:
    """Run the command line, with one line for a mistake and none lost on an interrupt."""
    jax.config.update("jax_enable_x64", True)
    try:
        app()
    except (ValueError, OSError) as error:
        console.print(f"[bold red]mercer:[/] {error}", highlight=False)
        sys.exit(2)


if __name__ == "__main__":
    main()
