"""The estimator against the process it stands for, scikit-learn's conventions, and odd data."""

import contextlib
import pickle
import threading
import warnings

import jax
import numpy as np
import pytest
from scipy import stats
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import DotProduct, Matern
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

import mercer
from mercer import MercerRegressor
from mercer.estimators import local
from mercer.estimators.hyperparameters import as_kind, unpack
from mercer.estimators.minibatch import draw_readout
from mercer.estimators.model import Columns, fit, leave_one_out, make_centres, padded_size
from mercer.sampling import run

RANDOM = np.random.default_rng(0)
X = RANDOM.uniform(-2, 2, (60, 2))
Y = np.sin(X[:, 0]) + 0.5 * X[:, 1] + 0.1 * RANDOM.standard_normal(60)


def hyper(noise=0.1):
    """Matérn-3/2 with length scales 1 and 2, amplitude 1.5, slope 0.7."""
    return unpack(jax.numpy.log(jax.numpy.array([1.0, 2.0, 1.5, 0.7, noise])), as_kind("matern32"))


def make_rows(x, y, known=None):
    """Rows whose noise is learned, or known."""
    learns = np.full(len(y), float(known is None))
    return Columns(x, y, np.zeros(len(y)) if known is None else known, learns).padded()


def peer(noise):
    """scikit-learn's process with the same kernel: a constant of variance one, and a plane."""
    flat = 0.7**2 / 2 * DotProduct(0.0, "fixed") + 1.0
    return GaussianProcessRegressor(
        1.5**2 * Matern([1.0, 2.0], nu=1.5) + flat, alpha=noise, optimizer=None
    )


@pytest.mark.parametrize("noise", [0.1, np.linspace(0.05, 0.3, 60)])
def test_all_rows_as_centres_are_the_process_itself(noise):
    variances = np.broadcast_to(np.square(noise), 60)
    rows = make_rows(X, Y, None if np.ndim(noise) == 0 else variances)
    other = peer(variances).fit(X, Y)
    new = RANDOM.uniform(-3, 3, (40, 2))
    mean, variance = fit(hyper(), make_centres(X), rows).moments(new)
    expected, sd = other.predict(new, return_std=True)
    np.testing.assert_allclose(mean, expected, atol=2e-6)
    np.testing.assert_allclose(variance, sd**2, atol=2e-6)
    found = rows.log_evidence(hyper())
    assert found == pytest.approx(other.log_marginal_likelihood_value_, abs=1e-4)


def test_the_derivative_of_the_evidence_is_that_of_differences():
    def value(amplitude):
        return make_rows(X, Y).log_evidence(hyper()._replace(amplitude=amplitude))

    at, step = jax.numpy.asarray(0.3), 1e-4
    slope = (value(at + step) - value(at - step)) / (2 * step)
    assert jax.grad(value)(at) == pytest.approx(float(slope), rel=1e-5)


def test_few_centres_keep_the_prior_variance():
    """Tail and kept variance add to the process's own, so nothing is claimed to be known."""
    given = fit(hyper(), make_centres(X[:5]), make_rows(X[:1], Y[:1]))
    far = np.full((1, 2), 50.0)
    variance = given.moments(far)[1]
    plane = float(hyper().covariance.second.diagonal(jax.numpy.asarray(far))[0])
    assert variance[0] > 1.5**2
    assert variance[0] < 1.5**2 + plane + 1e-9


def test_leaving_a_row_out_in_closed_form_is_leaving_it_out():
    columns = Columns(X, Y, np.zeros(60), np.ones(60))
    residuals, variances = leave_one_out(hyper(), columns)
    for row in (0, 7, 31):
        kept = np.delete(np.arange(60), row)
        alone = fit(hyper(), make_centres(X[kept]), make_rows(X[kept], Y[kept]))
        mean, variance = alone.moments(X[row : row + 1])
        assert residuals[row] == pytest.approx(float(Y[row] - mean[0]), abs=1e-5)
        assert variances[row] == pytest.approx(float(variance[0] + 0.01), rel=1e-4)


def test_predictions_agree_with_one_another():
    model = MercerRegressor(noise="constant").fit(X, Y)
    new = RANDOM.uniform(-2, 2, (30, 2))
    mean, sd = model.predict(new, return_std=True)
    _, levels = model.predict(new, quantiles=(0.025, 0.5, 0.975))
    assert np.all(np.diff(levels, axis=0) > 0)
    np.testing.assert_allclose(levels[2] - levels[0], 2 * 1.96 * sd, rtol=0.1)
    drawn = model.sample(new, 4000)
    assert drawn.shape == (4000, 30)
    spread = drawn.std(0)
    assert np.all(np.abs(drawn.mean(0) - mean) < 5 * spread / np.sqrt(4000))
    assert np.all(spread < sd)
    np.testing.assert_allclose(model.fit(X, Y).predict(new), mean, rtol=1e-9)
    assert model.score(X, Y) > 0.9


def test_targets_far_from_zero_keep_their_deviations():
    new = RANDOM.uniform(-2, 2, (5, 2))
    _, near = MercerRegressor(noise="constant").fit(X, Y).predict(new, return_std=True)
    _, far = MercerRegressor(noise="constant").fit(X, Y + 1e8).predict(new, return_std=True)
    np.testing.assert_allclose(far, near, rtol=1e-4)


@pytest.fixture(scope="module")
def many():
    """A fit of 1,600 rows by neighbours, with fewer rows and units than a user's."""
    random = np.random.default_rng(5)
    x, new = random.uniform(-2, 2, (1600, 2)), random.uniform(-2, 2, (500, 2))
    function = lambda p: np.sin(4 * p[:, 0]) * np.cos(3 * p[:, 1])  # noqa: E731
    y, targets = (function(p) + 0.1 * random.standard_normal(len(p)) for p in (x, new))
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {"LEARNING_ROWS": 300, "LEFT_OUT_ROWS": 300, "MAX_UNITS": 60}.items():
            patch.setattr(local, name, value)
        return MercerRegressor("matern52").fit(x, y), x, y, new, targets


@pytest.mark.slow
def test_many_rows_are_followed_by_neighbours(many):
    """Against scikit-learn's process of all rows, with the hyperparameters that were learned."""
    model, x, y, new, targets = many
    (found,) = model.hyper_
    amplitude, slope, noise = (float(np.exp(v)) for v in found[1:4])
    flat = slope**2 / 2 * DotProduct(0.0, "fixed") + 1.0
    kernel = amplitude**2 * Matern(np.exp(found.lengthscales), nu=2.5) + flat
    judge = GaussianProcessRegressor(kernel, alpha=noise**2, optimizer=None)
    units = [(p - model.x_mean_) / model.x_scale_ for p in (x, new)]
    judge.fit(units[0], (y - y.mean()) / y.std())
    expected, spread = judge.predict(units[1], return_std=True)
    mean, sd = model.predict(new, return_std=True)
    whole = y.std() * np.sqrt(spread**2 + noise**2)
    assert np.max(np.abs(mean - y.mean() - y.std() * expected) / whole) < 0.25
    np.testing.assert_allclose(sd, np.sqrt(model.calibration_.factor) * whole, rtol=0.05)
    assert noise * y.std() == pytest.approx(0.1, rel=0.1)
    assert 0.92 < np.mean(np.abs(targets - mean) < 1.96 * sd) < 0.98


@pytest.mark.slow
def test_paths_of_many_rows_have_the_predictive_spread(many):
    model, *_, new, _ = many
    paths = model.sample(new[:50], 2000)
    mean, sd = model.predict(new[:50], return_std=True)
    own = np.sqrt(sd**2 / model.calibration_.factor - model.noise_scale_**2)
    np.testing.assert_allclose(paths.std(0), own, rtol=0.12)
    assert np.all(np.abs(paths.mean(0) - mean) < 5 * own / np.sqrt(2000))


def test_input_dependent_noise_is_found_where_there_is_any():
    x = np.linspace(0, 1, 150)[:, None]
    random = np.random.default_rng(1)
    truth = np.where(x[:, 0] < 0.5, 0.05, 0.5)
    y = np.sin(6 * x[:, 0]) + truth * random.standard_normal(150)
    _, sd = MercerRegressor().fit(x, y).predict(x, return_std=True)
    assert np.median(sd[:60]) < 0.12
    assert 0.3 < np.median(sd[90:]) < 0.8
    even = np.sin(6 * x[:, 0]) + 0.2 * random.standard_normal(150)
    assert MercerRegressor().fit(x, even).noise_ is None


@pytest.mark.slow
def test_scikit_learns_own_checks():
    with warnings.catch_warnings(), jax.debug_key_reuse(False):
        warnings.simplefilter("ignore")
        found = check_estimator(MercerRegressor(noise="constant"), on_fail=None)
    failed = [(c["check_name"], c["exception"]) for c in found if c["status"] == "failed"]
    assert not failed


def test_pipelines_cross_validation_and_pickles():
    model = make_pipeline(StandardScaler(), MercerRegressor(noise="constant"))
    assert cross_val_score(model, X, Y, cv=3).mean() > 0.8
    fitted = MercerRegressor(noise="constant").fit(X, Y)
    again = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(again.predict(X), fitted.predict(X))


def test_noise_that_is_given_is_part_of_a_new_observation():
    """Half of 2,000 observations of the same function have their noise learned, half are told it."""
    random = np.random.default_rng(2)
    x, new = random.uniform(-2, 2, (100, 1)), random.uniform(-2, 2, (2000, 1))
    y = np.sin(3 * x[:, 0]) + 0.3 * random.standard_normal(100)
    observed = np.sin(3 * new[:, 0]) + 0.3 * random.standard_normal(2000)
    for noise in (0.3, np.full(100, 0.3)):
        mean, sd = MercerRegressor(noise=noise).fit(x, y).predict(new, return_std=True)
        assert 0.92 < np.mean(np.abs(observed - mean) < 1.96 * sd) < 0.98


def catastrophes():
    """Data that once made predictions absurdly sure, as (x, y, new x, new y)."""
    random = np.random.default_rng(3)
    x, new = random.uniform(-2, 2, (200, 2)), random.uniform(-2, 2, (200, 2))

    def noisy(points):
        return np.sin(2 * points[:, 0]) + points[:, 1] + 0.3 * random.standard_normal(len(points))

    y, targets = noisy(x), noisy(new)
    twice = np.concatenate([x, x[:40]])
    grid = np.stack(np.meshgrid(range(20), range(20)), -1).reshape(-1, 2) / 4.0
    odd = np.zeros(200)
    odd[17] = 1.0
    disagree = np.concatenate([y, noisy(x[:5])])
    return {
        "a fifth repeated exactly": (twice, np.concatenate([y, y[:40]]), new, targets),
        "repeats that disagree": (np.concatenate([x, x[:5]]), disagree, new, targets),
        "whole numbers": (x, np.round(y), new, np.round(targets)),
        "zero but one": (x, odd, new, np.zeros(200)),
        "noise-free": (grid[::2], np.sin(grid[::2, 0]), grid[1::2], np.sin(grid[1::2, 0])),
        "duplicates of few values": (np.round(x), np.round(y), np.round(new), np.round(targets)),
    }


@pytest.mark.parametrize("name", catastrophes())
def test_predictions_are_never_surer_than_data_allow(name):
    """Against the training targets' mean and standard deviation, by moments as by densities: two tenths of
    a nat is what learning from 200 rows may cost."""
    x, y, new, targets = catastrophes()[name]
    model = MercerRegressor().fit(x, y)
    mean, sd = model.predict(new, return_std=True)
    trivial = -stats.norm.logpdf(targets, y.mean(), y.std()).mean()
    assert -stats.norm.logpdf(targets, mean, sd).mean() < trivial + 0.2
    assert -model.log_density(new, targets).mean() < trivial + 0.2


def test_odd_data_do_the_right_thing():
    constant = MercerRegressor().fit(X, np.full(60, 3.0))
    np.testing.assert_allclose(constant.predict(X), 3.0, atol=1e-3)
    doubled = MercerRegressor(noise="constant").fit(np.repeat(X, 2, 0), np.repeat(Y, 2))
    assert doubled.score(X, Y) > 0.9
    column = np.column_stack([X, np.ones(60)])
    np.testing.assert_allclose(
        MercerRegressor(noise="constant").fit(column, Y).predict(column), Y, atol=0.5
    )
    huge = MercerRegressor(noise="constant").fit(X * 1e9, Y * 1e-12)
    assert huge.score(X * 1e9, Y * 1e-12) > 0.9
    wide = MercerRegressor().fit(RANDOM.standard_normal((8, 20)), RANDOM.standard_normal(8))
    assert np.all(np.isfinite(wide.predict(np.zeros((2, 20)))))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda: MercerRegressor().fit([[1.0], [np.nan]], [0.0, 1.0]), "NaN"),
        (lambda: MercerRegressor().fit([["red"], ["blue"]], [0.0, 1.0]), "could not convert"),
        (lambda: MercerRegressor().fit([[1.0]], [0.0]), "minimum of 2"),
        (lambda: MercerRegressor(kernel="matern").fit(X, Y), "kernel must be a spectrum or one of"),
        (lambda: MercerRegressor(noise="loud").fit(X, Y), "noise must be an array or one of"),
        (lambda: MercerRegressor(noise=-1.0).fit(X, Y), "positive and finite"),
        (lambda: MercerRegressor(noise=np.ones(5)).fit(X, Y), "one number or one a row"),
        (lambda: MercerRegressor(random_state="one").fit(X, Y), "cannot be used to seed"),
    ],
)
def test_bad_input_gets_a_sentence(change, words):
    with pytest.raises(ValueError, match=words):
        change()


def test_what_cannot_be_predicted_is_told():
    model = MercerRegressor("matern32", "constant", "laplace", random_state=None).fit(X, Y)
    for call, words in (
        (lambda: model.predict(X, quantiles="median"), "numbers between 0 and 1"),
        (lambda: model.sample(X, 0), "n must be at least 1"),
        (lambda: model.log_density(X, Y[:3]), "one row a target"),
        (lambda: model.log_density(X, np.full(60, np.nan)), "NaN"),
    ):
        with pytest.raises(ValueError, match=words):
            call()
    with pytest.warns(UserWarning, match="far outside"):
        model.predict([[50.0, 0.0]])


@pytest.mark.slow
def test_hyperparameters_by_nuts_predict_as_weighted_draws_do():
    new = RANDOM.uniform(-2, 2, (20, 2))
    with jax.debug_key_reuse(False):  # BlackJAX's samplers do not pass that check
        models = {
            name: MercerRegressor("matern32", "constant", name).fit(X, Y)
            for name in ("exact", "nuts", "laplace")
        }
    found = {name: model.predict(new, return_std=True) for name, model in models.items()}
    mean, sd = found["exact"]
    assert np.max(np.abs(found["nuts"][0] - mean) / sd) < 0.2
    assert np.max(np.abs(found["nuts"][1] / sd - 1)) < 0.1
    assert len(models["nuts"].weights_) == 24
    assert len(models["laplace"].weights_) == 1
    with pytest.raises(ValueError, match="inference must be one of"):
        MercerRegressor(inference="magic").fit(X, Y)


def test_a_spectrum_is_a_kernel_of_ones_own():
    """Against the exact process: the evidence with every mode, and the posterior by scikit-learn."""
    x = np.linspace(0.05, 0.95, 40)[:, None]
    y = np.sin(9 * x[:, 0]) + 0.05 * np.random.default_rng(0).standard_normal(40)
    spectrum = mercer.Matern(1.5, 0.2, 1.0, mercer.Interval(-1, 2), 200)
    model = MercerRegressor(spectrum, "constant", "laplace").fit(x, y)
    (found,) = model.hyper_
    amplitude, slope, noise = (float(np.exp(v)) for v in found[1:4])
    scale = model.x_scale_[0]
    shifted = (x - model.x_mean_) / scale
    flat = slope**2 * DotProduct(0.0, "fixed") + 1.0
    judge = GaussianProcessRegressor(
        amplitude**2 * Matern(0.2 / scale, nu=1.5) + flat, alpha=noise**2, optimizer=None
    ).fit(shifted, (y - y.mean()) / y.std())
    new = np.linspace(0, 1, 30)[:, None]
    mean, sd = model.predict(new, return_std=True)
    expected, spread = judge.predict((new - model.x_mean_) / scale, return_std=True)
    np.testing.assert_allclose(mean, y.mean() + y.std() * expected, atol=2e-3)
    np.testing.assert_allclose(sd, y.std() * np.sqrt(spread**2 + noise**2), rtol=0.02)


def test_a_spectrum_is_used_within_its_domain():
    spectrum = mercer.Matern(1.5, 0.2, 1.0, mercer.Interval(0, 1), 20)
    x = np.linspace(0, 1, 20)[:, None]
    with pytest.raises(ValueError, match="outside the domain"):
        MercerRegressor(spectrum).fit(2 * x, x[:, 0])
    with pytest.raises(ValueError, match="2 columns"):
        MercerRegressor(spectrum).fit(np.hstack([x, x]), x[:, 0])
    model = MercerRegressor(spectrum, "constant", "laplace").fit(x, x[:, 0])
    with pytest.raises(ValueError, match="outside the domain"):
        model.predict([[1.5]])


@pytest.mark.slow
def test_minibatches_have_the_law_of_the_closed_form():
    new = RANDOM.uniform(-2, 2, (20, 2))
    x = RANDOM.uniform(-2, 2, (700, 2))
    y = np.sin(x[:, 0]) * x[:, 1] + 0.3 * RANDOM.standard_normal(700)
    rows, centres = make_rows(x, y), make_centres(x[:60])
    mean, variance = fit(hyper(0.3), centres, rows).moments(new)
    with jax.debug_key_reuse(False):  # a batch is used at two places, on purpose
        drawn = draw_readout(jax.random.key(0), hyper(0.3), centres, rows)
    found, spread = drawn.moments(new)
    np.testing.assert_allclose(found, mean, atol=1e-6)
    # 600 draws: four standard errors of a variance, and what steps and batches add.
    np.testing.assert_allclose(spread, variance, rtol=4 * np.sqrt(2 / 600) + 0.02)
    values = drawn.draw(jax.random.key(1), new, 4000)
    np.testing.assert_allclose(values.std(0), np.sqrt(spread), rtol=0.1)


def test_sizes_are_few_and_little_too_large():
    sizes = [padded_size(n) for n in range(1, 3000)]
    assert all(n <= size <= max(1.25 * n, n + 16) for n, size in enumerate(sizes[:2048], 1))
    assert len(set(sizes)) < 40
    assert padded_size(5000) == 3 * 2048


@pytest.mark.parametrize("inference", ["sgld", "nuts"])
def test_an_interrupt_ends_the_fit(inference, monkeypatch):
    """Chains within a fit stop at Ctrl-C with what they have, which is no posterior."""
    stopped = threading.Event()
    stopped.set()
    monkeypatch.setattr(run, "interrupts", lambda: contextlib.nullcontext(stopped))
    with pytest.raises(KeyboardInterrupt), jax.debug_key_reuse(False):
        MercerRegressor("matern32", "constant", inference).fit(X, Y)
