"""Eigenpairs of covariance operators, one family a file, and their algebra."""

from .base import Spectrum as Spectrum
from .brownian import BrownianBridge as BrownianBridge
from .brownian import BrownianMotion as BrownianMotion
from .finite_rank import FiniteRank as FiniteRank
from .laplacian import Laplacian as Laplacian
from .matern import Matern as Matern
from .nystrom import Nystrom as Nystrom
from .periodic import Periodic as Periodic
from .squared_exponential import SquaredExponential as SquaredExponential
from .tensor_product import TensorProduct as TensorProduct
