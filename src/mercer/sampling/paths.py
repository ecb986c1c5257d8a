"""The best path to draws of a density: exact draws, else white coordinates and short trajectories."""

import jax

from ..coordinates import NonCentred
from ..density import Density
from ..posterior import Posterior
from .algorithm import Algorithm
from .algorithms.exact import exact
from .algorithms.hamiltonian import hmc, nuts


def choose_path(density: Density) -> tuple[Density, Algorithm, str]:
    """Coordinates and an algorithm for a density, and a line that says which.

    Exact draws where there are any. A posterior in closed form given its hidden layers is sampled in
    the coordinates of `NonCentred`, where it is nearly N(0, I): HMC with seven steps, whose size alone
    is adapted. Other deterministic densities get NUTS with an adapted mass matrix.
    """
    if density.is_exact:
        return density, exact(), "independent exact draws"
    if not density.is_deterministic:
        raise ValueError(
            "this density is random, by its energy or by minibatches: give an algorithm for noisy "
            "gradients, such as mercer.sgld(step_size), or use the Quadrature energy and no batch_size."
        )
    if isinstance(density, Posterior) and _is_closed(density):
        density = NonCentred(density)
    if density.target is not density:
        words = f"HMC in white coordinates ({type(density).__name__}), every parameter"
        return density, hmc(7, 0.8, adaptation="step", initial_step=0.2), words
    return density, nuts(), "NUTS with a diagonal mass matrix, in the parameters themselves"


def _is_closed(posterior: Posterior) -> bool:
    """Whether the readouts given the hidden layers are Gaussian a priori."""
    prior = posterior.prior
    energies = [term.energy for term in prior.terms(prior.params)]
    closed = prior.obstacle is None and all(energy is not None for energy in energies)
    return closed and bool(jax.config.read("jax_enable_x64"))
