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
    ridgelet_prior,
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
    ).complete()  # fmt: skip
    return draws.recorded.reshape(-1, len(split.held_targets))


def cross_validate(run: Run) -> Arrays:
    """Held-out NLPD of ours and of each baseline, fold by fold, each fold fitted alone."""
    settings = run.settings
    key, count = fold(run.shared, "network"), settings.num_modes

    def by_nuts(make_prior):
        return lambda: partial(score_nuts, make_prior(), settings.fold)

    few, some = settings.baseline_folds, settings.isotropic_folds
    # How many folds each is scored on, and what makes its score of a split.
    methods = {
        "frozen network": (settings.folds, by_nuts(lambda: fourier_prior(settings.width, count, key))),
        "exact process, constant noise": (
            settings.folds, lambda: lambda split, key: score_process(split, spectra(count)["mean"])),
        "truncated process, NUTS": (few, by_nuts(lambda: expansion_prior(count))),
        "deep ensemble": (few, lambda: score_ensemble),
        "independent weights, NUTS": (some, by_nuts(lambda: isotropic_prior(key))),
        "ridgelet prior, NUTS": (some, by_nuts(lambda: ridgelet_prior(count, key))),
    }  # fmt: skip
    times, values = data.motorcycle()
    folds = ten_folds(len(times))
    scores = np.full((len(methods), len(folds)), np.nan)
    seconds = np.zeros(len(methods))
    for row, (label, (num_folds, make)) in enumerate(methods.items()):
        if num_folds == 0:
            continue
        run.tell(f"      {label}")
        begin = time.monotonic()
        score = make()
        made = time.monotonic() - begin

        def judge(i, label=label, score=score):
            begin, key = time.monotonic(), fold(run.key, f"{label} {i}")
            found = nlpd(score(split_rows(times, values, folds[i]), key))
            return {"nlpd": found, "seconds": time.monotonic() - begin}

        held = run.keep_each(label, judge, range(num_folds))
        scores[row, :num_folds] = [one["nlpd"] for one in held]
        seconds[row] = made + sum(one["seconds"] for one in held)
    return {"labels": strings(methods), "scores": scores, "seconds_each": seconds}
