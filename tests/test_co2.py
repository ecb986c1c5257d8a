"""The CO2 experiment at smoke scale, its density in coordinates of its own, and its kernel."""

import equinox as eqx
import jax
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree
from scipy import stats

import mercer
from mercer.data import co2
from mercer.experiments.co2 import EXPERIMENT
from mercer.experiments.co2_kernel import printed_functions
from mercer.experiments.co2_model import (
    Collapsed,
    Network,
    fit_scales,
    log_evidence,
    make_posterior,
    make_spectrum,
    printed_mean,
)
from mercer.experiments.runner import reproduce

MODELS = ("", "_frozen", "_gp", "_printed_mean", "_isotropic")
WINDOW = "four_weekly"


@pytest.fixture(scope="module")
def posterior():
    return make_posterior(Network(20, 12, num_frequencies=4), WINDOW, "ours", jax.random.key(0))


def test_experiment_at_smoke_scale(tmp_path):
    folder = tmp_path / "co2"
    with jax.debug_key_reuse(False):  # BlackJAX's samplers do not pass that check
        metrics = reproduce(EXPERIMENT, "smoke", 0, folder, lambda words: None, progress=False)
    names = [f"{score}{model}" for score in ("rmse", "nlpd", "coverage") for model in MODELS]
    names += [
        "rhat_max",
        "ess_min",
        "rhat_max_isotropic",
        "ess_min_isotropic",
        "slope",
        "rmse_mode",
    ]
    assert all(np.isfinite(metrics[name]) for name in names)
    assert metrics["rmse_gp"] < 0.06
    assert metrics["nlpd_gp"] < -1.3
    assert metrics["rmse_printed_mean"] > 0.15
    assert metrics["log_eigenvalues_printed"]["n = 1"] == pytest.approx(-609.2, abs=0.1)
    assert "harmonic 1 has log weight -609.2" in metrics["printed_kernel_refused"]
    assert metrics["gram_error_working"] < 1e-8 < 0.1 < metrics["gram_error_unit_interval"]
    drawn = {path.stem for path in (folder / "figures").iterdir()}
    assert drawn == {picture.name for picture in EXPERIMENT.pictures}


def test_collapsed_density_is_the_evidence_of_the_hidden_layer(posterior):
    density = Collapsed(posterior)
    params = posterior.prior.draw(jax.random.key(1))
    moved = eqx.tree_at(lambda p: p.prior.params, posterior, params)
    normal = stats.norm.logpdf(ravel_pytree(params)[0]).sum()
    exact = mercer.Whitened(moved).log_evidence
    np.testing.assert_allclose(density(params) - normal, exact, rtol=1e-7)


def test_collapsed_readouts_follow_the_posterior_given_the_hidden_layer(posterior):
    density, frozen = Collapsed(posterior), mercer.Whitened(posterior)
    points = np.linspace(0, 1, 4)[:, None]

    def ours(key):
        white = jax.random.normal(key, posterior.prior.params.readout.shape)
        params = eqx.tree_at(lambda p: p.readout, posterior.prior.params, white)
        return jax.vmap(density.network(params))(points)

    def theirs(key):
        return jax.vmap(frozen.network(frozen.draw(key)))(points)

    keys = jax.random.split(jax.random.key(2), (2, 4_000))
    one, other = np.asarray(jax.lax.map(ours, keys[0])), np.asarray(jax.lax.map(theirs, keys[1]))
    sd = other.std(axis=0)
    assert np.all(np.abs(one.mean(0) - other.mean(0)) < 4.5 * sd * np.sqrt(2 / 4_000))
    assert np.all(np.abs(one.std(0) / sd - 1) < 4.5 / np.sqrt(4_000))


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
