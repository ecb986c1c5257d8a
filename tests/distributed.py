"""One process of a run over several: its number, how many there are, a port, where to write, and
how many devices share the data."""

import os
import sys


def main(index: int, count: int, port: str, folder: str, data_devices: int) -> None:
    os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={4 // count}"
    import jax
    import numpy as np

    jax.config.update("jax_enable_x64", True)
    if count > 1:
        jax.distributed.initialize(f"localhost:{port}", count, index)

    import mercer
    from oracle import make_posterior

    draws = mercer.sample(
        jax.random.key(5), make_posterior(), mercer.hmc(4), num_draws=30, num_warmup=40, num_chains=8,
        store=f"{folder}/store", data_devices=data_devices, progress=False, keep_params=True,
        record=lambda p: p.readout,
    )  # fmt: skip
    np.save(f"{folder}/draws{index}.npy", draws.recorded)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4], int(sys.argv[5]))
