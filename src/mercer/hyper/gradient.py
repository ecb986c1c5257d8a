"""The gradient of the log evidence by the hyperparameters, from draws of posterior and prior.

With an un-normalised prior p̃(θ; λ) of integral Z(λ),

    ∇ log p(y | λ) = E_posterior[∇ log p̃(θ, y; λ)] − ∇ log Z(λ),   ∇ log Z = E_prior[∇ log p̃(θ; λ)]

and ∇ log Z is zero where the prior is normalised. Where the readout is linear its integral given the
hidden layers, log Z(η; λ), is a log-determinant, and ∇ log Z = E_prior[∇ log Z(η; λ)] with far less
noise.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..checks import PyTree
from ..diagnostics import ess
from ..linear import log_integral as integral
from .joint import Hyper, Joint


class Gradient(NamedTuple):
    """Of the log evidence by each standard normal number, with Monte Carlo standard errors."""

    value: dict[str, float]
    error: dict[str, float]


def posterior_slope(joint: Joint, hyper: Hyper, params: PyTree, batch: Any = None) -> Hyper:
    """∇ log p̃(θ, y; λ) by the hyperparameters at one draw."""
    return jax.grad(lambda h: joint.at(h)(params, batch))(hyper)


def prior_slope(joint: Joint, hyper: Hyper, params: PyTree, batch: Any = None) -> Hyper:
    """An unbiased estimate of ∇ log Z from one draw of the prior, exactly zero where Z is one."""
    prior = joint.prior
    if prior.normalised:
        return jax.tree.map(jnp.zeros_like, hyper)
    if prior.obstacle is None:
        return jax.grad(lambda h: log_integral(joint.at(h).prior, params))(hyper)
    return jax.grad(lambda h: joint.at(h).prior(params, batch))(hyper)


def log_integral(prior: Any, params: PyTree) -> Float[Array, ""]:
    """log ∫ p̃ over the readouts given the hidden layers, but for what has no hyperparameter."""
    terms = [term for term in prior.terms(params) if term.energy is not None]
    integrals = [integral(*prior.energy_rows(term), prior.solver) for term in terms]
    return sum(integrals, start=jnp.zeros(()))


def evidence_gradient(
    joint: Joint, hyper: Hyper, posterior_draws: PyTree, prior_draws: PyTree | None = None
) -> Gradient:
    """∇ log p(y | λ) at `hyper`, from network parameters drawn there, leaves (chain, draw, …).

    `prior_draws` are needed where the prior is not normalised.
    """
    if prior_draws is None and not joint.prior.normalised:
        raise ValueError("this prior is not normalised: draws of it are needed too, prior_draws=.")
    value, error = _average(lambda p: posterior_slope(joint, hyper, p), posterior_draws)
    if prior_draws is not None and not joint.prior.normalised:
        prior_value, prior_error = _average(lambda p: prior_slope(joint, hyper, p), prior_draws)
        value = {name: slope - prior_value[name] for name, slope in value.items()}
        error = {name: float(np.hypot(e, prior_error[name])) for name, e in error.items()}
    return Gradient(value, error)


def _average(
    slope: Callable[[PyTree], Hyper], draws: PyTree
) -> tuple[dict[str, float], dict[str, float]]:
    """Mean and standard error of a function of draws, leaves (chain, draw, …)."""
    slopes = jax.jit(lambda p: jax.lax.map(lambda q: jax.lax.map(slope, q), p))(draws)
    series = {name: np.asarray(values) for name, values in slopes.items()}
    errors = {n: float(v.std() / np.sqrt(ess(v[..., None], "mean")[0])) for n, v in series.items()}
    return {name: float(values.mean()) for name, values in series.items()}, errors
