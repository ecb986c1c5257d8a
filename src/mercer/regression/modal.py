"""A spectrum's modes as the units of a network, for inputs that were standardised."""

import equinox as eqx
import jax
from jaxtyping import Array, Float

from ..spectra import Spectrum


class Modes(eqx.Module):
    """Units √λₙ φₙ of a spectrum; a row x stands for the point centre + scale · x of its domain."""

    spectrum: Spectrum
    centre: Float[Array, " d"]
    scale: Float[Array, " d"]

    def features(self, x: Float[Array, "n d"]) -> Float[Array, "n K"]:
        """The units at each row."""
        return jax.vmap(self.spectrum.features)(self._points(x))

    def variance(self, x: Float[Array, "n d"]) -> Float[Array, " n"]:
        """That of the process at each row, the modes left out included."""
        return jax.vmap(lambda p: self.spectrum.kernel(p, p))(self._points(x))

    def _points(self, x: Float[Array, "n d"]) -> Float[Array, "n d"]:
        return self.centre[None] + self.scale[None] * x
