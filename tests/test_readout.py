"""The two factorisations of the readout's law, and the derivative of its normaliser."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mercer
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
