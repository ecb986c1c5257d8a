"""The two factorisations of the readout's law, and the derivative of its normaliser."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

import mercer
from cases import DOMAIN, small_network
from mercer.readout import make_law


def plain(mixing, residual):
    """−½ log det(I + MMᵀ) − ½ rᵀ(I + MMᵀ)⁻¹ r, as it is written."""
    gram = jnp.eye(mixing.shape[0]) + mixing @ mixing.T
    return -0.5 * jnp.linalg.slogdet(gram)[1] - 0.5 * residual @ jnp.linalg.solve(gram, residual)


@pytest.mark.parametrize("stiff", [False, True], ids=["cholesky", "qr"])
@pytest.mark.parametrize("shape", [(5, 9), (9, 5)], ids=["wide", "narrow"])
def test_normaliser_and_its_derivatives(shape, stiff):
    rng = np.random.default_rng(0)
    mixing, residual = (
        jnp.asarray(3 * rng.normal(size=shape)),
        jnp.asarray(rng.normal(size=shape[0])),
    )
    along = jnp.asarray(rng.normal(size=shape)), jnp.asarray(rng.normal(size=shape[0]))

    def ours(mixing, residual):
        return make_law(mixing, residual, 1.0, stiff).log_normaliser

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
    assert not prior.is_stiff
    law = prior.readout_law(prior.terms(prior.params)[0])
    slow = make_law(law.mixing, law.residual, law.scale, True)
    np.testing.assert_allclose(law.log_normaliser, slow.log_normaliser, rtol=1e-9)
    np.testing.assert_allclose(
        law.covariance(jnp.eye(40)), slow.covariance(jnp.eye(40)), rtol=1e-6, atol=1e-9
    )
    root = law.root()
    np.testing.assert_allclose(root @ root.T, slow.covariance(jnp.eye(40)), rtol=1e-6, atol=1e-9)
    rough = mercer.FourierMLP(
        1, 40, boundary="dirichlet", key=jax.random.key(0), readout_scale=3e5, frequency_scale=60.0
    )
    assert mercer.Prior(mercer.Quadrature(spectrum), rough).is_stiff


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
        law = prior.readout_law(term)
        assert law.is_wide == (modes == 12)
        gram = np.eye(20) + np.asarray(law.mixing).T @ np.asarray(law.mixing)
        np.testing.assert_allclose(
            law.log_normaliser, -0.5 * np.linalg.slogdet(gram)[1], rtol=1e-9, atol=1e-9
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
