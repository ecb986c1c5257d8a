"""The processes of the case study, with exact paths and the networks that follow them."""

import dataclasses
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from ..density import Prior
from ..energy import Quadrature
from ..networks import FourierMLP
from ..spectra import BrownianBridge, BrownianMotion, Spectrum


@dataclasses.dataclass(frozen=True)
class Process:
    """A process on [0, 1]: its spectrum, the sides where it vanishes, and its standard deviation."""

    name: str
    make_spectrum: Callable[[int], Spectrum]
    boundary: tuple[str, str]
    pinned: bool

    def kernel(self, s: np.ndarray, t: np.ndarray) -> np.ndarray:
        """Covariances of all pairs."""
        joint = np.minimum.outer(s, t)
        return joint - np.outer(s, t) if self.pinned else joint

    def variance(self, t: np.ndarray) -> np.ndarray:
        """Var u(t)."""
        return t * (1 - t) if self.pinned else t

    def paths(self, key: jax.Array, count: int, times: np.ndarray) -> np.ndarray:
        """Exact paths at increasing times in [0, 1], by independent increments."""
        steps = np.sqrt(np.diff(np.append(np.insert(times, 0, 0.0), 1.0)))
        white = np.asarray(jax.random.normal(key, (count, len(steps)), np.float32))
        motion = np.cumsum(white * steps.astype(np.float32), axis=1)
        end = motion[:, -1:]
        return motion[:, :-1] - end * times.astype(np.float32) if self.pinned else motion[:, :-1]


MOTION = Process("Brownian motion", BrownianMotion, ("dirichlet", "neumann"), pinned=False)
BRIDGE = Process("Brownian bridge", BrownianBridge, ("dirichlet", "dirichlet"), pinned=True)


@dataclasses.dataclass(frozen=True)
class Network:
    """A network of the case study: its size and its scales.

    `saturation` δ is that of the factor t/(t + δ) on each side where the process vanishes; None is
    the paper's factor, t or t(1 − t). `num_points` of the quadrature follow from the modes unless
    they are given.
    """

    width: int
    num_modes: int
    frequency_scale: float
    hidden_scale: float
    readout_scale: float
    saturation: float | None
    num_frequencies: int = 32
    law: str = "normal"
    depth: int = 1
    activation: str = "sigmoid"
    num_points: int | None = None

    def prior(self, process: Process, key: jax.Array, normalised: bool = True) -> Prior:
        """The Mercer prior of this network for a process; its frequencies are drawn with the key.

        It is made on the host: hundreds of small operations, each of which an accelerator would
        first have to compile.
        """
        with jax.default_device(jax.local_devices(backend="cpu")[0]):
            network = FourierMLP(
                1,
                self.width,
                self.depth,
                self.num_frequencies,
                self.frequency_scale,
                process.boundary,
                key=key,
                law=self.law,
                saturation=self.saturation,
                hidden_scale=self.hidden_scale,
                readout_scale=self.readout_scale,
                activation={"sigmoid": jax.nn.sigmoid, "tanh": jnp.tanh}[self.activation],
            )
            energy = Quadrature(process.make_spectrum(self.num_modes), self.num_points)
            return Prior(energy, network, normalised=normalised)
