"""Leave-one-out by Pareto-smoothed importance sampling, through ArviZ."""

from typing import Any

import jax
import numpy as np

from ..diagnostics import load_arviz
from ..draws import Draws


def leave_one_out(draws: Draws) -> Any:
    """ArviZ's `loo` of a run whose parameters were kept: `elpd_loo`, `se`, and Pareto's k a row.

    Two models compare by `arviz.compare({"one": leave_one_out(a), "other": leave_one_out(b)})`.
    """
    if draws.params is None:
        raise ValueError("the parameters were not kept; sample with keep_params=True.")
    if not hasattr(draws.density, "row_terms"):
        raise ValueError("a prior has no data to leave out: this needs draws of a posterior.")
    terms = jax.jit(lambda p: jax.lax.map(lambda q: jax.lax.map(draws.density.row_terms, q), p))
    rows = np.asarray(terms(draws.params))
    arviz = load_arviz()
    held = arviz.from_dict(posterior={"row": rows[..., 0]}, log_likelihood={"y": rows})
    return arviz.loo(held, pointwise=True)
