"""The prior and posterior against closed forms that share no code with them."""

import warnings

import blackjax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree
from scipy import stats

import mercer

DOMAIN = mercer.Interval(0.5, 2.0)


class Polynomial(eqx.Module):
    """Linear in its parameters: the oracle. Offset t², so that nothing is zero by chance."""

    readout: jax.Array

    def __call__(self, x):
        t = x[0] - 0.5
        return t**2 + jnp.dot(self.readout, jnp.stack([t, t**2, jnp.sin(3 * t), t * jnp.exp(-t)]))


class Oracle:
    """The same prior, posterior and evidence in plain NumPy."""

    def __init__(self, spectrum, sigma, noise, x, y):
        nodes, weights = np.polynomial.legendre.leggauss(300)
        t = 0.75 * (nodes + 1)
        self.features = lambda t: np.stack([t, t**2, np.sin(3 * t), t * np.exp(-t)], -1)
        n = np.arange(1, spectrum.num_modes + 1)
        frequency = np.pi * (n - 0.5) / 1.5
        basis = np.sqrt(2 / 1.5) * np.sin(np.outer(t, frequency))
        project = (0.75 * weights)[:, None] * basis
        mixing = frequency[:, None] * (project.T @ self.features(t))
        rest = frequency * (project.T @ (t**2 - self.mean(t)))
        self.precision = np.eye(4) / sigma**2 + mixing.T @ mixing
        self.center = -np.linalg.solve(self.precision, mixing.T @ rest)
        design = self.features(x - 0.5)
        target = y - (x - 0.5) ** 2
        self.posterior_precision = self.precision + design.T @ design / noise**2
        information = self.precision @ self.center + design.T @ target / noise**2
        self.posterior_mean = np.linalg.solve(self.posterior_precision, information)
        covariance = noise**2 * np.eye(len(x)) + design @ np.linalg.inv(self.precision) @ design.T
        self.log_evidence = stats.multivariate_normal.logpdf(
            target, design @ self.center, covariance
        )

    @staticmethod
    def mean(t):
        return 0.3 * t


@pytest.fixture
def oracle_case():
    rng = np.random.default_rng(0)
    x = rng.uniform(0.5, 2.0, 12)
    y = np.sin(x) + 0.1 * rng.normal(size=12)
    spectrum = mercer.BrownianMotion(30, DOMAIN)
    prior = mercer.Prior(
        mercer.Quadrature(spectrum, 120),
        Polynomial(jnp.zeros(4)),
        reference=2.0,
        mean=lambda point: 0.3 * (point[0] - 0.5),
    )
    posterior = mercer.Posterior(prior, mercer.Gaussian(0.1), (x[:, None], y))
    return prior, posterior, Oracle(spectrum, 2.0, 0.1, x, y)


def test_linear_prior_is_the_gaussian_it_should_be(oracle_case):
    prior, _, oracle = oracle_case
    assert prior.normalised
    exact = stats.multivariate_normal(oracle.center, np.linalg.inv(oracle.precision))
    for w in np.random.default_rng(1).normal(size=(5, 4)):
        np.testing.assert_allclose(prior(Polynomial(jnp.asarray(w))), exact.logpdf(w), rtol=1e-8)


def test_linear_posterior_and_evidence(oracle_case):
    _, posterior, oracle = oracle_case
    exact = stats.multivariate_normal(
        oracle.posterior_mean, np.linalg.inv(oracle.posterior_precision)
    )
    for w in np.random.default_rng(2).normal(size=(5, 4)):
        # log p(w, y) − log p(w | y) is the log evidence, whatever w.
        evidence = posterior(Polynomial(jnp.asarray(w))) - exact.logpdf(w)
        np.testing.assert_allclose(evidence, oracle.log_evidence, rtol=1e-8)


def test_exact_draws_of_the_linear_prior(oracle_case):
    prior, _, oracle = oracle_case
    keys = jax.random.split(jax.random.key(3), 20_000)
    draws = np.asarray(jax.vmap(lambda k: prior.draw(k).readout)(keys))
    white = (draws - oracle.center) @ np.linalg.cholesky(oracle.precision)
    assert np.all(np.abs(white.mean(0)) < 4 / np.sqrt(len(white)))
    error = np.cov(white.T) - np.eye(4)
    assert np.all(np.abs(error) < 4 * np.sqrt((1 + np.eye(4)) / len(white)))
    assert all(stats.kstest(column, "norm").pvalue > 1e-3 for column in white.T)


def small_network(width, seed=0, readout_scale=3.0):
    return mercer.FourierMLP(
        1,
        width,
        num_frequencies=2,
        frequency_scale=3.0,
        boundary=("dirichlet", "neumann"),
        key=jax.random.key(seed),
        domain=DOMAIN,
        readout_scale=readout_scale,
    )


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


def test_nuts_on_the_normalised_density_has_the_law_of_exact_draws():
    prior = mercer.Prior(mercer.Quadrature(mercer.BrownianMotion(6, DOMAIN)), small_network(4))
    grid = jnp.linspace(0.6, 2.0, 5)[:, None]

    def values(params):
        return jax.vmap(prior.network(params))(grid)

    exact = np.asarray(
        jax.vmap(lambda k: values(prior.draw(k)))(jax.random.split(jax.random.key(0), 4000))
    )

    def chain(key):
        start_key, warm_key, run_key = jax.random.split(key, 3)
        warmup = blackjax.window_adaptation(blackjax.nuts, prior)
        (state, parameters), _ = warmup.run(warm_key, prior.draw(start_key), 300)
        kernel = blackjax.nuts(prior, **parameters).step

        def step(state, key):
            state, _ = kernel(key, state)
            return state, values(state.position)

        return jax.lax.scan(step, state, jax.random.split(run_key, 4000))[1]

    with jax.debug_key_reuse(False):  # BlackJAX's adaptation does not pass that check
        chains = np.asarray(jax.vmap(chain)(jax.random.split(jax.random.key(1), 4)))
    thinned = chains[:, ::20].reshape(-1, 5)
    for ours, theirs in zip(thinned.T, exact.T, strict=True):
        assert stats.ks_2samp(ours, theirs).pvalue > 1e-3
    ratio = chains.reshape(-1, 5).var(0) / exact.var(0)
    assert np.all(np.abs(np.log(ratio)) < 0.25)


def test_mean_shifts_the_process():
    prior = mercer.Prior(
        mercer.Quadrature(mercer.BrownianMotion(40, DOMAIN)),
        small_network(60, readout_scale=100.0),
        mean=lambda x: 2.0 * (x[0] - 0.5),
    )
    draws = jax.vmap(lambda k: prior.network(prior.draw(k))(jnp.array([1.5])))
    values = np.asarray(draws(jax.random.split(jax.random.key(0), 2000)))
    assert abs(values.mean() - 2.0) < 0.2


def test_pytree_of_networks_adds_energies():
    first = mercer.Quadrature(mercer.BrownianMotion(10, DOMAIN))
    second = mercer.Quadrature(mercer.Matern(1.5, 0.4, 1.0, DOMAIN, 12))
    networks = {
        "mean": small_network(6),
        "scale": mercer.FourierMLP(1, 5, num_frequencies=2, key=jax.random.key(1), domain=DOMAIN),
    }
    both = mercer.Prior({"mean": first, "scale": second}, networks)
    alone = [mercer.Prior(first, networks["mean"]), mercer.Prior(second, networks["scale"])]
    np.testing.assert_allclose(both(both.params), sum(p(p.params) for p in alone), rtol=1e-10)
    drawn = both.network(both.draw(jax.random.key(0)))
    assert set(drawn) == {"mean", "scale"}
    results = mercer.fidelity(both)
    np.testing.assert_allclose(
        results["scale"].relative_error, mercer.fidelity(alone[1]).relative_error, rtol=1e-9
    )


def test_network_with_no_energy_has_the_reference_alone():
    networks = {"u": small_network(4), "v": small_network(3, seed=1)}
    energy = mercer.Quadrature(mercer.BrownianMotion(10, DOMAIN))
    prior = mercer.Prior({"u": energy, "v": None}, networks)
    alone = mercer.Prior(energy, networks["u"])
    flat = ravel_pytree(eqx.filter(networks["v"], lambda leaf: isinstance(leaf, jax.Array)))[0]
    expected = alone(alone.params) + jnp.sum(jax.scipy.stats.norm.logpdf(flat))
    np.testing.assert_allclose(prior(prior.params), expected, rtol=1e-10)


def test_trainable_filter_freezes_the_hidden_layer():
    network = small_network(15)
    frozen = jax.tree.map(lambda _: False, network)
    only_readout = eqx.tree_at(lambda n: n.readout, frozen, True)
    prior = mercer.Prior(
        mercer.Quadrature(mercer.BrownianMotion(10, DOMAIN)), network, trainable=only_readout
    )
    assert [leaf.shape for leaf in jax.tree.leaves(prior.params)] == [(15,)]
    drawn = prior.network(prior.draw(jax.random.key(0)))
    np.testing.assert_array_equal(drawn.weights[0], network.weights[0])
    assert not np.allclose(drawn.readout, network.readout)


def test_any_equinox_module_works():
    class Wrapped(eqx.Module):
        mlp: eqx.nn.MLP

        def __call__(self, x):
            return (x[0] - 0.5) * self.mlp(x)[0]

    network = Wrapped(eqx.nn.MLP(1, 1, 16, 1, jnp.tanh, key=jax.random.key(0)))
    energy = mercer.Quadrature(mercer.BrownianMotion(20, DOMAIN))
    assert not mercer.Prior(energy, network).normalised
    prior = mercer.Prior(
        energy, network, readout=lambda n: (n.mlp.layers[-1].weight, n.mlp.layers[-1].bias)
    )
    assert prior.normalised
    assert np.isfinite(prior(prior.draw(jax.random.key(1))))


@pytest.mark.float32
def test_posterior_minibatches_are_unbiased():
    rng = np.random.default_rng(0)
    x, y = rng.uniform(0.5, 2.0, (40, 1)), rng.normal(size=40)
    spectrum = mercer.BrownianMotion(10, DOMAIN)
    prior = mercer.Prior(mercer.Lattice(spectrum, 64), small_network(5))
    full = mercer.Posterior(prior, mercer.Gaussian(np.linspace(0.5, 1.0, 40)), (x, y))
    small = mercer.Posterior(
        prior, mercer.Gaussian(np.linspace(0.5, 1.0, 40)), (x, y), batch_size=7
    )
    exact = float(full.log_likelihood(prior.params))
    keys = jax.random.split(jax.random.key(0), 4000)
    values = np.asarray(
        jax.vmap(lambda k: small.log_likelihood(prior.params, small.batch(k).rows))(keys)
    )
    z = (values.mean() - exact) / (values.std() / np.sqrt(values.size))
    assert abs(z) < 4
    assert np.isfinite(small(prior.params, small.batch(jax.random.key(1))))


def likelihood_judges():
    rng = np.random.default_rng(3)
    u = rng.normal(size=6)
    y, ones, counts = rng.normal(size=6), rng.integers(0, 2, 6), rng.integers(0, 5, 6)
    p = 1 / (1 + np.exp(-u))
    return [
        (mercer.Gaussian(0.4), u, y, stats.norm.logpdf(y, u, 0.4)),
        (mercer.Gaussian(np.arange(1.0, 7.0)), u, y, stats.norm.logpdf(y, u, np.arange(1.0, 7.0))),
        (mercer.StudentT(4.0, 0.3), u, y, stats.t.logpdf(y, 4.0, u, 0.3)),
        (mercer.Bernoulli(), u, ones, stats.bernoulli.logpmf(ones, p)),
        (mercer.Poisson(), u, counts, stats.poisson.logpmf(counts, np.exp(u))),
        (
            mercer.Heteroscedastic(),
            {"mean": u, "scale": u[::-1]},
            y,
            stats.norm.logpdf(y, u, np.log1p(np.exp(u[::-1]))),
        ),
    ]


@pytest.mark.parametrize("case", likelihood_judges(), ids=lambda case: type(case[0]).__name__)
def test_likelihoods_are_scipys(case):
    likelihood, predicted, targets, judged = case
    predicted = jax.tree.map(jnp.asarray, predicted)
    np.testing.assert_allclose(
        likelihood.log_prob(predicted, jnp.asarray(targets)), judged, rtol=1e-10
    )


def test_learned_noise_is_a_parameter_with_a_log_normal_prior(oracle_case):
    prior, known, _ = oracle_case
    noise = mercer.LogNormal(median=0.2, spread=0.5)
    posterior = mercer.Posterior(prior, mercer.Gaussian(noise), (known.inputs, known.targets))
    assert set(posterior.params) == {"network", "likelihood"}
    z = np.log(0.1 / 0.2) / 0.5
    params = {"network": prior.params, "likelihood": [jnp.asarray(z)]}
    expected = known(prior.params) + stats.norm.logpdf(z)
    np.testing.assert_allclose(posterior(params), expected, rtol=1e-10)
    drawn = posterior.draw(jax.random.key(0))
    assert jax.tree.structure(drawn) == jax.tree.structure(posterior.params)


def test_forward_map_may_be_anything():
    x = np.zeros((2, 1)) + 100.0  # not points of the domain: the forward map knows what they are
    prior = mercer.Prior(mercer.Quadrature(mercer.BrownianMotion(10, DOMAIN)), small_network(5))

    def integral(u, inputs):
        nodes, weights = DOMAIN.quadrature(20)
        return jnp.sum(weights * jax.vmap(u)(nodes)) * jnp.ones(inputs.shape[0])

    posterior = mercer.Posterior(prior, mercer.Gaussian(1.0, observe=integral), (x, np.zeros(2)))
    assert np.isfinite(posterior(posterior.params))


@pytest.mark.float32
def test_gradient_is_finite_in_the_floats_at_hand():
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "with 32-bit floats")
        prior = mercer.Prior(
            mercer.Quadrature(mercer.BrownianMotion(50, DOMAIN)), small_network(30)
        )
    assert prior.normalised == jax.config.read("jax_enable_x64")
    slope = jax.grad(prior)(prior.params)
    assert all(bool(jnp.all(jnp.isfinite(leaf))) for leaf in jax.tree.leaves(slope))


def test_densities_go_through_jit_as_functions():
    prior = mercer.Prior(mercer.Quadrature(mercer.BrownianMotion(10, DOMAIN)), small_network(5))
    np.testing.assert_allclose(jax.jit(prior)(prior.params), prior(prior.params), rtol=1e-10)
    drawn = jax.jit(prior.draw)(jax.random.key(0))
    again = eqx.filter_jit(lambda p, params: p(params))(prior, drawn)
    np.testing.assert_allclose(again, prior(drawn), rtol=1e-10)


@pytest.mark.parametrize(
    "likelihood",
    [
        mercer.Gaussian(0.3),
        mercer.StudentT(4.0, mercer.LogNormal(0.3, 0.5)),
        mercer.Bernoulli(),
        mercer.Poisson(),
        mercer.Heteroscedastic(),
    ],
    ids=lambda likelihood: type(likelihood).__name__,
)
def test_every_likelihood_makes_a_posterior(likelihood):
    energy = mercer.Quadrature(mercer.BrownianMotion(10, DOMAIN))
    network = small_network(5)
    if isinstance(likelihood, mercer.Heteroscedastic):
        network = {"mean": network, "scale": small_network(4, seed=1)}
    prior = mercer.Prior(energy, network)
    x, y = np.linspace(0.6, 1.9, 6)[:, None], np.array([0, 1, 1, 0, 1, 0])
    full = mercer.Posterior(prior, likelihood, (x, y))
    cut = mercer.Posterior(prior, likelihood, (x, y), batch_size=6)
    params = full.draw(jax.random.key(0))
    value = full(params)
    np.testing.assert_allclose(cut(params, cut.batch(jax.random.key(1))), value, rtol=1e-10)
    assert np.isfinite(value)


def test_minibatches_leave_the_forward_map_alone():
    class Weighted(eqx.Module):
        weights: jax.Array

        def __call__(self, u, inputs):
            return jnp.sum(self.weights) * jax.vmap(u)(inputs)

    prior = mercer.Prior(mercer.Quadrature(mercer.BrownianMotion(10, DOMAIN)), small_network(5))
    data = np.linspace(0.6, 1.9, 5)[:, None], np.zeros(5)
    likelihood = mercer.Gaussian(0.5, observe=Weighted(jnp.arange(5.0)))
    cut = mercer.Posterior(prior, likelihood, data, batch_size=5)
    rows = cut.batch(jax.random.key(0)).rows
    np.testing.assert_allclose(
        cut.log_likelihood(prior.params, rows), cut.log_likelihood(prior.params), rtol=1e-10
    )


def test_blackjax_takes_the_gradient_as_it_is():
    """The contract: jax.grad(density) with density.batch(key), no adapter."""
    rng = np.random.default_rng(0)
    prior = mercer.Prior(mercer.Lattice(mercer.BrownianMotion(10, DOMAIN), 64), small_network(5))
    data = rng.uniform(0.5, 2.0, (40, 1)), rng.normal(size=40)
    posterior = mercer.Posterior(prior, mercer.Gaussian(0.5), data, batch_size=8)
    algorithm = blackjax.sgld(jax.grad(posterior))
    batch_key, step_key = jax.random.split(jax.random.key(0))
    moved = algorithm.step(step_key, posterior.params, posterior.batch(batch_key), 1e-5)
    assert jax.tree.structure(moved) == jax.tree.structure(posterior.params)
    assert all(bool(jnp.all(jnp.isfinite(leaf))) for leaf in jax.tree.leaves(moved))


def test_printed_density_is_improper_and_says_so():
    energy = mercer.Quadrature(mercer.BrownianMotion(10, DOMAIN))
    with pytest.warns(UserWarning, match="improper"):
        prior = mercer.Prior(energy, small_network(5), reference=None)
    assert not prior.normalised
    np.testing.assert_allclose(
        prior(prior.params), -energy(prior.network(prior.params)), rtol=1e-12
    )
