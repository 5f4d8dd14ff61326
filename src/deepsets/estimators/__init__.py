"""The scikit-learn face: fit and predict on sets."""

from .members import MemberClassifier as MemberClassifier
from .members import MemberRegressor as MemberRegressor
from .odd_one_out import OddOneOut as OddOneOut
from .sets import SetClassifier as SetClassifier
from .sets import SetRegressor as SetRegressor
