"""One self-contained HTML page for a run folder."""

import base64
import string
from collections.abc import Iterable
from html import escape
from pathlib import Path
from typing import Any

from .experiment import Experiment, Picture, show
from .folder import CONFIG, METRICS, REPORT, read_json
from .runner import measure, results_so_far

PAGE = string.Template(Path(__file__).with_name("report.html").read_text(encoding="utf-8"))
# Metrics that the page shows elsewhere or not at all.
HIDDEN = ("paper", "verdicts", "seconds_by_stage")
VERDICTS = {"NOT as asked": "bad", "farther than": "bad", "as asked": "good", "closer than": "good"}


def write_report(folder: Path, experiments: dict[str, Experiment]) -> Path:
    """Write the report of what a folder holds; that of an unfinished run says so."""
    config, experiment = read_json(folder / CONFIG), find_experiment(folder, experiments)
    done = results_so_far(experiment, folder)
    missing = ", ".join(stage.title for stage in experiment.stages if stage.name not in done)
    metrics, path = {}, folder / METRICS
    if not missing:
        metrics = read_json(path) if path.exists() else measure(experiment, folder, config["scale"])
    page = _page(experiment, config, metrics, missing, folder / "figures")
    (folder / REPORT).write_text(page, encoding="utf-8")
    return folder / REPORT


def find_experiment(folder: Path, experiments: dict[str, Experiment]) -> Experiment:
    """The experiment that a folder is a run of."""
    name = read_json(folder / CONFIG).get("experiment", "")
    if name not in experiments:
        raise ValueError(f"{folder} is a run of '{name}', which this version does not know.")
    return experiments[name]


def _page(experiment: Experiment, config: dict, metrics: dict, missing: str, figures: Path) -> str:
    """The page: numbers, figures, tables of the studies, settings."""
    seconds = f" It took {metrics['seconds']:.0f} s." if metrics else ""
    lead = f"Scale {config['scale']}, seed {config['seed']}, on {config['device']}.{seconds}"
    status = (
        f'<p class="warning">This run has not finished. Still missing: {escape(missing)}. '
        "The same command with --resume goes on.</p>"
    )
    numbers = [("", "ours", "the paper's", "verdict"), *experiment.table(metrics, config["scale"])]
    studies = [
        f"<details><summary>{escape(name.replace('_', ' '))}</summary>"
        f"{_table((k, 'diverged' if v is None else show(v)) for k, v in values.items())}</details>"
        for name, values in metrics.items()
        if isinstance(values, dict) and name not in HIDDEN
    ]
    return PAGE.substitute(
        title=escape(experiment.title), lead=escape(lead), status=status if missing else "",
        numbers=f"<h2>Numbers</h2>{_table(numbers)}" if metrics else "",
        figures="".join(_figure(figures / f"{p.name}.png", p) for p in experiment.pictures),
        studies=f"<h2>Studies</h2>{''.join(studies)}" if studies else "",
        settings=_table((name, _flatten(value)) for name, value in config.items()),
    )  # fmt: skip


def _figure(path: Path, picture: Picture) -> str:
    """A figure with its caption, the image inside the page; nothing if it was not drawn."""
    if not path.exists():
        return ""
    data, caption = base64.b64encode(path.read_bytes()).decode(), escape(picture.caption)
    image = f'<img alt="{caption}" src="data:image/png;base64,{data}">'
    return f"<figure>{image}<figcaption>{caption}</figcaption></figure>"


def _table(rows: Iterable[tuple[str, ...]]) -> str:
    """An HTML table; a good verdict is green, a bad one red."""

    def cell(text: str) -> str:
        kind = next((kind for words, kind in VERDICTS.items() if text.startswith(words)), "")
        return f'<td class="{kind}">{escape(text)}</td>'

    body = "".join(f"<tr>{''.join(map(cell, row))}</tr>" for row in rows)
    return f'<div class="scroll"><table>{body}</table></div>'


def _flatten(value: Any) -> str:
    """Nested settings as one line of text."""
    if isinstance(value, dict):
        return ", ".join(f"{k} {_flatten(v)}" for k, v in value.items() if v is not None)
    if isinstance(value, list):
        return f"({', '.join(map(_flatten, value))})"
    return str(value)
