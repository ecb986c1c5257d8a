"""Strict settings for every test, and shapes checked at run time."""

import os
from pathlib import Path

# Each parallel worker keeps to one core of its own: two thread pools on the same cores spin against
# each other and take several times as long. Before JAX, which counts the cores when it starts.
WORKER = os.environ.get("PYTEST_XDIST_WORKER")
if WORKER and hasattr(os, "sched_setaffinity"):
    CORES = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {CORES[int(WORKER.removeprefix("gw")) % len(CORES)]})

# Most of the suite's time is compilation: what one test, process or run compiled, the next takes up.
CACHE = Path(__file__).parents[1] / ".pytest_cache" / "compiled"
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(CACHE))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")

import jax
import matplotlib
import pytest
from jaxtyping import install_import_hook

matplotlib.use("Agg")
FLOAT32 = os.environ.get("MERCER_TEST_FLOAT32") == "1"
jax.config.update("jax_enable_x64", not FLOAT32)
jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_debug_key_reuse", True)
jax.config.update("jax_disable_most_optimizations", True)

with install_import_hook("mercer", "beartype.beartype"):
    import mercer  # noqa: F401

from cases import oracle_case  # noqa: F401


def pytest_collection_modifyitems(config, items):
    """Under 32-bit floats only the tests that are meant for them run."""
    if not FLOAT32:
        return
    kept = [item for item in items if item.get_closest_marker("float32")]
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = kept


@pytest.fixture(autouse=True)
def _compile(request):
    """Most tests compile for longer than they compute: programs are optimised for the others alone,
    and where processes are compared. JAX forgets what it compiled in the other manner: it would
    use it again, and a sum would round otherwise than in a process of its own."""
    hasty = request.node.get_closest_marker("optimised") is None
    if hasty != jax.config.read("jax_disable_most_optimizations"):
        jax.config.update("jax_disable_most_optimizations", hasty)
        jax.clear_caches()


@pytest.fixture
def key():
    return jax.random.key(20260131)
