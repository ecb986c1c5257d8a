"""Bayesian neural networks whose prior is a Gaussian process you can name."""

from . import data as data
from . import threads as threads
from .conditioned import Conditioned as Conditioned
from .conditioned import Sight as Sight
from .density import Prior as Prior
from .describe import describe as describe
from .design import design as design
from .domains import Box as Box
from .domains import Domain as Domain
from .domains import Empirical as Empirical
from .domains import Interval as Interval
from .domains import RealLine as RealLine
from .draws import Draws as Draws
from .energy import Energy as Energy
from .energy import Lattice as Lattice
from .energy import MonteCarlo as MonteCarlo
from .energy import Quadrature as Quadrature
from .fidelity import Fidelity as Fidelity
from .fidelity import fidelity as fidelity
from .hyper import EmpiricalBayes as EmpiricalBayes
from .hyper import Joint as Joint
from .hyper import empirical_bayes as empirical_bayes
from .hyper import evidence_gradient as evidence_gradient
from .hyper import leave_one_out as leave_one_out
from .hyper import log_evidence as log_evidence
from .hyper import nested_sgld as nested_sgld
from .hyper import pseudo_marginal as pseudo_marginal
from .isotropic import MLP as MLP
from .isotropic import IsotropicPrior as IsotropicPrior
from .likelihoods import Bernoulli as Bernoulli
from .likelihoods import Gaussian as Gaussian
from .likelihoods import Heteroscedastic as Heteroscedastic
from .likelihoods import Likelihood as Likelihood
from .likelihoods import Poisson as Poisson
from .likelihoods import StudentT as StudentT
from .networks import FourierMLP as FourierMLP
from .posterior import Posterior as Posterior
from .reference import GaussianProcess as GaussianProcess
from .sampling import SamplingError as SamplingError
from .sampling import adjusted_mclmc as adjusted_mclmc
from .sampling import average_gradient as average_gradient
from .sampling import cyclical_sgld as cyclical_sgld
from .sampling import exact as exact
from .sampling import hmc as hmc
from .sampling import hmcecs as hmcecs
from .sampling import laplace as laplace
from .sampling import maximise as maximise
from .sampling import mclmc as mclmc
from .sampling import nuts as nuts
from .sampling import psgld as psgld
from .sampling import sample as sample
from .sampling import schedules as schedules
from .sampling import sghmc as sghmc
from .sampling import sgld as sgld
from .sampling import sgld_control_variates as sgld_control_variates
from .sampling import sgnht as sgnht
from .sampling import variational as variational
from .spectra import BrownianBridge as BrownianBridge
from .spectra import BrownianMotion as BrownianMotion
from .spectra import FiniteRank as FiniteRank
from .spectra import Laplacian as Laplacian
from .spectra import Matern as Matern
from .spectra import Nystrom as Nystrom
from .spectra import Periodic as Periodic
from .spectra import Spectrum as Spectrum
from .spectra import SquaredExponential as SquaredExponential
from .spectra import TensorProduct as TensorProduct
from .terms import readout_only as readout_only
from .unknowns import Above as Above
from .unknowns import Between as Between
from .unknowns import LogNormal as LogNormal
from .unknowns import Normal as Normal
from .version import __version__ as __version__
from .whitened import Whitened as Whitened


def __getattr__(name: str):
    """What is loaded when it is first asked for: Matplotlib takes as long as all the rest, and
    scikit-learn is an extra."""
    import importlib

    if name == "plots":
        return importlib.import_module(".plots", __name__)
    if name == "MercerRegressor":
        return importlib.import_module(".regressor", __name__).MercerRegressor
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
