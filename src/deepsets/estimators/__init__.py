"""Estimators with scikit-learn's interface: fit and predict on sets."""

from .members import MemberClassifier, MemberRegressor, OddOneOut
from .sdm import SupportDistributionMachine
from .set_classifier import SetClassifier
from .set_regressor import SetRegressor

__all__ = [
    "MemberClassifier",
    "MemberRegressor",
    "OddOneOut",
    "SetClassifier",
    "SetRegressor",
    "SupportDistributionMachine",
]
