"""The hyperparameter experiment at smoke scale."""

import warnings

import jax
import numpy as np
import pytest

from mercer_paper.hyper import EXPERIMENT
from mercer_paper.runner import reproduce


@pytest.mark.slow
def test_the_experiment_at_smoke_scale(tmp_path):
    with jax.debug_key_reuse(False), warnings.catch_warnings():
        # So few modes at that scale that the prior's shortest length scales are cut off.
        warnings.filterwarnings("ignore", message=".*their sum does not settle.*")
        metrics = reproduce(EXPERIMENT, "smoke", 0, tmp_path / "run", lambda words: None)
    assert metrics["period_error"] < 0.02
    assert all(np.isfinite(metrics[q.name]) for q in EXPERIMENT.quantities)
    for picture in EXPERIMENT.pictures:
        assert (tmp_path / "run" / "figures" / f"{picture.name}.png").stat().st_size > 5_000
