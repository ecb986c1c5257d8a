"""Closed-form fidelity, its advice, designs that meet a tolerance, exact draws in bulk."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import mercer
from mercer.advice import moves, widen
from mercer.fidelity import mean_offset, network_covariance

UNIT = mercer.Interval(0, 1)
LAPLACIAN = mercer.Laplacian(UNIT, 100) ** 2 if jax.config.read("jax_enable_x64") else None
SQUARE = mercer.Laplacian(mercer.Box([0.0, 0.0], [1.0, 1.0]), 200) ** 2
SHIFTED = 3.0 * mercer.BrownianMotion(300, mercer.Interval(300.0, 1900.0))
DESIGNS = [
    pytest.param(mercer.BrownianMotion(1000), 1e-3, id="brownian", marks=pytest.mark.slow),
    pytest.param(mercer.BrownianBridge(1000), 1e-3, id="bridge", marks=pytest.mark.slow),
    pytest.param(LAPLACIAN, 1e-3, id="laplacian", marks=pytest.mark.slow),
    pytest.param(mercer.Matern(1.5, 0.1, 1.0, UNIT, 100), 1e-3, id="matern"),
    pytest.param(SQUARE, 1e-2, id="square", marks=pytest.mark.slow),
    pytest.param(SHIFTED, 1e-2, id="shifted"),
]


@pytest.mark.parametrize(("spectrum", "tolerance"), DESIGNS)
def test_design_meets_its_tolerance(spectrum, tolerance, key):
    prior = mercer.design(spectrum, tolerance, key=key)
    result = mercer.fidelity(prior)
    assert result.relative_error <= tolerance
    # Between the points that the design looked at, too.
    others = spectrum.domain.lattice(jax.random.key(7), 64)
    assert mercer.fidelity(prior, others).relative_error <= 1.2 * tolerance


BOXES = {
    "rectangle": mercer.Box([-0.1, -0.1], [0.96, 1.11]),
    "far": mercer.Interval(1000.0, 5000.0),
    "tiny": mercer.Interval(0.3, 0.3 + 1e-6),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", BOXES)
def test_design_and_describe_work_on_boxes_of_any_size(name, key):
    """A few of those in benchmarks/boxes.py."""
    prior = mercer.design(mercer.Laplacian(BOXES[name], 100) ** 2, 0.1, key=key)
    assert mercer.fidelity(prior).relative_error <= 0.1
    words = str(mercer.describe(prior))
    assert "zero at both sides" in words
    assert "nan" not in words


def brownian_prior(width=100, modes=100, **options):
    network = mercer.FourierMLP(
        1, width, boundary=("dirichlet", "neumann"), key=jax.random.key(0), **options
    )
    return mercer.Prior(mercer.Quadrature(mercer.BrownianMotion(modes)), network)


def test_covariance_is_that_of_the_draws():
    """One hidden layer, many readouts: the closed form against samples."""
    network = mercer.FourierMLP(1, 40, boundary=("dirichlet", "neumann"), key=jax.random.key(0))
    only_readout = eqx.tree_at(lambda n: n.readout, jax.tree.map(lambda _: False, network), True)
    energy = mercer.Quadrature(mercer.BrownianMotion(60))
    prior = mercer.Prior(energy, network, trainable=only_readout)
    points = jnp.linspace(0.1, 1, 7)[:, None]
    closed = np.asarray(mercer.fidelity(prior, points).covariance)
    keys = jax.random.split(jax.random.key(1), 20_000)
    draws = np.asarray(jax.vmap(lambda k: jax.vmap(prior.network(prior.draw(k)))(points))(keys))
    sampled = draws.T @ draws / len(keys)
    error = np.sqrt((np.outer(np.diag(closed), np.diag(closed)) + closed**2) / len(keys))
    assert np.all(np.abs(sampled - closed) < 4.5 * error)


def test_the_error_is_averaged_over_hidden_layers_of_the_prior():
    """Of each layer alone, the largest difference of covariances over the largest variance."""
    prior = brownian_prior()
    result = mercer.fidelity(prior)
    assert result.layer_errors.shape == (8,)
    assert result.relative_error == pytest.approx(np.mean(result.layer_errors))
    assert result.spread == pytest.approx(np.std(result.layer_errors))
    assert result.spread > 0
    np.testing.assert_array_equal(result.layer_errors, mercer.fidelity(prior).layer_errors)
    assert result.max_error == np.abs(result.covariance - result.kernel).max()

    own = []
    for key in jax.random.split(jax.random.key(5), 40):
        moved = eqx.tree_at(lambda p: p.params, prior, prior.draw_reference(key))
        (term,) = moved.terms(moved.params)
        covariance = network_covariance(moved, term, result.points)
        own.append(np.abs(covariance - result.kernel).max() / np.diag(result.kernel).max())
    error = result.spread / np.sqrt(8) + np.std(own) / np.sqrt(40)
    assert abs(result.relative_error - np.mean(own)) < 4 * error


def test_without_hidden_parameters_the_error_is_that_of_the_one_layer_there_is():
    prior = brownian_prior()
    network = prior.network(prior.params)
    frozen = mercer.Prior(prior.energy, network, trainable=mercer.readout_only(network))
    result = mercer.fidelity(frozen)
    assert result.relative_error == pytest.approx(result.max_error / np.diag(result.kernel).max())
    assert result.spread == 0


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"readout_scale": 1.0}, id="readout"),
        pytest.param({"width": 10, "readout_scale": 300.0}, id="width", marks=pytest.mark.slow),
        pytest.param(
            {"frequency_scale": 0.2, "readout_scale": 300.0, "width": 200},
            id="frequencies",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            {"modes": 10, "frequency_scale": 30.0, "readout_scale": 100.0},
            id="modes",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_advice_lowers_the_error_when_followed(options):
    prior = brownian_prior(**options)
    before = mercer.fidelity(prior)
    words = dict(moves(before.prior))
    advised = [p for w, p in words.items() if before.advice.lower().startswith(w.lower())]
    assert len(advised) == 1, before.advice
    assert mercer.fidelity(advised[0]).relative_error < before.relative_error


def test_a_mean_out_of_reach_shows():
    network = mercer.FourierMLP(1, 60, boundary=("dirichlet", "neumann"), key=jax.random.key(0))
    energy = mercer.Quadrature(mercer.BrownianMotion(60))
    reached = mercer.fidelity(mercer.Prior(energy, network, mean=lambda x: x[0]))
    missed = mercer.fidelity(mercer.Prior(energy, network, mean=lambda x: 5.0 + 0 * x[0]))
    assert reached.mean_error < 0.05
    assert missed.mean_error > 4


def test_a_fresh_hidden_layer_meets_the_tolerance_on_average(key):
    prior = mercer.design(mercer.BrownianBridge(200), 0.01, key=key)
    kernels = []
    for seed in range(6):
        fresh = eqx.tree_at(lambda p: p.params, prior, prior.draw_reference(jax.random.key(seed)))
        result = mercer.fidelity(fresh)
        kernels.append(np.asarray(result.covariance))
    error = np.abs(np.mean(kernels, axis=0) - np.asarray(result.kernel)).max()
    assert error / np.asarray(result.kernel).max() <= 0.01


def test_too_few_modes_show_as_variance_outside():
    few = mercer.fidelity(brownian_prior(modes=5, frequency_scale=30.0))
    many = mercer.fidelity(brownian_prior(modes=200, frequency_scale=10.0))
    assert few.outside_share > 0.5
    assert many.outside_share < 0.01


def test_readout_scale_and_factor_near_zero():
    """The table of the design page: a factor t starves the start, a saturating one does not."""

    def error(**options):
        prior = brownian_prior(500, 500, **options)
        (term,) = prior.terms(prior.params)
        return abs(float(network_covariance(prior, term, jnp.array([[0.01]]))[0, 0]) / 0.01 - 1)

    assert error() > 0.5
    assert error(saturation=0.003) < 0.25


def test_design_refuses_what_cannot_be_met(key):
    cut = mercer.FiniteRank(
        lambda x: jnp.array([1.0, x[0]]), [1.0, 1.0], UNIT
    ) + mercer.BrownianMotion(20)
    with pytest.raises(ValueError, match="modes leave"):
        mercer.design(cut, 1e-4, key=key)
    with pytest.raises(ValueError, match="Interval or a Box"):
        mercer.design(mercer.SquaredExponential(0.5, 1.0, mercer.RealLine(1.0), 20), key=key)


@pytest.mark.slow
@pytest.mark.optimised
def test_ten_thousand_exact_draws_follow_brownian_motion():
    network = mercer.FourierMLP(
        1,
        256,
        boundary=("dirichlet", "neumann"),
        saturation=0.003,
        frequency_scale=20.0,
        readout_scale=100.0,
        hidden_scale=8.0,
        key=jax.random.key(0),
    )
    prior = mercer.Prior(mercer.Quadrature(mercer.BrownianMotion(256)), network)
    grid = np.linspace(0.01, 1, 100)
    draw = jax.jit(lambda k: jax.vmap(prior.network(prior.draw(k)))(jnp.asarray(grid)[:, None]))
    keys = jax.random.split(jax.random.key(1), 10_000)
    values = np.asarray(jax.lax.map(draw, keys))
    exact = np.minimum.outer(grid, grid)
    error = np.sqrt((np.outer(grid, grid) + exact**2) / len(values))
    stated = mercer.fidelity(prior).max_error
    assert np.all(np.abs(values.T @ values / len(values) - exact) <= 4 * error + stated)
    for t, column in zip(grid, values.T, strict=True):
        if t >= 0.05:
            assert stats.kstest(column / np.sqrt(t), "norm").pvalue > 0.05 / len(grid)


def make_posterior(energy, width=100, noise=0.2, mean=None, tail="independent"):
    network = mercer.FourierMLP(
        1, width, boundary=("dirichlet", "neumann"), key=jax.random.key(0), saturation=0.003,
        frequency_scale=20.0, hidden_scale=8.0, readout_scale=100.0,
    )  # fmt: skip
    prior = mercer.Prior(energy, network, mean=mean)
    x = np.random.default_rng(2).uniform(0.05, 1, (30, 1))
    return mercer.Posterior(prior, mercer.Gaussian(noise), (x, np.sin(5 * x[:, 0])), tail=tail)


ENERGIES = {
    "modes": mercer.Quadrature(mercer.BrownianMotion(100)),
    "nodes": mercer.Nodes(mercer.BrownianMotion(100), np.linspace(0.02, 1, 50)[:, None]),
}


@pytest.mark.parametrize("energy", ENERGIES)
def test_a_posteriors_fidelity_is_against_the_process_given_the_data(energy):
    """Both the process's moments and the network's by plain linear algebra."""
    noise = np.linspace(0.1, 0.3, 30)
    posterior = make_posterior(ENERGIES[energy], noise=noise, mean=lambda x: x[0])
    points = np.linspace(0.1, 1.0, 7)[:, None]
    result = mercer.fidelity(posterior, points)
    x, y = np.asarray(posterior.inputs)[:, 0], np.asarray(posterior.targets)
    times = np.concatenate([x, points[:, 0]])

    def given(covariance, extra, unseen):
        data = covariance[:30, :30] + np.diag(noise**2 + extra)
        gain = np.linalg.solve(data, covariance[:30, 30:]).T
        variance = np.diag(covariance[30:, 30:] - gain @ covariance[:30, 30:])
        return points[:, 0] + gain @ (y - x), np.sqrt(variance + unseen)

    mean, sd = given(np.minimum.outer(times, times), 0.0, 0.0)
    prior = posterior.prior
    (term,) = prior.terms(prior.params)
    network = np.asarray(network_covariance(prior, term, jnp.asarray(times)[:, None]))
    tail = np.maximum(times - np.diag(network), 0)
    offset = np.asarray(mean_offset(prior, term, jnp.asarray(times)[:, None]))
    ours, our_sd = given(network, tail[:30], tail[30:])
    data = network[:30, :30] + np.diag(noise**2 + tail[:30])
    ours = ours + offset[30:] - network[30:, :30] @ np.linalg.solve(data, offset[:30])
    np.testing.assert_allclose(result.mean_offset, (ours - mean) / sd, atol=1e-5)
    np.testing.assert_allclose(result.sd_ratio, our_sd / sd, rtol=1e-5)
    assert result.worst_mean == pytest.approx(np.abs(result.mean_offset).max())
    assert result.worst_sd == pytest.approx(np.abs(result.sd_ratio - 1).max())


def test_a_faithful_network_has_a_faithful_posterior(key):
    x = np.random.default_rng(2).uniform(0.05, 1, (30, 1))
    data = x, np.sin(5 * x[:, 0])
    prior = mercer.design(mercer.BrownianMotion(200), 0.01, key=key)
    result = mercer.fidelity(mercer.Posterior(prior, mercer.Gaussian(0.2), data))
    assert result.points.shape == (30, 1)
    assert result.worst_mean < 0.1
    assert result.worst_sd < 0.2
    poor = make_posterior(prior.energy, width=4, tail="none")
    worse = mercer.fidelity(poor)
    assert worse.worst_mean > 2 * result.worst_mean
    assert worse.worst_sd > 2 * result.worst_sd


def test_a_posterior_without_a_closed_form_is_told_so():
    prior = brownian_prior()
    data = np.array([[0.3], [0.6]]), np.zeros(2)
    with pytest.raises(ValueError, match="exact posterior is known for"):
        mercer.fidelity(mercer.Posterior(prior, mercer.StudentT(4.0, 0.1), data))
    both = mercer.Prior(prior.energy, dict.fromkeys("uv", prior.network(prior.params)))
    with pytest.raises(ValueError, match="known for one network"):
        mercer.fidelity(mercer.Posterior(both, mercer.Gaussian(0.1), data))


def test_widening_keeps_the_units_there_are(key):
    network = mercer.FourierMLP(1, 6, depth=2, num_frequencies=3, key=jax.random.key(0))
    wider = widen(network, key, factor=1.5)
    assert wider.width == 9
    np.testing.assert_array_equal(wider.weights[0][:6], network.weights[0])
    np.testing.assert_array_equal(wider.weights[1][:6, :6], network.weights[1])
    np.testing.assert_array_equal(wider.readout[:6], network.readout)
    assert wider.weights[1].shape == (9, 9)
    assert wider([0.3]).shape == ()
