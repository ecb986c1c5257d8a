"""Independent draws where a density has them in closed form."""

from jaxtyping import PRNGKeyArray

from ...checks import PyTree
from ...density import Density
from ..algorithm import Algorithm, IndependentState, Info, make_info


class Exact(Algorithm):
    """Every step an independent draw of the density itself."""

    needs_deterministic = True

    def init(self, key: PRNGKeyArray, density: Density, params: PyTree) -> IndependentState:
        if not density.is_exact:
            raise ValueError(
                "exact() needs a density with exact draws: a normalised Prior, or Frozen with a "
                "Gaussian likelihood; mercer.sample(key, density) finds a way for others."
            )
        return IndependentState(params)

    def step(
        self, key: PRNGKeyArray, density: Density, state: IndependentState
    ) -> tuple[IndependentState, Info]:
        info = make_info(acceptance=1.0, num_gradients=0.0)
        return IndependentState(density.draw(key)), info

    def adapt(
        self, key: PRNGKeyArray, density: Density, params: PyTree, num_steps: int
    ) -> tuple[Algorithm, IndependentState]:
        return self, self.init(key, density, params)


def exact() -> Exact:
    """Independent exact draws of a normalised prior, or of a frozen layer's Gaussian posterior."""
    return Exact()
