"""Runs an experiment stage by stage; finished stages are kept, so that any run can be resumed."""

import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import matplotlib.pyplot as plt

import mercer

from .experiment import Experiment, Run, fold
from .folder import METRICS, Arrays, make_config, prepare, read_arrays, write_arrays, write_json


def reproduce(
    experiment: Experiment,
    scale: str,
    seed: int,
    folder: Path,
    tell: Callable[[str], None],
    *,
    resume: bool = False,
    overwrite: bool = False,
    progress: bool = True,
) -> dict[str, Any]:
    """Fill a folder with arrays, metrics and figures; returns the metrics."""
    settings = experiment.settings[scale]
    prepare(folder, make_config(experiment.name, scale, seed, settings), resume, overwrite)
    key = jax.random.key(seed)
    for i, stage in enumerate(experiment.stages):
        label = f"[{i + 1}/{len(experiment.stages)}] {stage.title}"
        if read_arrays(folder, stage.name) is not None:
            tell(f"{label}: done before")
            continue
        tell(label)
        begin, draws = time.monotonic(), folder / "draws" / stage.name
        arrays = stage.compute(Run(settings, fold(key, stage.name), key, draws, tell, progress))
        write_arrays(folder, stage.name, arrays | {"seconds": time.monotonic() - begin})
        shutil.rmtree(draws, ignore_errors=True)
    shutil.rmtree(folder / "draws", ignore_errors=True)
    begin = time.monotonic()
    metrics = measure(experiment, folder, scale)
    draw_figures(experiment, folder)
    metrics["seconds"] += time.monotonic() - begin
    write_json(folder / METRICS, metrics)
    return metrics


def results_so_far(experiment: Experiment, folder: Path) -> dict[str, Arrays]:
    """The arrays of every stage that is done."""
    results = {stage.name: read_arrays(folder, stage.name) for stage in experiment.stages}
    return {name: arrays for name, arrays in results.items() if arrays is not None}


def measure(experiment: Experiment, folder: Path, scale: str) -> dict[str, Any]:
    """The metrics of a finished run, with the paper's numbers and the verdicts."""
    results = results_so_far(experiment, folder)
    metrics = experiment.measure(results)
    seconds = {name: float(arrays["seconds"]) for name, arrays in results.items()}
    metrics |= {"seconds": sum(seconds.values()), "seconds_by_stage": seconds}
    known = [quantity for quantity in experiment.quantities if quantity.name in metrics]
    metrics["paper"] = {q.name: q.paper for q in known if q.paper is not None}
    metrics["verdicts"] = {q.name: q.verdict(metrics[q.name], scale) for q in known}
    return metrics


def draw_figures(experiment: Experiment, folder: Path) -> list[Path]:
    """Draw every figure whose stages are done, from the arrays alone."""
    results, paths = results_so_far(experiment, folder), []
    for picture in experiment.pictures:
        if all(name in results for name in picture.needs):
            path = folder / "figures" / f"{picture.name}.png"
            path.parent.mkdir(exist_ok=True)
            with plt.rc_context(mercer.plots.STYLE):
                figure = picture.draw(results)
                figure.savefig(path)
            plt.close(figure)
            paths.append(path)
    return paths
