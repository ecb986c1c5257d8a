"""The paper's experiments, each run by one command: `mercer reproduce NAME`."""

from . import brownian, co2, cost, hyper, insulation, motorcycle

EXPERIMENTS = {
    experiment.name: experiment
    for experiment in (
        brownian.MOTION_STUDY,
        brownian.BRIDGE_STUDY,
        cost.EXPERIMENT,
        motorcycle.EXPERIMENT,
        co2.EXPERIMENT,
        insulation.EXPERIMENT,
        hyper.EXPERIMENT,
    )
}
