"""The model card: what a model predicts, from what, how it was trained and how to use it."""

from __future__ import annotations

from typing import Any

from .predictions import TASKS, task_of


def card(model: Any, config: dict[str, Any], name: str) -> str:
    """Return README.md of a model folder."""
    params = config["params"]
    task = task_of(config["class"])
    expander, context = task is TASKS["expansion"], int(getattr(model, "n_context_", 0))
    what, kind = _about(task.about, model), "an expander" if expander else "an estimator"
    if expander:
        call = f"model.expand([{', '.join(map(repr, model.vocabulary_[:2]))}], k=10"
        call += ", z=…)" if context else ")"
    else:
        call = "model.predict(X, z=…)" if context else "model.predict(X)"
    lines = [
        f"# {name}",
        "",
        f"`{config['class']}`, {kind} of the Python library deepsets. It {what}.",
        "",
        "```python",
        "import deepsets",
        f'model = deepsets.load("{name}")',
        call,
        "```",
        "",
        "## Input",
        "",
        f"- members: {_members(model)}",
    ]
    if context:
        names = getattr(model, "context_names_in_", None)
        lines.append(f"- z, known of the set as a whole: {_names(names) if names else _count(context, 'number')}")
    if params.get("by"):
        lines.append(f"- in tables with one row per member, the set is named by column `{params['by']}`")
    if not expander:
        refused = config["class"] == "SupportDistributionMachine"
        lines.append(f"- missing values (NaN) are {'refused' if refused else 'allowed, in training and in prediction'}")
    lines += ["", "## Training", ""]
    if hasattr(model, "n_sets_"):
        lines.append(f"- {model.n_sets_:,} sets with {model.n_members_:,} members")
    if getattr(model, "history_", None):
        lines.append(f"- training loss of the last epoch: {model.history_[-1]['loss']:.4g}")
    settings = ", ".join(f"{key}={value!r}" for key, value in params.items() if key not in ("by", "columns"))
    lines += [f"- settings: `{settings}`", "", "## Versions", ""]
    lines += [f"- {key} {value}" for key, value in config["versions"].items()]
    return "\n".join([*lines, f"- model folder format {config['format_version']}", ""])


def _about(text: str, model: Any) -> str:
    names, classes = getattr(model, "target_names_", None), getattr(model, "classes_", None)
    return text.format(
        target=_names(names) if names else ("the target" if classes is None else "the class"),
        outputs=_count(getattr(model, "n_outputs_", 1), "number"),
        classes="" if classes is None else _names(map(repr, classes.tolist())),
    )


def _members(model: Any) -> str:
    if getattr(model, "vocabulary_", None):
        return f"tokens of a vocabulary of {len(model.vocabulary_):,}"
    if hasattr(model, "feature_names_in_"):
        return f"{_count(len(model.feature_names_in_), 'feature')}: {_names(model.feature_names_in_)}"
    return _count(getattr(model, "n_features_in_", 0), "feature")


def _count(number: int, what: str) -> str:
    return f"{number} {what}" + "s" * (number != 1)


def _names(names: Any, most: int = 30) -> str:
    names = [f"`{name}`" for name in names]
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
