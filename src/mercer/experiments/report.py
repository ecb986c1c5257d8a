"""One self-contained HTML page for a run folder."""

import base64
import html
import json
from pathlib import Path
from typing import Any

STYLE = """
:root { color-scheme: light; }
body { font: 16px/1.55 system-ui, sans-serif; color: #22313f; max-width: 60rem;
  margin: 0 auto; padding: 2rem 1.2rem 4rem; background: #fdfcfa; }
h1 { font-size: 1.7rem; line-height: 1.2; margin: 0 0 .3rem; }
h2 { font-size: 1.1rem; margin: 2.2rem 0 .6rem; }
p.lead { color: #5a6874; margin-top: 0; }
figure { margin: 1.4rem 0; }
img { width: 100%; height: auto; background: #fff; border: 1px solid #e4e0d8; border-radius: 6px; }
figcaption { color: #5a6874; font-size: .9rem; margin-top: .3rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: .93rem; min-width: 24rem; }
th, td { text-align: left; padding: .35rem 1.2rem .35rem 0; border-bottom: 1px solid #e4e0d8; }
td.number { font-variant-numeric: tabular-nums; }
"""


def write_report(folder: Path) -> Path:
    """Write `report.html` from what the folder holds; a half-finished run is said to be one."""
    try:
        config = json.loads((folder / "config.json").read_text())
    except FileNotFoundError:
        raise ValueError(f"{folder} holds no config.json, so it is no run of mercer.") from None
    finished = (folder / "metrics.json").exists()
    metrics = json.loads((folder / "metrics.json").read_text()) if finished else {}
    title = f"{config['experiment'].capitalize()}, scale {config['scale']}"
    status = (
        f"Finished in {metrics['seconds']:.0f} s." if finished else "This run has not finished."
    )
    figures = "\n".join(_figure(path) for path in sorted(folder.glob("*.png")))
    page = f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>mercer: {html.escape(title)}</title><style>{STYLE}</style></head><body>
<h1>{html.escape(title)}</h1>
<p class="lead">Networks drawn from a Gaussian process that has a name. {html.escape(status)}</p>
<h2>Numbers</h2><div class="scroll">{_numbers(metrics)}</div>
<h2>Figures</h2>{figures}
<h2>Settings</h2><div class="scroll">{_settings(config)}</div>
</body></html>
"""
    target = folder / "report.html"
    target.write_text(page)
    return target


def _figure(path: Path) -> str:
    data = base64.b64encode(path.read_bytes()).decode()
    name = html.escape(path.stem.replace("_", " ").capitalize())
    image = f'<img alt="{name}" src="data:image/png;base64,{data}">'
    return f"<figure>{image}<figcaption>{name}</figcaption></figure>"


def _numbers(metrics: dict[str, Any]) -> str:
    paper = metrics.get("paper", {})
    rows = []
    for name, value in metrics.items():
        if isinstance(value, int | float):
            words = html.escape(name.replace("_", " "))
            printed, verdict = paper.get(name, ""), ""
            if name in paper:
                verdict = "closer" if value <= paper[name] else "farther"
            rows.append(
                f'<tr><td>{words}</td><td class="number">{value:.4g}</td>'
                f'<td class="number">{printed}</td><td>{verdict}</td></tr>'
            )
    head = "<tr><th></th><th>ours</th><th>the paper's</th><th>verdict</th></tr>"
    return f"<table>{head}{''.join(rows)}</table>"


def _settings(config: dict[str, Any]) -> str:
    rows = []
    for name, value in config.items():
        shown = (
            ", ".join(f"{k} {v}" for k, v in value.items()) if isinstance(value, dict) else value
        )
        rows.append(f"<tr><td>{html.escape(name)}</td><td>{html.escape(str(shown))}</td></tr>")
    return f"<table>{''.join(rows)}</table>"
