"""Energies: the differential form, unbiased estimates, and what a biased one looks like."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tinygp
from sklearn.gaussian_process import kernels

import mercer
from mercer.energy import JITTER
from mercer.kernels import named_kernel
from mercer.parameters import random_parameters
from mercer.random_energy import LatticeBatch, MonteCarloBatch, average_products

SPECTRUM = mercer.BrownianMotion(40, mercer.Interval(0.5, 2.0))
LAPLACIAN = mercer.Laplacian(mercer.Box([0.0, 0.0], [1.0, 2.0]), 30) ** 2


def make_network(spectrum, width=8, seed=0):
    sides = tuple(
        tuple(s if s == "dirichlet" else "neumann" for s in pair) for pair in spectrum.boundary
    )
    return mercer.FourierMLP(
        spectrum.domain.dimension,
        width,
        num_frequencies=4,
        frequency_scale=3.0,
        boundary=sides,
        key=jax.random.key(seed),
        domain=spectrum.domain,
        readout_scale=1.0,
    )


ESTIMATORS = {
    "uniform": mercer.MonteCarlo(SPECTRUM, 32, 8),
    "zeta": mercer.MonteCarlo(SPECTRUM, 32, 8, modes="zeta"),
    "geometric": mercer.MonteCarlo(SPECTRUM, 32, 8, modes="geometric"),
    "given": mercer.MonteCarlo(SPECTRUM, 32, 8, modes=np.arange(1, 41) / 820),
    "every mode": mercer.MonteCarlo(SPECTRUM, 32),
    "proposal": mercer.MonteCarlo(SPECTRUM, 32, 8, proposal=mercer.Interval(0.0, 2.5)),
    "lattice": mercer.Lattice(SPECTRUM, 32),
    "lattice in a box": mercer.Lattice(LAPLACIAN, 32),
    "real line": mercer.MonteCarlo(
        mercer.SquaredExponential(0.7, 1.0, mercer.RealLine(1.0), 8), 32, 4
    ),
    "real line with a proposal": mercer.MonteCarlo(
        mercer.SquaredExponential(0.7, 1.0, mercer.RealLine(1.0), 8),
        32,
        4,
        proposal=mercer.RealLine(1.5),
    ),
}


class Bump(eqx.Module):
    """A function on the whole line, with two parameters."""

    weights: jax.Array

    def __call__(self, x):
        return self.weights[0] * jnp.exp(-(x[0] ** 2)) + self.weights[1] * x[0] * jnp.exp(
            -(x[0] ** 2)
        )


def z_scores(estimate, energy, num_batches=4000):
    """z of energy and gradient, by the estimator's own standard error."""
    spectrum = energy.spectrum
    network = (
        Bump(jnp.array([1.0, -0.5]))
        if isinstance(spectrum.domain, mercer.RealLine)
        else make_network(spectrum)
    )
    params, static = eqx.partition(network, random_parameters(network))

    def both(params, batch):
        value, slope = jax.value_and_grad(lambda p: estimate(eqx.combine(p, static), batch))(params)
        return jnp.concatenate([value[None], jax.flatten_util.ravel_pytree(slope)[0]])

    exact = both_exact(mercer.Quadrature(spectrum, 200), params, static)
    keys = jax.random.split(jax.random.key(5), num_batches)
    values = jax.lax.map(lambda k: both(params, energy.batch(k)), keys, batch_size=200)
    error = jnp.std(values, axis=0) / np.sqrt(num_batches)
    return np.asarray((jnp.mean(values, axis=0) - exact) / jnp.where(error > 0, error, 1.0))


def both_exact(energy, params, static):
    value, slope = jax.value_and_grad(lambda p: energy(eqx.combine(p, static)))(params)
    return jnp.concatenate([value[None], jax.flatten_util.ravel_pytree(slope)[0]])


@pytest.mark.parametrize("name", ESTIMATORS)
def test_energy_and_gradient_are_unbiased(name):
    energy = ESTIMATORS[name]
    z = z_scores(energy, energy)
    # Two-sided, one in a hundred thousand for each of at most 100 entries.
    assert np.max(np.abs(z)) < 4.5


def test_one_batch_squared_fails_the_same_test():
    energy = ESTIMATORS["every mode"]
    z = z_scores(lambda u, b: energy(u, MonteCarloBatch(b.first, b.first, b.modes)), energy)
    assert np.max(np.abs(z)) > 20


def test_one_lattice_squared_fails_the_same_test():
    coarse = mercer.Lattice(SPECTRUM, 8)
    z = z_scores(lambda u, b: coarse(u, LatticeBatch(b.first, b.first)), coarse)
    assert np.max(np.abs(z)) > 20


def test_brownian_energy_is_half_the_squared_slope():
    energy = mercer.Quadrature(mercer.BrownianMotion(2000, SPECTRUM.domain), 4100)
    network = make_network(SPECTRUM)
    nodes, weights = SPECTRUM.domain.quadrature(300)
    slopes = jax.vmap(jax.grad(network))(nodes)[:, 0]
    exact = 0.5 * jnp.sum(weights * slopes**2)
    # The natural condition u'(upper) = 0 does not hold, so the sum converges like 1/K only.
    np.testing.assert_allclose(energy(network), exact, rtol=2e-3)


def test_laplacian_energy_is_half_the_squared_laplacian():
    def u(x):
        s, t = jnp.pi * x[0], jnp.pi * x[1] / 2
        return jnp.sin(s) * jnp.sin(2 * t) + 0.3 * jnp.sin(3 * s) * jnp.sin(t)

    nodes, weights = LAPLACIAN.domain.quadrature(40)
    laplacian = jax.vmap(lambda x: jnp.trace(jax.hessian(u)(x)))(nodes)
    exact = 0.5 * jnp.sum(weights * laplacian**2)
    np.testing.assert_allclose(mercer.Quadrature(LAPLACIAN)(u), exact, rtol=1e-10)


@pytest.mark.parametrize("power", [1.0, 1.5, 2.0, 3.0])
def test_powers_weigh_one_mode_by_its_frequency(power):
    spectrum = mercer.Laplacian(mercer.Interval(0, 2), 20) ** power
    energy = mercer.Quadrature(spectrum)
    value = energy(lambda x: jnp.sin(3 * jnp.pi * x[0] / 2))
    np.testing.assert_allclose(value, 0.5 * (3 * np.pi / 2) ** (2 * power), rtol=1e-10)


def test_coefficients_of_an_eigenfunction():
    energy = mercer.Quadrature(SPECTRUM)
    found = energy.coefficients(lambda x: SPECTRUM.eigenfunctions(x)[6])
    np.testing.assert_allclose(found, np.eye(40)[6], atol=1e-12)


def test_lattice_gradient_is_far_less_noisy():
    """The full table at width 1000 is a benchmark; this holds its order at width 200."""
    spectrum = mercer.BrownianMotion(200)
    network = mercer.FourierMLP(1, 200, boundary=("dirichlet", "neumann"), key=jax.random.key(1))
    params, static = eqx.partition(network, random_parameters(network))

    def noise(energy):
        slope = jax.grad(lambda p, b: energy(eqx.combine(p, static), b))
        keys = jax.random.split(jax.random.key(2), 24)
        rows = jax.lax.map(
            lambda k: jax.flatten_util.ravel_pytree(slope(params, energy.batch(k)))[0], keys
        )
        return float(jnp.sum(jnp.var(rows, axis=0)))

    ratio = noise(mercer.Lattice(spectrum, 2000)) / noise(mercer.MonteCarlo(spectrum, 2000, 20))
    assert ratio < 1e-4


def test_expectations_use_the_given_points_only():
    points = SPECTRUM.domain.sample(jax.random.key(0), 5)
    found = average_products(SPECTRUM, lambda x: x[0], points)
    values = jax.vmap(SPECTRUM.eigenfunctions)(points)
    np.testing.assert_allclose(
        found, SPECTRUM.domain.measure * (values * points).mean(0), rtol=1e-12
    )


@pytest.mark.float32
def test_energies_agree_in_the_floats_at_hand():
    network = make_network(SPECTRUM)
    exact = float(mercer.Quadrature(SPECTRUM)(network))
    lattice = mercer.Lattice(SPECTRUM, 2000)
    estimate = float(lattice(network, lattice.batch(jax.random.key(0))))
    assert abs(estimate - exact) < 1e-2 * exact


NODES = np.random.default_rng(8).uniform(-1, 1, (20, 2))
SCALES = np.array([0.4, 0.7])
STATIONARY = {
    "matern12": 1.7 * kernels.Matern(SCALES, nu=0.5),
    "matern32": 1.7 * kernels.Matern(SCALES, nu=1.5),
    "matern52": 1.7 * kernels.Matern(SCALES, nu=2.5),
    "squared-exponential": 1.7 * kernels.RBF(SCALES),
}


def wave(x):
    return jnp.sin(3 * x[0]) + x[-1] ** 2


def linear_algebra(covariance, points):
    """½ uᵀK⁻¹u, with the jitter that the energy is documented to have."""
    values = np.array([float(wave(x)) for x in points])
    own = covariance + JITTER * np.mean(np.diag(covariance)) * np.eye(len(points))
    return 0.5 * values @ np.linalg.solve(own, values)


@pytest.mark.parametrize("name", STATIONARY)
def test_nodes_are_half_the_quadratic_form_of_the_inverse_kernel(name):
    energy = mercer.Nodes(named_kernel(name, SCALES, 1.7), NODES)
    assert energy.is_deterministic
    np.testing.assert_allclose(
        energy(wave), linear_algebra(STATIONARY[name](NODES), NODES), rtol=1e-7
    )


def test_a_kernel_by_its_name_has_unit_scales():
    energy = mercer.Nodes("matern32", NODES)
    judged = linear_algebra(kernels.Matern(1.0, nu=1.5)(NODES), NODES)
    np.testing.assert_allclose(energy(wave), judged, rtol=1e-6)


def test_a_kernel_of_tinygp_works_as_it_is():
    distance = tinygp.kernels.distance.L2Distance()
    kernel = 1.5 * tinygp.kernels.Matern32(0.6, distance) + tinygp.kernels.Constant(0.3)
    judged = linear_algebra(np.asarray(kernel(NODES, NODES)), NODES)
    np.testing.assert_allclose(mercer.Nodes(kernel, NODES)(wave), judged, rtol=1e-7)


def test_any_function_of_two_points_is_a_kernel():
    def kernel(s, t):
        return jnp.exp(-jnp.sum(jnp.abs(s - t)))

    gaps = np.abs(NODES[:, None] - NODES[None]).sum(-1)
    judged = linear_algebra(np.exp(-gaps), NODES)
    np.testing.assert_allclose(mercer.Nodes(kernel, NODES)(wave), judged, rtol=1e-9)


def test_nodes_of_a_spectrum_have_every_mode_of_it():
    """Of Brownian motion, the broken line through the values: ½ Σ Δu²/Δt, from zero at the start."""
    times = np.sort(np.random.default_rng(9).uniform(0.5, 2.0, 12))
    energy = mercer.Nodes(mercer.BrownianMotion(5, SPECTRUM.domain), times[:, None])
    values = np.sin(3 * times) + times**2
    steps = np.diff(values, prepend=0.0) ** 2 / np.diff(times, prepend=0.5)
    np.testing.assert_allclose(energy(wave), 0.5 * steps.sum(), rtol=1e-5)


def test_white_components_of_nodes_rebuild_the_function_there():
    energy = mercer.Nodes("matern12", NODES)
    white = energy.whiten(jax.vmap(wave)(energy.points))
    np.testing.assert_allclose(energy(wave), 0.5 * np.sum(np.square(white)), rtol=1e-12)
    rebuilt = jax.vmap(lambda x: energy.units(x) @ white)(energy.points)
    np.testing.assert_allclose(rebuilt, jax.vmap(wave)(energy.points), atol=1e-6)


def test_nodes_may_repeat_but_must_be_points_of_a_covariance():
    twice = np.concatenate([NODES, NODES[:3]])
    assert np.isfinite(float(mercer.Nodes("matern32", twice)(wave)))
    with pytest.raises(ValueError, match="not a covariance on these points"):
        mercer.Nodes(lambda s, t: jnp.sum((s - t) ** 2), NODES)
    with pytest.raises(ValueError, match=r"points must have shape \(n, d\)"):
        mercer.Nodes("matern32", NODES[:, 0])
    with pytest.raises(ValueError, match="kernel must be one of"):
        mercer.Nodes("matern", NODES)
    with pytest.raises(ValueError, match="kernel must be one of"):
        mercer.Nodes(3.0, NODES)


def test_a_prior_of_nodes_is_the_gaussian_it_should_be():
    """A network linear in its readout: precision I/σ² + FᵀK⁻¹F by plain linear algebra."""

    class Plane(eqx.Module):
        readout: jax.Array

        def __call__(self, x):
            return self.readout @ jnp.stack([jnp.ones(()), x[0], x[1]])

    prior = mercer.Prior(mercer.Nodes("matern32", NODES), Plane(jnp.zeros(3)), reference=2.0)
    assert prior.normalised
    features = np.concatenate([np.ones((20, 1)), NODES], axis=1)
    covariance = kernels.Matern(1.0, nu=1.5)(NODES) + JITTER * np.eye(20)
    precision = np.eye(3) / 4 + features.T @ np.linalg.solve(covariance, features)
    w = np.array([0.3, -1.0, 0.6])
    log_det = np.linalg.slogdet(precision / (2 * np.pi))[1]
    exact = 0.5 * log_det - 0.5 * w @ precision @ w
    np.testing.assert_allclose(prior(Plane(jnp.asarray(w))), exact, rtol=1e-6)
