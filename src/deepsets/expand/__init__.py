"""Set expansion: from a few examples to more like them (Deep Sets, section 4.2 and appendices D, E)."""

from .base import Candidate as Candidate
from .base import Expander as Expander
from .bayesian import BayesianSets as BayesianSets
from .blend import BlendedExpander as BlendedExpander
from .learned import SetExpander as SetExpander
from .odd_member import odd_member as odd_member
from .random import RandomExpander as RandomExpander
from .vectors import NearestVectors as NearestVectors
