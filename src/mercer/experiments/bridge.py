"""The Brownian bridge from networks, as section 4.3 of the paper has it, and further."""

import dataclasses
from functools import partial

from . import brownian
from .case_figures import pictures_of
from .case_study import CaseSettings
from .experiment import Experiment
from .measures import estimate, measure_case, quantities_of
from .processes import BRIDGE, Network
from .studies import stages_of

PICTURES = ("samples", "covariance", "marginals", "tests", "chain", "factor")
CASE = ("samples", "fidelity", "exact", "tests", "chain", "factor")


def _settings(scale: str) -> CaseSettings:
    """Those of Brownian motion, with half its readout scales: the bridge's deviation is half.

    Its tests are repeated a quarter as often.
    """
    motion = brownian.SETTINGS[scale]
    shared = {f.name: getattr(motion, f.name) for f in dataclasses.fields(CaseSettings)}
    own = {name: _halve(shared[name]) for name in ("network", "portrait")}
    chain = dataclasses.replace(motion.chain, network=_halve(motion.chain.network))
    own |= {"chain": chain, "num_repeats": motion.num_repeats // 4}
    return CaseSettings(**shared | own)


def _halve(network: Network) -> Network:
    return dataclasses.replace(network, readout_scale=network.readout_scale / 2)


EXPERIMENT = Experiment(
    name="bridge",
    title="The Brownian bridge from networks, every parameter random",
    settings={scale: _settings(scale) for scale in brownian.SETTINGS},
    stages=tuple(stages_of(BRIDGE, CASE)),
    pictures=tuple(pictures_of(BRIDGE)[name] for name in PICTURES),
    quantities=quantities_of(0.024, {"quick": 0.02, "paper": 0.006}, {"paper": 0.024}),
    measure=partial(measure_case, BRIDGE),
    estimate=partial(estimate, BRIDGE),
)
