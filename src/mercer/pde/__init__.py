"""Forward maps with gradients: conduction in closed form, and steady flow by finite volumes.

Each is a function of a conductivity, so that `observe` of a likelihood can be one. Wrong input
raises where it is known; inside a compiled function a conductivity that is not positive, or an
iteration that fails, gives NaN instead, which a sampler rejects as it does any divergent step.
"""

from .conduction import conduct as conduct
from .flow import Flow as Flow
