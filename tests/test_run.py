"""A run loop that loses nothing: seeds, stores, interrupts, full disks, bad input."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mercer
from oracle import Features, make_posterior, run

# Draws of this process are compared with those of others.
pytestmark = pytest.mark.optimised


@pytest.fixture(autouse=True)
def _allow_key_reuse():
    """BlackJAX's own kernels do not pass JAX's check for reused keys."""
    with jax.debug_key_reuse(False):
        yield


def test_the_same_seed_gives_the_same_draws():
    first, second = (run(mercer.hmc(3), num_draws=20, num_warmup=10) for _ in range(2))
    np.testing.assert_array_equal(first.recorded, second.recorded)
    other = run(mercer.hmc(3), num_draws=20, num_warmup=10, seed=2)
    assert not np.array_equal(first.recorded, other.recorded)


def stored(folder, num_draws, resume=False, seed=1, **options):
    return mercer.sample(
        jax.random.key(seed), make_posterior(), mercer.hmc(3), num_draws=num_draws, num_warmup=10,
        num_chains=2, store=folder, resume=resume, progress=False, **options,
    )  # fmt: skip


def test_a_resumed_run_is_the_run_that_never_stopped(tmp_path):
    whole = stored(tmp_path / "whole", 60)
    stored(tmp_path / "parts", 23)
    resumed = stored(tmp_path / "parts", 60, resume=True)
    np.testing.assert_array_equal(whole.params.readout, resumed.params.readout)
    again = stored(tmp_path / "parts", 60, resume=True)
    np.testing.assert_array_equal(whole.params.readout, again.params.readout)


def test_a_store_opens_in_xarray(tmp_path):
    import xarray

    draws = stored(tmp_path / "run", 12, record=lambda p: {"first": p.readout[0]})
    with xarray.open_zarr(
        tmp_path / "run" / "draws.zarr" / "posterior", consolidated=False
    ) as opened:
        assert opened["first"].dims == ("chain", "draw")
        np.testing.assert_array_equal(opened["first"].values, draws.recorded["first"])


# A disk that fills up would leave half an entry in the cache that all tests share.
NO_CACHE = {"JAX_ENABLE_COMPILATION_CACHE": "0"}
ALONE = {name: v for name, v in os.environ.items() if not name.startswith("PYTEST_XDIST")}


def start(code, folder, **environment):
    """A process of its own that runs the code, with `folder` in it."""
    begin = """
        import sys, jax
        jax.config.update("jax_enable_x64", True)
        import mercer, test_run
        folder = sys.argv[1]
    """
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(begin) + textwrap.dedent(code), str(folder)],
        env=ALONE | {"PYTHONPATH": str(Path(__file__).parent)} | (environment or NO_CACHE),
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip


@pytest.mark.slow
def test_a_run_killed_again_and_again_goes_on_bit_for_bit(tmp_path):
    """SIGKILL at random moments, from before the first draw to after the last checkpoint."""
    whole = light(tmp_path / "whole")
    folder, kills, rng = tmp_path / "killed", 0, np.random.default_rng(0)
    cache = {"JAX_COMPILATION_CACHE_DIR": str(tmp_path / "cache")}
    code = "test_run.light(folder, checkpoint_seconds=1e-6)"
    deadline = time.monotonic() + 600
    while kills < 20 and time.monotonic() < deadline:
        process = start(code, folder, **cache)
        before = checkpoints(folder)
        # Most kills fall between two checkpoints, some in the warm-up and the first writes.
        while kills % 4 and checkpoints(folder) == before and process.poll() is None:
            time.sleep(0.005)
        time.sleep(rng.uniform(0, 0.3) if kills % 4 else rng.uniform(1, 4))
        assert process.poll() is None, process.communicate()[0]
        process.send_signal(signal.SIGKILL)
        process.communicate()
        kills += 1
    assert kills == 20
    assert 0 < max(checkpoints(folder)) < KILLED_DRAWS
    resumed = light(folder)
    np.testing.assert_array_equal(whole.params, resumed.params)
    for name in whole.statistics:
        np.testing.assert_array_equal(whole.statistics[name], resumed.statistics[name])


KILLED_DRAWS = 400_000


def bowl(params):
    return -0.5 * jnp.sum(params**2 / jnp.arange(1.0, 5.0))


def light(folder, **options):
    """A run that is quick to start, and long."""
    return mercer.sample(
        jax.random.key(0), bowl, mercer.hmc(3, adaptation="step"), num_draws=KILLED_DRAWS,
        num_warmup=10, num_chains=2, init=jnp.ones((2, 4)), store=folder, resume=True,
        progress=False, **options,
    )  # fmt: skip


def checkpoints(folder):
    return {int(p.name) for p in (folder / "checkpoints").glob("*") if p.name.isdigit()}


def test_a_full_disk_keeps_what_was_drawn(tmp_path):
    """Files cannot grow past a limit, as on a disk that fills up; then there is room again."""
    code = """
        import resource
        resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, 60_000))
        try:
            test_run.wide(folder, 4000)
        except mercer.sampling.SamplingError as error:
            print(error)
            print("kept", error.draws.recorded.shape[1])
    """
    told = start(code, tmp_path / "full").communicate(timeout=300)[0]
    assert "could not write to" in told
    assert "resume=True goes on once there is room" in told
    # Zarr may speak of its unfinished writes after that.
    kept = int(told.split("\nkept")[1].split()[0])
    assert 0 < kept < 4000
    whole, resumed = wide(tmp_path / "whole", 4000), wide(tmp_path / "full", 4000)
    np.testing.assert_array_equal(whole.recorded, resumed.recorded)


def wide(folder, num_draws):
    """A run whose draws take some room."""
    return mercer.sample(
        jax.random.key(0), make_posterior(), mercer.sgld(1e-4), num_draws=num_draws, num_warmup=2,
        num_chains=2, record=lambda p: jnp.outer(p.readout, p.readout), store=folder, resume=True,
        progress=False,
    )  # fmt: skip


def short(folder, **options):
    quadratic = {"density": lambda p: -0.5 * jnp.sum(p**2), "algorithm": mercer.sgld(0.1)}
    return mercer.sample(
        jax.random.key(0), init=jnp.ones((2, 3)), num_warmup=0, num_chains=2, store=folder,
        progress=False, **(quadratic | {"num_draws": 5} | options),
    )  # fmt: skip


@pytest.mark.parametrize(
    "change",
    [
        {"algorithm": mercer.sgld(0.2)},
        {"record": lambda p: 100 * p},
        {"density": lambda p: -0.6 * jnp.sum(p**2)},
        {"keep_params": True},
    ],
    ids=["step", "record", "density", "params"],
)
def test_a_store_knows_numbers_inside_functions(change, tmp_path):
    short(tmp_path / "run", record=lambda p: p)
    kept = {"record": lambda p: p} | change
    with pytest.raises(ValueError, match="another density, seed"):
        short(tmp_path / "run", resume=True, **kept)


def test_a_call_that_failed_leaves_the_folder_free(tmp_path):
    with pytest.raises(ValueError, match="needs a density with exact draws"):
        short(tmp_path / "run", algorithm=mercer.exact())
    assert short(tmp_path / "run").num_draws == 5


def test_names_with_slashes_and_fewer_draws_than_there_are(tmp_path):
    whole = short(tmp_path / "run", record=slashed, num_draws=9)
    assert whole.recorded["u/x"].shape == (2, 9, 3)
    again = short(tmp_path / "run", record=slashed, num_draws=12, resume=True)
    np.testing.assert_array_equal(again.recorded["u/x"][:, :9], whole.recorded["u/x"])
    assert np.all(np.isfinite(again.recorded["u/x"]))
    assert short(tmp_path / "run", record=slashed, num_draws=4, resume=True).num_draws == 4


def slashed(params):
    return {"u/x": params}


def test_thinned_steps_are_summed_up():
    draws = mercer.sample(
        jax.random.key(0), lambda p: -jnp.sum(p**4), mercer.hmc(20, initial_step=0.6), thin=10,
        num_draws=10, num_warmup=0, num_chains=2, init=jnp.ones((2, 3)), progress=False,
    )  # fmt: skip
    assert np.all(draws.statistics["num_gradients"] == 200)
    assert draws.summary().divergences == np.sum(draws.statistics["divergent"]) > 20


def test_a_first_draw_that_is_not_finite_leaves_readable_draws():
    with pytest.raises(mercer.sampling.SamplingError, match="at draw 0") as caught:
        mercer.sample(
            jax.random.key(0), lambda p: -jnp.sum(p**4), mercer.sgld(1e6), num_draws=10,
            num_warmup=5, num_chains=2, init=jnp.ones((2, 3)), progress=False,
        )  # fmt: skip
    assert caught.value.draws.params.shape == (2, 0, 3)
    assert "Too few draws" in caught.value.draws.summary().verdict


def test_an_unwritable_folder_is_refused(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(ValueError, match=r"cannot write to .*Not a directory.*another store"):
        stored(tmp_path / "file" / "run", 8)


@pytest.mark.slow
def test_memory_does_not_grow_with_the_draws(tmp_path):
    """Peak memory of 100,000 recorded draws, 180 MB of them, beside that of 1,000."""
    code = """
        import resource, jax.numpy as jnp
        from oracle import make_posterior
        mercer.sample(
            jax.random.key(0), make_posterior(), mercer.sgld(1e-4), num_draws=int({}),
            num_warmup=2, num_chains=4, store=folder, progress=False,
            record=lambda p: jnp.sin(jnp.arange(56.0) * p.readout[0]),
        )
        print("peak", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
    """
    peaks = []
    for num_draws in (1_000, 100_000):
        told = start(code.format(num_draws), tmp_path / str(num_draws)).communicate(timeout=600)[0]
        peaks.append(int(told.split("peak")[1]))
    assert peaks[1] < 1.2 * peaks[0]


def test_a_store_can_be_read_while_the_run_goes_on(tmp_path):
    """By xarray and by ArviZ, the draws not made yet being NaN."""
    import xarray

    seen = []

    def look():
        path = tmp_path / "run" / "draws.zarr" / "posterior"
        if path.exists() and not (seen and seen[-1]):
            with xarray.open_zarr(path, consolidated=False) as opened:
                seen.append(np.isfinite(opened["first"].values).sum())

    def looking(params):
        jax.debug.callback(look)
        return {"first": params.readout[0]}

    stored(tmp_path / "run", 5000, record=looking)
    assert 0 < seen[-1] < 2 * 5000


def test_ctrl_c_returns_what_there_is(tmp_path):
    sent = []

    def interrupt():
        if not sent:
            sent.append(True)
            os.kill(os.getpid(), signal.SIGINT)

    def interrupting(params):
        jax.debug.callback(interrupt)
        return params.readout

    draws = mercer.sample(
        jax.random.key(0), make_posterior(), mercer.sgld(1e-3), num_draws=4000, num_warmup=0, num_chains=1,
        record=interrupting, progress=False,
    )  # fmt: skip
    assert draws.interrupted
    assert 0 < draws.recorded.shape[1] < 4000


def test_a_chain_that_leaves_the_numbers_says_where():
    with pytest.raises(
        mercer.sampling.SamplingError, match=r"chain \d left the finite numbers at draw \d+"
    ) as caught:
        mercer.sample(
            jax.random.key(0),
            make_posterior(),
            mercer.sgld(0.05),
            num_draws=2000,
            num_warmup=0,
            progress=False,
        )
    kept = caught.value.draws
    assert np.all(np.isfinite(kept.params.readout))


BAD = {
    "no chains": (
        lambda p: mercer.sample(jax.random.key(0), p, mercer.nuts(), num_chains=0),
        "num_chains",
    ),
    "no store": (
        lambda p: mercer.sample(jax.random.key(0), p, mercer.nuts(), resume=True),
        "needs the store",
    ),
    "no algorithm": (lambda p: mercer.sample(jax.random.key(0), p, "nuts"), "mercer.nuts"),
    "random density": (
        lambda p: mercer.sample(jax.random.key(0), make_posterior(batch_size=3), mercer.nuts()),
        "Quadrature energy and no batch_size",
    ),
    "infinite start": (
        lambda p: mercer.sample(
            jax.random.key(0),
            p,
            mercer.nuts(),
            num_chains=2,
            init=Features(jnp.full((2, 4), jnp.inf)),
        ),
        "where chain 0 starts",
    ),
    "record that is no array": (
        lambda p: mercer.sample(jax.random.key(0), p, mercer.nuts(), record=lambda q: "text"),
        "pytree of arrays",
    ),
    "starts of another number": (
        lambda p: mercer.sample(
            jax.random.key(0), p, mercer.nuts(), num_chains=2, init=Features(jnp.zeros((3, 4)))
        ),
        "a leading axis of 2 chains",
    ),
    "one start for two chains": (
        lambda p: mercer.sample(
            jax.random.key(0), lambda q: -jnp.sum(q**2), mercer.sgld(0.1), num_chains=2, init=1.0
        ),
        "a leading axis of 2 chains",
    ),
    "whole numbers to start from": (
        lambda p: mercer.sample(
            jax.random.key(0), lambda q: -jnp.sum(q**2), mercer.sgld(0.1), num_chains=2, init=[1, 2]
        ),
        "init must hold floats",
    ),
    "nothing to keep": (
        lambda p: mercer.sample(
            jax.random.key(0),
            lambda q: -jnp.sum(q**2),
            mercer.sgld(0.1),
            num_chains=2,
            init=[1.0, 2.0],
            keep_params=False,
        ),
        "nothing would be kept",
    ),
    "no warm-up": (
        lambda p: mercer.sample(jax.random.key(0), p, mercer.mclmc(), num_warmup=0),
        "give num_warmup",
    ),
    "unknown family": (lambda p: mercer.variational("laplace"), "mean_field"),
    "subsampling with minibatches": (
        lambda p: mercer.sampling.hmcecs(jax.random.key(0), make_posterior(batch_size=3), 3),
        "it chooses the rows of data itself",
    ),
    "a batch larger than the data": (
        lambda p: mercer.sampling.hmcecs(jax.random.key(0), p, 300),
        "more than the 12 rows of data",
    ),
    "data over devices without data": (
        lambda p: mercer.sample(jax.random.key(0), p, mercer.nuts(), data_devices=0),
        "data_devices",
    ),
    "negative step": (lambda p: mercer.sgld(-1.0), "step_size must be positive"),
    "acceptance over one": (lambda p: mercer.nuts(1.2), "between 0 and 1"),
    "unknown adaptation": (lambda p: mercer.nuts(adaptation="full"), "low_rank"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_gets_one_clear_sentence(name):
    make, words = BAD[name]
    with pytest.raises(ValueError, match=words):
        make(make_posterior())


def test_stores_are_not_mixed_up(tmp_path):
    stored(tmp_path / "run", 8)
    with pytest.raises(ValueError, match="holds a run already"):
        stored(tmp_path / "run", 8)
    with pytest.raises(ValueError, match="another density, seed"):
        stored(tmp_path / "run", 8, resume=True, seed=5)
    with pytest.raises(ValueError, match="another density, seed"):
        stored(tmp_path / "run", 8, resume=True, record=lambda p: p.readout)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "data.txt").write_text("precious")
    with pytest.raises(ValueError, match="no store of mercer"):
        stored(tmp_path / "mine", 8)
