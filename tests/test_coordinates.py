"""White coordinates of a posterior: with frozen hidden layers, the Gaussian latent, exact draws and the
evidence; for every parameter, the same density, the readout's exact law, and starts in the bulk."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree
from scipy import stats

import mercer
from cases import assert_law, small_network
from mercer.diagnostics import ess

DOMAIN = mercer.Interval(0.5, 2.0)
POINTS = np.linspace(0.6, 1.9, 9)[:, None]
VALUES = np.sin(4 * POINTS[:, 0])
GRID = np.linspace(0.03, 0.97, 12)[:, None]


@pytest.fixture(autouse=True)
def _allow_key_reuse():
    with jax.debug_key_reuse(False):
        yield


def make_pinned(likelihood, width=40, reference=1.0, mean=None, **options):
    """A network on the unit interval that vanishes at both ends; its units alone, no tail."""
    spectrum = (mercer.Laplacian(mercer.Interval(0, 1), 60) ** 2).with_variance(1.0)
    network = mercer.FourierMLP(
        1, width, num_frequencies=8, frequency_scale=5.0, boundary="dirichlet",
        key=jax.random.key(0), hidden_scale=2.0, saturation=0.1,
    )  # fmt: skip
    prior = mercer.Prior(mercer.Quadrature(spectrum), network, reference, mean)
    rng = np.random.default_rng(0)
    x = rng.uniform(0.05, 0.6, (15, 1))
    y = np.sin(6 * x[:, 0]) + 0.1 * rng.normal(size=15)
    return mercer.Posterior(prior, likelihood, (x, y), tail="none", **options)


def dense(posterior, grid):
    """Posterior mean and covariance at the grid, and the evidence, by plain linear algebra."""
    prior = posterior.prior
    law = prior.readout_law(prior.terms(prior.params)[0])
    network = prior.network(prior.params)
    both = np.concatenate([np.asarray(posterior.inputs), grid])
    slopes = prior.reference * np.asarray(
        jax.vmap(
            jax.jacobian(lambda w, x: eqx.tree_at(lambda n: n.readout, network, w)(x)),
            (None, 0),
        )(network.readout, jnp.asarray(both))
    )
    prior_mean, covariance = (
        slopes @ np.asarray(law.mean()),
        np.asarray(law.covariance(jnp.asarray(slopes))),
    )
    n, noise = len(posterior.inputs), np.asarray(posterior.likelihood.scale) ** 2
    data = covariance[:n, :n] + np.diag(np.broadcast_to(noise, n))
    residual = np.asarray(posterior.targets) - prior_mean[:n]
    gain = np.linalg.solve(data, covariance[:n, n:]).T
    evidence = stats.multivariate_normal.logpdf(residual, np.zeros(n), data)
    return (
        prior_mean[n:] + gain @ residual,
        covariance[n:, n:] - gain @ covariance[:n, n:],
        evidence,
    )


@pytest.mark.parametrize("width", [40, 90], ids=["narrow", "wide"])
@pytest.mark.parametrize("noise", [0.1, np.linspace(0.05, 0.3, 15)], ids=["one", "a row"])
def test_gaussian_posterior_is_exact(width, noise):
    posterior = make_pinned(
        mercer.Gaussian(noise), width, 2.0, mean=lambda x: 0.5 * jnp.sin(jnp.pi * x[0])
    )
    frozen = mercer.Frozen(posterior)
    mean, covariance, evidence = dense(posterior, GRID)
    assert frozen.is_exact
    assert float(frozen.log_evidence) == pytest.approx(evidence, abs=1e-6)
    found, variance = frozen.moments(jnp.asarray(GRID))
    np.testing.assert_allclose(found, mean, atol=1e-6)
    np.testing.assert_allclose(variance, np.diag(covariance), rtol=1e-5)
    draws = mercer.sample(
        jax.random.key(1), frozen, mercer.exact(), num_draws=5000, num_chains=2, progress=False,
        record=lambda p: jax.vmap(posterior.network(p))(jnp.asarray(GRID)),
    )  # fmt: skip
    values = np.asarray(draws.recorded)
    assert_law(values, mean, covariance)


@pytest.mark.parametrize("coordinates", [mercer.Frozen, mercer.NonCentred])
def test_draws_are_in_the_posteriors_own_parameters(coordinates):
    posterior = make_pinned(mercer.Gaussian(mercer.hyper.LogNormal(0.1, 0.5)), width=10)
    density = coordinates(posterior)
    assert density.target is posterior
    draws = mercer.sample(
        jax.random.key(1), density, mercer.hmc(3), num_draws=4, num_warmup=3, num_chains=2,
        record=lambda p: jax.vmap(posterior.network(p))(jnp.asarray(GRID)), progress=False,
        keep_params=True,
    )  # fmt: skip
    assert draws.density is posterior
    assert jax.tree.structure(draws.params) == jax.tree.structure(posterior.params)
    np.testing.assert_allclose(draws.values(GRID), draws.recorded.reshape(-1, len(GRID)), rtol=1e-9)
    z = draws.params["likelihood"]["scale"]
    np.testing.assert_allclose(draws.likelihood["scale"], 0.1 * np.exp(0.5 * z), rtol=1e-9)


def test_nuts_takes_few_steps_in_the_latent_and_is_right():
    # Gaussian but for its name, so that the coordinates are those for a sampler.
    posterior = make_pinned(mercer.StudentT(1e7, 0.1))
    frozen = mercer.Frozen(posterior)
    assert not frozen.is_exact
    mean, covariance, _ = dense(posterior, GRID)
    draws = mercer.sample(
        jax.random.key(2), frozen, mercer.nuts(), num_draws=1500, num_warmup=400, num_chains=2,
        record=lambda p: jax.vmap(posterior.network(p))(jnp.asarray(GRID)), progress=False,
    )  # fmt: skip
    values = np.asarray(draws.recorded)
    z = (values.mean((0, 1)) - mean) / np.sqrt(np.diag(covariance)) * np.sqrt(ess(values, "mean"))
    assert np.max(np.abs(z)) < 4
    assert np.mean(draws.statistics["num_gradients"]) < 40


def test_frozen_density_is_the_posterior_of_the_readout():
    """Log densities differ by the constant of the change of variables alone."""
    posterior = make_pinned(mercer.StudentT(4.0, mercer.hyper.LogNormal(0.1, 0.5)))
    frozen = mercer.Frozen(posterior)
    gaps = []
    for k in jax.random.split(jax.random.key(3), 5):
        z = frozen.init(k)
        gaps.append(float(frozen(z) - posterior(frozen.original(z))))
    np.testing.assert_allclose(gaps, gaps[0], rtol=1e-8)
    assert not frozen.is_exact
    with pytest.raises(ValueError, match="the evidence is known for"):
        _ = frozen.log_evidence
    with pytest.raises(ValueError, match="no exact draws"):
        frozen.draw(jax.random.key(4))


def test_two_networks_and_a_forward_map(key):
    scale = make_pinned(mercer.Gaussian(0.1)).prior
    networks = {"mean": scale.network(scale.params), "scale": scale.network(scale.params)}
    prior = mercer.Prior(scale.energy, networks)
    x = np.linspace(0.1, 0.9, 10)[:, None]
    both = mercer.Frozen(
        mercer.Posterior(prior, mercer.Heteroscedastic(), (x, np.sin(6 * x[:, 0])))
    )
    z = both.init(key)
    through = both.posterior.log_likelihood(both.original(z))
    white = stats.norm.logpdf(ravel_pytree(z)[0]).sum()
    np.testing.assert_allclose(both(z), white + through, rtol=1e-8)
    integral = mercer.Gaussian(0.1, observe=lambda u, x: jnp.cumsum(jax.vmap(u)(x)))
    mapped = mercer.Frozen(mercer.Posterior(scale, integral, (x, np.zeros(10))))
    assert not mapped.is_exact
    assert np.isfinite(float(mapped(mapped.init(key))))


def test_minibatches_are_unbiased(key):
    small = mercer.Frozen(make_pinned(mercer.Gaussian(0.1), batch_size=5))
    whole = mercer.Frozen(make_pinned(mercer.Gaussian(0.1)))
    assert not small.is_deterministic
    assert not small.is_exact
    z = whole.params | {"latent": [jax.random.normal(key, whole.params["latent"][0].shape)]}
    estimates = jax.vmap(lambda k: small(small_at(small, whole, z), small.batch(k)))
    found = estimates(jax.random.split(key, 4000))
    z_score = (found.mean() - whole(z)) / (found.std() / np.sqrt(4000))
    assert abs(float(z_score)) < 4
    with pytest.raises(ValueError, match="minibatches"):
        small(z)


def small_at(small, whole, z):
    """The coordinates of one that stand for the same network as those of the other."""
    weights = whole.original(z).readout
    (latent,) = small.latents
    return z | {"latent": [jnp.linalg.solve(latent.root, weights - latent.mean)]}


def make_posterior(likelihood, reference=1.0, names=(), width=8, energy=None):
    energy = energy or mercer.Quadrature(mercer.BrownianMotion(12, DOMAIN))
    networks = {name: small_network(width + i, seed=i) for i, name in enumerate(names)}
    prior = mercer.Prior(energy, networks or small_network(width), reference=reference)
    return mercer.Posterior(prior, likelihood, (POINTS, VALUES))


def exponential(u, x):
    """A forward map that is not linear, of one network or of a sum."""
    return jnp.exp(sum(jax.vmap(one)(x) for one in jax.tree.leaves(u, is_leaf=callable)))


NODES = np.linspace(0.55, 2.0, 20)[:, None]
LEARNED = mercer.hyper.LogNormal(0.2, 0.5)
CASES = {
    "gaussian": lambda: make_posterior(mercer.Gaussian(0.2)),
    "reference": lambda: make_posterior(mercer.Gaussian(0.2), reference=2.0),
    "learned noise": lambda: make_posterior(mercer.Gaussian(LEARNED)),
    "wide": lambda: make_posterior(mercer.Gaussian(0.2), width=30),
    "nodes": lambda: make_posterior(
        mercer.Gaussian(0.2), energy=mercer.Nodes("matern12", NODES), width=30
    ),
    "two networks": lambda: make_posterior(
        mercer.Heteroscedastic(jnp.exp), names=("mean", "scale")
    ),
    "sum": lambda: make_posterior(mercer.Gaussian(0.2), 1.0, ("slow", "fast")),
    "sum, learned noise": lambda: make_posterior(
        mercer.Gaussian(LEARNED), 2.0, ("slow", "fast", "fastest")
    ),
    "sum, student": lambda: make_posterior(mercer.StudentT(4.0, 0.2), 1.0, ("slow", "fast")),
    "student": lambda: make_posterior(mercer.StudentT(4.0, 0.2), reference=0.5),
    "student, learned": lambda: make_posterior(mercer.StudentT(LEARNED, LEARNED)),
    "forward map": lambda: make_posterior(mercer.Gaussian(0.2, exponential)),
    "forward map of a sum": lambda: make_posterior(
        mercer.Gaussian(LEARNED, exponential), 2.0, ("slow", "fast")
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_the_density_is_the_posterior_times_the_volume(name, key):
    """The volume by the Jacobian of the whole change of coordinates."""
    posterior = CASES[name]()
    density = mercer.NonCentred(posterior)
    params = density.init(key)
    flat, unravel = ravel_pytree(params)

    @jax.jit
    def change(flat):
        return ravel_pytree(density.original(unravel(flat)))[0]

    _, log_volume = np.linalg.slogdet(jax.jacfwd(change)(flat))
    expected = posterior(density.original(params)) + log_volume
    np.testing.assert_allclose(jax.jit(density)(params), expected, rtol=1e-8)


@pytest.mark.parametrize("name", ["gaussian", "sum"])
def test_with_gaussian_noise_the_density_is_the_evidence_of_the_hidden_layer(name, key):
    posterior = CASES[name]()
    params = posterior.prior.draw(key)
    moved = eqx.tree_at(lambda p: p.prior.params, posterior, params)
    white = stats.norm.logpdf(ravel_pytree(params)[0]).sum()
    exact = mercer.Frozen(moved).log_evidence
    found = mercer.NonCentred(posterior)(params) - white
    np.testing.assert_allclose(found, exact, rtol=1e-7)


def test_readouts_follow_the_posterior_given_the_hidden_layer():
    posterior = CASES["gaussian"]()
    density, frozen = mercer.NonCentred(posterior), mercer.Frozen(posterior)

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


WHITENED = {
    "one": (mercer.StudentT(10.0, 0.1), ()),
    "sum": (mercer.StudentT(10.0, 0.1), ("slow", "fast")),
    "two networks": (mercer.Heteroscedastic(jnp.exp), ("mean", "scale")),
    "forward map": (mercer.Gaussian(0.2, exponential), ()),
}


@pytest.mark.parametrize("name", WHITENED)
def test_with_other_noise_the_coordinates_are_nearly_white(name):
    """Curvatures of the log density in the readouts, hidden layers as they are, are about one."""
    likelihood, names = WHITENED[name]
    posterior = make_posterior(likelihood, names=names, width=16)
    density = mercer.NonCentred(posterior)
    chosen = mercer.readout_only(posterior.prior.network(posterior.prior.params))
    readouts, rest = eqx.partition(posterior.prior.params, chosen)
    flat, unravel = ravel_pytree(jax.tree.map(jnp.zeros_like, readouts))
    curve = jax.hessian(lambda z: -density(eqx.combine(unravel(z), rest)))
    sizes = np.linalg.eigvalsh(jax.jit(curve)(flat))
    assert sizes.min() > 0.3
    assert sizes.max() < 3.0


def test_what_cannot_be_whitened_is_said():
    prior = CASES["gaussian"]().prior
    data = POINTS, VALUES
    minibatched = mercer.Posterior(prior, mercer.Gaussian(0.2), data, batch_size=3)
    with pytest.raises(ValueError, match="leave batch_size out"):
        mercer.NonCentred(minibatched)
    random = mercer.Prior(mercer.Lattice(mercer.BrownianMotion(12, DOMAIN), 32), small_network(8))
    for coordinates in (mercer.Frozen, mercer.NonCentred):
        with pytest.raises(ValueError, match="needs a deterministic energy"):
            coordinates(mercer.Posterior(random, mercer.Gaussian(0.2), data))
    networks = {"u": small_network(5), "v": small_network(4, seed=1)}
    half = mercer.Prior({"u": prior.energy, "v": None}, networks)
    with pytest.raises(ValueError, match="an energy for every network"):
        mercer.NonCentred(mercer.Posterior(half, mercer.Gaussian(0.2), data))
