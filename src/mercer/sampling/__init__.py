"""From a log density to draws: algorithms, one family a file, and the run loop."""

from ..optimise import maximise as maximise
from .algorithm import Algorithm as Algorithm
from .algorithm import Info as Info
from .algorithms.approximate import evidence_bound as evidence_bound
from .algorithms.approximate import laplace as laplace
from .algorithms.approximate import variational as variational
from .algorithms.exact import exact as exact
from .algorithms.hamiltonian import hmc as hmc
from .algorithms.hamiltonian import nuts as nuts
from .algorithms.langevin import average_gradient as average_gradient
from .algorithms.langevin import cyclical_sgld as cyclical_sgld
from .algorithms.langevin import psgld as psgld
from .algorithms.langevin import sgld as sgld
from .algorithms.langevin import sgld_control_variates as sgld_control_variates
from .algorithms.microcanonical import adjusted_mclmc as adjusted_mclmc
from .algorithms.microcanonical import mclmc as mclmc
from .algorithms.schedules import Schedule as Schedule
from .algorithms.subsampling import hmcecs as hmcecs
from .algorithms.underdamped import sghmc as sghmc
from .algorithms.underdamped import sgnht as sgnht
from .loop import SamplingError as SamplingError
from .run import sample as sample
