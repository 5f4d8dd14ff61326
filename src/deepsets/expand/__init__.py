"""Set expansion: from a few examples to more like them (Deep Sets, section 4.2 and appendices D, E)."""

from ._base import Candidate as Candidate
from ._base import Expander as Expander
from ._bayesian import BayesianSets as BayesianSets
from ._blend import BlendedExpander as BlendedExpander
from ._learned import SetExpander as SetExpander
from ._odd import odd_member as odd_member
from ._random import RandomExpander as RandomExpander
from ._vectors import NearestVectors as NearestVectors
