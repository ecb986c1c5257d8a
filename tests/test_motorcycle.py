"""The motorcycle experiment at smoke scale, its folds and its baselines."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import mercer
from mercer_paper.baselines import Expansion, Ridgelet, score_process, split_rows, ten_folds
from mercer_paper.motorcycle import EXPERIMENT
from mercer_paper.motorcycle_model import fourier_prior, spectra
from mercer_paper.runner import reproduce


@pytest.mark.slow
def test_smoke_scale_from_prior_to_scores(tmp_path):
    with jax.debug_key_reuse(False):
        metrics = reproduce(EXPERIMENT, "smoke", 0, tmp_path / "run", lambda words: None)
    assert json.loads((tmp_path / "run" / "metrics.json").read_text())["nlpd"] == metrics["nlpd"]
    assert metrics["nlpd"] < 1.0  # a normal law with the training rows' moments has 1.4
    assert set(metrics) >= {"rhat_max", "ess_min", "fold_seconds", "noise_ratio", "nlpd_by_method"}
    for picture in EXPERIMENT.pictures:
        assert (tmp_path / "run" / "figures" / f"{picture.name}.png").stat().st_size > 5_000


def test_every_row_is_held_out_once_and_scaled_by_the_others():
    folds = ten_folds(133)
    assert sorted(np.concatenate(folds)) == list(range(133))
    x, y = mercer.data.motorcycle()
    split = split_rows(x, y, folds[3])
    assert len(split.targets) + len(split.test_targets) == 133
    assert split.targets.mean() == pytest.approx(0, abs=1e-12)
    assert split.inputs.std() == pytest.approx(1)


def test_the_networks_follow_the_processes_that_are_named():
    prior = fourier_prior(100, 100, jax.random.key(0))
    for name, spectrum in spectra(100).items():
        term = mercer.Prior(mercer.Quadrature(spectrum), prior.network(prior.params)[name])
        assert mercer.fidelity(term).max_error < 0.03


def test_an_expansion_is_the_truncated_process():
    spectrum = mercer.Matern(1.5, 0.5, 1.0, mercer.Interval(0, 2), 20)
    prior = mercer.Prior(mercer.Quadrature(spectrum), Expansion(spectrum))
    x = jnp.linspace(0.1, 1.9, 7)[:, None]
    data = x, jnp.sin(3 * x[:, 0])
    frozen = mercer.Frozen(mercer.Posterior(prior, mercer.Gaussian(0.2), data, tail="none"))
    exact = mercer.GaussianProcess(spectrum).log_evidence(*data, 0.2)
    assert frozen.log_evidence == pytest.approx(float(exact), abs=2e-3)


def test_the_exact_process_scores_as_its_predictive_law():
    x = np.linspace(0, 10, 40)
    y = np.sin(x) + 0.1 * np.random.default_rng(0).standard_normal(40)
    split = split_rows(x, y, np.arange(0, 40, 5))
    domain = mercer.Interval(-3, 4)
    scores = score_process(split, mercer.Matern(1.5, 0.5, 1.0, domain, 60))
    assert scores.shape == (1, 8)
    assert scores.mean() > stats.norm.logpdf(split.test_targets, 0, 1).mean() + 1


@pytest.mark.slow
def test_the_ridgelet_prior_comes_nearer_to_its_process_with_more_units():
    spectrum = mercer.Matern(1.5, 1.0, 1.0, mercer.Interval(-3, 4), 40)
    points = jnp.linspace(-1.8, 2.5, 30)[:, None]
    exact = mercer.GaussianProcess(spectrum).covariance(points)

    def error(width, key):
        network = Ridgelet(spectrum, width, 8.0, key=key)
        slopes = jax.vmap(jax.grad(lambda n, x: n(x), allow_int=True), (None, 0))
        features = slopes(network, points).readout
        return float(jnp.mean(jnp.abs(features @ features.T - exact)))

    errors = {n: np.mean([error(n, jax.random.key(i)) for i in range(4)]) for n in (500, 20_000)}
    assert errors[20_000] < 0.05
    assert errors[20_000] < errors[500] / 3
