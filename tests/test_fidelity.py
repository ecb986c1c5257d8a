"""Closed-form fidelity, its advice, designs that meet a tolerance, exact draws in bulk."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import mercer
from mercer.fidelity import moves

UNIT = mercer.Interval(0, 1)
DESIGNS = {
    "brownian": (mercer.BrownianMotion(1000), 1e-3),
    "bridge": (mercer.BrownianBridge(1000), 1e-3),
    "laplacian": (
        mercer.Laplacian(UNIT, 100) ** 2 if jax.config.read("jax_enable_x64") else None,
        1e-3,
    ),
    "matern": (mercer.Matern(1.5, 0.1, 1.0, UNIT, 100), 1e-3),
    "square": (mercer.Laplacian(mercer.Box([0.0, 0.0], [1.0, 1.0]), 200) ** 2, 1e-2),
    "shifted": (3.0 * mercer.BrownianMotion(300, mercer.Interval(300.0, 1900.0)), 1e-2),
}


@pytest.mark.parametrize("name", DESIGNS)
def test_design_meets_its_tolerance(name, key):
    spectrum, tolerance = DESIGNS[name]
    prior = mercer.design(spectrum, tolerance, key=key)
    result = mercer.fidelity(prior)
    assert result.relative_error <= tolerance
    # Between the points that the design looked at, too.
    domain = spectrum.domain
    others = domain.lattice(jax.random.key(7), 64)
    assert mercer.fidelity(prior, others).relative_error <= 1.2 * tolerance


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


@pytest.mark.parametrize(
    "options",
    [
        {"readout_scale": 1.0},
        {"width": 10, "readout_scale": 300.0},
        {"frequency_scale": 0.2, "readout_scale": 300.0, "width": 200},
        {"modes": 10, "frequency_scale": 30.0, "readout_scale": 100.0},
    ],
    ids=["readout", "width", "frequencies", "modes"],
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
    point = jnp.array([[0.01]])
    linear = mercer.fidelity(brownian_prior(500, 500), point).relative_error
    saturating = mercer.fidelity(brownian_prior(500, 500, saturation=0.003), point).relative_error
    assert linear > 0.5
    assert saturating < 0.25


def test_design_refuses_what_cannot_be_met(key):
    cut = mercer.FiniteRank(
        lambda x: jnp.array([1.0, x[0]]), [1.0, 1.0], UNIT
    ) + mercer.BrownianMotion(20)
    with pytest.raises(ValueError, match="modes leave"):
        mercer.design(cut, 1e-4, key=key)
    with pytest.raises(ValueError, match="Interval or a Box"):
        mercer.design(mercer.SquaredExponential(0.5, 1.0, mercer.RealLine(1.0), 20), key=key)


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
