"""What sampling costs and yields: `python benchmarks/sampling.py PART`, one JSON file a part.

compare     SGLD as the paper prints it, SGLD on the lattice, NUTS, exact draws: min-ESS a second
overhead    a draw of the run loop over its gradient evaluations alone
predict     joint samples and moments at many points, as a share of the bare network's speed
prior       a prior over every parameter by HMC: covariance error, effective draws a second
exact       the same by independent exact draws

All ratios are taken within one run. `prior` and `exact` at --width 1000 --modes 1000 want a GPU.
"""

import argparse
import json
import tempfile
import time
from pathlib import Path

import blackjax
import jax
import jax.numpy as jnp
import numpy as np

import mercer

GRID = np.linspace(0.02, 1.0, 50)[:, None]


def ess_and_error(values, grid=GRID, kernel=None):
    """Smallest effective sample size over the grid, and the largest covariance error."""
    from mercer.diagnostics import covariance_error, ess, rhat

    exact = np.minimum(grid, grid.T) if kernel is None else kernel
    error, standard = covariance_error(values, exact)
    return {
        "ess_min": float(np.min(ess(values))),
        "rhat_max": float(np.max(rhat(values))),
        "covariance_max_error": float(np.max(error)),
        "standard_error_there": float(standard.ravel()[np.argmax(error)]),
        "worst_z": float(np.max(error / standard)),
    }


SHARP = {"frequency_scale": 20.0, "readout_scale": 100.0, "hidden_scale": 8.0}
PLAIN = {"frequency_scale": 10.0, "readout_scale": 30.0}
SOFT = {"law": "cauchy", "frequency_scale": 10.0, "readout_scale": 30.0}


def brownian(width: int, modes: int, normalised: bool | None, energy=None, scales=None):
    """The network of the paper's case study, with a factor and frequencies that suit it."""
    spectrum = mercer.BrownianMotion(modes)
    network = mercer.FourierMLP(
        1, width, saturation=0.003, boundary=("dirichlet", "neumann"), key=jax.random.key(0),
        **(SOFT if scales is None else scales),
    )  # fmt: skip
    energy = mercer.Quadrature(spectrum) if energy is None else energy(spectrum)
    return mercer.Prior(energy, network, normalised=normalised)


def values_on(prior, grid=GRID):
    return lambda p: jax.vmap(prior.network(p))(jnp.asarray(grid))


def timed(make):
    begin = time.perf_counter()
    result = make()
    return result, time.perf_counter() - begin


def settle(values, seconds: float, below: float) -> float | None:
    """Seconds until the covariance error of the draws so far falls below a bound and stays there."""
    exact, num_draws = np.minimum(GRID, GRID.T), values.shape[1]
    counts = np.unique(np.linspace(1, num_draws, 100).astype(int))
    errors = []
    for count in counts:
        flat = values[:, :count].reshape(-1, values.shape[-1])
        errors.append(np.max(np.abs(flat.T @ flat / len(flat) - exact)))
    above = np.nonzero(np.array(errors) >= below)[0]
    if len(above) == 0:
        return float(seconds * counts[0] / num_draws)
    if above[-1] == len(counts) - 1:
        return None
    return float(seconds * counts[above[-1] + 1] / num_draws)


def compare(options) -> dict:
    """Four ways to one prior: width 200, K = 100, four chains, the same seconds each."""
    width, modes, budget = options.width, options.modes, options.seconds

    def monte_carlo(spectrum):
        return mercer.MonteCarlo(spectrum, 10 * modes, modes // 10)

    paper = brownian(width, modes, False, monte_carlo, PLAIN)
    lattice = brownian(width, modes, False, lambda s: mercer.Lattice(s, 4 * modes), PLAIN)
    plain = brownian(width, modes, False, None, PLAIN)
    exact = brownian(width, modes, True, None, PLAIN)
    starts = jax.jit(jax.vmap(exact.draw))(jax.random.split(jax.random.key(1), 4))
    result = {"paper": {}, "lattice": {}}
    for step in (1e-9, 1e-8, 1e-7, 1e-6, 1e-5):
        result["paper"][f"{step:.0e}"] = run_blackjax(paper, step, starts, budget)
    for step in (1e-6, 1e-5, 3e-5, 1e-4, 3e-4):
        result["lattice"][f"{step:.0e}"] = run_ours(
            lattice, mercer.sgld(step), starts, budget, thin=50, warmup=0
        )
    result["nuts"] = run_ours(plain, mercer.nuts(max_doublings=7), starts, 4 * budget, 1, 200)
    result["hmc"] = run_ours(
        plain, mercer.hmc(60, adaptation="step", initial_step=0.003), starts, 4 * budget, 1, 100
    )
    result["exact"] = run_ours(exact, mercer.exact(), starts, budget, 1, 0)
    return result


def run_blackjax(prior, step: float, starts, budget: float) -> dict:
    """BlackJAX's own SGLD, its gradient that of our density: no code of ours in the loop."""
    algorithm = blackjax.sgld(lambda p, batch: jax.grad(prior)(p, batch))
    record = values_on(prior)

    def advance(params, key):
        batch_key, noise_key = jax.random.split(key)
        return algorithm.step(noise_key, params, prior.batch(batch_key), step), None

    @jax.jit
    @jax.vmap
    def chunk(params, key):
        params = jax.lax.scan(advance, params, jax.random.split(key, 50))[0]
        return params, record(params)

    params, kept, begin = starts, [], None
    for i in range(100_000):
        keys = jax.random.split(jax.random.fold_in(jax.random.key(2), i), 4)
        params, values = chunk(params, keys)
        kept.append(np.asarray(values))
        begin = time.perf_counter() if begin is None else begin
        if time.perf_counter() - begin > budget or not np.all(np.isfinite(kept[-1])):
            break
    return judge(np.stack(kept, axis=1), time.perf_counter() - begin)


def run_ours(prior, algorithm, starts, budget: float, thin: int, warmup: int) -> dict:
    """As many draws as the budget allows, told from a first, short run."""

    def run(num_draws, num_warmup):
        return mercer.sample(
            jax.random.key(3), prior, algorithm, num_draws=num_draws, num_warmup=num_warmup,
            thin=thin, init=starts, record=values_on(prior), progress=False,
        )  # fmt: skip

    try:
        _, compiled = timed(lambda: run(10, warmup))
        pace = (timed(lambda: run(30, warmup))[1] - compiled) / 20
        num_draws = int(np.clip(budget / max(pace, 1e-4), 50, 20_000))
        draws, seconds = timed(lambda: run(num_draws, warmup))
        return judge(draws.recorded, max(seconds - compiled + 10 * pace, 1e-9)) | {
            "temperature": draws.temperature
        }
    except mercer.sampling.SamplingError as error:
        return {"diverged": str(error)}


def judge(values, seconds: float) -> dict:
    if not np.all(np.isfinite(values)) or values.shape[1] < 8:
        return {"diverged": f"after {values.shape[1]} draws"}
    found = ess_and_error(values)
    return found | {
        "draws": values.shape[0] * values.shape[1],
        "seconds": seconds,
        "ess_per_second": found["ess_min"] / seconds,
        "seconds_to_error_below_0.1": settle(values, seconds, 0.1),
    }


def overhead(options) -> dict:
    """Draws of HMC with --leapfrog steps, and as many gradients in a loop of their own."""
    prior = brownian(options.width, options.modes, False)
    starts = jax.jit(jax.vmap(brownian(options.width, options.modes, True).draw))(
        jax.random.split(jax.random.key(1), 4)
    )
    algorithm = mercer.hmc(options.leapfrog, adaptation="step", initial_step=1e-4)
    # The same program three times: compiled by the first run, timed by the difference of the others.
    jax.config.update("jax_compilation_cache_dir", tempfile.mkdtemp())
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    counts = (options.draws, options.draws, 3 * options.draws)
    pace = [
        timed(
            lambda n=n: mercer.sample(
                jax.random.key(0), prior, algorithm, num_draws=n, num_warmup=0, init=starts,
                record=values_on(prior), progress=False,
            )
        )[1]
        for n in counts
    ]  # fmt: skip
    slope = jax.value_and_grad(prior)

    @jax.jit
    def bare(params, count):
        def body(_, p):
            return jax.tree.map(lambda x, g: x - 1e-12 * g, p, slope(p)[1])

        return jax.vmap(lambda p: jax.lax.fori_loop(0, count, body, p))(params)

    jax.block_until_ready(bare(starts, 1))
    alone = (
        min(timed(lambda: jax.block_until_ready(bare(starts, 1000)))[1] for _ in range(3)) / 1000
    )
    draw = (pace[2] - pace[1]) / (counts[2] - counts[1])
    return {
        "seconds_a_draw": draw,
        "seconds_of_its_gradients": options.leapfrog * alone,
        "ratio": draw / (options.leapfrog * alone),
    }


class Line:
    """Points on a line, made when they are asked for."""

    def __init__(self, count: int):
        self.shape = (count, 1)

    def __getitem__(self, rows: slice) -> np.ndarray:
        begin, end, _ = rows.indices(self.shape[0])
        return (np.arange(begin, end)[:, None] + 0.5) / self.shape[0]


def predict(options) -> dict:
    """100 draws at a million points, and their mean and sd at --points, beside the bare network."""
    import resource

    prior = brownian(options.width, options.modes, True)
    draws = mercer.sample(
        jax.random.key(0), prior, mercer.exact(), num_draws=50, num_chains=2, progress=False
    )
    params, chunk = draws.networks(), options.chunk
    block = jnp.asarray(Line(chunk)[0:chunk])
    bare = jax.jit(lambda p, x: jax.lax.map(lambda q: jax.vmap(prior.network(q))(x), p))
    jax.block_until_ready(bare(params, block))
    alone = (
        min(timed(lambda: jax.block_until_ready(bare(params, block)))[1] for _ in range(3)) / chunk
    )
    draws.values(Line(2 * chunk), chunk=chunk)
    _, joint = timed(lambda: draws.values(Line(options.joint), chunk=chunk))
    many = options.points
    draws.predict(Line(2 * chunk), (), chunk=chunk)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    _, moments = timed(
        lambda: draws.predict(Line(many), (), chunk=chunk, out=options.out.parent / "predicted")
    )
    return {
        "bare_points_per_second": 100 / alone,
        "joint": {"points": options.joint, "seconds": joint, "share": options.joint * alone / joint},
        "moments": {"points": many, "seconds": moments, "share": many * alone / moments},
        "peak_memory_kb": [before, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss],
    }  # fmt: skip


def prior(options) -> dict:
    """HMC over every parameter from exact draws; the values go beside the JSON file."""
    scales = SHARP if options.sharp else SOFT
    exact = None if options.float32 else brownian(options.width, options.modes, True, None, scales)
    target = (
        exact if options.normalised else brownian(options.width, options.modes, False, None, scales)
    )
    algorithm = mercer.hmc(options.leapfrog, adaptation="step", initial_step=options.step)
    draws, seconds = timed(
        lambda: mercer.sample(
            jax.random.key(1), target, algorithm, num_draws=options.draws, num_warmup=options.warmup,
            num_chains=options.chains, init=make_starts(options, exact), record=values_on(target),
        )
    )  # fmt: skip
    stated = None if exact is None else float(mercer.fidelity(exact).max_error)
    return {
        "seconds": seconds,
        "acceptance": float(np.mean(draws.statistics["acceptance"])),
        "step_size": float(np.mean(draws.statistics["step_size"])),
        "fidelity_max_error": stated,
    } | finish(options, draws, seconds)


def make_starts(options, exact):
    """Exact draws, kept in a file, since 32-bit floats have none of their own."""
    path = Path(f"/tmp/starts-{options.width}-{options.modes}-{options.chains}-{options.sharp}.npz")
    if exact is not None:
        keys = jax.random.split(jax.random.key(7), options.chains)
        drawn = jax.jit(lambda keys: jax.lax.map(exact.draw, keys))(keys)
        np.savez(path, *[np.asarray(x) for x in jax.tree.leaves(drawn)])
        return drawn
    structure = jax.tree.structure(brownian(options.width, options.modes, False).params)
    held = np.load(path)
    return jax.tree.unflatten(structure, [jnp.asarray(held[name], float) for name in held.files])


def exact(options) -> dict:
    """Independent draws of the normalised prior."""
    prior = brownian(options.width, options.modes, True)
    draws, seconds = timed(
        lambda: mercer.sample(
            jax.random.key(1), prior, mercer.exact(), num_draws=options.draws, num_warmup=0,
            num_chains=options.chains, record=values_on(prior),
        )
    )  # fmt: skip
    return {"seconds": seconds} | finish(options, draws, seconds)


def finish(options, draws, seconds: float) -> dict:
    """Errors and effective draws a second; the values beside the JSON file allow for it later."""
    values = np.asarray(draws.recorded)
    np.save(options.out.with_suffix(".npy"), values)
    if options.no_ess:
        return {"draws": values.shape[0] * values.shape[1]}
    found = ess_and_error(values)
    return found | {"ess_per_second": found["ess_min"] / seconds}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("part", choices=["compare", "overhead", "predict", "prior", "exact"])
    parser.add_argument("--width", type=int, default=200)
    parser.add_argument("--modes", type=int, default=100)
    parser.add_argument("--chains", type=int, default=4)
    parser.add_argument("--draws", type=int, default=200)
    parser.add_argument("--warmup", type=int, default=100)
    parser.add_argument("--leapfrog", type=int, default=100)
    parser.add_argument("--step", type=float, default=0.01)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--joint", type=int, default=1_000_000)
    parser.add_argument("--points", type=int, default=100_000_000)
    parser.add_argument("--chunk", type=int, default=65_536)
    parser.add_argument("--float32", action="store_true")
    parser.add_argument("--sharp", action="store_true", help="a network of higher fidelity")
    parser.add_argument("--normalised", action="store_true")
    parser.add_argument("--no-ess", action="store_true", help="where ArviZ is not installed")
    parser.add_argument("--out", type=Path, default=None)
    options = parser.parse_args()
    jax.config.update("jax_enable_x64", not options.float32)
    jax.config.update("jax_default_matmul_precision", "highest")
    options.out = options.out or Path(f"bench/{options.part}.json")
    options.out.parent.mkdir(parents=True, exist_ok=True)
    result = globals()[options.part](options)
    result["settings"] = {k: str(v) for k, v in vars(options).items()}
    result["device"] = jax.devices()[0].device_kind
    options.out.write_text(json.dumps(result, indent=2) + "\n")
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
