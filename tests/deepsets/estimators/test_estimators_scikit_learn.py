"""scikit-learn's own checks and tools on set estimators."""

import numpy as np
import pytest
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import BaggingClassifier
from sklearn.experimental import enable_halving_search_cv  # noqa: F401
from sklearn.inspection import permutation_importance
from sklearn.model_selection import HalvingGridSearchCV
from sklearn.utils import get_tags
from sklearn.utils.estimator_checks import check_estimator

from deepsets import Sets
from deepsets.estimators import MemberClassifier, OddOneOut, SetClassifier, SetRegressor


def task(count: int = 40):
    rng = np.random.default_rng(0)
    X = [rng.normal(size=(rng.integers(2, 8), 3)) for _ in range(count)]
    return X, np.array([int(x[:, 0].mean() > 0) for x in X])


def test_tags_are_honest():
    for kind in (SetClassifier, SetRegressor, MemberClassifier, OddOneOut):
        tags = get_tags(kind())
        assert not tags.input_tags.two_d_array
        assert tags.input_tags.three_d_array
        assert tags.input_tags.allow_nan
    assert get_tags(SetClassifier()).classifier_tags.multi_label


def test_tools_for_any_estimator_work_on_lists():
    X, y = task()
    search = HalvingGridSearchCV(SetClassifier(random_state=0), {"model": ["linear", "forest"]}, cv=2, min_resources=20)
    assert search.fit(X, y).best_params_["model"] in ("linear", "forest")
    with pytest.raises(ValueError, match=r"inhomogeneous|shape"):  # bagging makes an array of X
        BaggingClassifier(SetClassifier(model="linear"), n_estimators=2).fit(X, y)
    sets = np.asarray(Sets.from_list(X))
    assert BaggingClassifier(SetClassifier(model="linear"), 2, random_state=0).fit(sets, y).score(sets, y) > 0.8
    alone = SetClassifier(model="linear", random_state=0).fit(sets, y)
    np.testing.assert_allclose(alone.predict_proba(sets), alone.predict_proba(X), atol=1e-6)
    for form in (sets, Sets.from_list(X)):
        found = permutation_importance(alone, form, y, n_repeats=2, random_state=0)  # whole sets are one column
        assert found.importances_mean.shape == (1,) and found.importances_mean[0] > 0.2
    calibrated = CalibratedClassifierCV(SetClassifier(model="linear", random_state=0), cv=2).fit(X, y)
    assert calibrated.score(X, y) > 0.8
    array = np.random.default_rng(0).normal(size=(40, 4, 3))
    labels = (array[:, :, 0].mean(1) > 0).astype(int)
    model = SetClassifier(model="linear", random_state=0).fit(array, labels)
    assert model.score(array, labels) > 0.9
    assert len(Sets.from_list(X)) == 40


def test_permutation_importance_takes_tables():
    import pandas as pd

    rng = np.random.default_rng(0)
    ids = np.repeat(np.arange(60), 5)
    table = pd.DataFrame({"set": ids, "a": rng.normal(size=300), "b": rng.normal(size=300)})
    y = table.groupby("set")["a"].transform("mean")
    model = SetRegressor(model="linear", by="set", columns=["a", "b"], random_state=0).fit(table, y)

    def score(model, X, y):
        return model.score(X.assign(set=ids), y)

    found = permutation_importance(model, table[["a", "b"]], y, scoring=score, n_repeats=2, random_state=0)
    assert found.importances_mean[0] > 10 * abs(found.importances_mean[1])


class RowsAsSets(SetClassifier):
    """Each row of a 2-D array as a set of one member, so that scikit-learn's checks can be run."""

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = True  # otherwise scikit-learn skips all checks
        tags.input_tags.string = tags.input_tags.categorical = False
        return tags

    @staticmethod
    def _rows(X):
        X = np.asarray(X) if hasattr(X, "__array__") and not hasattr(X, "columns") else X
        return X[:, None, :] if isinstance(X, np.ndarray) and X.ndim == 2 and X.dtype != object else X

    def _read_first(self, X, y, z):
        return super()._read_first(self._rows(X), y, z)

    def _read(self, X, z=None, y=None):
        return super()._read(self._rows(X), z, y)


# Checks that do not hold, each with its reason.
EXPECTED = {
    "check_fit_score_takes_y": "partial_fit continues deep networks; the linear model has none",
    "check_n_features_in_after_fitting": "the message speaks of members: 'X has members with 2 features, but …'",
    "check_classifiers_train": "the same message",
    "check_sample_weights_pandas_series": "a pandas table needs by=, the column that identifies the set",
    "check_classifier_data_not_an_array": "the same",
    "check_sample_weight_equivalence_on_dense_data": "other rows give other folds, and so another regularisation",
    "check_dtype_object": "an array of objects is a list of sets",
    "check_estimators_empty_data_messages": "the message names the shape (sets, members, features)",
    "check_fit2d_predict1d": "the message names the shape (sets, members, features)",
}


@pytest.mark.slow
def test_scikit_learns_checks_hold_for_rows_as_sets_of_one():
    results = check_estimator(RowsAsSets(model="linear", n_estimators=2, random_state=0), on_skip=None, on_fail=None)
    assert len(results) > 60
    failed = {r["check_name"]: str(r["exception"])[:150] for r in results if r["status"] == "failed"}
    assert failed.keys() == EXPECTED.keys(), {name: e for name, e in failed.items() if name not in EXPECTED}
