"""Chains and data over devices, and over processes: the same draws."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from distributed import RUNS

HERE = Path(__file__).parent
ALONE = {name: v for name, v in os.environ.items() if not name.startswith("PYTEST_XDIST")}
# They compile for longer than they compute, and are compared with one another alone.
HASTY = ALONE | {"JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}


def launch(folder: Path, count: int) -> dict[str, np.ndarray]:
    """The draws of each run that `count` processes, with four devices in all, end up with."""
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, str(HERE / "distributed.py")]
    processes = [
        subprocess.Popen(
            [*command, str(i), str(count), str(port), str(folder)],
            env=HASTY, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )
        for i in range(count)
    ]  # fmt: skip
    for process in processes:
        told, _ = process.communicate(timeout=300)
        assert process.returncode == 0, told
    drawn = [{name: np.load(folder / f"{name}{i}.npy") for name in RUNS} for i in range(count)]
    for other in drawn[1:]:
        for name in RUNS:
            np.testing.assert_array_equal(drawn[0][name], other[name])
    return drawn[0]


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    return launch(tmp_path_factory.mktemp("alone"), 1)


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    return launch(tmp_path_factory.mktemp("both"), 2)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["adapted", "chains"])
def test_two_processes_give_the_draws_of_one(name, alone, both):
    np.testing.assert_array_equal(both[name], alone[name])


@pytest.mark.parametrize("processes", ["alone", pytest.param("both", marks=pytest.mark.slow)])
def test_data_over_devices_give_the_same_draws(processes, request):
    """To rounding, since sums are taken in another order; a warm-up would blow that up."""
    drawn = request.getfixturevalue(processes)
    np.testing.assert_allclose(drawn["data"], drawn["chains"], atol=1e-10)


REFUSED = """
import os
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=4"
import jax, mercer
from oracle import make_posterior
jax.config.update("jax_enable_x64", True)
for options in ({"num_chains": 6}, {"data_devices": 3}, {"num_chains": 4, "data_devices": 2, "short": 1}):
    posterior = make_posterior()
    if options.pop("short", None):
        posterior = mercer.Posterior(
            posterior.prior, posterior.likelihood, (posterior.inputs[:5], posterior.targets[:5])
        )
    try:
        mercer.sample(jax.random.key(0), posterior, mercer.hmc(2), progress=False, **options)
    except ValueError as error:
        print(error)
"""


def test_devices_that_do_not_divide_are_refused():
    told = subprocess.run(
        [sys.executable, "-c", REFUSED], env=HASTY | {"PYTHONPATH": str(HERE)}, text=True,
        capture_output=True, check=True,
    ).stdout  # fmt: skip
    assert "6 chains cannot be spread evenly over 4 devices; use a multiple of 4." in told
    assert "data_devices=3 does not divide the 4 devices there are." in told
    assert "5 rows of data cannot be spread evenly over 2 devices." in told
