"""White coordinates for every parameter: the same density, the readout's exact law, starts in the bulk."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree
from scipy import stats

import mercer
from cases import small_network

DOMAIN = mercer.Interval(0.5, 2.0)
POINTS = np.linspace(0.6, 1.9, 9)[:, None]
VALUES = np.sin(4 * POINTS[:, 0])


def make(likelihood, reference=1.0, names=(), width=8):
    energy = mercer.Quadrature(mercer.BrownianMotion(12, DOMAIN))
    networks = {name: small_network(width + i, seed=i) for i, name in enumerate(names)}
    prior = mercer.Prior(energy, networks or small_network(width), reference=reference)
    return mercer.Posterior(prior, likelihood, (POINTS, VALUES))


SIGHT = mercer.Sight(jnp.array([[0.8], [1.5]]), jnp.array([[1.0, 2.0], [0.5, -1.0]]), jnp.ones(2))
CASES = {
    "gaussian": lambda: (make(mercer.Gaussian(0.2)), None),
    "reference": lambda: (make(mercer.Gaussian(0.2), reference=2.0), None),
    "learned noise": lambda: (make(mercer.Gaussian(mercer.LogNormal(0.2, 0.5))), None),
    "wide": lambda: (make(mercer.Gaussian(0.2), width=30), None),
    "two networks": lambda: (make(mercer.Heteroscedastic(jnp.exp), names=("mean", "scale")), None),
    "sum": lambda: (make(mercer.Gaussian(0.2), 1.0, ("slow", "fast")), None),
    "sum, learned noise": lambda: (
        make(mercer.Gaussian(mercer.LogNormal(0.2, 0.5)), 2.0, ("slow", "fast", "fastest")),
        None,
    ),
    "sum, student": lambda: (make(mercer.StudentT(4.0, 0.2), 1.0, ("slow", "fast")), None),
    "student": lambda: (make(mercer.StudentT(4.0, 0.2), reference=0.5), None),
    "forward map": lambda: (
        make(mercer.Gaussian(0.2, lambda u, x: jnp.exp(jax.vmap(u)(x)))),
        [SIGHT],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_the_density_is_the_posterior_times_the_volume(name, key):
    """The volume by the Jacobian of the whole change of coordinates."""
    posterior, sights = CASES[name]()
    density = mercer.Conditioned(posterior, sights)
    params = density.draw(key)
    flat, unravel = ravel_pytree(params)

    @jax.jit
    def change(flat):
        return ravel_pytree(density.original(unravel(flat)))[0]

    _, log_volume = np.linalg.slogdet(jax.jacfwd(change)(flat))
    expected = posterior(density.original(params)) + log_volume
    np.testing.assert_allclose(jax.jit(density)(params), expected, rtol=1e-8)


@pytest.mark.parametrize("name", ["gaussian", "sum"])
def test_with_gaussian_noise_the_density_is_the_evidence_of_the_hidden_layer(name, key):
    posterior, _ = CASES[name]()
    params = posterior.prior.draw(key)
    moved = eqx.tree_at(lambda p: p.prior.params, posterior, params)
    white = stats.norm.logpdf(ravel_pytree(params)[0]).sum()
    exact = mercer.Whitened(moved).log_evidence
    found = mercer.Conditioned(posterior)(params) - white
    np.testing.assert_allclose(found, exact, rtol=1e-7)


def test_readouts_follow_the_posterior_given_the_hidden_layer():
    posterior, _ = CASES["gaussian"]()
    density, frozen = mercer.Conditioned(posterior), mercer.Whitened(posterior)

    def ours(key):
        white = jax.random.normal(key, posterior.prior.params.readout.shape)
        params = eqx.tree_at(lambda p: p.readout, posterior.prior.params, white)
        return jax.vmap(density.network(params))(jnp.asarray(POINTS))

    def theirs(key):
        return jax.vmap(frozen.network(frozen.draw(key)))(jnp.asarray(POINTS))

    keys = jax.random.split(jax.random.key(2), (2, 4_000))
    one, other = (np.asarray(jax.lax.map(f, k)) for f, k in zip((ours, theirs), keys, strict=True))
    sd = other.std(axis=0)
    assert np.all(np.abs(one.mean(0) - other.mean(0)) < 4.5 * sd * np.sqrt(2 / 4_000))
    assert np.all(np.abs(one.std(0) / sd - 1) < 4.5 / np.sqrt(4_000))


@pytest.mark.parametrize("names", [(), ("slow", "fast")], ids=["one", "sum"])
def test_with_other_noise_the_coordinates_are_nearly_white(names):
    """Curvatures of the log density in the readouts, hidden layers as they are, are about one."""
    posterior = make(mercer.StudentT(10.0, 0.1), names=names, width=16)
    density = mercer.Conditioned(posterior)
    chosen = mercer.readout_only(posterior.prior.network(posterior.prior.params))
    readouts, rest = eqx.partition(posterior.prior.params, chosen)
    flat, unravel = ravel_pytree(jax.tree.map(jnp.zeros_like, readouts))
    curve = jax.hessian(lambda z: -density(eqx.combine(unravel(z), rest)))
    sizes = np.linalg.eigvalsh(jax.jit(curve)(flat))
    assert sizes.min() > 0.3
    assert sizes.max() < 3.0


def test_what_cannot_be_conditioned_is_said():
    with pytest.raises(ValueError, match="give `sights`"):
        mercer.Conditioned(CASES["forward map"]()[0])
    with pytest.raises(ValueError, match="3 for 2 networks"):
        mercer.Conditioned(CASES["two networks"]()[0], [SIGHT] * 3)
    minibatched = mercer.Posterior(
        CASES["gaussian"]()[0].prior, mercer.Gaussian(0.2), (POINTS, VALUES), batch_size=3
    )
    with pytest.raises(ValueError, match="leave batch_size out"):
        mercer.Conditioned(minibatched)
