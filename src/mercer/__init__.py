"""Bayesian neural networks whose prior is a Gaussian process you can name."""

from . import plots as plots
from .density import Posterior as Posterior
from .density import Prior as Prior
from .describe import describe as describe
from .design import design as design
from .domains import Box as Box
from .domains import Domain as Domain
from .domains import Empirical as Empirical
from .domains import Interval as Interval
from .domains import RealLine as RealLine
from .energy import Energy as Energy
from .energy import Lattice as Lattice
from .energy import MonteCarlo as MonteCarlo
from .energy import Quadrature as Quadrature
from .fidelity import Fidelity as Fidelity
from .fidelity import fidelity as fidelity
from .likelihoods import Bernoulli as Bernoulli
from .likelihoods import Gaussian as Gaussian
from .likelihoods import Heteroscedastic as Heteroscedastic
from .likelihoods import Likelihood as Likelihood
from .likelihoods import LogNormal as LogNormal
from .likelihoods import Poisson as Poisson
from .likelihoods import StudentT as StudentT
from .networks import FourierMLP as FourierMLP
from .reference import GaussianProcess as GaussianProcess
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

__version__ = "0.1.0"
