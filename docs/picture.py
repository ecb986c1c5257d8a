"""Draw the picture of the README: paths of Brownian motion beside networks that follow it."""

import jax
import jax.numpy as jnp
import numpy as np

import mercer
from mercer.plots import STYLE, paths, plt
from mercer_paper.processes import MOTION

jax.config.update("jax_enable_x64", True)

if __name__ == "__main__":
    prior = mercer.design(mercer.BrownianMotion(2000), tolerance=3e-4, key=jax.random.key(0))
    t = np.linspace(0, 1, 20_000)
    keys = jax.random.split(jax.random.key(2), 6)
    draws = [
        jax.lax.map(prior.network(prior.draw(k)), jnp.asarray(t)[:, None], batch_size=4096)
        for k in keys
    ]
    with plt.rc_context(STYLE):
        figure, (left, right) = plt.subplots(
            1, 2, figsize=(9, 3), sharey=True, layout="constrained"
        )
        paths(left, t, MOTION.paths(jax.random.key(3), 6, t), "Brownian motion")
        paths(right, t, np.stack(draws), "Neural networks drawn from the Mercer prior")
        figure.savefig("docs/images/brownian.png", dpi=110)
