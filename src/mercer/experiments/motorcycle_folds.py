"""Held-out scores of the motorcycle data: ten folds, each fitted alone, and the baselines."""

import time
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .. import data
from ..density import Prior
from ..diagnostics import nlpd
from ..isotropic import IsotropicPrior
from ..likelihoods import Heteroscedastic
from ..posterior import Posterior
from ..sampling import sample
from ..whitened import Whitened
from .baselines import Split, score_ensemble, score_process, split_rows, ten_folds
from .experiment import Arrays, Chains, Run, fold, strings
from .motorcycle_model import (
    SAMPLER,
    expansion_prior,
    fourier_prior,
    isotropic_prior,
    spectra,
)


def score_nuts(prior: Prior, chains: Chains, split: Split, key: jax.Array) -> np.ndarray:
    """Log densities of held-out rows, by NUTS: over the readouts where they can be whitened."""
    posterior: Any = Posterior(prior, Heteroscedastic(jnp.exp), (split.inputs, split.targets))
    density = posterior if isinstance(prior, IsotropicPrior) else Whitened(posterior)
    held = jnp.asarray(split.held_inputs), jnp.asarray(split.held_targets)
    draws = sample(
        key, density, SAMPLER, record=lambda p: density.score(p, *held), keep_params=False,
        progress=False, **chains.counts,
    )  # fmt: skip
    return draws.recorded.reshape(-1, len(split.held_targets))


def cross_validate(run: Run) -> Arrays:
    """Held-out NLPD of ours and of each baseline, fold by fold, each fold fitted alone."""
    settings = run.settings
    key, count = fold(run.shared, "network"), settings.num_modes
    networks = fourier_prior(settings.width, count, key)
    methods = {
        "frozen network": (settings.folds, partial(score_nuts, networks, settings.fold)),
        "exact process, constant noise": (
            settings.folds, lambda split, key: score_process(split, spectra(count)["mean"])),
        "truncated process, NUTS": (
            settings.baseline_folds, partial(score_nuts, expansion_prior(count), settings.fold)),
        "deep ensemble": (settings.baseline_folds, score_ensemble),
        "independent weights, NUTS": (
            settings.isotropic_folds, partial(score_nuts, isotropic_prior(key), settings.fold)),
    }  # fmt: skip
    times, values = data.motorcycle()
    folds = ten_folds(len(times))
    scores = np.full((len(methods), len(folds)), np.nan)
    seconds = np.zeros(len(methods))
    for row, (label, (num_folds, score)) in enumerate(methods.items()):
        run.tell(f"      {label}")
        begin = time.monotonic()
        for i in run.each(label, range(num_folds)):
            held = score(split_rows(times, values, folds[i]), fold(run.key, f"{label} {i}"))
            scores[row, i] = nlpd(held)
        seconds[row] = time.monotonic() - begin
    return {"labels": strings(methods), "scores": scores, "seconds_each": seconds}
