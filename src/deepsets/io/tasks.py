"""The tasks that a model can be fitted for, under one name everywhere."""

from __future__ import annotations

from typing import Any, NamedTuple


class Task(NamedTuple):
    """Task of a model.

    Attributes
    ----------
    name : str
        Name on the command line, in the service and in model cards.
    estimator : str or None
        Name of the estimator class; None for set expansion, which has several.
    per_member : bool
        Whether there is one prediction per member instead of one per set.
    classes : bool
        Whether predictions are classes.
    about : str
        What is predicted, for model cards.
    """

    name: str
    estimator: str | None
    per_member: bool
    classes: bool
    about: str


TASKS = {
    task.name: task
    for task in (
        Task("set-regression", "SetRegressor", False, False, "predicts {target} of a set: {outputs} per set"),
        Task("set-classification", "SetClassifier", False, True, "predicts {target} of a set: one of {classes}"),
        Task(
            "member-regression",
            "MemberRegressor",
            True,
            False,
            "predicts {target} of each member, given the other members of its set: {outputs}",
        ),
        Task(
            "member-classification",
            "MemberClassifier",
            True,
            True,
            "predicts {target} of each member, given the other members of its set: one of {classes}",
        ),
        Task("odd-one-out", "OddOneOut", False, False, "predicts which member does not belong to its set"),
        Task("expansion", None, False, False, "finds elements that belong to the same set as a few given ones"),
    )
}


def task_of(model: Any) -> Task:
    """Return the task of a model.

    Parameters
    ----------
    model : estimator, Expander or str
        A model, or the name of its class.
    """
    name = model if isinstance(model, str) else type(model).__name__
    if name == "SupportDistributionMachine":
        return TASKS["set-regression"]
    return next((task for task in TASKS.values() if task.estimator == name), TASKS["expansion"])
