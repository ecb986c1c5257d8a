"""The elevation grid by a designed network: random rows and a square gap, with and without the tail.

python benchmarks/elevation.py [--tail none] [--draws 100]
"""

import argparse
import json
import time

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib import cbook

import mercer

jax.config.update("jax_enable_x64", True)


def load_grid(seed: int) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Rows on the unit square, heights standardised: training, a tenth at random, a square gap."""
    heights = np.asarray(cbook.get_sample_data("jacksboro_fault_dem.npz")["elevation"], float)
    rows, columns = np.meshgrid(*map(np.arange, heights.shape), indexing="ij")
    x = np.stack([rows.ravel() / rows.max(), columns.ravel() / columns.max()], axis=1)
    gap = (np.abs(rows - 150) < 30) & (np.abs(columns - 200) < 30)
    held = ~gap.ravel() & (np.random.default_rng(seed).uniform(size=len(x)) < 0.1)
    train = ~gap.ravel() & ~held
    y = (heights.ravel() - heights.ravel()[train].mean()) / heights.ravel()[train].std()
    parts = {"train": train, "random": held, "gap": gap.ravel()}
    return {name: (x[chosen], y[chosen]) for name, chosen in parts.items()}


def score(frozen: mercer.Frozen, noise: float, x: np.ndarray, y: np.ndarray) -> dict[str, float]:
    """RMSE, NLPD and coverage of 95 % intervals of new observations."""
    mean, variance = map(np.asarray, jax.jit(lambda p: frozen.moments(p))(jnp.asarray(x)))
    variance = variance + noise**2
    error = y - mean
    return {
        "rmse": float(np.sqrt(np.mean(error**2))),
        "nlpd": float(np.mean(0.5 * np.log(2 * np.pi * variance) + 0.5 * error**2 / variance)),
        "coverage": float(np.mean(np.abs(error) < 1.96 * np.sqrt(variance))),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tolerance", type=float, default=0.1)
    parser.add_argument("--lengthscale", type=float, default=0.05)
    parser.add_argument("--noise", type=float, default=0.1)
    parser.add_argument("--tail", default="independent")
    parser.add_argument("--draws", type=int, default=100)
    options = parser.parse_args()
    parts = load_grid(0)
    box = mercer.Box([-0.1, -0.1], [1.1, 1.1])
    spectrum = mercer.Matern(1.5, options.lengthscale, 1.0, box, 400)
    begun = time.perf_counter()
    prior = mercer.design(spectrum, options.tolerance, key=jax.random.key(0))
    result: dict = {"rows": len(parts["train"][1]), "width": prior.network(prior.params).width}
    result["design_seconds"] = time.perf_counter() - begun
    begun = time.perf_counter()
    posterior = mercer.Posterior(
        prior, mercer.Gaussian(options.noise), parts["train"], tail=options.tail
    )
    frozen = mercer.Frozen(posterior)
    jax.block_until_ready(frozen.log_evidence)
    result["fit_seconds"] = time.perf_counter() - begun
    result["log_evidence"] = float(frozen.log_evidence)
    begun = time.perf_counter()
    mercer.sample(
        jax.random.key(1), frozen, num_draws=options.draws // 4, num_chains=4, progress=False
    )
    result["draw_seconds"] = time.perf_counter() - begun
    result |= {name: score(frozen, options.noise, *parts[name]) for name in ("random", "gap")}
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
