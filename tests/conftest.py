"""Strict settings for every test, and shapes checked at run time."""

import os

import jax
import matplotlib
import pytest
from jaxtyping import install_import_hook

matplotlib.use("Agg")
FLOAT32 = os.environ.get("MERCER_TEST_FLOAT32") == "1"
jax.config.update("jax_enable_x64", not FLOAT32)
jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_debug_key_reuse", True)

with install_import_hook("mercer", "beartype.beartype"):
    import mercer  # noqa: F401


def pytest_collection_modifyitems(config, items):
    """Under 32-bit floats only the tests that are meant for them run."""
    if not FLOAT32:
        return
    kept = [item for item in items if item.get_closest_marker("float32")]
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = kept


@pytest.fixture
def key():
    return jax.random.key(20260131)
