"""The CO2 experiment at smoke scale, and its kernel."""

import jax
import numpy as np
import pytest

import mercer
from mercer.data import co2
from mercer_paper.co2 import EXPERIMENT
from mercer_paper.co2_model import (
    fit_scales,
    log_evidence,
    make_spectrum,
    printed_functions,
    printed_mean,
)
from mercer_paper.runner import reproduce

MODELS = ("", "_frozen", "_gp", "_printed_mean", "_isotropic")
WINDOW = "four_weekly"


@pytest.mark.slow
def test_experiment_at_smoke_scale(tmp_path):
    folder = tmp_path / "co2"
    with jax.debug_key_reuse(False):  # BlackJAX's samplers do not pass that check
        metrics = reproduce(EXPERIMENT, "smoke", 0, folder, lambda words: None, progress=False)
    names = [f"{score}{model}" for score in ("rmse", "nlpd", "coverage") for model in MODELS]
    names += [f"{name}{model}" for name in ("rhat_max", "ess_min") for model in ("", "_isotropic")]
    names += ["slope", "rmse_mode"]
    assert all(np.isfinite(metrics[name]) for name in names)
    assert metrics["rmse_gp"] < 0.06
    assert metrics["nlpd_gp"] < -1.3
    assert metrics["rmse_printed_mean"] > 0.15
    assert metrics["log_eigenvalues_printed"]["n = 1"] == pytest.approx(-609.2, abs=0.1)
    assert "harmonic 1 has log weight -609.2" in metrics["printed_kernel_refused"]
    assert metrics["gram_error_working"] < 1e-8 < 0.1 < metrics["gram_error_unit_interval"]
    drawn = {path.stem for path in (folder / "figures").iterdir()}
    assert drawn == {picture.name for picture in EXPERIMENT.pictures}


def test_evidence_is_that_of_the_process():
    series, scales = co2(WINDOW), fit_scales(WINDOW, "ours")
    spectrum = make_spectrum(scales, series.year, 24)
    rows = series.times[series.train][:, None], series.values[series.train]
    process = mercer.GaussianProcess(spectrum, printed_mean)
    exact = process.log_evidence(*rows, scales.noise)
    np.testing.assert_allclose(log_evidence(scales, series, 24), exact, rtol=1e-6)
    assert 0.01 < scales.noise < 0.1


def test_printed_functions_are_the_papers():
    values = printed_functions(np.array([0.0, 0.045]))
    assert values.shape == (2, 11)
    np.testing.assert_allclose(values[0, :6], [1, *[np.sqrt(2)] * 5] / np.sqrt(0.18))
    np.testing.assert_allclose(values[1, 6], np.sqrt(2 / 0.18))
