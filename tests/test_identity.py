"""A store knows its run: rounding is forgiven, and nothing else."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mercer.sampling.identity import Identity
from mercer.sampling.store import Store

ROWS = np.random.default_rng(0).normal(size=(100_000, 3))


def swap(rows):
    order = np.arange(len(rows))
    order[[5, 7]] = [7, 5]
    return rows[order]


def touch(rows, factor):
    changed = rows.copy()
    changed[77_777, 1] *= factor
    return changed


@pytest.mark.parametrize(
    ("change", "same"),
    [
        (lambda rows: rows * (1 + 1e-13), True),
        (lambda rows: touch(rows, 1.01), False),
        (swap, False),
        (lambda rows: touch(rows, np.nan), False),
        (lambda rows: touch(rows, np.inf), False),
        (lambda rows: rows[:-1], False),
        (lambda rows: rows.reshape(3, -1), False),
        (lambda rows: rows.astype(np.float32), False),
    ],
    ids=["rounding", "one number", "two rows", "a gap", "infinite", "fewer", "shape", "dtype"],
)
def test_rounding_is_forgiven_and_nothing_else(change, same):
    def identity(rows):
        return Identity.of({"rows": rows, "level": 0.3}, jax.random.key(0))

    assert identity(ROWS).matches(identity(change(ROWS))) == same
    assert identity(change(ROWS)).matches(identity(change(ROWS)))


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16, jnp.float16])
def test_short_floats_are_told_apart(dtype):
    ours, other = (Identity.of(jnp.asarray([1.0, x, 3.0], dtype)) for x in (2.0, 4.0))
    assert ours.matches(ours)
    assert not ours.matches(other)


def test_what_a_function_closes_over_counts():
    def density(values):
        return lambda p: jnp.sum(values * p)

    ours, rounded, other = (
        Identity.of(density(jnp.asarray([1.0, x]))) for x in (2.0, 2.0 + 1e-13, 2.1)
    )
    assert ours.matches(rounded)
    assert not ours.matches(other)


@pytest.mark.parametrize("text", ['{"identity": "7f"}', "{"], ids=["an earlier version", "half"])
def test_a_record_of_another_version_is_refused(tmp_path, text):
    (tmp_path / "run.json").write_text(text)
    with pytest.raises(ValueError, match="another density, seed, algorithm or version"):
        Store(tmp_path, Identity.of(1.0), resume=True, num_draws=1)
