"""The Gaussian linear model: two factorisations of its law, its integral, and derivatives of that."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

import mercer
from cases import DOMAIN, small_network
from mercer.linear import (
    BLOCK,
    TallLaw,
    WideLaw,
    condition,
    condition_rows,
    fold_rows,
    leave_one_out,
    log_integral,
    map_rows,
)


def plain(mixing, residual):
    """−½ log det(I + MMᵀ) − ½ rᵀ(I + MMᵀ)⁻¹ r, as it is written."""
    gram = jnp.eye(mixing.shape[0]) + mixing @ mixing.T
    return -0.5 * jnp.linalg.slogdet(gram)[1] - 0.5 * residual @ jnp.linalg.solve(gram, residual)


@pytest.mark.parametrize("solver", ["cholesky", "qr"])
@pytest.mark.parametrize("shape", [(5, 9), (9, 5)], ids=["wide", "narrow"])
def test_integral_and_its_derivatives(shape, solver):
    rng = np.random.default_rng(0)
    mixing, residual = (
        jnp.asarray(3 * rng.normal(size=shape)),
        jnp.asarray(rng.normal(size=shape[0])),
    )
    along = jnp.asarray(rng.normal(size=shape)), jnp.asarray(rng.normal(size=shape[0]))

    def ours(mixing, residual):
        return log_integral(mixing, residual, solver)

    np.testing.assert_allclose(ours(mixing, residual), plain(mixing, residual), rtol=1e-10)
    for exact, found in zip(
        jax.grad(plain, (0, 1))(mixing, residual),
        jax.jit(jax.grad(ours, (0, 1)))(mixing, residual),
        strict=True,
    ):
        np.testing.assert_allclose(found, exact, rtol=1e-8, atol=1e-10)

    def slope(function):
        return lambda m, r: jax.grad(function)(m, r)

    second = [
        jax.jvp(slope(f), (mixing, residual), along)[1] for f in (plain, ours)
    ]  # forward over reverse, as a Hessian is taken
    np.testing.assert_allclose(second[1], second[0], rtol=1e-7, atol=1e-9)


def test_factorisations_agree_and_the_stiff_are_known():
    spectrum = (mercer.Laplacian(mercer.Interval(0, 1), 60) ** 2).with_variance(1.0)
    network = mercer.FourierMLP(1, 40, boundary="dirichlet", key=jax.random.key(0))
    prior = mercer.Prior(mercer.Quadrature(spectrum), network)
    assert prior.solver == "cholesky"
    (term,) = prior.terms(prior.params)
    law, rows = prior.readout_law(term), prior.energy_rows(term)
    slow = condition(*rows, "qr")
    np.testing.assert_allclose(
        log_integral(*rows, "cholesky"), log_integral(*rows, "qr"), rtol=1e-9
    )
    np.testing.assert_allclose(
        law.covariance(jnp.eye(40)), slow.covariance(jnp.eye(40)), rtol=1e-6, atol=1e-9
    )
    root = law.root()
    np.testing.assert_allclose(root @ root.T, slow.covariance(jnp.eye(40)), rtol=1e-6, atol=1e-9)
    rough = mercer.FourierMLP(
        1, 40, boundary="dirichlet", key=jax.random.key(0), readout_scale=3e5, frequency_scale=60.0
    )
    assert mercer.Prior(mercer.Quadrature(spectrum), rough).solver == "qr"


@pytest.mark.parametrize("width", [1, 12])
def test_normalised_density_integrates_to_one(width):
    """By importance sampling from the reference for one unit, from a perturbed draw for more."""
    prior = mercer.Prior(mercer.Quadrature(mercer.BrownianMotion(8, DOMAIN)), small_network(width))

    def log_weight(key):
        params = prior.draw_reference(key)
        flat = ravel_pytree(params)[0]
        return prior(params) - jnp.sum(jax.scipy.stats.norm.logpdf(flat))

    if width == 1:
        weights = np.exp(
            jax.lax.map(log_weight, jax.random.split(jax.random.key(0), 200_000), batch_size=2000)
        )
        assert abs(weights.mean() - 1) < 4 * weights.std() / np.sqrt(weights.size)
        assert weights.std() / np.sqrt(weights.size) < 0.02
        return
    # Wide: the hidden layer from the reference, the readout by quadrature-free Gaussian algebra.
    hidden = prior.draw_reference(jax.random.key(1))

    def slice_log_density(w):
        return prior(eqx.tree_at(lambda n: n.readout, hidden, w))

    precision = -jax.hessian(slice_log_density)(jnp.zeros(width))
    slope = jax.grad(slice_log_density)(jnp.zeros(width))
    top = slice_log_density(jnp.zeros(width)) + 0.5 * slope @ jnp.linalg.solve(precision, slope)
    integral = top + 0.5 * width * np.log(2 * np.pi) - 0.5 * jnp.linalg.slogdet(precision)[1]
    flat = ravel_pytree(eqx.tree_at(lambda n: n.readout, hidden, None))[0]
    np.testing.assert_allclose(integral, jnp.sum(jax.scipy.stats.norm.logpdf(flat)), rtol=1e-9)


def test_wide_and_narrow_forms_agree():
    """Width above and below the number of modes take different matrix identities."""
    network = small_network(20)
    values = {}
    for modes in (12, 40):
        prior = mercer.Prior(mercer.Quadrature(mercer.BrownianMotion(modes, DOMAIN), 110), network)
        (term,) = prior.terms(prior.params)
        law, (mixing, residual) = prior.readout_law(term), prior.energy_rows(term)
        assert isinstance(law, WideLaw if modes == 12 else TallLaw)
        assert not np.any(residual)
        gram = np.eye(20) + np.asarray(mixing).T @ np.asarray(mixing)
        np.testing.assert_allclose(
            log_integral(mixing, residual, prior.solver),
            -0.5 * np.linalg.slogdet(gram)[1],
            rtol=1e-9,
            atol=1e-9,
        )
        rows = np.random.default_rng(0).normal(size=(5, 20))
        np.testing.assert_allclose(
            law.covariance(jnp.asarray(rows)),
            rows @ np.linalg.inv(gram) @ rows.T,
            rtol=1e-7,
            atol=1e-9,
        )
        draws = jax.vmap(law.draw)(jax.random.split(jax.random.key(0), 20_000))
        white = np.asarray(draws) @ np.linalg.cholesky(gram)
        values[modes] = np.abs(np.cov(white.T) - np.eye(20)).max()
        assert values[modes] < 5 * np.sqrt(2 / 20_000)


SHAPES = {"wide": (5, 9), "narrow": (9, 5)}


@pytest.fixture(params=SHAPES)
def rows(request):
    """M and r, and the mean and covariance of z by plain linear algebra."""
    rng = np.random.default_rng(4)
    shape = SHAPES[request.param]
    mixing, residual = 2 * rng.normal(size=shape), rng.normal(size=shape[0])
    covariance = np.linalg.inv(np.eye(shape[1]) + mixing.T @ mixing)
    mean = -covariance @ mixing.T @ residual
    return jnp.asarray(mixing), jnp.asarray(residual), mean, covariance


@pytest.mark.parametrize("solver", ["cholesky", "qr"])
def test_a_law_has_the_mean_and_covariance_of_linear_algebra(rows, solver):
    mixing, residual, mean, covariance = rows
    law = condition(mixing, residual, solver)
    np.testing.assert_allclose(law.mean(), mean, rtol=1e-9)
    np.testing.assert_allclose(law.root() @ law.root().T, covariance, rtol=1e-8, atol=1e-11)
    values = jnp.asarray(np.random.default_rng(5).normal(size=(4, len(mean))))
    np.testing.assert_allclose(law.covariance(values), values @ covariance @ values.T, rtol=1e-8)
    np.testing.assert_allclose(law.variance(values), np.diag(law.covariance(values)), rtol=1e-9)
    white = jnp.arange(1.0, 1 + len(mean))
    np.testing.assert_allclose(law.place(white), mean + law.root() @ white, rtol=1e-9)


def test_rows_in_blocks_are_all_of_them(monkeypatch):
    """Blocks of four, whole ones alone, none at all, and a rest."""
    monkeypatch.setattr("mercer.linear.BLOCK", 4)
    assert BLOCK > 4
    rng = np.random.default_rng(6)
    for count in (3, 8, 11):
        mixing, residual = (
            jnp.asarray(rng.normal(size=(count, 3))),
            jnp.asarray(rng.normal(size=count)),
        )
        law, integral = condition_rows(lambda block: block, (mixing, residual))
        whole = condition(mixing, residual)
        np.testing.assert_allclose(law.mean(), whole.mean(), rtol=1e-9)
        np.testing.assert_allclose(
            law.covariance(jnp.eye(3)), whole.covariance(jnp.eye(3)), rtol=1e-9
        )
        np.testing.assert_allclose(integral, log_integral(mixing, residual, "qr"), rtol=1e-9)
        np.testing.assert_allclose(map_rows(lambda x: x**2, residual), residual**2)
        total = fold_rows(lambda carry, x: carry + jnp.sum(x), jnp.zeros(()), residual)
        np.testing.assert_allclose(total, residual.sum())


def test_each_row_left_out_is_predicted_by_the_others(rows):
    mixing, residual, _, _ = rows
    off, variance = leave_one_out(condition(mixing, residual), mixing, residual)
    for i in range(len(residual)):
        others = np.delete(np.arange(len(residual)), i)
        law = condition(mixing[others], residual[others])
        np.testing.assert_allclose(off[i], mixing[i] @ law.mean() + residual[i], rtol=1e-7)
        np.testing.assert_allclose(variance[i], 1 + law.variance(mixing[i][None])[0], rtol=1e-7)
