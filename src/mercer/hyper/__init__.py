"""Hyperparameters: learned with the network, by the evidence's gradient, or compared by evidence."""

from ..hyperpriors import Above as Above
from ..hyperpriors import Between as Between
from ..hyperpriors import Hyperprior as Hyperprior
from ..hyperpriors import LogNormal as LogNormal
from ..hyperpriors import Normal as Normal
from .ascent import EmpiricalBayes as EmpiricalBayes
from .ascent import empirical_bayes as empirical_bayes
from .ascent import make_step as make_step
from .evidence import Estimate as Estimate
from .evidence import log_evidence as log_evidence
from .gradient import evidence_gradient as evidence_gradient
from .joint import Joint as Joint
from .loo import leave_one_out as leave_one_out
from .nested import nested_sgld as nested_sgld
from .pseudo import pseudo_marginal as pseudo_marginal
