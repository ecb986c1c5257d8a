"""Every sampler on a posterior that is Gaussian exactly."""

import blackjax
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mercer
from mercer.diagnostics import ess, rhat
from mercer.sampling.algorithms import schedules
from oracle import Features, exact_moments, make_posterior, run, whiten, z_scores


@pytest.fixture(autouse=True)
def _allow_key_reuse():
    """BlackJAX's own kernels do not pass JAX's check for reused keys."""
    with jax.debug_key_reuse(False):
        yield


@pytest.mark.parametrize(
    "algorithm",
    [
        mercer.nuts(),
        pytest.param(mercer.nuts(adaptation="dense"), marks=pytest.mark.slow),
        pytest.param(mercer.nuts(adaptation="low_rank"), marks=pytest.mark.slow),
        mercer.hmc(10),
        mercer.nuts(adaptation="step"),
    ],
    ids=["nuts", "nuts dense", "nuts low rank", "hmc", "nuts step"],
)
def test_exact_samplers_meet_the_oracle(algorithm):
    mean, covariance = exact_moments()
    draws = run(algorithm)
    assert np.max(np.abs(z_scores(draws.recorded, covariance, mean))) < 4
    assert draws.summary().verdict.startswith("Converged")


@pytest.mark.parametrize(
    "algorithm", [mercer.sghmc(0.02), mercer.sgnht(0.02)], ids=["sghmc", "sgnht"]
)
def test_underdamped_samplers_meet_the_oracle(algorithm):
    mean, covariance = exact_moments()
    draws = run(algorithm, num_draws=6000, thin=10)
    assert np.max(np.abs(z_scores(draws.recorded, covariance, mean))) < 4


@pytest.mark.parametrize("make", [mercer.sghmc, mercer.sgnht])
def test_underdamped_variance_is_right_at_large_steps(make):
    """A unit Gaussian at h = 0.5, where Euler's scheme is off by factors."""

    draws = mercer.sample(
        jax.random.key(0),
        lambda params: -0.5 * jnp.sum(params**2),
        make(0.5),
        num_draws=4000,
        num_chains=4,
        init=jnp.zeros((4, 20)),
        progress=False,
    )
    assert abs(np.var(np.asarray(draws.params)) - 1) < 0.08


def discretised(covariance, step_size):
    """The exact stationary covariance of Langevin steps of size h: Σ (I − hΣ⁻¹/2)⁻¹."""
    precision = np.linalg.inv(covariance)
    return covariance @ np.linalg.inv(np.eye(4) - 0.5 * step_size * precision)


@pytest.mark.parametrize("step_size", [4e-3, pytest.param(2e-3, marks=pytest.mark.slow)])
def test_sgld_has_the_variance_of_its_step_and_no_other(step_size):
    mean, covariance = exact_moments()
    draws = run(mercer.sgld(step_size), num_draws=10_000, num_warmup=2000, thin=40)
    z = z_scores(draws.recorded, discretised(covariance, step_size), mean)
    assert np.max(np.abs(z)) < 4
    # The wrong convention, ε for ε/2, fails the same test.
    wrong = z_scores(draws.recorded, discretised(covariance, step_size / 2), mean)
    assert np.max(np.abs(wrong)) > 6


@pytest.mark.slow
def test_preconditioned_sgld_meets_the_oracle_in_the_limit():
    mean, covariance = exact_moments()
    errors = []
    for step_size in (2e-3, 2e-4):
        draws = run(mercer.psgld(step_size), num_draws=4000, num_warmup=3000, thin=50)
        errors.append(
            np.max(np.abs(np.var(whiten(draws.recorded, covariance, mean), axis=(0, 1))[:1] - 1))
        )
    assert errors[1] < errors[0]
    assert errors[1] < 0.1


def with_control_variates(step_size):
    center = Features(jnp.asarray(exact_moments()[0]) + 0.1)
    return mercer.sampling.sgld_control_variates(
        step_size, center, jax.grad(make_posterior())(center)
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "batch_size"),
    [(lambda h: mercer.cyclical_sgld(h, 40), None), (with_control_variates, 6)],
    ids=["cyclical", "control variates"],
)
def test_variants_of_sgld_approach_the_oracle_as_their_step_shrinks(make, batch_size):
    mean, covariance = exact_moments()
    bias = []
    for step_size in (4e-3, 1e-3):
        draws = run(make(step_size), make_posterior(batch_size=batch_size), 4000, 2000, thin=40)
        white = whiten(draws.recorded, covariance, mean)
        # The stiffest direction, which a step too long widens first and which mixes best.
        bias.append(abs(np.var(white[..., 0]) - 1))
        z = white.reshape(-1, 4).mean(0) * np.sqrt(ess(white, "mean"))
        assert np.max(np.abs(z)) < 4
    assert bias[1] < bias[0] / 2
    assert bias[1] < 0.25


@pytest.mark.slow
@pytest.mark.optimised
def test_noisy_gradients_leave_the_mean_alone():
    """A lattice energy and data minibatches: more variance, the same centre."""
    mean, covariance = exact_moments()
    noisy = make_posterior(lambda s: mercer.Lattice(s, 64), batch_size=6)
    draws = mercer.sample(
        jax.random.key(3), noisy, mercer.sgld(2e-4), num_draws=3000, num_warmup=5000, num_chains=8,
        thin=30, record=lambda p: p.readout, progress=False,
        init=Features(jnp.tile(jnp.asarray(mean), (8, 1))),
    )  # fmt: skip
    white = whiten(draws.recorded, covariance, mean)
    z = white.reshape(-1, 4).mean(0) * np.sqrt(ess(white, "mean"))
    assert np.max(np.abs(z)) < 4


def test_control_variates_cut_the_noise():
    noisy = make_posterior(batch_size=3)
    mean, _ = exact_moments()
    center = Features(jnp.asarray(mean))
    full = jax.grad(make_posterior())(center)
    # One step so long that the gradient's noise, not the injected one, decides.
    plain = mercer.sgld(10.0)
    better = mercer.sampling.sgld_control_variates(10.0, center, full)

    def spread(algorithm):
        state = algorithm.init(jax.random.key(0), noisy, center)
        keys = jax.random.split(jax.random.key(1), 200)
        moved = jax.vmap(lambda k: algorithm.step(k, noisy, state)[0].position.readout)(keys)
        return np.asarray(jnp.var(moved, axis=0)).max()

    assert spread(better) < 0.8 * spread(plain)


@pytest.mark.slow
def test_microcanonical_approaches_the_oracle_as_its_step_shrinks():
    mean, covariance = exact_moments()
    bias = []
    for allowed in (5e-2, 5e-4):
        draws = run(mercer.mclmc(allowed), num_draws=6000, num_warmup=3000, thin=5)
        white = whiten(draws.recorded, covariance, mean)
        bias.append(np.abs(np.var(white, axis=(0, 1)) - 1).max())
    assert bias[1] < 0.15
    assert bias[1] < bias[0]


@pytest.mark.slow
def test_adjusted_microcanonical_is_exact():
    mean, covariance = exact_moments()
    draws = run(mercer.adjusted_mclmc(), num_draws=5000, num_warmup=3000, thin=20)
    assert np.max(np.abs(z_scores(draws.recorded, covariance, mean))) < 4
    assert 0.8 < np.mean(draws.statistics["acceptance"]) < 0.99


@pytest.mark.parametrize(
    "algorithm",
    [
        mercer.laplace(),
        mercer.variational("full_rank"),
        pytest.param(mercer.variational("low_rank", rank=4), marks=pytest.mark.slow),
    ],
    ids=["laplace", "full rank", "low rank"],
)
def test_approximations_that_hold_the_posterior_find_it(algorithm):
    mean, covariance = exact_moments()
    draws = run(
        algorithm, num_draws=2500, num_warmup=20_000 if algorithm != mercer.laplace() else 50
    )
    assert np.max(np.abs(z_scores(draws.recorded, covariance, mean))) < 4


@pytest.mark.slow
def test_mean_field_finds_the_best_independent_law():
    """On a Gaussian target: the mean, and the variances 1 / precision of each parameter."""
    mean, covariance = exact_moments()
    draws = run(mercer.variational(num_samples=16), num_draws=100, num_warmup=20_000)
    law = draws.algorithm.law
    best = np.diag(np.linalg.inv(covariance)) ** -0.5
    np.testing.assert_allclose(np.exp(law.log_sd), np.tile(best, (4, 1)), rtol=0.03)
    assert np.max(np.abs(np.asarray(law.mean) - mean) / np.sqrt(np.diag(covariance))) < 0.1


@pytest.mark.slow
@pytest.mark.optimised
def test_variational_takes_noisy_densities():
    mean, covariance = exact_moments()
    noisy = make_posterior(lambda s: mercer.Lattice(s, 64), batch_size=6)
    draws = run(mercer.variational("full_rank", num_samples=16), noisy, 2500, 20_000)
    white = whiten(draws.recorded, covariance, mean).reshape(-1, 4)
    assert np.max(np.abs(white.mean(0))) < 0.15
    assert np.max(np.abs(white.std(0) - 1)) < 0.1


@pytest.mark.parametrize(
    ("batch_size", "num_steps", "tolerance"), [(None, 100, 1e-6), (6, 20_000, 0.2)]
)
def test_the_mode_is_found(batch_size, num_steps, tolerance, key):
    mean, covariance = exact_moments()
    posterior = make_posterior(batch_size=batch_size)
    found = jax.jit(lambda k: mercer.optimise.maximise(k, posterior, num_steps=num_steps))(key)
    off = np.abs(np.asarray(found.readout) - mean) / np.sqrt(np.diag(covariance))
    assert np.max(off) < tolerance


@pytest.mark.slow
def test_energy_conserving_subsampling_meets_the_oracle():
    """The likelihood is quadratic, so that its expansion, and with it the sampler, is exact."""
    mean, covariance = exact_moments()
    draws = mercer.sampling.hmcecs(
        jax.random.key(0), make_posterior(), 4, num_blocks=2, num_draws=2000, num_chains=2,
        record=lambda p: p.readout, progress=False,
    )  # fmt: skip
    assert np.max(np.abs(z_scores(draws.recorded, covariance, mean))) < 4
    assert draws.summary().divergences == 0


def test_exact_draws_through_the_run_loop(key):
    """A normalised prior and its Gaussian law, by the same interface as any chain."""
    prior = make_posterior().prior
    draws = mercer.sample(
        key, prior, mercer.exact(), num_draws=3000, record=lambda p: p.readout, progress=False
    )
    law = prior.readout_law(prior.terms(prior.params)[0])
    covariance = np.asarray(law.covariance(jnp.eye(4)))
    assert np.max(np.abs(z_scores(draws.recorded, covariance, np.asarray(law.mean())))) < 4
    with pytest.raises(ValueError, match="a density with exact draws"):
        mercer.sample(key, make_posterior(), mercer.exact(), progress=False)


class Noisy(mercer.density.Density):
    """A unit Gaussian whose gradient has a variance of its own."""

    center: jax.Array
    spread: float = 3.0

    @property
    def params(self):
        return self.center

    @property
    def is_deterministic(self):
        return False

    def init(self, key):
        return self.center

    def batch(self, key):
        return self.spread * jax.random.normal(key, self.center.shape)

    def __call__(self, params, batch=None):
        return -0.5 * jnp.sum(params**2) + jnp.dot(batch, params)


@pytest.mark.parametrize(
    ("algorithm", "step"), [(mercer.sgld(0.05), 0.05), (mercer.sghmc(0.05, 2.0), 0.025)]
)
def test_the_temperature_of_a_noisy_chain_is_known(algorithm, step):
    """Variance (1 + hC/2) of a unit Gaussian, C the variance of the gradient's noise."""
    density = Noisy(jnp.zeros(200))
    draws = mercer.sample(
        jax.random.key(0), density, algorithm, num_draws=2000, num_warmup=500, num_chains=2,
        thin=10, progress=False,
    )  # fmt: skip
    assert draws.temperature == pytest.approx(1 + step * 9 / 2, rel=0.02)
    assert np.var(np.asarray(draws.params)) == pytest.approx(draws.temperature, rel=0.04)
    assert draws.summary().verdict.startswith("Too hot")


def test_a_blackjax_algorithm_brought_by_its_user():
    posterior = make_posterior()
    mean, covariance = exact_moments()
    theirs = blackjax.nuts(posterior, 0.2, np.diag(covariance))
    draws = run(theirs)
    assert np.max(np.abs(z_scores(draws.recorded, covariance, mean))) < 4
    assert np.all(np.isfinite(draws.statistics["acceptance"]))


@pytest.mark.slow
@pytest.mark.optimised
def test_full_network_follows_the_process_given_data():
    """A small network against the Gaussian process, also where there is no data."""
    spectrum = (mercer.Laplacian(mercer.Interval(0, 1), 40) ** 2).with_variance(1.0)
    network = mercer.FourierMLP(
        1, 20, num_frequencies=8, frequency_scale=5.0, boundary="dirichlet", key=jax.random.key(0),
        hidden_scale=2.0, saturation=0.1,
    )  # fmt: skip
    prior = mercer.Prior(mercer.Quadrature(spectrum), network)
    rng = np.random.default_rng(0)
    x = rng.uniform(0.05, 0.6, (20, 1))
    truth = mercer.GaussianProcess(spectrum)
    y = np.asarray(truth.draw(jax.random.key(1), x)[0]) + 0.1 * rng.normal(size=20)
    posterior = mercer.Posterior(prior, mercer.Gaussian(0.1), (x, y), tail="none")
    grid = np.linspace(0.02, 0.98, 30)[:, None]
    draws = mercer.sample(
        jax.random.key(2), posterior, mercer.nuts(max_doublings=6), num_draws=500, num_warmup=250,
        num_chains=4, record=lambda p: jax.vmap(posterior.network(p))(jnp.asarray(grid)), progress=False,
    )  # fmt: skip
    exact = truth.condition(x, y, 0.1)
    sd = np.sqrt(np.asarray(exact.variance(grid)))
    values = np.asarray(draws.recorded)
    assert np.max(rhat(values)) < 1.05
    off = (values.mean((0, 1)) - np.asarray(exact.mean(grid))) / sd
    assert np.max(np.abs(off)) < 0.25
    assert np.all(np.abs(values.std((0, 1)) / sd - 1) < 0.25)


def test_schedules():
    assert float(schedules.polynomial(2.0, 10.0, 0.5)(jnp.asarray(30.0))) == pytest.approx(1.0)
    assert float(schedules.cosine(2.0, 10)(jnp.asarray(5.0))) == pytest.approx(1.0)
    assert float(schedules.cosine(2.0, 10)(jnp.asarray(50.0))) == pytest.approx(0.0)
    assert float(schedules.cyclical(2.0, 10)(jnp.asarray(20.0))) == pytest.approx(2.0)
