"""The motorcycle data, and priors for their mean m and the logarithm of their noise σ.

Matérn-3/2 priors on standardised data: m with length scale ½ and log σ with length scale 1 about
−1, chosen before any row was held out.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import mercer

from . import baselines

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


def times_along(count: int = 300) -> np.ndarray:
    """Standardised times, evenly spread over those of the data."""
    x = standardised()[0]
    return np.linspace(x.min(), x.max(), count)


def spectra(num_modes: int) -> dict[str, mercer.spectra.Spectrum]:
    """Those of m and of log σ."""
    return {n: mercer.Matern(1.5, s, 1.0, DOMAIN, num_modes) for n, s in LENGTHSCALES.items()}


def two_keys(key: jax.Array) -> dict[str, jax.Array]:
    """A key for the network of m and one for that of log σ."""
    return dict(zip(LEVELS, jax.random.split(key), strict=True))


def two_processes(
    networks: Any, processes: dict, level: Any = LEVELS["scale"], **options: Any
) -> mercer.Prior:
    """The Mercer prior of both networks, log σ about its level."""
    means = {"mean": lambda x: jnp.zeros(()), "scale": lambda x: jnp.asarray(level, float)}
    energies = {name: mercer.Quadrature(process) for name, process in processes.items()}
    return mercer.Prior(energies, networks, mean=means, **options)


def fourier_networks(width: int, key: jax.Array, hidden_scale: float) -> dict[str, Any]:
    """Networks of Fourier features for m and log σ."""
    scales = {"frequency_scale": 10.0, "hidden_scale": hidden_scale, "readout_scale": 100.0}
    keys = two_keys(key)
    return {n: mercer.FourierMLP(1, width, key=k, domain=DOMAIN, **scales) for n, k in keys.items()}


def fourier_prior(width: int, num_modes: int, key: jax.Array, frozen: bool = False) -> mercer.Prior:
    """Networks whose covariances are within 0.02 of the processes' at width and K of 100; the
    readouts alone are random where the hidden layers are frozen."""
    networks = fourier_networks(width, key, hidden_scale=4.0)
    trainable = mercer.readout_only(networks) if frozen else None
    return two_processes(networks, spectra(num_modes), trainable=trainable)


def baseline_prior(kind: str, num_modes: int, key: jax.Array) -> Any:
    """The same processes cut after K modes, independent weights, or the ridgelet prior.

    Ridgelet slopes up to 16 leave the least error of the covariance with 3,000 units, 0.4 of a
    variance of one.
    """
    keys, processes = two_keys(key), spectra(num_modes)
    if kind == "isotropic":
        options = {"weight_scale": 2.0, "domain": DOMAIN}
        return mercer.IsotropicPrior(
            {n: mercer.MLP(1, 32, 2, key=k, **options) for n, k in keys.items()}
        )
    if kind == "ridgelet":
        networks = {n: baselines.Ridgelet(processes[n], 3000, 16.0, LEVELS[n], key=k)
                    for n, k in keys.items()}  # fmt: skip
        return mercer.IsotropicPrior(networks)
    networks = {name: baselines.Expansion(process) for name, process in processes.items()}
    return two_processes(networks, processes)


def posterior_of(prior: Any, inputs: np.ndarray, targets: np.ndarray) -> mercer.Posterior:
    """Given rows whose noise has the network "scale" for its logarithm."""
    return mercer.Posterior(prior, mercer.Heteroscedastic(jnp.exp), (inputs, targets))
