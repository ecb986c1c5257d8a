"""Independent draws where a density has them in closed form."""

from typing import Any, NamedTuple

from jaxtyping import PRNGKeyArray, PyTree

from .algorithm import Algorithm, Density, Info, make_info


class ExactState(NamedTuple):
    """The last draw."""

    position: PyTree


class Exact(Algorithm):
    """Every step an independent draw of the density itself."""

    needs_deterministic = True

    def init(self, key: PRNGKeyArray, density: Density, params: PyTree) -> ExactState:
        if not getattr(density, "is_exact", False):
            raise ValueError(
                "exact() needs a density with exact draws: a normalised Prior, or Whitened with a "
                "Gaussian likelihood; use mercer.nuts() for others."
            )
        return ExactState(params)

    def step(self, key: PRNGKeyArray, density: Any, state: ExactState) -> tuple[ExactState, Info]:
        return ExactState(density.draw(key)), make_info(acceptance=1.0, num_gradients=0.0)

    def adapt(self, key, density, params, num_steps):
        return self, self.init(key, density, params)


def exact() -> Exact:
    """Independent exact draws of a normalised prior, or of a frozen layer's Gaussian posterior."""
    return Exact()
