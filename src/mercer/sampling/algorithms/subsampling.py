"""HMC with energy-conserving subsampling of the data, through NumPyro (the extra `mercer[ecs]`)."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import PRNGKeyArray

from ...checks import PyTree, require_count
from ...draws import Draws
from ...draws.layout import Layout, Memory
from ...optimise import maximise
from ...posterior import Posterior
from ..algorithm import Info
from ..initialisation import find_starts

# Our statistics, under the names that NumPyro has for them.
FIELDS = {
    "acceptance": "hmc_state.accept_prob",
    "divergent": "hmc_state.diverging",
    "energy": "hmc_state.energy",
    "step_size": "hmc_state.adapt_state.step_size",
    "num_gradients": "hmc_state.num_steps",
}


def hmcecs(
    key: PRNGKeyArray,
    posterior: Posterior,
    batch_size: int,
    *,
    num_blocks: int = 10,
    center: PyTree | None = None,
    num_draws: int = 1000,
    num_warmup: int = 500,
    num_chains: int = 4,
    record: Callable[[PyTree], Any] | None = None,
    progress: bool = True,
) -> Draws:
    """Draws of a posterior by NUTS on `batch_size` rows of data at a time, our prior as a factor.

    The rest of the data enters through the second-order expansion of each row's log likelihood
    about `center`, by default the mode: exact where that is quadratic, and accurate where the
    data are many. Its Hessian is dense in the parameters, so it suits a few hundred of them: a
    frozen hidden layer rather than a whole network.
    """
    counts = {"batch_size": batch_size, "num_blocks": num_blocks, "num_draws": num_draws,
              "num_chains": num_chains}  # fmt: skip
    for name, count in counts.items():
        require_count(name, count)
    require_count("num_warmup", num_warmup, at_least=0)
    _check(posterior, batch_size, num_blocks)
    from numpyro.infer import HMCECS, MCMC, NUTS

    start_key, center_key, run_key = jax.random.split(key, 3)
    starts = find_starts(start_key, posterior, num_chains)
    if center is None:
        first = jax.tree.map(lambda x: x[0], starts)
        center = jax.jit(lambda p: maximise(center_key, posterior, p, 300))(first)
    flat, unravel = ravel_pytree(center)
    model = _make_model(posterior, flat.size, unravel, batch_size)
    proxy = HMCECS.taylor_proxy({"params": flat})
    kernel = HMCECS(NUTS(model), num_blocks=num_blocks, proxy=proxy)
    run = MCMC(
        kernel,
        num_warmup=num_warmup,
        num_samples=num_draws,
        num_chains=num_chains,
        chain_method="sequential",
        progress_bar=progress,
    )
    stacked = jax.vmap(lambda p: ravel_pytree(p)[0])(starts)
    init = {"params": stacked if num_chains > 1 else stacked[0]}
    run.run(run_key, init_params=init, extra_fields=tuple(FIELDS.values()))
    return _as_draws(run, posterior, unravel, record or posterior.watch)


def _make_model(
    posterior: Posterior, size: int, unravel: Callable[[Any], PyTree], batch_size: int
) -> Callable[[], None]:
    """Our log density as a NumPyro model whose likelihood is of a batch of rows."""
    import numpyro
    from numpyro import distributions

    law = distributions.ImproperUniform(distributions.constraints.real_vector, (), (size,))

    def model():
        params = unravel(numpyro.sample("params", law))
        numpyro.factor("prior", posterior.log_prior(params))
        with numpyro.plate("rows", posterior.inputs.shape[0], subsample_size=batch_size) as rows:
            numpyro.factor("likelihood", posterior.row_terms(params, rows))

    return model


def _as_draws(
    run: Any,
    posterior: Posterior,
    unravel: Callable[[Any], PyTree],
    record: Callable[[PyTree], Any],
) -> Draws:
    """The draws of NumPyro's run, as those of any other."""
    flat = run.get_samples(group_by_chain=True)["params"]
    fields = run.get_extra_fields(group_by_chain=True)
    params = jax.vmap(jax.vmap(unravel))(flat)
    groups = {
        "sample_stats": {ours: np.asarray(fields[FIELDS[ours]], float) for ours in Info._fields},
        "posterior": jax.jit(jax.vmap(jax.vmap(record)))(params),
        "params": params,
    }
    rows, layout = Memory(flat.shape[1]), Layout.of(groups)
    rows.write(jax.tree.map(np.asarray, layout.flatten(groups)), 0)
    return Draws(rows, layout, flat.shape[1], posterior, run)


def _check(posterior: Posterior, batch_size: int, num_blocks: int) -> None:
    """Raise unless the posterior's rows can be subsampled in such blocks, by NumPyro."""
    if not isinstance(posterior, Posterior) or not posterior.is_deterministic:
        raise ValueError(
            "hmcecs takes a Posterior with the Quadrature energy and no batch_size: it chooses the "
            "rows of data itself."
        )
    if num_blocks > batch_size:
        raise ValueError(f"num_blocks={num_blocks} is more than the batch of {batch_size} rows.")
    if batch_size > posterior.inputs.shape[0]:
        raise ValueError(
            f"batch_size={batch_size} is more than the {posterior.inputs.shape[0]} rows of data."
        )
    try:
        import numpyro  # noqa: F401
    except ImportError:
        raise ValueError('hmcecs runs through NumPyro: pip install "mercer[ecs]".') from None
