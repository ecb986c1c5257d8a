"""Every experiment from one command at smoke scale, and the command line's manners."""

import dataclasses
import functools
import json
import shutil
import subprocess
import sys

import jax
import numpy as np
import pytest
from typer.testing import CliRunner

from mercer import cli
from mercer_paper import EXPERIMENTS, cost
from mercer_paper.experiment import Quantity, Run
from mercer_paper.folder import read_arrays
from mercer_paper.processes import BRIDGE, MOTION
from mercer_paper.runner import reproduce

CHROMIUM = (
    shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
)
ASKED = {
    "covariance_max_error", "covariance_max_error_mcmc", "covariance_max_error_se",
    "fidelity_max_error", "ks_pass_fraction", "ks_pass_fraction_near_zero", "num_draws", "rhat_max",
    "ess_min", "seconds", "paper",
}  # fmt: skip


def invoke(*arguments):
    with jax.debug_key_reuse(False):  # BlackJAX's samplers do not pass that check
        return CliRunner().invoke(cli.app, [str(a) for a in arguments])


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """The folder of a finished run by its name; each is run once."""

    @functools.cache
    def run(name):
        folder = tmp_path_factory.mktemp("runs") / name
        result = invoke("reproduce", name, "--scale", "smoke", "--out", folder)
        assert result.exit_code == 0, result.output
        return folder

    return run


@pytest.fixture(params=["brownian", "bridge"])
def run_folder(request, finished):
    """A finished run of a case study."""
    return finished(request.param)


@pytest.mark.slow
def test_case_study_at_smoke_scale(run_folder):
    experiment = EXPERIMENTS[run_folder.name]
    metrics = json.loads((run_folder / "metrics.json").read_text())
    assert set(metrics) >= ASKED
    stated = metrics["fidelity_max_error"]
    assert metrics["covariance_max_error"] < 4.5 * metrics["covariance_max_error_se"] + stated
    assert metrics["num_draws"] == 400
    page = (run_folder / "report.html").read_text()
    assert page.count("data:image/png") == len(experiment.pictures)
    assert f"{metrics['paper']['covariance_max_error']:g}" in page
    assert not (run_folder / "draws").exists()


@pytest.mark.slow
def test_a_report_is_drawn_again_from_the_arrays(run_folder, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(run_folder, copy)
    shutil.rmtree(copy / "figures")
    assert invoke("report", copy).exit_code == 0
    for path in (run_folder / "figures").iterdir():
        assert (copy / "figures" / path.name).read_bytes() == path.read_bytes()


@pytest.mark.slow
def test_an_interrupted_run_goes_on_to_the_same_numbers(finished, tmp_path):
    experiment, folder = EXPERIMENTS["bridge"], tmp_path / "stopped"

    def stop(run):
        raise KeyboardInterrupt

    stages = [
        dataclasses.replace(s, compute=stop) if s.name == "chain" else s for s in experiment.stages
    ]
    stopped = dataclasses.replace(experiment, stages=tuple(stages))
    with pytest.raises(KeyboardInterrupt), jax.debug_key_reuse(False):
        reproduce(stopped, "smoke", 0, folder, lambda words: None, progress=False)
    assert invoke("report", folder).exit_code == 0
    page = (folder / "report.html").read_text()
    assert "has not finished" in page
    assert "HMC over every parameter" in page
    assert page.count("data:image/png") == 3
    result = invoke("reproduce", "bridge", "--scale", "smoke", "--out", folder, "--resume")
    assert result.exit_code == 0, result.output
    assert result.output.count("done before") == 4
    for stage in experiment.stages:
        whole, resumed = (read_arrays(f, stage.name) for f in (finished("bridge"), folder))
        for name in whole:
            if "second" not in name:
                np.testing.assert_array_equal(whole[name], resumed[name])


def test_a_stage_goes_on_with_the_next_item(tmp_path):
    """Folds and seeds that were done before an interrupt are not computed again."""
    run = Run(None, jax.random.key(0), jax.random.key(0), tmp_path / "stage", print, progress=False)
    begun = []

    def compute(item):
        begun.append(item)
        if begun == [0, 1, 2]:
            raise KeyboardInterrupt
        return {"square": item**2, "row": np.arange(item)}

    with pytest.raises(KeyboardInterrupt):
        run.keep_each("an item, named", compute, range(4))
    found = run.keep_each("an item, named", compute, range(4))
    assert begun == [0, 1, 2, 2, 3]
    assert [int(one["square"]) for one in found] == [0, 1, 4, 9]
    assert [len(one["row"]) for one in found] == [0, 1, 2, 3]


def test_a_full_disk_is_told_and_nothing_is_lost(tmp_path, monkeypatch):
    write, calls = np.savez_compressed, []

    def savez(file, **arrays):
        calls.append(file)
        if len(calls) > 1:
            raise OSError(28, "No space left on device")
        write(file, **arrays)

    folder = tmp_path / "cost"
    monkeypatch.setattr(np, "savez_compressed", savez)
    failed = invoke("reproduce", "cost", "--scale", "smoke", "--out", folder)
    assert "--resume goes on once there is room" in str(failed.exception)
    monkeypatch.undo()
    assert [path.name for path in (folder / "arrays").iterdir()] == ["operations.npz"]
    resumed = invoke("reproduce", "cost", "--scale", "smoke", "--out", folder, "--resume")
    assert resumed.exit_code == 0, resumed.output
    assert "done before" in resumed.output
    metrics = json.loads((folder / "metrics.json").read_text())
    assert metrics["network_points"] == 1_000


def test_list_names_every_experiment():
    output = invoke("list").output
    assert all(name in output for name in EXPERIMENTS)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["reproduce", "bronian"], "did you mean 'brownian'"),
        (["reproduce", "brownian", "--scale", "papr"], "did you mean 'paper'"),
        (["reproduce", "cost", "--resume", "--overwrite"], "choose one"),
        (["report", "."], "no config.json"),
    ],
)
def test_mistakes_get_one_line(arguments, words, tmp_path):
    command = [sys.executable, "-m", "mercer.cli", *arguments]
    result = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert result.returncode == 2
    assert words in " ".join(result.stdout.split())
    assert "Traceback" not in result.stdout + result.stderr


@pytest.mark.slow
def test_foreign_and_earlier_folders_are_refused(run_folder, tmp_path):
    name = run_folder.name
    (tmp_path / "mine.txt").write_text("precious")
    foreign = invoke("reproduce", name, "--out", tmp_path)
    assert "was not made by mercer" in str(foreign.exception)
    file = invoke("reproduce", name, "--out", tmp_path / "mine.txt")
    assert "is a file" in str(file.exception)
    earlier = invoke("reproduce", name, "--scale", "smoke", "--out", run_folder)
    assert "--resume to go on" in str(earlier.exception)
    other = invoke(
        "reproduce", name, "--scale", "smoke", "--seed", 1, "--resume", "--out", run_folder
    )
    assert "its seed differ" in str(other.exception)


def test_the_paper_scale_without_a_gpu_says_how_long(capsys):
    experiment = EXPERIMENTS["bridge"]
    small = dataclasses.replace(
        experiment,
        settings={"paper": experiment.settings["smoke"]},
        estimate=lambda settings: 3600 * experiment.estimate(settings),
    )
    cli._warn_of_time(small, "paper")
    told = capsys.readouterr().out
    assert "hours on this machine" in told
    assert float(told.split("about ")[1].split()[0]) > 0


def test_verdicts():
    bounded = Quantity("a", "a", paper=0.5, at_most={"paper": 0.1})
    assert bounded.verdict(0.09, "paper").startswith("as asked")
    assert bounded.verdict(0.2, "paper").startswith("NOT as asked")
    assert bounded.verdict(0.6, "quick") == "farther than the paper"
    assert Quantity("b", "b").verdict(1.0, "quick") == ""


@pytest.mark.parametrize("process", [MOTION, BRIDGE], ids=lambda p: p.name)
def test_exact_paths_have_the_covariance_of_the_process(process):
    times = np.array([0.01, 0.1, 0.5, 0.9])
    paths = process.paths(jax.random.key(0), 40_000, times).astype(float)
    kernel = process.kernel(times, times)
    standard = np.sqrt((np.outer(np.diag(kernel), np.diag(kernel)) + kernel**2) / len(paths))
    assert np.all(np.abs(paths.T @ paths / len(paths) - kernel) < 4 * standard)
    spectrum = process.make_spectrum(10)
    exact = [[float(spectrum.kernel(s, t)) for t in times] for s in times]
    np.testing.assert_allclose(kernel, exact, rtol=1e-12)


def test_operations_are_those_of_the_papers_table():
    high = cost.SCENARIOS["high cost"]
    once = 10_000 * (100 * 10_000 * 2_500 + 32 * 2_500)
    assert cost.mercer_flops(np.array(1e9), **high) == once + 2_500 * 1e9
    assert cost.naive_flops(np.array(3.0), 3, 2) == pytest.approx(2 * (9 + 3) + 9)
    # Even the high-cost scenario stays below the device's line at a billion points, a GP does not.
    assert cost.mercer_flops(np.array(1e9), **high) < cost.DEVICE_FLOPS
    assert cost.naive_flops(np.array(1e6), 32, 10_000) > cost.DEVICE_FLOPS


# `.ci/run` installs a browser, so that there this is never skipped; whoever has none can test the rest.
@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine to show the page in")
@pytest.mark.slow
@pytest.mark.parametrize("width", [390, 1280])
def test_report_opens_in_a_browser(finished, tmp_path, width):
    picture = tmp_path / "page.png"
    command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run",
               "--disable-background-networking", f"--window-size={width},1400",
               f"--user-data-dir={tmp_path / 'profile'}", f"--screenshot={picture}",
               (finished("brownian") / "report.html").as_uri()]  # fmt: skip
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    assert picture.stat().st_size > 20_000
