"""The insulation experiment at smoke scale, and the coordinates that its samplers work in."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mercer
from mercer import data
from mercer.pde import conduct
from mercer_paper.insulation import (
    COLD,
    EXPERIMENT,
    HEADLINE,
    HOT,
    make_prior,
    posterior_of,
    truth_at,
)
from mercer_paper.runner import reproduce

ASKED = {
    "kappa_relative_error", "kappa_coverage", "temperature_misfit", "rhat_max", "ess_min",
    "darcy_relative_error", "darcy_coverage", "darcy_rhat_max", "darcy_ess_min", "fidelity_error",
}  # fmt: skip


@pytest.mark.slow
def test_the_experiment_at_smoke_scale(tmp_path):
    with jax.debug_key_reuse(False):  # BlackJAX's samplers do not pass that check
        metrics = reproduce(EXPERIMENT, "smoke", 0, tmp_path / "run", lambda words: None)
    assert set(metrics) >= ASKED
    assert metrics["kappa_relative_error"] < 0.1
    assert metrics["temperature_misfit"] < 1.5
    assert metrics["darcy_relative_error"] < 1.0
    assert all(np.isfinite(metrics[name]) for name in ASKED - {"fidelity_error"})
    for picture in EXPERIMENT.pictures:
        assert (tmp_path / "run" / "figures" / f"{picture.name}.png").stat().st_size > 5_000


def test_the_truth_gives_the_temperatures_that_were_observed():
    stations, observed = data.insulation()
    grid = np.linspace(COLD, HOT, 321)
    curve = jnp.asarray(truth_at(grid))
    made = conduct(lambda t: jnp.interp(t, grid, curve), COLD, HOT, stations)
    assert abs(np.sqrt(np.mean((np.asarray(made) - observed) ** 2)) - 2.5) < 0.8


@pytest.mark.parametrize("frozen", [True, False], ids=["frozen", "every parameter"])
def test_white_coordinates_start_in_the_bulk(frozen):
    sizes = EXPERIMENT.settings["smoke"].but(width=12, num_modes=20)
    posterior = posterior_of(make_prior(HEADLINE, sizes, jax.random.key(0), frozen), 24)
    density = mercer.NonCentred(posterior)
    for key in jax.random.split(jax.random.key(1), 4):
        network = density.network(density.init(key))
        made = posterior.likelihood.predict(network, posterior.inputs)
        assert np.sqrt(np.mean(np.square(made - posterior.targets))) < (1.5 if frozen else 3) * 2.5
