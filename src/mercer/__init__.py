"""Bayesian neural networks whose prior is a Gaussian process you can name."""

from . import data as data
from . import diagnostics as diagnostics
from . import hyper as hyper
from . import pde as pde
from .coordinates import Frozen as Frozen
from .coordinates import NonCentred as NonCentred
from .density import Density as Density
from .describe import describe as describe
from .design import design as design
from .domains import Box as Box
from .domains import Domain as Domain
from .domains import Empirical as Empirical
from .domains import Interval as Interval
from .domains import RealLine as RealLine
from .draws import Draws as Draws
from .energy import Lattice as Lattice
from .energy import MonteCarlo as MonteCarlo
from .energy import Nodes as Nodes
from .energy import Quadrature as Quadrature
from .fidelity import fidelity as fidelity
from .likelihoods import Bernoulli as Bernoulli
from .likelihoods import Gaussian as Gaussian
from .likelihoods import Heteroscedastic as Heteroscedastic
from .likelihoods import Likelihood as Likelihood
from .likelihoods import Poisson as Poisson
from .likelihoods import StudentT as StudentT
from .networks import MLP as MLP
from .networks import FourierMLP as FourierMLP
from .networks import Radial as Radial
from .optimise import maximise as maximise
from .parameters import constant as constant
from .parameters import readout_only as readout_only
from .posterior import Posterior as Posterior
from .prior import IsotropicPrior as IsotropicPrior
from .prior import Prior as Prior
from .process import GaussianProcess as GaussianProcess
from .sampling import SamplingError as SamplingError
from .sampling import adjusted_mclmc as adjusted_mclmc
from .sampling import cyclical_sgld as cyclical_sgld
from .sampling import exact as exact
from .sampling import hmc as hmc
from .sampling import laplace as laplace
from .sampling import mclmc as mclmc
from .sampling import nuts as nuts
from .sampling import psgld as psgld
from .sampling import sample as sample
from .sampling import sghmc as sghmc
from .sampling import sgld as sgld
from .sampling import sgnht as sgnht
from .sampling import variational as variational
from .saving import load as load
from .saving import save as save
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
from .version import __version__ as __version__


def __getattr__(name: str):
    """What is loaded when it is first asked for: Matplotlib takes as long as all the rest, and
    scikit-learn is an extra."""
    import importlib

    if name == "plots":
        return importlib.import_module(".plots", __name__)
    if name == "MercerRegressor":
        return importlib.import_module(".estimators", __name__).MercerRegressor
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
