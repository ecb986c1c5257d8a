"""A store knows its run: data, functions and what they hold count, names of places do not."""

import functools
import subprocess
import sys
import textwrap

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mercer.sampling.fingerprint import fingerprint
from mercer.sampling.store import Store

ROWS = np.random.default_rng(0).normal(size=(1000, 3))


def touch(rows, value):
    changed = rows.copy()
    changed[777, 1] = value
    return changed


@pytest.mark.parametrize(
    "change",
    [
        lambda rows: touch(rows, np.nextafter(rows[777, 1], 9.0)),
        lambda rows: touch(rows, np.nan),
        lambda rows: rows[:-1],
        lambda rows: rows.reshape(3, -1),
        lambda rows: rows.astype(np.float32),
    ],
    ids=["one bit", "a gap", "fewer", "shape", "dtype"],
)
def test_data_count_by_every_bit(change):
    assert fingerprint({"rows": ROWS}, 1.0) == fingerprint({"rows": ROWS.copy()}, 1.0)
    assert fingerprint({"rows": ROWS}, 1.0) != fingerprint({"rows": change(ROWS)}, 1.0)


def closing(values):
    return lambda p: jnp.sum(values * p)


def with_default(values):
    def record(p, *, scale=values):
        return scale * p

    return record


def nested(values):
    return (lambda p: [1.0 * q for q in p]) if values[0] > 0 else (lambda p: [2.0 * q for q in p])


def large(values, p):
    return values * p


@pytest.mark.parametrize(
    "make",
    [
        closing,
        lambda values: jax.jit(closing(values)),
        with_default,
        nested,
        lambda values: functools.partial(large, values),
    ],
    ids=["closure", "compiled", "default", "within", "partial"],
)
def test_what_a_function_does_and_holds_counts(make):
    many = np.linspace(1.0, 2.0, 5000)
    assert fingerprint(make(many)) == fingerprint(make(many.copy()))
    assert fingerprint(make(many)) != fingerprint(make(np.concatenate([[-1.0], many[1:]])))


def test_functions_that_call_one_another():
    def first(p):
        return second(p)

    def second(p):
        return first(p)

    assert fingerprint(first) == fingerprint(first)


def test_a_function_is_the_same_in_every_process():
    """Sets have another order in each, and functions another address."""
    code = """
        import jax
        from mercer.sampling.fingerprint import fingerprint
        def record(p):
            return (lambda q: q in {"a", "b", "c", "d", "e"})(p)
        print(fingerprint(record, jax.nn.sigmoid, jax.jit(record)))
    """
    told = {
        subprocess.run(
            [sys.executable, "-c", textwrap.dedent(code)],
            env={"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True,
        ).stdout
        for seed in ("1", "2")
    }  # fmt: skip
    assert len(told) == 1


@pytest.mark.parametrize("text", ["{}", "[]", "{"], ids=["not ours", "a list", "half"])
def test_a_record_that_cannot_be_read_is_refused(tmp_path, text):
    (tmp_path / "run.json").write_text(text)
    with pytest.raises(ValueError, match="another density, seed, algorithm, version"):
        Store(tmp_path, fingerprint(1.0), resume=True, num_draws=1)


@pytest.mark.parametrize(("module", "by_name"), [("mercer.x", True), ("mercer_paper.x", True),
                                                 ("mercery", False)])  # fmt: skip
def test_functions_of_the_package_and_its_experiments_are_known_by_name(module, by_name):
    """The version stands for what is in them."""
    first, second = nested(np.ones(1)), nested(-np.ones(1))
    first.__module__ = second.__module__ = module
    assert (fingerprint(first) == fingerprint(second)) == by_name
