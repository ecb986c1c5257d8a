"""One self-contained HTML page for a run folder."""

import base64
import html
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from .experiment import Experiment, Picture, show
from .folder import CONFIG, METRICS, REPORT, read_json
from .runner import measure, results_so_far

STYLE = """
:root { color-scheme: light; }
* { box-sizing: border-box; }
body { font: 16px/1.55 system-ui, sans-serif; color: #22313f; max-width: 66rem;
  margin: 0 auto; padding: 2rem 1.2rem 4rem; background: #fdfcfa; }
h1 { font-size: 1.7rem; line-height: 1.2; margin: 0 0 .3rem; }
h2 { font-size: 1.15rem; margin: 2.4rem 0 .6rem; }
p.lead { color: #5a6874; margin-top: 0; }
p.warning { background: #fbeee9; border-left: 4px solid #b5442e; padding: .6rem .9rem; }
figure { margin: 1.6rem 0; }
img { width: 100%; height: auto; background: #fff; border: 1px solid #e4e0d8; border-radius: 6px; }
figcaption { color: #5a6874; font-size: .92rem; margin-top: .35rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: .93rem; width: 100%; }
th, td { text-align: left; padding: .35rem 1rem .35rem 0; border-bottom: 1px solid #e4e0d8;
  vertical-align: top; font-variant-numeric: tabular-nums; }
.good { color: #2f6d43; } .bad { color: #b5442e; font-weight: 600; }
summary { cursor: pointer; font-weight: 600; margin: 1rem 0 .4rem; }
"""
# Metrics that the page shows elsewhere or not at all.
HIDDEN = ("paper", "verdicts", "seconds_by_stage")


def write_report(folder: Path, experiments: dict[str, Experiment]) -> Path:
    """Write the report of what a folder holds; that of an unfinished run says so."""
    config, experiment = read_json(folder / CONFIG), find_experiment(folder, experiments)
    done = results_so_far(experiment, folder)
    missing = [stage.title for stage in experiment.stages if stage.name not in done]
    metrics: dict[str, Any] = {}
    if not missing:
        path = folder / METRICS
        metrics = read_json(path) if path.exists() else measure(experiment, folder, config["scale"])
    target = folder / REPORT
    target.write_text(_page(experiment, config, metrics, missing, folder), encoding="utf-8")
    return target


def find_experiment(folder: Path, experiments: dict[str, Experiment]) -> Experiment:
    """The experiment that a folder is a run of."""
    name = read_json(folder / CONFIG).get("experiment", "")
    if name not in experiments:
        raise ValueError(f"{folder} is a run of '{name}', which this version does not know.")
    return experiments[name]


def _page(
    experiment: Experiment, config: dict, metrics: dict, missing: list[str], folder: Path
) -> str:
    """The page: numbers, figures, tables of the studies, settings."""
    title = html.escape(experiment.title)
    seconds = f" It took {metrics['seconds']:.0f} s." if metrics else ""
    lead = f"Scale {config['scale']}, seed {config['seed']}, on {config['device']}.{seconds}"
    status = (
        f'<p class="warning">This run has not finished. Still missing: '
        f"{html.escape(', '.join(missing))}. The same command with --resume goes on.</p>"
    )
    numbers = [("", "ours", "the paper's", "verdict"), *experiment.table(metrics, config["scale"])]
    figures = [_figure(folder / "figures" / f"{p.name}.png", p) for p in experiment.pictures]
    studies = [
        f"<details><summary>{html.escape(name.replace('_', ' '))}</summary>"
        f"{_table((k, 'diverged' if v is None else show(v)) for k, v in values.items())}</details>"
        for name, values in metrics.items()
        if isinstance(values, dict) and name not in HIDDEN
    ]
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>mercer: {title}</title><style>{STYLE}</style></head><body>
<h1>{title}</h1>
<p class="lead">{html.escape(lead)}</p>{status if missing else ""}
{f"<h2>Numbers</h2>{_table(numbers)}" if metrics else ""}
<h2>Figures</h2>{"".join(figures)}
{f"<h2>Studies</h2>{''.join(studies)}" if studies else ""}
<h2>Settings</h2>{_table((name, _flatten(value)) for name, value in config.items())}
</body></html>
"""


def _figure(path: Path, picture: Picture) -> str:
    """A figure with its caption, the image inside the page; nothing if it was not drawn."""
    if not path.exists():
        return ""
    data, caption = base64.b64encode(path.read_bytes()).decode(), html.escape(picture.caption)
    image = f'<img alt="{caption}" src="data:image/png;base64,{data}">'
    return f"<figure>{image}<figcaption>{caption}</figcaption></figure>"


def _table(rows: Iterable[tuple[str, ...]]) -> str:
    """An HTML table; verdicts are coloured."""
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows)
    return f'<div class="scroll"><table>{body}</table></div>'


def _cell(text: str) -> str:
    """A table cell: green for a good verdict, red for a bad one."""
    bad = text.startswith(("NOT as asked", "farther than"))
    kind = "bad" if bad else "good" if text.startswith(("as asked", "closer than")) else ""
    return f'<td class="{kind}">{html.escape(text)}</td>'


def _flatten(value: Any) -> str:
    """Nested settings as one line of text."""
    if isinstance(value, dict):
        return ", ".join(f"{k} {_flatten(v)}" for k, v in value.items() if v is not None)
    if isinstance(value, list):
        return f"({', '.join(map(_flatten, value))})"
    return str(value)
