"""Gradient noise of the energies, and what they cost beside the network: `make bench`.

Brownian motion, width 1000, K = 1000, at a typical prior draw, 64-bit floats. Noise is the mean
squared deviation of the gradient over its squared norm; costs are ratios within one run.
"""

import argparse
import json
import platform
import time
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

import mercer
from mercer.random_energy import LatticeBatch

jax.config.update("jax_enable_x64", True)


def stratified(energy: mercer.Lattice, key):
    """Two batches with one uniform point in each of n equal cells."""

    def points(key):
        n = energy.num_points
        return ((jnp.arange(n) + jax.random.uniform(key, (n,))) / n)[:, None]

    first, second = jax.random.split(key)
    return LatticeBatch(points(first), points(second))


def u_statistic(spectrum, u, points):
    """The unbiased product over all pairs of distinct points of one batch."""
    n = points.shape[0]
    weighted = jax.vmap(u)(points)[:, None] * jax.vmap(spectrum.eigenfunctions)(points)
    total = jnp.sum(weighted, axis=0)
    pairs = total**2 - jnp.sum(weighted**2, axis=0)
    return 0.5 * jnp.sum(jnp.exp(-spectrum.log_eigenvalues) * pairs) / (n * (n - 1))


def estimators(spectrum, num_points: int) -> dict:
    """name -> (estimate(u, key), points used)."""
    paper = mercer.MonteCarlo(spectrum, num_points, spectrum.num_modes // 10)
    every = mercer.MonteCarlo(spectrum, num_points)
    lattice = mercer.Lattice(spectrum, num_points)
    both = spectrum.domain
    return {
        "paper": lambda u, k: paper(u, paper.batch(k)),
        "all modes, uniform points": lambda u, k: every(u, every.batch(k)),
        "U-statistic": lambda u, k: u_statistic(spectrum, u, both.sample(k, 2 * num_points)),
        "stratified": lambda u, k: lattice(u, stratified(lattice, k)),
        "shifted lattice": lambda u, k: lattice(u, lattice.batch(k)),
    }


def noise_table(spectrum, params, static, num_points: int, repeats: int) -> dict:
    quadrature = mercer.Quadrature(spectrum, 4 * spectrum.num_modes)
    exact = ravel_pytree(jax.grad(lambda p: quadrature(eqx.combine(p, static)))(params))[0]
    table = {}
    for name, estimate in estimators(spectrum, num_points).items():
        slope = jax.jit(jax.grad(lambda p, k, e=estimate: e(eqx.combine(p, static), k)))
        squares = []
        for key in jax.random.split(jax.random.key(1), repeats):
            found = ravel_pytree(slope(params, key))[0]
            squares.append(float(jnp.sum((found - exact) ** 2)))
        table[name] = float(np.mean(squares) / jnp.sum(exact**2))
        print(f"{name:28s} noise/signal {table[name]:.3g}", flush=True)
    table["quadrature"] = 0.0
    return table


def seconds(function, *arguments, repeats: int = 7) -> float:
    """The fastest of a few calls, after compilation."""
    jax.block_until_ready(function(*arguments))
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        jax.block_until_ready(function(*arguments))
        times.append(time.perf_counter() - start)
    return min(times)


def cost_table(spectrum, params, static, num_points: int) -> dict:
    """Energy and gradient over the network's own value and gradient at the same points."""
    quadrature = mercer.Quadrature(spectrum)
    lattice = mercer.Lattice(spectrum, num_points)
    batch = lattice.batch(jax.random.key(0))

    def bare(points):
        return lambda p: jnp.mean(jnp.square(jax.vmap(eqx.combine(p, static))(points)))

    both = jnp.concatenate([batch.first, batch.second])
    table = {}
    for name, energy, points in (
        ("quadrature", lambda p: quadrature(eqx.combine(p, static)), quadrature.points),
        ("lattice", lambda p: lattice(eqx.combine(p, static), batch), both),
    ):
        for kind, wrap in (("forward", lambda f: f), ("gradient", jax.value_and_grad)):
            ours = seconds(jax.jit(wrap(energy)), params)
            theirs = seconds(jax.jit(wrap(bare(points))), params)
            table[f"{name} {kind}"] = {"ratio": ours / theirs, "seconds": ours}
            print(f"{name} {kind}: {ours / theirs:.3f} x the network's own", flush=True)
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--width", type=int, default=1000)
    parser.add_argument("--modes", type=int, default=1000)
    parser.add_argument("--points", type=int, default=10_000)
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--out", type=Path, default=Path("bench/core.json"))
    options = parser.parse_args()
    spectrum = mercer.BrownianMotion(options.modes)
    network = mercer.FourierMLP(
        1, options.width, boundary=("dirichlet", "neumann"), key=jax.random.key(0)
    )
    prior = mercer.Prior(mercer.Quadrature(spectrum), network)
    params, static = prior.draw(jax.random.key(1)), prior.static
    result = {
        "noise_over_signal": noise_table(spectrum, params, static, options.points, options.repeats),
        "cost_over_network": cost_table(spectrum, params, static, options.points),
        "settings": {k: str(v) for k, v in vars(options).items()},
        "machine": f"{platform.machine()}, {jax.devices()[0].device_kind}, jax {jax.__version__}",
    }
    noise = result["noise_over_signal"]
    result["lattice_over_paper"] = noise["shifted lattice"] / noise["paper"]
    print(f"lattice noise over the paper's: {result['lattice_over_paper']:.2g}")
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(result, indent=2) + "\n")
    print(f"written to {options.out}")


if __name__ == "__main__":
    main()
