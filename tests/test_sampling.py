"""Samplers on a posterior that is Gaussian exactly, and a run loop that loses nothing."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import blackjax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mercer
from mercer.diagnostics import covariance_error, coverage, crps, ess, nlpd, rhat
from oracle import Features, exact_moments, make_posterior

CHAINS = 4


@pytest.fixture(autouse=True)
def _allow_key_reuse():
    """BlackJAX's own kernels do not pass JAX's check for reused keys."""
    with jax.debug_key_reuse(False):
        yield


def whiten(values, covariance, mean):
    return (np.asarray(values) - mean) @ np.linalg.cholesky(np.linalg.inv(covariance))


def z_scores(values, covariance, mean):
    """z of means, variances and products in the eigenbasis, by each one's own ESS."""
    white = whiten(values, covariance, mean)
    products = np.stack([white[..., i] * white[..., j] for i in range(4) for j in range(i + 1)], -1)
    expected = np.array([float(i == j) for i in range(4) for j in range(i + 1)])
    spread = np.where(expected == 1, np.sqrt(2), 1.0)
    means = white.reshape(-1, 4).mean(0) * np.sqrt(ess(white, "mean"))
    second = (products.reshape(-1, 10).mean(0) - expected) / spread * np.sqrt(ess(products, "mean"))
    return np.concatenate([means, second])


def run(algorithm, posterior=None, num_draws=3000, num_warmup=500, thin=1, seed=1):
    return mercer.sample(
        jax.random.key(seed), posterior or make_posterior(), algorithm, num_draws=num_draws,
        num_warmup=num_warmup, num_chains=CHAINS, thin=thin, record=lambda p: p.readout,
        progress=False,
    )  # fmt: skip


@pytest.mark.parametrize(
    "algorithm",
    [
        mercer.nuts(),
        mercer.nuts(adaptation="dense"),
        mercer.nuts(adaptation="low_rank"),
        mercer.hmc(10),
    ],
    ids=["nuts", "nuts dense", "nuts low rank", "hmc"],
)
def test_exact_samplers_meet_the_oracle(algorithm):
    mean, covariance = exact_moments()
    draws = run(algorithm)
    assert np.max(np.abs(z_scores(draws.recorded, covariance, mean))) < 4
    assert draws.summary().verdict.startswith("Converged")


@pytest.mark.parametrize(
    "algorithm", [mercer.sghmc(0.02), mercer.sgnht(0.02)], ids=["sghmc", "sgnht"]
)
def test_underdamped_samplers_meet_the_oracle(algorithm):
    mean, covariance = exact_moments()
    draws = run(algorithm, num_draws=6000, thin=10)
    assert np.max(np.abs(z_scores(draws.recorded, covariance, mean))) < 4


@pytest.mark.parametrize("make", [mercer.sghmc, mercer.sgnht])
def test_underdamped_variance_is_right_at_large_steps(make):
    """A unit Gaussian at h = 0.5, where Euler's scheme is off by factors."""

    class Unit(eqx.Module):
        params: jax.Array

        def __call__(self, params, batch=None):
            return -0.5 * jnp.sum(params**2)

    draws = mercer.sample(
        jax.random.key(0),
        Unit(jnp.zeros(20)),
        make(0.5),
        num_draws=4000,
        num_chains=4,
        progress=False,
    )
    assert abs(np.var(np.asarray(draws.params)) - 1) < 0.08


def discretised(covariance, step_size):
    """The exact stationary covariance of Langevin steps of size h: Σ (I − hΣ⁻¹/2)⁻¹."""
    precision = np.linalg.inv(covariance)
    return covariance @ np.linalg.inv(np.eye(4) - 0.5 * step_size * precision)


@pytest.mark.parametrize("step_size", [4e-3, 2e-3])
def test_sgld_has_the_variance_of_its_step_and_no_other(step_size):
    mean, covariance = exact_moments()
    draws = run(mercer.sgld(step_size), num_draws=10_000, num_warmup=2000, thin=40)
    z = z_scores(draws.recorded, discretised(covariance, step_size), mean)
    assert np.max(np.abs(z)) < 4
    # The wrong convention, ε for ε/2, fails the same test.
    wrong = z_scores(draws.recorded, discretised(covariance, step_size / 2), mean)
    assert np.max(np.abs(wrong)) > 6


def test_preconditioned_sgld_meets_the_oracle_in_the_limit():
    mean, covariance = exact_moments()
    errors = []
    for step_size in (2e-3, 2e-4):
        draws = run(mercer.psgld(step_size), num_draws=4000, num_warmup=3000, thin=50)
        errors.append(
            np.max(np.abs(np.var(whiten(draws.recorded, covariance, mean), axis=(0, 1))[:1] - 1))
        )
    assert errors[1] < errors[0]
    assert errors[1] < 0.1


def test_noisy_gradients_leave_the_mean_alone():
    """A lattice energy and data minibatches: more variance, the same centre."""
    mean, covariance = exact_moments()
    noisy = make_posterior(lambda s: mercer.Lattice(s, 64), batch_size=6)
    draws = mercer.sample(
        jax.random.key(3), noisy, mercer.sgld(2e-4), num_draws=3000, num_warmup=5000, num_chains=8,
        thin=30, record=lambda p: p.readout, progress=False,
        init=Features(jnp.tile(jnp.asarray(mean), (8, 1))),
    )  # fmt: skip
    white = whiten(draws.recorded, covariance, mean)
    z = white.reshape(-1, 4).mean(0) * np.sqrt(ess(white, "mean"))
    assert np.max(np.abs(z)) < 4


def test_control_variates_cut_the_noise():
    noisy = make_posterior(batch_size=3)
    mean, _ = exact_moments()
    center = Features(jnp.asarray(mean))
    full = jax.grad(make_posterior())(center)
    # One step so long that the gradient's noise, not the injected one, decides.
    plain = mercer.sgld(10.0)
    better = mercer.sgld_control_variates(10.0, center, full)

    def spread(algorithm):
        state = algorithm.init(jax.random.key(0), noisy, center)
        keys = jax.random.split(jax.random.key(1), 200)
        moved = jax.vmap(lambda k: algorithm.step(k, noisy, state)[0].position.readout)(keys)
        return np.asarray(jnp.var(moved, axis=0)).max()

    assert spread(better) < 0.8 * spread(plain)


def test_microcanonical_approaches_the_oracle_as_its_step_shrinks():
    mean, covariance = exact_moments()
    bias = []
    for allowed in (5e-2, 5e-4):
        draws = run(mercer.mclmc(allowed), num_draws=6000, num_warmup=3000, thin=5)
        white = whiten(draws.recorded, covariance, mean)
        bias.append(np.abs(np.var(white, axis=(0, 1)) - 1).max())
    assert bias[1] < 0.15
    assert bias[1] < bias[0]


def test_a_blackjax_algorithm_brought_by_its_user():
    posterior = make_posterior()
    mean, covariance = exact_moments()
    theirs = blackjax.nuts(posterior, 0.2, np.diag(covariance))
    draws = run(theirs)
    assert np.max(np.abs(z_scores(draws.recorded, covariance, mean))) < 4
    assert np.all(np.isfinite(draws.statistics["acceptance"]))


def test_full_network_follows_the_process_given_data():
    """A small network against the Gaussian process, also where there is no data."""
    spectrum = (mercer.Laplacian(mercer.Interval(0, 1), 40) ** 2).with_variance(1.0)
    network = mercer.FourierMLP(
        1, 20, num_frequencies=8, frequency_scale=5.0, boundary="dirichlet", key=jax.random.key(0),
        hidden_scale=2.0, saturation=0.1,
    )  # fmt: skip
    prior = mercer.Prior(mercer.Quadrature(spectrum), network)
    rng = np.random.default_rng(0)
    x = rng.uniform(0.05, 0.6, (20, 1))
    truth = mercer.GaussianProcess(spectrum)
    y = np.asarray(truth.draw(jax.random.key(1), x)[0]) + 0.1 * rng.normal(size=20)
    posterior = mercer.Posterior(prior, mercer.Gaussian(0.1), (x, y))
    grid = np.linspace(0.02, 0.98, 30)[:, None]
    draws = mercer.sample(
        jax.random.key(2), posterior, mercer.nuts(max_doublings=6), num_draws=200, num_warmup=250,
        num_chains=4, record=lambda p: jax.vmap(posterior.network(p))(jnp.asarray(grid)), progress=False,
    )  # fmt: skip
    exact = truth.condition(x, y, 0.1)
    sd = np.sqrt(np.asarray(exact.variance(grid)))
    values = np.asarray(draws.recorded)
    assert np.max(rhat(values)) < 1.05
    off = (values.mean((0, 1)) - np.asarray(exact.mean(grid))) / sd
    assert np.max(np.abs(off)) < 0.25
    assert np.all(np.abs(values.std((0, 1)) / sd - 1) < 0.25)


def test_the_same_seed_gives_the_same_draws():
    first, second = (run(mercer.hmc(3), num_draws=20, num_warmup=10) for _ in range(2))
    np.testing.assert_array_equal(first.recorded, second.recorded)
    other = run(mercer.hmc(3), num_draws=20, num_warmup=10, seed=2)
    assert not np.array_equal(first.recorded, other.recorded)


def stored(folder, num_draws, resume=False, seed=1, **options):
    return mercer.sample(
        jax.random.key(seed), make_posterior(), mercer.hmc(3), num_draws=num_draws, num_warmup=10,
        num_chains=2, store=folder, resume=resume, progress=False, **options,
    )  # fmt: skip


def test_a_resumed_run_is_the_run_that_never_stopped(tmp_path):
    whole = stored(tmp_path / "whole", 60)
    stored(tmp_path / "parts", 23)
    resumed = stored(tmp_path / "parts", 60, resume=True)
    np.testing.assert_array_equal(whole.params.readout, resumed.params.readout)
    again = stored(tmp_path / "parts", 60, resume=True)
    np.testing.assert_array_equal(whole.params.readout, again.params.readout)


def test_a_store_opens_in_xarray(tmp_path):
    import xarray

    draws = stored(tmp_path / "run", 12, record=lambda p: {"first": p.readout[0]})
    with xarray.open_zarr(tmp_path / "run" / "draws.zarr", consolidated=False) as opened:
        assert opened["recorded.0"].dims == ("chain", "draw")
        np.testing.assert_array_equal(opened["recorded.0"].values, draws.recorded["first"])


KILLED = """
    import sys, jax
    jax.config.update("jax_enable_x64", True)
    sys.path.insert(0, {tests!r})
    import mercer.sampling.run as loop
    loop.CHECKPOINT_SECONDS = 0.0
    import test_sampling
    test_sampling.stored({folder!r}, 400, resume=True)
"""


def test_a_killed_run_goes_on_bit_for_bit(tmp_path):
    whole = stored(tmp_path / "whole", 400)
    folder = tmp_path / "killed"
    script = textwrap.dedent(KILLED.format(tests=str(Path(__file__).parent), folder=str(folder)))
    command = [sys.executable, "-c", script]
    for pause in (0.0, 0.4):
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + 120
        seen = len(list(folder.glob("checkpoints/*")))
        while process.poll() is None and time.monotonic() < deadline:
            if len(list(folder.glob("draws.zarr/*"))) > 3 + seen:
                break
            time.sleep(0.02)
        time.sleep(pause)
        process.send_signal(signal.SIGKILL)
        process.wait()
    resumed = stored(folder, 400, resume=True)
    np.testing.assert_array_equal(whole.params.readout, resumed.params.readout)


def test_ctrl_c_returns_what_there_is(tmp_path):
    sent = []

    def interrupt():
        if not sent:
            sent.append(True)
            os.kill(os.getpid(), signal.SIGINT)

    def interrupting(params):
        jax.debug.callback(interrupt)
        return params.readout

    draws = mercer.sample(
        jax.random.key(0), make_posterior(), mercer.sgld(1e-3), num_draws=4000, num_warmup=0, num_chains=1,
        record=interrupting, progress=False,
    )  # fmt: skip
    assert draws.interrupted
    assert 0 < draws.recorded.shape[1] < 4000


def test_a_chain_that_leaves_the_numbers_says_where():
    with pytest.raises(
        mercer.SamplingError, match=r"chain \d left the finite numbers at draw \d+"
    ) as caught:
        mercer.sample(
            jax.random.key(0),
            make_posterior(),
            mercer.sgld(0.05),
            num_draws=2000,
            num_warmup=0,
            progress=False,
        )
    kept = caught.value.draws
    assert np.all(np.isfinite(kept.params.readout))


def test_prediction_in_chunks():
    draws = mercer.sample(
        jax.random.key(0),
        make_posterior(),
        mercer.hmc(5),
        num_draws=50,
        num_warmup=50,
        num_chains=2,
        progress=False,
    )
    points = np.linspace(0, 1, 23)[:, None]
    values = draws.values(points)
    assert values.shape == (100, 23)
    small, large = draws.predict(points, chunk=5), draws.predict(points)
    np.testing.assert_allclose(small.mean, large.mean, rtol=1e-10)
    np.testing.assert_allclose(small.mean, values.mean(0), rtol=1e-10)
    np.testing.assert_allclose(large.quantiles[1], np.median(values, axis=0), rtol=1e-10)
    assert draws.to_arviz() is not None
    with pytest.raises(
        ValueError, match=r"1 of 2 rows of points lie outside the domain, .* by 0.5"
    ):
        draws.predict([[0.5], [1.5]])


BAD = {
    "no chains": (
        lambda p: mercer.sample(jax.random.key(0), p, mercer.nuts(), num_chains=0),
        "num_chains",
    ),
    "no store": (
        lambda p: mercer.sample(jax.random.key(0), p, mercer.nuts(), resume=True),
        "needs the store",
    ),
    "no algorithm": (lambda p: mercer.sample(jax.random.key(0), p, "nuts"), "mercer.nuts"),
    "random density": (
        lambda p: mercer.sample(jax.random.key(0), make_posterior(batch_size=3), mercer.nuts()),
        "Quadrature energy and no batch_size",
    ),
    "infinite start": (
        lambda p: mercer.sample(
            jax.random.key(0),
            p,
            mercer.nuts(),
            num_chains=2,
            init=Features(jnp.full((2, 4), jnp.inf)),
        ),
        "where chain 0 starts",
    ),
    "record that is no array": (
        lambda p: mercer.sample(jax.random.key(0), p, mercer.nuts(), record=lambda q: "text"),
        "pytree of arrays",
    ),
    "negative step": (lambda p: mercer.sgld(-1.0), "step_size must be positive"),
    "acceptance over one": (lambda p: mercer.nuts(1.2), "between 0 and 1"),
    "unknown adaptation": (lambda p: mercer.nuts(adaptation="full"), "low_rank"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_gets_one_clear_sentence(name):
    make, words = BAD[name]
    with pytest.raises(ValueError, match=words):
        make(make_posterior())


def test_stores_are_not_mixed_up(tmp_path):
    stored(tmp_path / "run", 8)
    with pytest.raises(ValueError, match="holds a run already"):
        stored(tmp_path / "run", 8)
    with pytest.raises(ValueError, match="another density, seed"):
        stored(tmp_path / "run", 8, resume=True, seed=5)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "data.txt").write_text("precious")
    with pytest.raises(ValueError, match="no store of mercer"):
        stored(tmp_path / "mine", 8)


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


def test_schedules():
    schedules = mercer.schedules
    assert float(schedules.polynomial(2.0, 10.0, 0.5)(jnp.asarray(30.0))) == pytest.approx(1.0)
    assert float(schedules.cosine(2.0, 10)(jnp.asarray(5.0))) == pytest.approx(1.0)
    assert float(schedules.cosine(2.0, 10)(jnp.asarray(50.0))) == pytest.approx(0.0)
    assert float(schedules.cyclical(2.0, 10)(jnp.asarray(20.0))) == pytest.approx(2.0)
