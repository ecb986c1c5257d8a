"""Bayesian neural networks whose prior is a Gaussian process you can name."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from . import diagnostics, hyper
from .coordinates import Frozen, NonCentred
from .describe import describe
from .design import design
from .domains import Box, Empirical, Interval, RealLine
from .energy import Nodes, Quadrature
from .fidelity import fidelity
from .likelihoods import Bernoulli, Gaussian, Heteroscedastic, Poisson, StudentT
from .networks import MLP, FourierMLP, Radial
from .parameters import readout_only
from .posterior import Posterior
from .prior import IsotropicPrior, Prior
from .process import GaussianProcess
from .random_energy import Lattice, MonteCarlo
from .sampling import (
    adjusted_mclmc,
    cyclical_sgld,
    exact,
    hmc,
    laplace,
    mclmc,
    nuts,
    psgld,
    sample,
    sghmc,
    sgld,
    sgnht,
    variational,
)
from .saving import load, save
from .spectra import (
    BrownianBridge,
    BrownianMotion,
    FiniteRank,
    Laplacian,
    Matern,
    Nystrom,
    Periodic,
    SquaredExponential,
    TensorProduct,
)
from .version import __version__ as __version__

if TYPE_CHECKING:
    from . import data, plots
    from .estimators import MercerRegressor

__all__ = [
    "MLP",
    "Bernoulli",
    "Box",
    "BrownianBridge",
    "BrownianMotion",
    "Empirical",
    "FiniteRank",
    "FourierMLP",
    "Frozen",
    "Gaussian",
    "GaussianProcess",
    "Heteroscedastic",
    "Interval",
    "IsotropicPrior",
    "Laplacian",
    "Lattice",
    "Matern",
    "MercerRegressor",
    "MonteCarlo",
    "Nodes",
    "NonCentred",
    "Nystrom",
    "Periodic",
    "Poisson",
    "Posterior",
    "Prior",
    "Quadrature",
    "Radial",
    "RealLine",
    "SquaredExponential",
    "StudentT",
    "TensorProduct",
    "adjusted_mclmc",
    "cyclical_sgld",
    "data",
    "describe",
    "design",
    "diagnostics",
    "exact",
    "fidelity",
    "hmc",
    "hyper",
    "laplace",
    "load",
    "mclmc",
    "nuts",
    "plots",
    "psgld",
    "readout_only",
    "sample",
    "save",
    "sghmc",
    "sgld",
    "sgnht",
    "variational",
]

# Loaded when first asked for: Matplotlib takes as long as all the rest, scikit-learn is an extra.
LAZY = {
    "MercerRegressor": ".estimators",
    "data": ".data",
    "pde": ".pde",
    "plots": ".plots",
}


def __getattr__(name: str) -> Any:
    """A module or class that is loaded when it is first asked for."""
    if name not in LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = import_module(LAZY[name], __name__)
    return getattr(module, name) if name == "MercerRegressor" else module
