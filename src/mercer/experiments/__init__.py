"""The paper's experiments, each from one command."""

from . import brownian
from .registry import Experiment

EXPERIMENTS = {
    "brownian": Experiment(
        "brownian", "Brownian motion from networks, every parameter random", brownian.run
    ),
}
