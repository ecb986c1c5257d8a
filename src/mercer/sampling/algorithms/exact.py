"""Independent draws where a density has them in closed form."""

from typing import Any, NamedTuple

from jaxtyping import PRNGKeyArray, PyTree

from ...density import Density
from ..algorithm import Algorithm, Info, make_info


class ExactState(NamedTuple):
    """The last draw."""

    position: PyTree


class Exact(Algorithm):
    """Every step an independent draw of the density itself."""

    needs_deterministic = True

    def init(self, key: PRNGKeyArray, density: Density, params: PyTree) -> ExactState:
        if not density.is_exact:
            raise ValueError(
                "exact() needs a density with exact draws: a normalised Prior, or Frozen with a "
                "Gaussian likelihood; mercer.sample(key, density) finds a way for others."
            )
        return ExactState(params)

    def step(self, key: PRNGKeyArray, density: Any, state: ExactState) -> tuple[ExactState, Info]:
        return ExactState(density.draw(key)), make_info(acceptance=1.0, num_gradients=0.0)

    def adapt(self, key, density, params, num_steps):
        return self, self.init(key, density, params)


def exact() -> Exact:
    """Independent exact draws of a normalised prior, or of a frozen layer's Gaussian posterior."""
    return Exact()
