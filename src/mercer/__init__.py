from .domains import *
from .spectra import *
from .energy import *
from .networks import *
from .density import *
from .likelihoods import *
from .fidelity import *
from .design import *
