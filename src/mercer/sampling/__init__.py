"""From a log density to draws: one algorithm a file, and the run loop."""

from .algorithm import Algorithm as Algorithm
from .algorithm import Info as Info
from .approximate import evidence_bound as evidence_bound
from .approximate import laplace as laplace
from .approximate import variational as variational
from .exact import exact as exact
from .hamiltonian import hmc as hmc
from .hamiltonian import nuts as nuts
from .langevin import average_gradient as average_gradient
from .langevin import cyclical_sgld as cyclical_sgld
from .langevin import psgld as psgld
from .langevin import sgld as sgld
from .langevin import sgld_control_variates as sgld_control_variates
from .maximise import maximise as maximise
from .microcanonical import adjusted_mclmc as adjusted_mclmc
from .microcanonical import mclmc as mclmc
from .run import SamplingError as SamplingError
from .run import sample as sample
from .subsampling import hmcecs as hmcecs
from .underdamped import sghmc as sghmc
from .underdamped import sgnht as sgnht
