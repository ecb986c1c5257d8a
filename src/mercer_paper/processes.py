"""The processes of the case study, with exact paths, and the networks that follow them."""

import dataclasses
from collections.abc import Callable

import jax
import numpy as np

import mercer


@dataclasses.dataclass(frozen=True)
class Process:
    """Brownian motion on [0, 1], or the Brownian bridge if it is `pinned` to zero at one."""

    name: str
    make_spectrum: Callable[[int], mercer.spectra.Spectrum]
    boundary: tuple[str, str]
    pinned: bool

    def kernel(self, s: np.ndarray, t: np.ndarray) -> np.ndarray:
        """Cov(u(s), u(t)) for all pairs of times."""
        return np.minimum.outer(s, t) - self.pinned * np.outer(s, t)

    def variance(self, t: np.ndarray) -> np.ndarray:
        """Var u(t)."""
        return t * (1 - t) if self.pinned else t

    def grid(self, num_times: int) -> np.ndarray:
        """Equally spaced times in (0, 1], or (0, 1) for a bridge, which is zero at one."""
        return np.arange(1, num_times + 1) / (num_times + self.pinned)

    def paths(self, key: jax.Array, count: int, times: np.ndarray) -> np.ndarray:
        """Exact paths at increasing times in [0, 1], by independent increments."""
        steps = np.sqrt(np.diff(times, prepend=0.0, append=1.0)).astype(np.float32)
        white = np.asarray(jax.random.normal(key, (count, len(steps)), np.float32))
        motion, end = np.split(np.cumsum(white * steps, axis=1), [-1], axis=1)
        return motion - end * times.astype(np.float32) if self.pinned else motion


MOTION = Process("Brownian motion", mercer.BrownianMotion, ("dirichlet", "neumann"), pinned=False)
BRIDGE = Process("Brownian bridge", mercer.BrownianBridge, ("dirichlet", "dirichlet"), pinned=True)


@dataclasses.dataclass(frozen=True)
class Network:
    """A network of the case study: its size and its scales.

    `saturation` δ belongs to the factor t/(t + δ) on each side where the process vanishes; None is
    the paper's factor, t or t(1 − t). `num_points` of the quadrature follows from the number of
    modes unless it is set.
    """

    width: int
    num_modes: int
    frequency_scale: float
    readout_scale: float
    saturation: float | None
    hidden_scale: float = 4.0
    num_frequencies: int = 32
    law: str = "normal"
    depth: int = 1
    activation: str = "sigmoid"
    num_points: int | None = None

    def prior(self, process: Process, key: jax.Array, normalised: bool = True) -> mercer.Prior:
        """The Mercer prior of this network for a process; the key draws its frequencies.

        It is made on the host: an accelerator would compile hundreds of small operations first.
        """
        options = dict(vars(self))
        num_modes, num_points = options.pop("num_modes"), options.pop("num_points")
        with jax.default_device(jax.local_devices(backend="cpu")[0]):
            network = mercer.FourierMLP(1, boundary=process.boundary, key=key, **options)
            energy = mercer.Quadrature(process.make_spectrum(num_modes), num_points)
            return mercer.Prior(energy, network, normalised=normalised)
