"""Batched solves that could run at once must not wait for each other for ever on two cores."""

import os
import subprocess
import sys

SCRIPT = """
import os
os.sched_setaffinity(0, range(2))
os.environ.pop("NPROC", None)
import jax
jax.config.update("jax_enable_x64", True)
import mercer

def make(key):
    return mercer.FourierMLP(1, 200, boundary=("dirichlet", "neumann"), key=key)

energy = mercer.Quadrature(mercer.BrownianMotion(200))
one = mercer.Prior(energy, make(jax.random.key(0)))
two = mercer.Prior(energy, {"a": make(jax.random.key(1)), "b": make(jax.random.key(2))})
for prior in (one, two):
    draw = jax.jit(jax.vmap(prior.draw))
    slope = jax.jit(jax.vmap(jax.grad(prior)))
    for i in range(10):
        params = draw(jax.random.split(jax.random.key(i), 8))
        jax.block_until_ready(slope(params))
print("done")
"""


def test_networks_side_by_side_do_not_hang():
    environment = {n: v for n, v in os.environ.items() if not n.startswith("PYTEST_XDIST")}
    result = subprocess.run(
        [sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True, timeout=240,
        check=False,
    )  # fmt: skip
    assert result.stdout.strip() == "done", result.stderr
