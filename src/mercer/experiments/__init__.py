"""The paper's experiments, each from one command."""

from . import bridge, brownian, cost

EXPERIMENTS = {e.name: e for e in (brownian.EXPERIMENT, bridge.EXPERIMENT, cost.EXPERIMENT)}
