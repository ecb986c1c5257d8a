"""Chains and data over devices, and over processes: the same draws."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

HERE = Path(__file__).parent
ALONE = {name: v for name, v in os.environ.items() if not name.startswith("PYTEST_XDIST")}


def launch(folder: Path, count: int, data_devices: int) -> np.ndarray:
    """The draws that the first of `count` processes, with four devices in all, ends up with."""
    folder.mkdir()
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, str(HERE / "distributed.py")]
    processes = [
        subprocess.Popen(
            [*command, str(i), str(count), str(port), str(folder), str(data_devices)],
            env=ALONE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )
        for i in range(count)
    ]  # fmt: skip
    for process in processes:
        told, _ = process.communicate(timeout=300)
        assert process.returncode == 0, told
    drawn = [np.load(folder / f"draws{i}.npy") for i in range(count)]
    for other in drawn[1:]:
        np.testing.assert_array_equal(drawn[0], other)
    return drawn[0]


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    return launch(tmp_path_factory.mktemp("devices") / "alone", 1, 1)


def test_two_processes_give_the_draws_of_one(alone, tmp_path):
    np.testing.assert_array_equal(launch(tmp_path / "two", 2, 1), alone)


def test_data_over_devices_give_the_same_draws(alone, tmp_path):
    # Sums over the data in another order, and what seventy steps of HMC make of the last digits.
    np.testing.assert_allclose(launch(tmp_path / "data", 2, 2), alone, atol=1e-5)


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
        [sys.executable, "-c", REFUSED], env=ALONE | {"PYTHONPATH": str(HERE)}, text=True,
        capture_output=True, check=True,
    ).stdout  # fmt: skip
    assert "6 chains cannot be spread evenly over 4 devices; use a multiple of 4." in told
    assert "data_devices=3 does not divide the 4 devices there are." in told
    assert "5 rows of data cannot be spread evenly over 2 devices." in told
