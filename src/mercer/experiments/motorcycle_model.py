"""The motorcycle data, and priors for their mean and noise.

Matérn-3/2 priors on standardised data: m with length scale ½ and log σ with length scale 1 about
−1, chosen before any row was held out.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .. import data
from ..density import Prior
from ..domains import Interval
from ..energy import Quadrature
from ..isotropic import MLP, IsotropicPrior
from ..networks import FourierMLP
from ..sampling import nuts
from ..spectra import Matern, Spectrum
from ..terms import readout_only
from .baselines import Expansion
from .ridgelet import Ridgelet

# Standardised times lie in [−1.8, 2.5] whatever rows are held out; the rest is room.
DOMAIN = Interval(-3.0, 4.0)
# A priori the noise is about exp(−1) of the data's standard deviation.
LOG_NOISE = -1.0
SAMPLER = nuts(max_doublings=8, initial_step=0.1)


def spectra(num_modes: int) -> dict[str, Spectrum]:
    """Those of m and of log σ."""
    return {
        "mean": Matern(1.5, 0.5, 1.0, DOMAIN, num_modes),
        "scale": Matern(1.5, 1.0, 1.0, DOMAIN, num_modes),
    }


def make_prior(networks: dict[str, Any], num_modes: int, **options: Any) -> Prior:
    """Two networks, each with the energy of its spectrum."""
    energies = {name: Quadrature(s) for name, s in spectra(num_modes).items()}
    means = {"mean": lambda x: jnp.zeros(()), "scale": lambda x: jnp.full((), LOG_NOISE)}
    return Prior(energies, networks, mean=means, **options)


def fourier_prior(
    width: int, num_modes: int, key: jax.Array, readout_scale: float = 100.0
) -> Prior:
    """Networks of Fourier features whose covariances are within 0.02 of the processes' at width
    and K of 100."""
    keys = dict(zip(("mean", "scale"), jax.random.split(key), strict=True))
    networks = {
        name: FourierMLP(
            1, width, frequency_scale=10.0, hidden_scale=4.0, readout_scale=readout_scale,
            domain=DOMAIN, key=k,
        )
        for name, k in keys.items()
    }  # fmt: skip
    return make_prior(networks, num_modes)


def expansion_prior(num_modes: int) -> Prior:
    """The same processes cut after K modes, by their own eigenfunctions."""
    networks = {name: Expansion(s) for name, s in spectra(num_modes).items()}
    return make_prior(networks, num_modes, trainable=readout_only(networks))


def isotropic_prior(key: jax.Array) -> Prior:
    """Two networks of independent Gaussian weights, the scale's about the same level."""
    keys = dict(zip(("mean", "scale"), jax.random.split(key), strict=True))
    return IsotropicPrior(
        {name: MLP(1, 32, 2, key=k, domain=DOMAIN, weight_scale=2.0) for name, k in keys.items()}
    )


def ridgelet_prior(num_modes: int, key: jax.Array) -> Prior:
    """The ridgelet prior for the same processes. Slopes up to 16 leave the least error of the
    covariance with 3,000 units, 0.4 of a variance of one."""
    keys = jax.random.split(key)
    levels = {"mean": 0.0, "scale": LOG_NOISE}
    networks = {
        name: Ridgelet(spectrum, 3000, 16.0, key=k, level=levels[name])
        for k, (name, spectrum) in zip(keys, spectra(num_modes).items(), strict=True)
    }
    return IsotropicPrior(networks, trainable=readout_only(networks))


def standardised() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """All rows: x of shape (n, 1), y, and what was subtracted and divided by, one row a column."""
    columns = np.stack(data.motorcycle())
    centre, scale = columns.mean(1), columns.std(1)
    x, y = (columns - centre[:, None]) / scale[:, None]
    return x[:, None], y, centre, scale


def shown_times() -> np.ndarray:
    """Standardised times that figures are drawn at."""
    x = standardised()[0]
    return np.linspace(x.min(), x.max(), 300)
