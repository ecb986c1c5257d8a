"""The paper's experiments, each run by one command: `mercer reproduce NAME`."""

from . import brownian, cost

EXPERIMENTS = {
    experiment.name: experiment
    for experiment in (brownian.MOTION_STUDY, brownian.BRIDGE_STUDY, cost.EXPERIMENT)
}
