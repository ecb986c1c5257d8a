"""The paper's experiments, each from one command."""

from . import bridge, brownian, co2, cost, hyper, insulation, motorcycle

EXPERIMENTS = {
    e.EXPERIMENT.name: e.EXPERIMENT
    for e in (brownian, bridge, motorcycle, co2, insulation, hyper, cost)
}
