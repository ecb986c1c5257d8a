"""Leave-one-out by Pareto-smoothed importance sampling, through ArviZ."""

from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float

from ..checks import PyTree
from ..diagnostics import load_arviz
from ..draws import Draws
from ..draws.predict import Predictive


def leave_one_out(draws: Draws) -> Any:
    """ArviZ's `loo` of a run whose parameters were kept: `elpd_loo`, `se`, and Pareto's k a row.

    Two models compare by `arviz.compare({"one": leave_one_out(a), "other": leave_one_out(b)})`.
    """
    if draws.params is None:
        raise ValueError("the parameters were not kept; sample with keep_params=True.")
    if not isinstance(draws.density, Predictive):
        raise ValueError("a prior has no data to leave out: this needs draws of a posterior.")
    rows = np.asarray(_row_terms(draws.density, draws.params))
    arviz = load_arviz()
    inference = arviz.from_dict(posterior={"row": rows[..., 0]}, log_likelihood={"y": rows})
    return arviz.loo(inference, pointwise=True)


@eqx.filter_jit
def _row_terms(density: Predictive, params: PyTree) -> Float[Array, "chains draws n"]:
    """log p(yᵢ | θ) of each row, for parameters with leading axes of chains and draws."""

    def terms(draw):
        posterior, own_params = density.resolve(draw)
        return posterior.row_terms(own_params)

    return jax.lax.map(lambda chain: jax.lax.map(terms, chain), params)
