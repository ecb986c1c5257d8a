"""One self-contained HTML page for a run folder."""

import base64
import html
from pathlib import Path
from typing import Any

from .experiment import Experiment, Quantity
from .folder import CONFIG, METRICS, read_json
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
  vertical-align: top; }
td.number { font-variant-numeric: tabular-nums; white-space: nowrap; }
td.good { color: #2f6d43; } td.bad { color: #b5442e; font-weight: 600; }
summary { cursor: pointer; font-weight: 600; margin: 1rem 0 .4rem; }
pre { font-size: .82rem; overflow-x: auto; }
"""


def write_report(folder: Path, experiments: dict[str, Experiment]) -> Path:
    """Write `report.html` from what the folder holds; a half-finished run is said to be one."""
    config = read_json(folder / CONFIG)
    experiment = find_experiment(folder, experiments)
    done = results_so_far(experiment, folder)
    missing = [stage.title for stage in experiment.stages if stage.name not in done]
    metrics = {}
    if not missing:
        held = folder / METRICS
        metrics = read_json(held) if held.exists() else measure(experiment, folder, config["scale"])
    target = folder / "report.html"
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
    title = f"{experiment.title}"
    figures = "\n".join(
        _figure(folder / "figures" / f"{p.name}.png", p.caption) for p in experiment.pictures
    )
    status = (
        f'<p class="warning">This run has not finished. Still missing: '
        f"{html.escape(', '.join(missing))}. The same command with --resume goes on.</p>"
        if missing
        else ""
    )
    took = f" It took {metrics['seconds']:.0f} s." if metrics else ""
    lead = f"Scale {config['scale']}, seed {config['seed']}, on {config['device']}.{took}"
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>mercer: {html.escape(title)}</title><style>{STYLE}</style></head><body>
<h1>{html.escape(title)}</h1>
<p class="lead">{html.escape(lead)}</p>{status}
{_numbers(experiment.quantities, metrics, config["scale"])}
<h2>Figures</h2>{figures}
{_details(metrics)}
<h2>Settings</h2><div class="scroll">{_settings(config)}</div>
</body></html>
"""


def _figure(path: Path, caption: str) -> str:
    if not path.exists():
        return ""
    data = base64.b64encode(path.read_bytes()).decode()
    words = html.escape(caption)
    image = f'<img alt="{words}" src="data:image/png;base64,{data}">'
    return f"<figure>{image}<figcaption>{words}</figcaption></figure>"


def _numbers(quantities: tuple[Quantity, ...], metrics: dict[str, Any], scale: str) -> str:
    if not metrics:
        return ""
    rows = [_row(q, metrics[q.name], scale) for q in quantities if metrics.get(q.name) is not None]
    head = "<tr><th></th><th>ours</th><th>the paper's</th><th>verdict</th></tr>"
    return f'<h2>Numbers</h2><div class="scroll"><table>{head}{"".join(rows)}</table></div>'


def _row(quantity: Quantity, value: float, scale: str) -> str:
    verdict = quantity.verdict(value, scale)
    bad = verdict.startswith(("NOT", "farther"))
    printed = "" if quantity.paper is None else f"{quantity.paper:g}"
    return (
        f'<tr><td>{html.escape(quantity.words)}</td><td class="number">{show(value)}</td>'
        f'<td class="number">{printed}</td><td class="{"bad" if bad else "good"}">'
        f"{html.escape(verdict)}</td></tr>"
    )


def show(value: float) -> str:
    """A number as people read it."""
    return f"{value:,}" if isinstance(value, int) else f"{value:.4g}"


def _details(metrics: dict[str, Any]) -> str:
    """Numbers that come in tables of their own: one a study."""
    hidden = ("paper", "verdicts", "seconds_by_stage")
    tables = [
        f"<details><summary>{html.escape(name.replace('_', ' '))}</summary>"
        f'<div class="scroll">{_pairs(value)}</div></details>'
        for name, value in metrics.items()
        if isinstance(value, dict) and name not in hidden
    ]
    return f"<h2>Studies</h2>{''.join(tables)}" if tables else ""


def _pairs(value: dict[str, Any]) -> str:
    rows = [
        f'<tr><td>{html.escape(str(k))}</td><td class="number">'
        f"{'diverged' if v is None else show(v)}</td></tr>"
        for k, v in value.items()
    ]
    return f"<table>{''.join(rows)}</table>"


def _settings(config: dict[str, Any]) -> str:
    rows = []
    for name, value in config.items():
        text = html.escape(_flatten(value))
        rows.append(f"<tr><td>{html.escape(name)}</td><td>{text}</td></tr>")
    return f"<table>{''.join(rows)}</table>"


def _flatten(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{k} {_flatten(v)}" for k, v in value.items() if v is not None)
    if isinstance(value, list):
        return f"({', '.join(map(_flatten, value))})"
    return str(value)
