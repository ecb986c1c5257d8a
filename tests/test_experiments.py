"""Every experiment from one command at smoke scale, and the command line's manners."""

import json
import shutil
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from mercer.cli import app
from mercer.experiments import EXPERIMENTS

CHROMIUM = (
    shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
)


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "brownian"
    result = CliRunner().invoke(
        app, ["reproduce", "brownian", "--scale", "smoke", "--out", str(folder)]
    )
    assert result.exit_code == 0, result.output
    return folder


def test_brownian_smoke(run_folder):
    metrics = json.loads((run_folder / "metrics.json").read_text())
    assert (
        metrics["covariance_max_error"]
        < 4 * metrics["covariance_max_error_se"] + metrics["fidelity_max_error"]
    )
    assert metrics["num_draws"] == 400
    page = (run_folder / "report.html").read_text()
    assert page.count("data:image/png") == 3
    assert "0.043" in page


def test_list_names_every_experiment():
    output = CliRunner().invoke(app, ["list"]).output
    assert all(name in output for name in EXPERIMENTS)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["reproduce", "bronian"], "did you mean 'brownian'"),
        (["reproduce", "brownian", "--scale", "papr"], "did you mean 'paper'"),
        (["report", "."], "no config.json"),
    ],
)
def test_mistakes_get_one_line(arguments, words, tmp_path):
    command = [sys.executable, "-m", "mercer.cli", *arguments]
    result = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert result.returncode == 2
    assert words in " ".join(result.stdout.split())
    assert "Traceback" not in result.stdout + result.stderr


def test_foreign_and_earlier_folders_are_refused(run_folder, tmp_path):
    (tmp_path / "mine.txt").write_text("precious")
    foreign = CliRunner().invoke(app, ["reproduce", "brownian", "--out", str(tmp_path)])
    assert "was not made by mercer" in str(foreign.exception)
    earlier = CliRunner().invoke(app, ["reproduce", "brownian", "--out", str(run_folder)])
    assert "holds an earlier run" in str(earlier.exception)


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine to show the page in")
def test_report_opens_in_a_browser(run_folder, tmp_path):
    picture = tmp_path / "page.png"
    command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run",
               "--disable-background-networking", "--window-size=390,1400",
               f"--user-data-dir={tmp_path / 'profile'}", f"--screenshot={picture}",
               (run_folder / "report.html").as_uri()]  # fmt: skip
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    assert picture.stat().st_size > 20_000
