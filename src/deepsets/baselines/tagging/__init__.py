"""What the paper compares with in image tagging, each with `fit(features, tags)` and `scores(features)`."""

from ._choose import Tagger as Tagger
from ._choose import choose as choose
from ._fasttag import FastTag as FastTag
from ._jec import JEC as JEC
from ._least_squares import LeastSquares as LeastSquares
from ._mbrm import MBRM as MBRM
from ._scaling import Scaling as Scaling
