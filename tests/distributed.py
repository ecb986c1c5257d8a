"""One process of several: its number, how many there are, a port, and where to write.

Each run's draws are saved under its name: chains alone over the devices, with a warm-up and without,
and rows of data over them too.
"""

import os
import sys

RUNS = {
    "adapted": {"num_warmup": 40, "data_devices": 1},
    "chains": {"num_warmup": 0, "data_devices": 1},
    "data": {"num_warmup": 0, "data_devices": 2},
}


def main(index: int, count: int, port: str, folder: str) -> None:
    os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={4 // count}"
    import jax
    import numpy as np

    jax.config.update("jax_enable_x64", True)
    if count > 1:
        jax.distributed.initialize(f"localhost:{port}", count, index)

    import mercer
    from oracle import make_posterior

    for name, options in RUNS.items():
        draws = mercer.sample(
            jax.random.key(5), make_posterior(), mercer.hmc(4), num_draws=30, num_chains=8,
            store=f"{folder}/{name}", record=lambda p: p.readout, progress=False, **options,
        )  # fmt: skip
        np.save(f"{folder}/{name}{index}.npy", draws.recorded)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4])
