"""Scores and errors against what is known of them."""

import jax
import numpy as np
import pytest
from scipy import stats

import mercer
from mercer.diagnostics import (
    coefficient_spectrum,
    covariance_error,
    coverage,
    crps,
    ess,
    independent_stride,
    ks_along,
    ks_between,
    ks_critical,
    nlpd,
    summarise,
)


def test_scores_are_those_of_the_normal():
    rng = np.random.default_rng(0)
    samples, y = rng.normal(size=(20_000, 3)), np.array([0.0, 1.0, -2.0])
    pdf, cdf = np.exp(-(y**2) / 2) / np.sqrt(2 * np.pi), np.array([0.5, 0.841345, 0.022750])
    exact = np.mean(y * (2 * cdf - 1) + 2 * pdf - 1 / np.sqrt(np.pi))
    assert crps(samples, y) == pytest.approx(exact, abs=0.01)
    assert coverage(y, [-1.96] * 3, [1.96] * 3) == pytest.approx(2 / 3)
    assert nlpd(np.log(np.array([[0.2, 0.5], [0.4, 0.1]]))) == pytest.approx(-np.log(0.3))


def test_covariance_error_knows_its_own_noise():
    rng = np.random.default_rng(0)
    exact = np.array([[1.0, 0.5], [0.5, 2.0]])
    values = rng.multivariate_normal(np.zeros(2), exact, size=(4, 2000))
    error, standard = covariance_error(values, exact)
    assert np.all(error < 4 * standard)
    np.testing.assert_allclose(
        standard, np.sqrt((np.outer([1, 2], [1, 2]) + exact**2) / 8000), rtol=0.15
    )


@pytest.mark.slow
def test_coefficients_of_the_process_are_standard_normal(key):
    """Exact draws of a wide network, mode by mode; a spectrum off by a half is caught."""
    prior = mercer.design(mercer.BrownianMotion(60), 0.01, key=jax.random.key(0))
    draws = mercer.sample(
        key, prior, mercer.exact(), num_draws=4000, num_chains=2, progress=False,
        record=lambda p: prior.coefficients(p)[0][:20],
    )  # fmt: skip
    found = coefficient_spectrum(draws.recorded)
    assert np.all(np.abs(found.variance - 1) < 4.5 * found.standard_error + 0.03)
    assert np.min(found.p_value) > 1e-4
    wrong = coefficient_spectrum(np.asarray(draws.recorded) * np.sqrt(1.5))
    assert np.all(wrong.variance - 1 > 4 * wrong.standard_error)
    assert np.max(wrong.p_value) < 1e-4


def test_kolmogorov_smirnov_along_columns_is_scipys():
    rng = np.random.default_rng(0)
    values, scales = rng.normal(size=(300, 130)), np.linspace(0.5, 1.5, 130)
    statistic, p_value = ks_along(values, scales)
    for i in range(0, 130, 13):
        judged = stats.kstest(values[:, i] / scales[i], "norm")
        np.testing.assert_allclose((statistic[i], p_value[i]), judged, rtol=1e-8, atol=1e-300)
    other = rng.normal(size=(400, 130))
    statistic, p_value = ks_between(values, other)
    agree = (statistic < ks_critical(300, 400)) == (p_value > 0.05)
    assert agree.mean() > 0.97  # the critical value and the p-value are two asymptotic forms


def test_a_stride_is_told_by_every_lag_and_not_by_the_effective_size():
    """x_i = e_i − 0.6 e_(i−1) + 0.4 e_(i−2): the mean has more effective draws than there are
    draws, and every other draw is correlated."""
    noise = np.random.default_rng(0).standard_normal((4, 5002, 1))
    chain = noise[:, 2:] - 0.6 * noise[:, 1:-1] + 0.4 * noise[:, :-2]
    assert ess(chain)[0] > 20_000
    assert independent_stride(chain) == 3
    assert independent_stride(noise) == 1


def test_a_lone_chain_and_odd_records_are_judged():
    rng = np.random.default_rng(0)
    known = statistics(energy=rng.normal(size=(4, 500)))
    one = {name: value[:1] for name, value in known.items()}
    lone = rng.normal(size=(1, 500, 3))
    assert summarise(lone, one).verdict == "Converged."
    assert "ever moved" in summarise(np.ones((1, 500, 3)), one).verdict
    assert "not finite" in summarise({"a": lone, "b": lone * np.nan}, one).verdict
    assert np.isfinite(summarise(lone > 0, one).rhat_max)


def statistics(**known):
    blank = dict.fromkeys(
        ["acceptance", "divergent", "energy", "step_size"], np.full((4, 500), 0.5)
    )
    return blank | {"divergent": np.zeros((4, 500))} | known


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({}, "Converged."),
        ({"values": "drift"}, "Not converged: R-hat"),
        ({"values": "slow"}, "Converged but short"),
        ({"divergent": 1.0}, "2000 steps diverged: raise target_acceptance"),
        ({"energy": "slow"}, "Energies mix slowly"),
        ({"temperature": 40.0}, "Too hot"),
    ],
)
def test_the_verdict_says_what_to_do(change, words):
    rng = np.random.default_rng(0)
    values, energy = rng.normal(size=(4, 500, 3)), rng.normal(size=(4, 500))
    slow = np.zeros((4, 500))
    for i in range(1, 500):
        slow[:, i] = 0.98 * slow[:, i - 1] + 0.2 * rng.normal(size=4)
    if change.get("values") == "drift":
        values = values + np.arange(4.0)[:, None, None]
    if change.get("values") == "slow":
        halves = rng.normal(size=(8, 45, 3))
        values = (halves - halves.mean(1, keepdims=True)).reshape(4, 90, 3)
    told = statistics(energy=10 * slow if change.get("energy") else energy)
    if change.get("divergent"):
        told["divergent"] = np.ones((4, 500))
    summary = summarise(values, told, change.get("temperature", 1.0))
    assert words in str(summary)
