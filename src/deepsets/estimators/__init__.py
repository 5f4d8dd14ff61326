"""The scikit-learn face: fit and predict on sets."""

from ._member import MemberClassifier as MemberClassifier
from ._member import MemberRegressor as MemberRegressor
from ._odd import OddOneOut as OddOneOut
from ._set import SetClassifier as SetClassifier
from ._set import SetRegressor as SetRegressor
