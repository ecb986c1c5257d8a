"""Hyperparameters on the linear oracle, where evidence and hyperposterior are known exactly."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, optimize, stats

import mercer
from mercer import hyper
from mercer.diagnostics import ess
from mercer.hyper.gradient import prior_slope
from oracle import DOMAIN, Features

RANDOM = np.random.default_rng(0)
INPUTS = RANDOM.uniform(0, 1, (30, 1))
TARGETS = 2 * np.sin(2 * INPUTS[:, 0]) + 0.3 * RANDOM.normal(size=30)
HYPERPRIORS = {"variance": hyper.LogNormal(1.0, 1.5), "noise": hyper.LogNormal(0.2, 1.0)}
FAR = [(2.0, 2.0), (-3.0, 1.0), (0.0, -2.0), (3.0, -1.0), (-2.0, -2.0)]


class Line(eqx.Module):
    """One random number: u(x) = w (x − ½)."""

    readout: jax.Array

    def __call__(self, x):
        return self.readout[0] * (x[0] - 0.5)


@pytest.fixture(autouse=True)
def _allow_key_reuse():
    """BlackJAX's samplers do not pass that check."""
    with jax.debug_key_reuse(False):
        yield


def make(values, normalised=True, coordinates=lambda posterior: posterior):
    spectrum = values["variance"] * mercer.BrownianMotion(12, DOMAIN)
    prior = mercer.Prior(
        mercer.Quadrature(spectrum), Features(jnp.zeros(4)), reference=5.0, normalised=normalised
    )
    return coordinates(
        mercer.Posterior(prior, mercer.Gaussian(values["noise"]), (INPUTS, TARGETS), tail="none")
    )


@functools.cache
def joint(normalised=True, white=False):
    coordinates = mercer.NonCentred if white else (lambda posterior: posterior)
    return hyper.Joint(
        functools.partial(make, normalised=normalised, coordinates=coordinates), HYPERPRIORS
    )


def log_evidence(z):
    """log p(y | λ) with the linear readout integrated out, at standard normal numbers."""
    values = {n: f(one) for (n, f), one in zip(HYPERPRIORS.items(), z, strict=True)}
    return mercer.Frozen(make(values)).log_evidence


@functools.cache
def exact_log_density():
    return jax.jit(lambda z: log_evidence(z) - 0.5 * jnp.sum(z**2))


@functools.cache
def exact_maximum():
    slope = jax.jit(jax.value_and_grad(lambda z: -exact_log_density()(z)))
    found = optimize.minimize(
        lambda z: tuple(map(np.asarray, slope(jnp.asarray(z)))), np.zeros(2), jac=True, tol=1e-9
    )
    return found.x


@functools.cache
def exact_marginals():
    """The distribution function of each standard normal number given the data, on a grid."""
    axis = np.linspace(-4, 4, 161)
    points = jnp.stack(jnp.meshgrid(axis, axis, indexing="ij"), -1).reshape(-1, 2)
    values = np.asarray(jax.lax.map(exact_log_density(), points, batch_size=512)).reshape(161, 161)
    weights = np.exp(values - values.max())
    shares = [weights.sum(1), weights.sum(0)]
    grown = [integrate.cumulative_trapezoid(s, axis, initial=0) for s in shares]
    return {
        name: functools.partial(np.interp, xp=axis, fp=g / g[-1])
        for name, g in zip(HYPERPRIORS, grown, strict=True)
    }


def hyper_p_values(draws):
    """KS of each hyperparameter against its exact law, draws thinned to be independent."""
    p_values = {}
    for name, values in draws.recorded.items():
        every = int(np.ceil(values.size / ess(values[..., None])[0]))
        thinned = values[:, :: max(1, every)].ravel()
        p_values[name] = stats.kstest(thinned, exact_marginals()[name]).pvalue
    return p_values


def run(algorithm, density, **options):
    options = {"num_draws": 1000, "num_warmup": 300, "num_chains": 4} | options
    return mercer.sample(
        jax.random.key(5), density, algorithm, record=lambda p: p["hyper"], progress=False,
        **options,
    )  # fmt: skip


def gaussian_draws(density, key, count):
    """Exact draws of a density that is quadratic to rounding."""
    flat = lambda w: density(Features(w))  # noqa: E731
    precision = -jax.hessian(flat)(jnp.zeros(4))
    mean = jnp.linalg.solve(precision, jax.grad(flat)(jnp.zeros(4)))
    white = jax.random.normal(key, (4, count))
    drawn = mean[:, None] + jnp.linalg.solve(jnp.linalg.cholesky(precision).T, white)
    return Features(drawn.T.reshape(4, -1, 4))


@pytest.mark.parametrize("normalised", [True, False])
def test_the_evidence_gradient_is_unbiased(normalised):
    z = {"variance": jnp.asarray(0.7), "noise": jnp.asarray(-0.4)}
    family, keys = joint(normalised), jax.random.split(jax.random.key(1))
    density = family.at(z)
    drawn = [
        gaussian_draws(d, k, 8000) for d, k in zip((density, density.prior), keys, strict=True)
    ]
    found = hyper.evidence_gradient(family, z, *(drawn[:1] if normalised else drawn))
    exact = jax.grad(log_evidence)(jnp.array([0.7, -0.4]))
    scores = [
        (found.value[n] - e) / found.error[n] for n, e in zip(HYPERPRIORS, exact, strict=True)
    ]
    assert np.all(np.abs(scores) < 3.5)
    assert all(found.error[name] < 0.2 for name in HYPERPRIORS)


def test_the_integral_over_the_readout_takes_the_noise_out_of_the_prior_part():
    """For a network without hidden layers nothing random is left; its draws alone would be noisy."""
    z = {"variance": jnp.asarray(0.7), "noise": jnp.asarray(-0.4)}
    family = joint(False)
    drawn = gaussian_draws(family.at(z).prior, jax.random.key(2), 400)
    flat = Features(drawn.readout.reshape(-1, 4))
    smooth = jax.vmap(lambda p: prior_slope(family, z, p)["variance"])(flat)
    raw = jax.vmap(lambda p: jax.grad(lambda h: family.at(h).prior(p))(z)["variance"])(flat)
    assert np.std(smooth) < 1e-9 < 0.3 < np.std(raw)
    assert abs(np.mean(raw) - np.mean(smooth)) < 4 * np.std(raw) / np.sqrt(400)


@pytest.mark.slow
@pytest.mark.parametrize("start", FAR, ids=str)
@pytest.mark.parametrize("normalised", [True, False], ids=["normalised", "as printed"])
def test_empirical_bayes_reaches_the_maximum_from_afar(start, normalised):
    begin = dict(zip(HYPERPRIORS, start, strict=True))
    found = hyper.empirical_bayes(jax.random.key(0), joint(normalised), begin, progress=False)
    away = np.array(list(found.white.values())) - exact_maximum()
    assert found.converged
    assert np.all(np.abs(away) < 2 * np.array(list(found.error.values())))
    assert all(error < 0.02 for error in found.error.values())


def test_the_mode_in_white_coordinates_is_the_closed_form(key):
    """For starting values: given the hidden layer one ascent of the joint density is exact."""
    found = mercer.optimise.maximise(key, joint(white=True), num_steps=200)
    away = np.array([found["hyper"][name] for name in HYPERPRIORS]) - exact_maximum()
    assert np.max(np.abs(away)) < 1e-4


def test_the_curvature_gives_the_spread():
    found = hyper.empirical_bayes(jax.random.key(1), joint(), progress=False)
    exact = -np.asarray(jax.hessian(exact_log_density())(jnp.asarray(exact_maximum())))
    spread = np.sqrt(np.diag(np.linalg.inv(exact)))
    np.testing.assert_allclose(list(found.spread.values()), spread, rtol=0.1)
    assert found.path.shape[1] == 2
    assert len(jax.tree.leaves(found.params)[0]) == 16


@pytest.mark.parametrize(
    "white", [True, pytest.param(False, marks=pytest.mark.slow)], ids=["white", "plain"]
)
def test_parameters_and_hyperparameters_together_have_the_exact_law(white):
    algorithm = mercer.hmc(8) if white else mercer.nuts()
    p_values = hyper_p_values(run(algorithm, joint(white=white), num_draws=4000))
    assert min(p_values.values()) > 0.01


def test_pseudo_marginal_metropolis_has_the_exact_law():
    draws = run(hyper.pseudo_marginal(0.7, 16), joint(white=True), num_draws=3000)
    assert min(hyper_p_values(draws).values()) > 0.01


class Modes(eqx.Module):
    """The leading modes of Brownian motion, scaled as the process has them."""

    readout: jax.Array

    def __call__(self, x):
        n = jnp.arange(1, 4) - 0.5
        return jnp.dot(self.readout, jnp.sqrt(2.0) * jnp.sin(jnp.pi * n * x[0]) / (jnp.pi * n))


@pytest.mark.slow
def test_nested_langevin_has_the_law_without_a_normaliser():
    """A readout that is not told of leaves the normaliser unknown; the law is known nevertheless."""
    data, hyperpriors = (INPUTS[:10], TARGETS[:10]), {"variance": hyper.LogNormal(1.0, 1.0)}

    def family(where):
        def posterior(values):
            energy = mercer.Quadrature(values["variance"] * mercer.BrownianMotion(6, DOMAIN), 16)
            prior = mercer.Prior(energy, Modes(jnp.zeros(3)), reference=5.0, readout=where)
            return mercer.Posterior(prior, mercer.Gaussian(0.5), data, tail="none")

        return hyper.Joint(posterior, hyperpriors)

    unknown, exact = family(lambda n: n.missing), family(lambda n: n.readout)
    start = {"hyper": {"variance": jnp.zeros(())}, "network": Modes(jnp.ones(3))}
    init = jax.tree.map(lambda x: jnp.broadcast_to(x, (16, *x.shape)), start)
    options = {"num_draws": 100, "num_warmup": 2000, "num_chains": 16, "thin": 200, "init": init}
    algorithm = hyper.nested_sgld(8e-3, 1e-3, num_particles=4, num_inner=4)
    values = np.asarray(run(algorithm, unknown, **options).recorded["variance"])

    axis = np.linspace(-4, 4, 161)
    logs = jax.jit(jax.vmap(lambda z: mercer.Frozen(exact.at({"variance": z})).log_evidence))
    density = np.exp(np.asarray(logs(jnp.asarray(axis))) - 0.5 * axis**2)
    grown = integrate.cumulative_trapezoid(density, axis, initial=0)
    every = int(np.ceil(values.size / ess(values[..., None])[0]))
    law = functools.partial(np.interp, xp=axis, fp=grown / grown[-1])
    assert stats.kstest(values[:, ::every].ravel(), law).pvalue > 0.01


@pytest.mark.slow
def test_dropping_the_normaliser_is_biased():
    """The control: the same sampler on the printed density, Z left out, leaves the exact law."""
    family = joint(False)

    def printed(params):
        return family.log_hyperprior(params["hyper"]) + family.at(params["hyper"])(
            params["network"]
        )

    start = {"hyper": {n: jnp.zeros(()) for n in HYPERPRIORS}, "network": Features(jnp.ones(4))}
    init = jax.tree.map(lambda x: jnp.broadcast_to(x, (4, *x.shape)), start)
    draws = run(mercer.nuts(), printed, init=init)
    assert hyper_p_values(draws)["variance"] < 1e-6
    exact = run(mercer.nuts(), joint(white=True)).recorded["variance"].mean()
    assert draws.recorded["variance"].mean() > exact + 0.4


@pytest.mark.parametrize("white", [True, False], ids=["white", "plain"])
def test_the_evidence_by_smc_is_the_closed_form(white):
    z = {"variance": jnp.asarray(0.7), "noise": jnp.asarray(-0.4)}
    found = hyper.log_evidence(jax.random.key(3), joint(white=white).at(z), num_particles=512)
    exact = float(log_evidence(jnp.array([0.7, -0.4])))
    assert abs(found.value - exact) < 4 * found.error + 1e-6
    assert found.error < 0.2


def test_the_evidence_of_a_frozen_posterior_is_its_closed_form():
    z = {"variance": jnp.asarray(0.7), "noise": jnp.asarray(-0.4)}
    estimate = hyper.log_evidence(jax.random.key(3), mercer.Frozen(joint().at(z)))
    assert estimate == (float(log_evidence(jnp.array([0.7, -0.4]))), 0.0)


@pytest.mark.slow
def test_the_evidence_of_a_frozen_posterior_with_counts_is_an_integral():
    """One weight to integrate over: the sum on a grid is the judge."""
    counts = jnp.array([1, 0, 3, 2, 4])
    prior = mercer.Prior(
        mercer.Quadrature(mercer.BrownianMotion(12, DOMAIN)), Line(jnp.zeros(1)), normalised=True
    )
    frozen = mercer.Frozen(
        mercer.Posterior(prior, mercer.Poisson(), (INPUTS[:5], counts), tail="none")
    )
    estimate = hyper.log_evidence(jax.random.key(0), frozen, num_particles=512)
    grid = jnp.linspace(-8, 8, 4001)
    logs = jax.vmap(lambda z: frozen({"latent": [z[None]], "likelihood": {}}))(grid)
    exact = float(jax.scipy.special.logsumexp(logs) + jnp.log(grid[1] - grid[0]))
    assert abs(estimate.value - exact) < 4 * estimate.error + 1e-3


@pytest.mark.slow
def test_leave_one_out_is_that_of_the_closed_form():
    """For a linear model the density of a row given the others is known."""
    z = {"variance": jnp.asarray(0.7), "noise": jnp.asarray(0.4)}
    posterior = joint().at(z)
    draws = mercer.sample(
        jax.random.key(0), posterior, mercer.nuts(), num_draws=1000, num_warmup=300, progress=False
    )
    found = hyper.leave_one_out(draws)
    all_rows = float(log_evidence(jnp.array([0.7, 0.4])))
    exact = []
    for i in range(len(TARGETS)):
        keep = np.arange(len(TARGETS)) != i
        less = mercer.Posterior(
            posterior.prior, posterior.likelihood, (INPUTS[keep], TARGETS[keep]), tail="none"
        )
        exact.append(all_rows - float(mercer.Frozen(less).log_evidence))
    assert found.elpd_loo == pytest.approx(sum(exact), abs=0.15)


@pytest.mark.slow
def test_flat_directions_are_told(key):
    """Two factors of one variance cannot be told apart."""

    def doubled(values):
        return make({"variance": values["one"] * values["two"], "noise": 0.2})

    hyperpriors = {"one": hyper.LogNormal(1.0, 2.0), "two": hyper.LogNormal(1.0, 2.0)}
    family = hyper.Joint(lambda values: mercer.NonCentred(doubled(values)), hyperpriors)
    draws = run(mercer.nuts(), family)
    (sentence,) = family.tell_flat_directions(draws.recorded)
    assert "do not tell one" in sentence
    assert "two" in sentence
    assert joint().tell_flat_directions(run(mercer.nuts(), joint(white=True)).recorded) == []


def test_what_cannot_be_learned_is_said():
    def powered(values):
        spectrum = mercer.Laplacian(DOMAIN, 12) ** values["power"]
        prior = mercer.Prior(mercer.Quadrature(spectrum), Features(jnp.zeros(4)))
        return mercer.Posterior(prior, mercer.Gaussian(0.2), (INPUTS, TARGETS), tail="none")

    with pytest.raises(ValueError, match=r"prior of power reaches .* not summable"):
        hyper.Joint(powered, {"power": hyper.LogNormal(1.0, 1.0)})
    hyper.Joint(powered, {"power": hyper.Above(0.55, 1.0, 0.5)})
    with pytest.raises(ValueError, match="variance needs a proper prior"):
        hyper.Joint(make, {"variance": 1.0})
    with pytest.raises(ValueError, match="improper"):
        hyper.Between(0.0, np.inf)
    with pytest.raises(ValueError, match="spread must be positive and finite"):
        hyper.LogNormal(1.0, np.inf)
    with pytest.raises(ValueError, match="nested_sgld"):
        joint(False)(joint(False).params)
    with pytest.raises(ValueError, match="prior_draws"):
        hyper.evidence_gradient(
            joint(False), joint(False).params["hyper"], Features(jnp.ones((2, 2, 4)))
        )


def test_a_period_longer_than_the_record_is_said():
    def seasonal(values):
        spectrum = mercer.Periodic(values["period"], 0.1, DOMAIN, 2)
        prior = mercer.Prior(mercer.Quadrature(spectrum), Features(jnp.zeros(4)))
        return mercer.Posterior(prior, mercer.Gaussian(0.2), (INPUTS, TARGETS), tail="none")

    with pytest.warns(UserWarning, match=r"prior of period reaches .* longer than the domain"):
        hyper.Joint(seasonal, {"period": hyper.LogNormal(0.5, 0.4)})
