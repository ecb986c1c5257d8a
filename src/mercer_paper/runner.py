"""Runs an experiment stage by stage; finished stages are kept, so that any run can be resumed."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import matplotlib.pyplot as plt

import mercer

from .experiment import Experiment, Run, fold
from .folder import METRICS, Arrays, make_config, prepare, read_arrays, write_arrays, write_json
from .summaries import timed


def reproduce(
    experiment: Experiment, scale: str, seed: int, folder: Path, tell: Callable[[str], None], *,
    resume: bool = False, overwrite: bool = False, progress: bool = True,
) -> dict[str, Any]:  # fmt: skip
    """Fill a folder with arrays, metrics and figures; returns the metrics."""
    settings, key = experiment.settings[scale], jax.random.key(seed)
    prepare(folder, make_config(experiment.name, scale, seed, settings), resume, overwrite)
    for i, stage in enumerate(experiment.stages):
        label = f"[{i + 1}/{len(experiment.stages)}] {stage.title}"
        if read_arrays(folder, stage.name) is not None:
            tell(f"{label}: done before")
            continue
        tell(label)
        draws = folder / "draws" / stage.name
        run = Run(settings, fold(key, stage.name), key, draws, tell, progress)
        arrays, seconds = timed(stage.compute, run)
        write_arrays(folder, stage.name, arrays | {"seconds": seconds})
        shutil.rmtree(draws, ignore_errors=True)
    shutil.rmtree(folder / "draws", ignore_errors=True)
    metrics, seconds = timed(measure, experiment, folder, scale)
    metrics["seconds"] += seconds + timed(draw_figures, experiment, folder)[1]
    write_json(folder / METRICS, metrics)
    return metrics


def results_so_far(experiment: Experiment, folder: Path) -> dict[str, Arrays]:
    """The arrays of every stage that is done."""
    results = {stage.name: read_arrays(folder, stage.name) for stage in experiment.stages}
    return {name: arrays for name, arrays in results.items() if arrays is not None}


def measure(experiment: Experiment, folder: Path, scale: str) -> dict[str, Any]:
    """The metrics of a finished run, with the paper's numbers and the verdicts."""
    results = results_so_far(experiment, folder)
    seconds = {name: float(arrays["seconds"]) for name, arrays in results.items()}
    metrics = experiment.metrics(results)
    metrics |= {"seconds": sum(seconds.values()), "seconds_by_stage": seconds}
    shown = [q for q in experiment.quantities if q.words and metrics.get(q.name) is not None]
    metrics["paper"] = {q.name: q.paper for q in shown if q.paper is not None}
    metrics["verdicts"] = {q.name: q.verdict(metrics[q.name], scale) for q in shown}
    return metrics


def draw_figures(experiment: Experiment, folder: Path) -> None:
    """Draw every figure whose stages are done, from the arrays alone."""
    results = results_so_far(experiment, folder)
    (folder / "figures").mkdir(exist_ok=True)
    for picture in experiment.pictures:
        if set(picture.needs) <= set(results):
            with plt.rc_context(mercer.plots.STYLE):
                figure = plt.figure(layout="constrained")
                picture.draw(figure, *(results[name] for name in picture.needs))
                figure.savefig(folder / "figures" / f"{picture.name}.png")
            plt.close(figure)
