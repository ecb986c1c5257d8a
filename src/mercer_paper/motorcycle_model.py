"""The motorcycle data, and priors for their mean m and the logarithm of their noise σ.

Matérn-3/2 priors on standardised data: m with length scale ½ and log σ with length scale 1 about
−1, chosen before any row was held out.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import mercer

from .baselines import Expansion, Ridgelet

# Standardised times lie in [−1.8, 2.5] whatever rows are held out; the rest is room.
DOMAIN = mercer.Interval(-3.0, 4.0)
# A priori the noise is about exp(−1) of the data's standard deviation.
LEVELS = {"mean": 0.0, "scale": -1.0}
LENGTHSCALES = {"mean": 0.5, "scale": 1.0}


def standardised() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """All rows: x of shape (n, 1), y, and what was subtracted and divided by, one row a column."""
    columns = np.stack(mercer.data.motorcycle())
    centre, scale = columns.mean(1), columns.std(1)
    x, y = (columns - centre[:, None]) / scale[:, None]
    return x[:, None], y, centre, scale


def spectra(num_modes: int) -> dict[str, mercer.spectra.Spectrum]:
    """Those of m and of log σ."""
    return {n: mercer.Matern(1.5, s, 1.0, DOMAIN, num_modes) for n, s in LENGTHSCALES.items()}


def two_processes(networks: Any, processes: dict, level: Any = -1.0, **options: Any) -> Any:
    """The Mercer prior of both networks, log σ about its level."""
    means = {"mean": lambda x: jnp.zeros(()), "scale": lambda x: jnp.asarray(level, float)}
    energies = {name: mercer.Quadrature(process) for name, process in processes.items()}
    return mercer.Prior(energies, networks, mean=means, **options)


def two_networks(width: int, key: jax.Array, **options: Any) -> dict[str, mercer.FourierMLP]:
    """Networks of Fourier features for m and log σ."""
    keys = zip(LEVELS, jax.random.split(key), strict=True)
    return {name: mercer.FourierMLP(1, width, key=k, **options) for name, k in keys}


def fourier_networks(width: int, key: jax.Array, hidden_scale: float) -> dict[str, Any]:
    """Those of our priors, on the domain of the processes."""
    return two_networks(width, key, frequency_scale=10.0, hidden_scale=hidden_scale,
                        readout_scale=100.0, domain=DOMAIN)  # fmt: skip


def fourier_prior(width: int, num_modes: int, key: jax.Array, frozen: bool = False) -> mercer.Prior:
    """Networks whose covariances are within 0.02 of the processes' at width and K of 100."""
    networks = fourier_networks(width, key, hidden_scale=4.0)
    trainable = mercer.readout_only(networks) if frozen else None
    return two_processes(networks, spectra(num_modes), trainable=trainable)


def baseline_prior(kind: str, num_modes: int, key: jax.Array) -> Any:
    """The same processes cut after K modes, independent weights, or the ridgelet prior.

    Ridgelet slopes up to 16 leave the least error of the covariance with 3,000 units, 0.4 of a
    variance of one.
    """
    networks, processes = {}, spectra(num_modes)
    for name, k in zip(LEVELS, jax.random.split(key), strict=True):
        if kind == "expansion":
            networks[name] = Expansion(processes[name])
        elif kind == "isotropic":
            networks[name] = mercer.MLP(1, 32, 2, key=k, weight_scale=2.0, domain=DOMAIN)
        else:
            networks[name] = Ridgelet(processes[name], 3000, 16.0, LEVELS[name], key=k)
    is_expansion = kind == "expansion"
    return two_processes(networks, processes) if is_expansion else mercer.IsotropicPrior(networks)


def posterior_of(prior: Any, inputs: np.ndarray, targets: np.ndarray) -> mercer.Posterior:
    """Given rows whose noise has the network "scale" for its logarithm."""
    return mercer.Posterior(prior, mercer.Heteroscedastic(jnp.exp), (inputs, targets))
