"""Every parameter of a network by NUTS against the Gaussian process: `make bench-regression`.

Δ⁻² scaled to unit variance on [0, 1], 30 points in (0.05, 0.6), noise 0.1, width 100, K = 100. The
exact posterior of the process is the judge, on 100 points, also where there is no data.
"""

import argparse
import json
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import mercer
from mercer.diagnostics import ess, rhat

jax.config.update("jax_enable_x64", True)


def make_posterior(normalised: bool, width: int = 100, readout_scale: float = 100.0):
    spectrum = (mercer.Laplacian(mercer.Interval(0, 1), 100) ** 2).with_variance(1.0)
    network = mercer.FourierMLP(
        1, width, num_frequencies=16, frequency_scale=5.0, boundary="dirichlet",
        key=jax.random.key(0), hidden_scale=2.0, saturation=0.1, readout_scale=readout_scale,
    )  # fmt: skip
    prior = mercer.Prior(mercer.Quadrature(spectrum), network, normalised=normalised)
    rng = np.random.default_rng(0)
    x = rng.uniform(0.05, 0.6, (30, 1))
    process = mercer.GaussianProcess(spectrum)
    y = np.asarray(process.draw(jax.random.key(1), x)[0]) + 0.1 * rng.normal(size=30)
    posterior = mercer.Posterior(prior, mercer.Gaussian(0.1), (x, y))
    return posterior, process.condition(x, y, 0.1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--unnormalised", action="store_true")
    parser.add_argument("--draws", type=int, default=1000)
    parser.add_argument("--warmup", type=int, default=500)
    parser.add_argument("--chains", type=int, default=4)
    parser.add_argument("--doublings", type=int, default=7)
    parser.add_argument("--readout-scale", type=float, default=100.0)
    parser.add_argument("--adaptation", default="diagonal")
    parser.add_argument("--out", type=Path, default=Path("bench/regression.json"))
    options = parser.parse_args()
    posterior, exact = make_posterior(not options.unnormalised, readout_scale=options.readout_scale)
    grid = np.linspace(0.01, 0.99, 100)[:, None]
    begin = time.perf_counter()
    draws = mercer.sample(
        jax.random.key(2), posterior,
        mercer.nuts(max_doublings=options.doublings, adaptation=options.adaptation),
        num_draws=options.draws, num_warmup=options.warmup, num_chains=options.chains,
        record=lambda p: jax.vmap(posterior.network(p))(jnp.asarray(grid)),
    )  # fmt: skip
    seconds = time.perf_counter() - begin
    values, sd = np.asarray(draws.recorded), np.sqrt(np.asarray(exact.variance(grid)))
    ratio = values.std((0, 1)) / sd
    result = {
        "mean_off_in_sd": float(
            np.max(np.abs(values.mean((0, 1)) - np.asarray(exact.mean(grid))) / sd)
        ),
        "sd_ratio": [float(ratio.min()), float(ratio.max())],
        "rhat_max": float(np.max(rhat(values))),
        "ess_bulk_min": float(np.min(ess(values))),
        "fidelity_relative_error": float(mercer.fidelity(posterior.prior).relative_error),
        "seconds": seconds,
        "gradients_per_draw": float(np.mean(draws.statistics["num_gradients"])),
        "step_size": float(np.mean(draws.statistics["step_size"])),
        "settings": {k: str(v) for k, v in vars(options).items()},
    }
    print(json.dumps(result, indent=2))
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
