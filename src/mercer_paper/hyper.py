"""Hyperparameters learned in spite of the unknown normaliser: section 3.5 of the paper."""

import timeit
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure

import mercer
from mercer import diagnostics
from mercer.hyper import Above, Joint, LogNormal, Normal

from .baselines import Split, motorcycle_fold
from .co2_model import LEARNED, maximise_evidence
from .experiment import Arrays, Chains, Experiment, Picture, Quantity, Results, Run, Settings, Stage
from .motorcycle_model import DOMAIN, fourier_networks, posterior_of, standardised, two_processes
from .panels import panels
from .summaries import converged, convergence, stack, timed

NUTS = mercer.nuts(initial_step=0.1, max_doublings=7)
# The motorcycle data with constant noise, as the closed form needs it: about that of all rows.
NOISE = 0.5
SURFACE = {"variance": LogNormal(1.0, 1.5), "power": Above(0.5, 1.0, 0.6)}
# The process that hyperparameters are to be found again of, and what is known of them before.
TRUTH = {"lengthscale": 0.15, "variance": 2.0, "noise": 0.1}
RECOVERED = {
    name: LogNormal(median, 1.0) for name, median in zip(TRUTH, (0.3, 1.0, 0.2), strict=True)
}
PADDED = mercer.Interval(-0.25, 1.25)
# Mean and logarithm of the noise of the motorcycle data, standardised.
HETEROSCEDASTIC = {
    "mean_lengthscale": LogNormal(0.5, 0.7), "mean_variance": LogNormal(1.0, 1.0),
    "scale_lengthscale": LogNormal(1.0, 0.7), "scale_variance": LogNormal(1.0, 1.0),
    "level": Normal(-1.0, 1.0), "smoothness": Above(0.5, 1.0, 0.5),
}  # fmt: skip
# Starting points of the ascents, in standard normal numbers: (variance, power).
STARTS = ((-1.5, -1.5), (1.5, -1.5), (-1.5, 1.5), (1.5, 1.5), (0.0, 0.0))
# Networks by (width, modes): of the surface and its ascents, of the known process, of the folds.
PAPER = Settings(
    surface=(60, 70), num_grid=61, num_ascents=5, max_steps=2000, joint=Chains(4, 500, 100),
    recovery=(100, 150), num_rows=200, num_seeds=20, recovered=Chains(2, 200, 80),
    learned=(60, 70), folds=10, fold=Chains(2, 300, 120),
)  # fmt: skip
QUICK = PAPER.but(
    num_grid=41, max_steps=1000, joint=Chains(4, 150, 50), num_seeds=1,
    recovered=Chains(2, 60, 40), folds=1, fold=Chains(2, 100, 60),
)  # fmt: skip
SMOKE = QUICK.but(
    surface=(16, 24), num_grid=5, num_ascents=1, max_steps=50, joint=Chains(2, 10, 10),
    recovery=(16, 20), num_rows=20, recovered=Chains(2, 6), learned=(12, 16), fold=Chains(2, 6),
)  # fmt: skip


def surface_family(run: Run, frozen: bool = True) -> Joint:
    """The motorcycle data with constant noise, variance and power of (shift − Δ)^(−power) to be
    learned; the hidden layer frozen, as the closed form needs it, or not."""
    (width, num_modes), key = run.settings.surface, run.shared_key_of("surface")
    network = mercer.FourierMLP(1, width, frequency_scale=8.0, hidden_scale=2.0,
                                readout_scale=100.0, domain=DOMAIN, key=key)  # fmt: skip
    trainable = mercer.readout_only(network) if frozen else None

    def make(hyper: dict) -> mercer.NonCentred:
        process = mercer.Laplacian(DOMAIN, num_modes, "neumann", shift=3.0) ** hyper["power"]
        energy = mercer.Quadrature(process.with_variance(hyper["variance"]))
        prior, rows = mercer.Prior(energy, network, trainable=trainable), standardised()[:2]
        return mercer.NonCentred(mercer.Posterior(prior, mercer.Gaussian(NOISE), rows, tail="none"))

    return Joint(make, SURFACE)


def draw_surface(run: Run) -> Arrays:
    """log p(y | variance, power) of the motorcycle data given a hidden layer, on a grid."""
    family, axis = surface_family(run), np.linspace(-2.2, 2.2, run.settings.num_grid)
    grid = jnp.stack(jnp.meshgrid(axis, axis, indexing="ij"), -1)

    @jax.jit
    def evidence(white: jax.Array) -> jax.Array:
        density = family.at(dict(zip(SURFACE, white, strict=True)))
        return mercer.Frozen(density.posterior).log_evidence

    values = jax.lax.map(evidence, grid.reshape(-1, 2), batch_size=64)
    return {"grid": np.asarray(grid), "values": np.asarray(values).reshape(grid.shape[:2])}


def climb_surface(run: Run) -> Arrays:
    """Empirical Bayes from several starts; shorter paths rest where they end."""
    # With a frozen layer and Gaussian noise every chain tells the exact gradient: two will do.
    options = {"num_chains": 2, "max_steps": run.settings.max_steps, "progress": False}
    family, ascents = surface_family(run), []
    for index in run.each("ascents", range(run.settings.num_ascents)):
        key, start = run.key_of(f"ascent {index}"), zip(SURFACE, STARTS[index], strict=True)
        ascents.append(mercer.hyper.empirical_bayes(key, family, dict(start), **options))
    longest = max(len(ascent.path) for ascent in ascents)
    return {
        "paths": np.stack([
            np.pad(a.path, ((0, longest - len(a.path)), (0, 0)), "edge") for a in ascents
        ]),
        "ends": np.array([list(ascent.white.values()) for ascent in ascents]),
        "converged": np.array([ascent.converged for ascent in ascents]),
    }  # fmt: skip


def sample_surface(run: Run) -> Arrays:
    """The readout and both hyperparameters by NUTS."""
    options = {"record": lambda p: p["hyper"], "keep_params": False} | vars(run.settings.joint)
    draws = run.sample("joint", surface_family(run), NUTS, **options)
    values = np.stack([draws.recorded[name] for name in SURFACE], axis=-1)
    return {"draws": values} | convergence(values)


def recover(run: Run) -> Arrays:
    """90 % intervals of length scale, variance and noise of a Matérn-3/2 process whose own are
    known, all parameters random, for each seed of the data: rows uniform on [0, 1]."""
    settings, key = run.settings, run.shared_key_of("recovery")
    (width, num_modes), truth = settings.recovery, np.array(list(TRUTH.values()))
    nuts = mercer.nuts(initial_step=0.1, max_doublings=6)

    def draw_rows(seed: int) -> tuple[np.ndarray, np.ndarray]:
        random = np.random.default_rng(seed)
        x = random.uniform(0, 1, settings.num_rows)
        r = np.sqrt(3) * np.abs(x[:, None] - x[None]) / TRUTH["lengthscale"]
        covariance = TRUTH["variance"] * (1 + r) * np.exp(-r) + 1e-10 * np.eye(len(x))
        noise = TRUTH["noise"] * random.standard_normal(len(x))
        return x[:, None], np.linalg.cholesky(covariance) @ random.standard_normal(len(x)) + noise

    def of_seed(seed: int) -> Arrays:
        network_key, sample_key = jax.random.split(jax.random.fold_in(key, seed))
        network, rows = mercer.FourierMLP(
            1, width, num_frequencies=64, frequency_scale=18.0, hidden_scale=1.5,
            readout_scale=300.0, domain=PADDED, key=network_key,
        ), draw_rows(seed)  # fmt: skip

        def make(hyper: dict) -> mercer.NonCentred:
            process = mercer.Matern(1.5, hyper["lengthscale"], hyper["variance"], PADDED, num_modes)
            prior = mercer.Prior(mercer.Quadrature(process), network)
            return mercer.NonCentred(mercer.Posterior(prior, mercer.Gaussian(hyper["noise"]), rows))

        family = Joint(make, RECOVERED)
        draws, seconds = timed(mercer.sample, sample_key, family, nuts, progress=False,
                               record=lambda p: family.values(p["hyper"]),
                               **vars(settings.recovered))  # fmt: skip
        values = np.stack([draws.complete().recorded[name] for name in TRUTH], axis=-1)
        low, high = np.quantile(values, (0.05, 0.95), axis=(0, 1))
        covers = (low <= truth) & (truth <= high)
        intervals = {"lower": low, "upper": high, "covers": covers, "seconds_each": seconds}
        return intervals | convergence(values)

    return stack(run.keep_each("seed", of_seed, range(settings.num_seeds)))


def heteroscedastic_family(run: Run, split: Split) -> Joint:
    """Mean and noise as networks with frozen hidden layers, six hyperparameters to be learned."""
    width, num_modes = run.settings.learned
    networks = fourier_networks(width, run.shared_key_of("network"), hidden_scale=2.0)
    trainable = mercer.readout_only(networks)

    def posterior(hyper: dict) -> mercer.Posterior:
        def process(name: str) -> mercer.Matern:
            variance, lengthscale = hyper[f"{name}_variance"], hyper[f"{name}_lengthscale"]
            return mercer.Matern(hyper["smoothness"], lengthscale, variance, DOMAIN, num_modes)

        processes = {name: process(name) for name in networks}
        prior = two_processes(networks, processes, hyper["level"], trainable=trainable)
        return posterior_of(prior, split.inputs, split.targets)

    medians = {name: prior(jnp.zeros(())) for name, prior in HETEROSCEDASTIC.items()}
    # Sites are found once, at the medians: a search in each gradient would take far longer.
    at_medians = mercer.NonCentred(posterior(medians))

    def make(hyper: dict) -> mercer.NonCentred:
        return eqx.tree_at(lambda density: density.posterior, at_medians, posterior(hyper))

    return Joint(make, HETEROSCEDASTIC)


def score_folds(run: Run) -> Arrays:
    """Held-out NLPD of folds of the motorcycle data, every hyperparameter learned."""

    def of_fold(index: int) -> Arrays:
        split, key = motorcycle_fold(index), run.shared_key_of(f"fold {index}")
        family, chains = heteroscedastic_family(run, split), run.settings.fold
        draws, seconds = timed(mercer.sample, key, family, NUTS, progress=False, **vars(chains))
        scores = draws.complete().log_densities(split.test_inputs, split.test_targets)
        judged = convergence(scores.reshape(chains.num_chains, -1, scores.shape[-1]))
        # Folds differ in the number of their rows: of R-hat and ESS the worst are kept.
        worst = {name: judged[name] for name in ("rhat_max", "ess_min")}
        medians = {name: np.median(value) for name, value in draws.hyper.items()}
        return {"nlpd": diagnostics.nlpd(scores), "seconds_each": seconds} | worst | medians

    return stack(run.keep_each("fold", of_fold, range(run.settings.folds)))


def find_period(run: Run) -> Arrays:
    """The period of the CO2 series, in years, from 15 % off, its other scales learned with it."""
    learned = [{"period": (start, 0.15)} | LEARNED["ours"] for start in (0.85, 1.15)]
    return {"periods": np.array([maximise_evidence("four_weekly", x)["period"] for x in learned])}


def measure_cost(run: Run) -> Arrays:
    """A step of the ascent against gradients of as many chains, in turn; every parameter random."""
    family = surface_family(run, frozen=False)
    step, state = mercer.hyper.make_step(family, run.key_of("chains"), num_chains=16)
    positions = jax.vmap(family.template.init)(jax.random.split(run.key_of("starts"), 16))
    gradient = jax.jit(lambda p: jax.vmap(jax.grad(family.template))(p))

    def seconds(function: Any, *arguments: Any) -> float:
        return timeit.timeit(lambda: jax.block_until_ready(function(*arguments)), number=1)

    ratios = [seconds(step, state, run.key) / seconds(gradient, positions) for _ in range(16)]
    return {"ratios": np.array(ratios[1:])}


def measure(results: Results) -> dict[str, Any]:
    """How many intervals hold each hyperparameter."""
    counts = zip(TRUTH, np.sum(results["recovery"]["covers"], axis=0), strict=True)
    return {f"covered_{name}": int(count) for name, count in counts}


def draw_evidence(figure: Figure, surface: Arrays, ascent: Arrays, joint: Arrays) -> None:
    """Log evidence of the motorcycle data below its maximum, the hidden layer frozen and the noise
    constant; the ways of empirical Bayes, and draws of both hyperparameters."""

    def values(white: np.ndarray) -> list[np.ndarray]:
        """Variance and power at standard normal numbers (…, 2)."""
        pairs = enumerate(SURFACE.values())
        return [np.asarray(prior(jnp.asarray(white[..., i]))) for i, prior in pairs]

    (axes,) = panels(figure, 1, 6.4, 4.6)
    levels, below = [-200, -100, -50, -20, -10, -5, -2, -0.5], surface["values"]
    lines = axes.contour(*values(surface["grid"]), below - below.max(), levels=levels,
                         cmap="Greys", linewidths=0.8)  # fmt: skip
    axes.clabel(lines, fontsize=7, fmt="%g")
    shown = joint["draws"].reshape(-1, 2)
    shown = shown[:: max(1, len(shown) // 500)]
    axes.plot(*values(shown), ".", ms=2.5, alpha=0.5, color="C0", label="draws of both, by NUTS")
    for index, path in enumerate(ascent["paths"]):
        axes.plot(*values(path), lw=1.2, color="C1", label="_" * index + "empirical Bayes")
    axes.plot(*values(ascent["ends"]), "o", ms=5, color="C3", label="where it ends")
    axes.set(xscale="log", xlabel="variance", ylabel="power α")
    axes.legend(loc="upper left", fontsize=8)


def draw_intervals(figure: Figure, recovery: Arrays) -> None:
    """90 % intervals for data of a known Matérn-3/2 process, one a seed; gold where they miss."""
    axes = panels(figure, len(TRUTH), 8.4, 3.0, sharey=True)
    for i, (panel, (name, truth)) in enumerate(zip(axes, TRUTH.items(), strict=True)):
        ends = recovery["lower"][:, i], recovery["upper"][:, i]
        colours = np.where(recovery["covers"][:, i], "C0", "C3")
        panel.hlines(np.arange(len(colours)), *ends, colors=colours, linewidth=1.5)
        panel.axvline(truth, color="k", lw=0.8)
        panel.set(xlabel=name)
    axes[0].set(ylabel="seed", yticks=range(0, len(recovery["rhat"]), 5))


EXPERIMENT = Experiment(
    name="hyper", title="Hyperparameters, learned although the normaliser is unknown",
    settings={"smoke": SMOKE, "quick": QUICK, "paper": PAPER},
    stages=(
        Stage("surface", "the evidence over variance and power", draw_surface),
        Stage("ascent", "empirical Bayes", climb_surface),
        Stage("joint", "parameters and hyperparameters by NUTS", sample_surface),
        Stage("period", "the period of the CO2 series", find_period),
        Stage("cost", "what a step costs", measure_cost),
        Stage("folds", "the motorcycle folds, everything learned", score_folds),
        Stage("recovery", "hyperparameters that are known, found again", recover),
    ),
    pictures=(Picture.of(draw_evidence), Picture.of(draw_intervals)),
    quantities=(
        Quantity("nlpd", "motorcycle, held-out NLPD of the folds, all hyperparameters learned",
                 lambda r: np.mean(r["folds"]["nlpd"]), at_most={"paper": 0.384}),
        Quantity("num_folds", "folds", lambda r: len(r["folds"]["nlpd"])),
        *converged("folds", " of held-out densities", "_folds"),
        *(Quantity(f"covered_{name}", f"{name}: seeds whose 90 % interval holds the truth",
                   at_least={"paper": 14}) for name in TRUTH),
        Quantity("num_seeds", "seeds", lambda r: len(r["recovery"]["rhat"])),
        Quantity("seconds_a_seed", "seconds for a seed, at most",
                 lambda r: np.max(r["recovery"]["seconds_each"]), at_most=600),
        *converged("recovery", " of their hyperparameters", "_recovery"),
        Quantity("period_error", "CO2: relative error of the period from starts 15 % off",
                 lambda r: np.max(np.abs(r["period"]["periods"] - 1)), at_most=0.02),
        Quantity("step_cost", "a step of empirical Bayes over a posterior gradient, equal draws",
                 lambda r: np.median(r["cost"]["ratios"]), at_most=3.0),
        Quantity("ascent_spread", "largest distance between the ends of the ascents",
                 lambda r: np.max(np.ptp(r["ascent"]["ends"], axis=0))),
        Quantity("ascents_converged", "ascents that ended within their noise",
                 lambda r: np.sum(r["ascent"]["converged"])),
        *converged("joint", " of variance and power"),
        Quantity("seconds", "seconds in all"),
    ),
    measure=measure,
    estimate=lambda settings: 120.0 * settings.num_seeds + 90.0 * settings.folds + 100.0,
)  # fmt: skip
