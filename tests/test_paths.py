"""Without an algorithm, `mercer.sample` takes the best path there is to draws."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mercer
from mercer.sampling.algorithms.exact import Exact
from mercer.sampling.algorithms.hamiltonian import Hamiltonian
from oracle import exact_moments, make_posterior, z_scores


@pytest.fixture(autouse=True)
def _allow_key_reuse():
    """BlackJAX's own kernels do not pass JAX's check for reused keys."""
    with jax.debug_key_reuse(False):
        yield


def take(density, **options):
    options = {"num_draws": 400, "num_warmup": 200, "num_chains": 2} | options
    return mercer.sample(jax.random.key(0), density, **options)


def assert_in_own_parameters(draws, posterior):
    """Draws are of the posterior that was asked for, and follow its exact law."""
    assert draws.density is posterior
    assert jax.tree.structure(draws.params) == jax.tree.structure(posterior.params)
    assert draws.params.readout.shape == (2, 400, 4)
    mean, covariance = exact_moments()
    assert np.max(np.abs(z_scores(draws.params.readout, covariance, mean))) < 4


def test_a_normalised_prior_gives_exact_draws():
    prior = make_posterior().prior
    draws = take(prior, progress=False)
    assert isinstance(draws.algorithm, Exact)
    assert draws.density is prior
    assert jax.tree.structure(draws.params) == jax.tree.structure(prior.params)


def test_a_frozen_layer_gives_exact_draws(capsys):
    posterior = make_posterior()
    draws = take(mercer.Frozen(posterior))
    assert isinstance(draws.algorithm, Exact)
    assert "mercer: independent exact draws" in capsys.readouterr().err
    assert_in_own_parameters(draws, posterior)


def test_a_posterior_is_sampled_in_white_coordinates(capsys):
    posterior = make_posterior()
    draws = take(posterior)
    assert isinstance(draws.algorithm, Hamiltonian)
    assert draws.algorithm.num_steps == 7
    assert draws.algorithm.adaptation == "step"
    assert "HMC in white coordinates (NonCentred)" in capsys.readouterr().err
    assert_in_own_parameters(draws, posterior)


def test_a_function_is_sampled_by_nuts(capsys):
    draws = take(lambda params: -0.5 * jnp.sum(params**2), init=jnp.ones((2, 3)), progress=False)
    assert isinstance(draws.algorithm, Hamiltonian)
    assert draws.algorithm.num_steps is None
    assert draws.params.shape == (2, 400, 3)
    assert not capsys.readouterr().err


def test_a_random_density_needs_an_algorithm():
    noisy_energy = make_posterior(lambda spectrum: mercer.Lattice(spectrum, 16))
    for density in (make_posterior(batch_size=3), noisy_energy, noisy_energy.prior):
        with pytest.raises(ValueError, match=r"this density is random.* mercer\.sgld") as caught:
            take(density)
        assert "\n" not in str(caught.value)
