"""Predictions: in chunks, with noise, to disk."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import zarr

import mercer
from oracle import make_posterior


@pytest.fixture(autouse=True)
def _allow_key_reuse():
    """BlackJAX's own kernels do not pass JAX's check for reused keys."""
    with jax.debug_key_reuse(False):
        yield


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


def small_run(likelihood=None, **options):
    posterior = make_posterior()
    if likelihood is not None:
        data = posterior.inputs, posterior.targets
        posterior = mercer.Posterior(posterior.prior, likelihood, data, tail="none")
    return mercer.sample(
        jax.random.key(0), posterior, mercer.hmc(5), num_draws=2000, num_warmup=300, num_chains=2,
        progress=False, **options,
    )  # fmt: skip


POINTS = np.linspace(0, 1, 23)[:, None]


def test_predictions_to_disk_are_those_in_memory(tmp_path):
    draws = small_run(keep_params=True)
    inside = draws.predict(POINTS)
    outside = draws.predict(POINTS, chunk=5, out=tmp_path / "predicted")
    for ours, theirs in zip(inside, outside, strict=True):
        np.testing.assert_allclose(ours, np.asarray(theirs), rtol=1e-10)
    joint = draws.values(POINTS, num_draws=50, chunk=7, out=tmp_path / "joint")
    assert isinstance(joint, zarr.Array)
    np.testing.assert_allclose(joint[:], draws.values(POINTS, num_draws=50), rtol=1e-12)
    with pytest.raises(ValueError, match="is not empty; choose another folder"):
        draws.predict(POINTS, out=tmp_path / "predicted")


def test_moments_without_quantiles_keep_no_values():
    draws = small_run()
    streamed, whole = draws.predict(POINTS, ()), draws.predict(POINTS)
    np.testing.assert_allclose(streamed.mean, whole.mean, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(streamed.sd, whole.sd, rtol=1e-10, atol=1e-12)
    assert streamed.quantiles.shape == (0, 23)


class Grid:
    """Points that are made when they are asked for, as a memory map's are."""

    shape = (10_000, 1)
    largest = 0

    def __getitem__(self, rows):
        made = np.linspace(0, 1, self.shape[0])[rows, None]
        Grid.largest = max(Grid.largest, len(made))
        return made


def test_points_need_not_be_in_memory():
    draws = small_run()
    found = draws.predict(Grid(), (), chunk=512, num_draws=20)
    assert found.mean.shape == (10_000,)
    assert Grid.largest == 512


NOISE = {
    "gaussian": (mercer.Gaussian(0.3), 0.3**2),
    "learned": (mercer.Gaussian(mercer.hyper.LogNormal(0.3, 1e-3)), 0.3**2),
    "student": (mercer.StudentT(6.0, 0.3), 0.3**2 * 6 / 4),
}


@pytest.mark.parametrize("name", NOISE)
def test_predictive_noise_adds_its_variance(name):
    likelihood, variance = NOISE[name]
    draws = small_run(likelihood)
    bare, noisy = draws.predict(POINTS), draws.predict(POINTS, noise_key=jax.random.key(1))
    np.testing.assert_allclose(noisy.sd**2 - bare.sd**2, variance, rtol=0.25)
    np.testing.assert_allclose(noisy.mean, bare.mean, atol=4 * 0.4 / np.sqrt(4000))
    x = np.asarray(draws.density.inputs)
    scores = draws.log_densities(x, np.asarray(draws.density.targets))
    one = jax.tree.map(lambda p: jnp.asarray(p[0, 0]), draws.params)
    np.testing.assert_allclose(scores[0], draws.density.row_terms(one), rtol=1e-10)
    if name == "learned":
        assert draws.likelihood["scale"].shape == (2, 2000)
        np.testing.assert_allclose(draws.likelihood["scale"], 0.3, rtol=0.01)


def test_predictions_have_the_variance_that_the_units_leave_out():
    alone = make_posterior()
    posterior = mercer.Posterior(alone.prior, alone.likelihood, (alone.inputs, alone.targets))
    draws = mercer.sample(
        jax.random.key(0), posterior, mercer.hmc(5), num_draws=20, num_warmup=10, num_chains=2,
        progress=False,
    )  # fmt: skip
    missing = posterior.tail_variances(jnp.asarray(POINTS))
    assert np.max(missing) > 0.01
    expected = draws.values(POINTS).var(axis=0, ddof=1) + missing
    for quantiles in ((), (0.5,)):
        np.testing.assert_allclose(draws.predict(POINTS, quantiles).sd ** 2, expected, rtol=1e-8)


def test_counts_and_classes_are_drawn_as_such(key):
    posterior, u = make_posterior(), jnp.array([-1.0, 0.0, 1.5])
    for likelihood, expected in (
        (mercer.Bernoulli(), lambda u: 1 / (1 + np.exp(-u))),
        (mercer.Poisson(), np.exp),
    ):
        drawn = jax.vmap(lambda k, c=likelihood: c.draw(k, u))(jax.random.split(key, 20_000))
        np.testing.assert_allclose(drawn.mean(0), expected(np.asarray(u)), rtol=0.05)
    rows = mercer.Gaussian(np.full(12, 0.1))
    rowwise = mercer.Posterior(posterior.prior, rows, (posterior.inputs, posterior.targets))
    with pytest.raises(ValueError, match="one a row of the data"):
        rowwise.draw_observations(key, posterior.params, jnp.zeros((3, 1)))


def test_a_pytree_of_networks_is_predicted_as_one(key):
    prior = make_posterior().prior
    both = mercer.Prior(prior.energy, {"mean": prior.network(prior.params)} | {
        "scale": prior.network(prior.params)
    })  # fmt: skip
    draws = mercer.sample(key, both, mercer.exact(), num_draws=10, num_chains=2, progress=False)
    values = draws.values(POINTS)
    assert set(values) == {"mean", "scale"}
    assert values["mean"].shape == (20, 23)
    assert set(draws.recorded) == {
        "values_0", "values_1", "coefficients_0", "coefficients_1", "mercer_energy_0",
        "mercer_energy_1",
    }  # fmt: skip


def test_draws_of_a_store_are_read_when_asked_for(tmp_path):
    kept = small_run(store=tmp_path / "run")
    memory = small_run()
    np.testing.assert_array_equal(kept.params.readout, memory.params.readout)
    np.testing.assert_array_equal(kept.networks(40).readout, memory.networks(40).readout)
    assert kept.networks(40).readout.shape == (40, 4)
    inference = memory.to_arviz()
    assert inference.posterior["values"].shape == (2, 2000, 16)
    np.testing.assert_array_equal(inference.sample_stats["energy"], memory.statistics["energy"])


def test_what_cannot_be_predicted_says_so(key):
    prior = make_posterior().prior
    drawn = mercer.sample(key, prior, mercer.exact(), num_draws=4, num_chains=2, progress=False)
    with pytest.raises(ValueError, match="needs draws of a posterior"):
        drawn.predict(POINTS, noise_key=key)
    with pytest.raises(ValueError, match="needs draws of a posterior"):
        drawn.log_densities(POINTS, POINTS[:, 0])
    plain = mercer.sample(
        key, lambda p: -jnp.sum(p**2), mercer.sgld(0.1), num_draws=4, num_chains=2,
        init=jnp.array([1.0, 2.0]), progress=False,
    )  # fmt: skip
    with pytest.raises(ValueError, match="no network"):
        plain.predict(POINTS)
    rows = small_run(mercer.Gaussian(np.full(12, 0.3)))
    with pytest.raises(ValueError, match="one a row of the data"):
        rows.log_densities(POINTS, POINTS[:, 0])
    with pytest.raises(ValueError, match="lie outside the domain"):
        small_run().log_densities(POINTS + 3, POINTS[:, 0])


def test_counts_are_streamed_and_forward_maps_see_their_own_inputs(key):
    posterior = make_posterior()

    def pairs(u, inputs):
        return jax.vmap(lambda x: u(x[:1]) - u(x[1:]))(inputs)

    two = np.random.default_rng(0).uniform(0, 1, (12, 2))
    mapped = mercer.Posterior(
        posterior.prior, mercer.Bernoulli(observe=pairs), (two, np.arange(12) % 2)
    )
    draws = mercer.sample(key, mapped, mercer.hmc(3), num_draws=9, num_warmup=5, num_chains=2,
                          progress=False)  # fmt: skip
    streamed = draws.predict(two, (), noise_key=key)
    assert np.all((streamed.mean >= 0) & (streamed.mean <= 1))
    np.testing.assert_allclose(streamed.mean, draws.predict(two, noise_key=key).mean, rtol=1e-12)
