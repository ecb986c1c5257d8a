"""What the README shows runs as it stands."""

import re
from pathlib import Path

import jax
import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.slow
def test_examples_run(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert len(blocks) >= 2
    scope = {}
    with jax.debug_key_reuse(False):
        for block in blocks:
            exec(block, scope)
    assert "Paths: continuous but nowhere differentiable" in capsys.readouterr().out


@pytest.mark.parametrize(
    "page", ["README.md", *[f"docs/{p.name}" for p in (ROOT / "docs").glob("*.md")]]
)
def test_links_lead_somewhere(page):
    path = ROOT / page
    for target in re.findall(r"\]\(([^)#]+)\)", path.read_text()):
        assert (path.parent / target).exists(), target
