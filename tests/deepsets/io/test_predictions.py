"""One table of tasks."""

from deepsets import estimators
from deepsets.io.predictions import TASKS, task_of


def test_every_task_names_an_estimator_that_exists():
    for name, task in TASKS.items():
        assert task.name == name
        if task.estimator is not None:
            assert task_of(getattr(estimators, task.estimator)()) is task
            assert task.per_member == task.estimator.startswith("Member")
    assert task_of("BayesianSets") is TASKS["expansion"]
