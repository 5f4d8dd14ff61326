"""Learning on sets: ragged batches, Deep Sets models, and what the paper compares them with."""

from . import nn as nn
from .sets import Sets as Sets
