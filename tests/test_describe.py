"""What the words say is what the process is."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mercer
from families import make_families

FAMILIES = make_families() if jax.config.read("jax_enable_x64") else {}


def test_brownian_motion_in_numbers():
    told = mercer.describe(mercer.BrownianMotion(200, mercer.Interval(0, 2)))
    assert told.variance == pytest.approx((0, 1, 2))
    assert (told.decay, told.sobolev_order, told.holder_order, told.rkhs_order) == (2, 0.5, 0.5, 1)
    assert told.correlation_length == pytest.approx(1 - math.exp(-2), abs=1e-3)
    assert "nowhere differentiable" in str(told)


def test_powers_follow_the_two_lemmas():
    told = mercer.describe(mercer.Laplacian(mercer.Box([0.0] * 2, [1.0] * 2), 30) ** 2.75)
    assert told.sobolev_order == 1.75
    assert told.holder_order == 1.0
    assert told.rkhs_order == 2.75
    assert "once differentiable" in str(told)


def test_matern_length_is_where_the_correlation_is_one_over_e():
    told = mercer.describe(mercer.Matern(0.5, 0.2, 1.0, mercer.Interval(0, 10), 500))
    assert told.correlation_length == pytest.approx(0.2, abs=0.003)


def test_decay_is_measured_where_no_family_knows_it():
    class Copied(mercer.spectra.Spectrum):
        domain: mercer.domains.Domain
        power: float

        @property
        def log_eigenvalues(self):
            return -self.power * jnp.log(jnp.arange(1.0, 101.0))

        def eigenfunctions(self, x):
            return jnp.sqrt(2.0) * jnp.sin(
                jnp.pi * jnp.arange(1.0, 101.0) * self.domain.point(x)[0]
            )

    told = mercer.describe(Copied(mercer.Interval(0, 1), 3.0))
    assert told.rkhs_order == pytest.approx(1.5, abs=0.01)


@pytest.mark.slow
@pytest.mark.parametrize("name", FAMILIES)
def test_every_family_can_be_told_and_shown(name, key):
    spectrum, _ = FAMILIES[name]
    assert "Paths" in str(mercer.describe(spectrum))
    figure = mercer.plots.spectrum(spectrum, key)
    titles = [axes.get_title(loc="left") for axes in figure.axes]
    assert {"Covariance", "Eigenvalues"} <= set(titles)
    figure.canvas.draw()
    mercer.plots.plt.close(figure)


def test_a_prior_tells_what_was_chosen(key):
    prior = mercer.design(mercer.BrownianBridge(100), 0.02, key=key)
    told = mercer.describe(prior)
    assert told.width == prior.network(prior.params).width
    assert told.relative_error <= 0.02
    assert "readout scale" in str(told)
    assert np.isfinite(told.num_parameters)


def test_a_prior_by_radial_units_is_described_too():
    energy = mercer.Nodes(mercer.BrownianMotion(50), np.linspace(0.1, 1, 10)[:, None])
    description = mercer.describe(mercer.Prior(energy, mercer.Radial(energy), solver="cholesky"))
    assert description.process.sobolev_order == 0.5
    assert (description.width, description.num_points) == (None, 10)
    named = mercer.Nodes("matern32", np.linspace(0.1, 1, 10)[:, None])
    with pytest.raises(ValueError, match="energy is that of a spectrum"):
        mercer.describe(mercer.Prior(named, mercer.Radial(named), solver="cholesky"))
