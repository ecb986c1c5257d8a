"""Stages of the case study: exact draws, closed form, tests and HMC for the prior of a process."""

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import mercer
from mercer import diagnostics

from .experiment import Arrays, Chains, Run
from .processes import Network, Process
from .summaries import convergence, timed

LEVEL = 0.05
MARGINAL_TIMES = (0.25, 0.5, 0.75, 1.0)
NEAR_ZERO = 0.05
# Exact paths in each set that shows how the share of passed tests varies.
NULL_DRAWS = 1000


def record_at(prior: mercer.Prior, times: np.ndarray) -> Callable[[Any], jax.Array]:
    """The function of the parameters that is kept of a draw: values at the times, as float32."""

    def record(params: Any) -> jax.Array:
        points = jnp.asarray(times)[:, None]
        return jax.lax.map(prior.network(params), points, batch_size=4096).astype(jnp.float32)

    return record


@eqx.filter_jit
def covariance_of(prior: mercer.Prior, key: jax.Array, points: jax.Array) -> jax.Array:
    """Cov(u(s), u(t)) given a hidden layer of the reference, in closed form."""
    (term,) = prior.terms(prior.draw_reference(key))
    return prior.readout_law(term).covariance(prior.white_features(term.network, points))


def second_moments(values: np.ndarray) -> np.ndarray:
    """Covariance of rows about the known mean zero, in blocks so that float32 is enough."""
    blocks = (values[i : i + 1000] for i in range(0, len(values), 1000))
    return sum((block.T @ block).astype(float) for block in blocks) / len(values)


@dataclasses.dataclass(frozen=True)
class Case:
    """A stage in progress of the study of a process."""

    process: Process
    run: Run

    def prior(self, network: Network, **options: Any) -> mercer.Prior:
        """The prior of a network; all stages draw its frequencies with the same key."""
        return network.prior(self.process, self.run.shared_key_of("network"), **options)

    def draw(self, prior: mercer.Prior, times: np.ndarray, count: int, names: list) -> Iterator:
        """Values (draw, time) of `count` independent exact draws, for each of the names."""
        parallel, record = min(self.run.settings.parallel, count), record_at(prior, times)
        chunk = jax.jit(jax.vmap(lambda key: record(prior.draw(key))))
        for name in names:
            keys = jax.random.split(self.run.key_of(name), (-(-count // parallel), parallel))
            yield np.concatenate([np.asarray(chunk(k)) for k in self.run.each(name, keys)])[:count]

    def closed_form(self, prior: mercer.Prior, name: str, times: np.ndarray) -> Arrays:
        """Closed-form covariance averaged over hidden layers, its largest error, and the mean of
        the largest errors of single hidden layers."""
        points, kernel = jnp.asarray(times)[:, None], self.process.kernel(times, times)
        keys = jax.random.split(self.run.key_of(name), self.run.settings.num_hidden)
        each = np.stack([covariance_of(prior, key, points) for key in keys])
        mean, single = each.mean(axis=0), np.max(np.abs(each - kernel), axis=(1, 2))
        return {"closed_form": mean, "closed_error": np.max(np.abs(mean - kernel)),
                "closed_error_one": np.mean(single)}  # fmt: skip

    def summarise(self, times: np.ndarray, values: np.ndarray) -> Arrays:
        """Covariance with its error, and Kolmogorov–Smirnov tests along t, for draws with mean
        zero: independent (draw, time), or chains (chain, draw, time), thinned for the tests."""
        kernel, flat = self.process.kernel(times, times), values.reshape(-1, len(times))
        covariance, independent = second_moments(flat), flat
        if values.ndim == 3:
            error, standard_error = diagnostics.covariance_error(values, kernel)
            independent = values[:, :: diagnostics.independent_stride(values)]
        else:
            error = np.abs(covariance - kernel)
            spread = np.outer(np.diag(kernel), np.diag(kernel)) + kernel**2
            standard_error = np.sqrt(spread / len(flat))
        worst = np.unravel_index(np.argmax(error), error.shape)
        return self.test(times, independent.reshape(-1, len(times))) | {
            "times": times, "num_draws": len(flat), "covariance": covariance.astype(np.float32),
            "max_error": error[worst], "max_error_se": standard_error[worst],
            "z": (error / standard_error).astype(np.float32),
        }  # fmt: skip

    def test(self, times: np.ndarray, values: np.ndarray) -> Arrays:
        """Tests of independent draws along t, and the shares of times that pass, of all and of
        those near zero; NaN without such times."""
        deviation = np.sqrt(self.process.variance(times))
        statistic, p_value = diagnostics.ks_along(values, deviation)
        passed, near = p_value > LEVEL, times < NEAR_ZERO
        shares = float(passed.mean()), float(passed[near].mean()) if near.any() else np.nan
        return {"statistic": statistic, "p_value": p_value, "shares": shares}


def draw_samples(case: Case) -> Arrays:
    """Five networks and five exact paths on a fine grid."""
    run, network = case.run, case.run.settings.portrait
    fine, prior = np.linspace(0, 1, run.settings.num_fine), case.prior(network)
    record = jax.jit(lambda key: record_at(prior, fine)(prior.draw(key)))
    ours = [np.asarray(record(key)) for key in jax.random.split(run.key_of("ours"), 5)]
    exact = case.process.paths(run.key_of("exact"), 5, fine)
    return {"times": fine, "width": network.width, "ours": np.stack(ours), "exact": exact}


def measure_fidelity(case: Case) -> Arrays:
    """The closed-form covariance on a grid that is denser at the sides."""
    times = (1 - np.cos(np.linspace(0, np.pi, 101))) / 2
    return case.closed_form(case.prior(case.run.settings.network), "hidden", times)


def draw_exactly(case: Case) -> Arrays:
    """Independent exact draws of every parameter: covariance, and tests along t."""
    run, settings, times = (
        case.run,
        case.run.settings,
        case.process.grid(case.run.settings.num_grid),
    )
    prior, rounds = case.prior(settings.network), -(-settings.num_draws // settings.parallel)
    options = {"record": record_at(prior, times)} | vars(Chains(settings.parallel, rounds))
    draws, seconds = timed(run.sample, "exact", prior, mercer.exact(), **options)
    values = draws.recorded.reshape(-1, len(times))
    run.tell("      testing marginals along t")
    marked = [np.argmin(np.abs(times - t)) for t in MARGINAL_TIMES]
    shown = {"marginals": values[:, marked], "draws_per_second": len(values) / seconds}
    return case.summarise(times, values) | shown


def repeat_tests(case: Case) -> Arrays:
    """Shares of times that pass the test, for further sets of draws and for sets of exact paths.

    Values at neighbouring times are nearly equal and pass or fail together, so the share of one
    set varies far more than that of independent tests, above all near zero. For exact paths its
    law does not depend on the number of draws.
    """
    run, settings, times = (
        case.run,
        case.run.settings,
        case.process.grid(case.run.settings.num_grid),
    )
    names = [f"set {i + 2} of draws" for i in range(settings.num_repeats)]
    ours = case.draw(case.prior(settings.network), times, settings.num_draws, names)
    keys = run.each("exact paths", jax.random.split(run.key_of("null"), settings.num_null))
    null = (case.process.paths(key, NULL_DRAWS, times) for key in keys)
    shares, of_null = ([case.test(times, v)["shares"] for v in sets] for sets in (ours, null))
    return {"shares": np.reshape(shares, (-1, 2)), "null_shares": np.array(of_null)}


def run_chain(case: Case) -> Arrays:
    """HMC over every parameter, started from exact draws of the same prior."""
    run, settings, times = (
        case.run,
        case.run.settings,
        case.process.grid(case.run.settings.study_grid),
    )
    prior = case.prior(settings.chain_network)
    target = case.prior(settings.chain_network, normalised=settings.chain_normalised)
    keys = jax.random.split(run.key_of("starts"), settings.chains.num_chains)
    starts = jax.jit(lambda keys: jax.lax.map(prior.draw, keys))(keys)
    hmc = mercer.hmc(settings.chain_steps, adaptation="step", initial_step=settings.chain_step_size)
    options = {"init": starts, "record": record_at(target, times)} | vars(settings.chains)
    draws, seconds = timed(run.sample, "hmc", target, hmc, **options)
    values = draws.recorded.astype(float)
    arrays = case.summarise(times, values) | convergence(values)
    return arrays | {
        "closed_form": case.closed_form(prior, "hidden", times)["closed_form"],
        "ess_per_second": arrays["ess_min"] / seconds,
        "acceptance": draws.statistics["acceptance"].mean(),
        "trace": values[:4, :, len(times) // 2 if case.process.pinned else -1],
    }
