"""The model card: what a folder predicts, from what, and how to use it, for whoever finds it later."""

from __future__ import annotations

from typing import Any

_WHAT = {
    "SetRegressor": "{target} of a set: {outputs} for each set",
    "SetClassifier": "{target} of a set: one of {classes}",
    "MemberRegressor": "{target} of each member of a set, seen together with its set mates: {outputs}",
    "MemberClassifier": "{target} of each member of a set, seen together with its set mates: one of {classes}",
    "OddOneOut": "which member of a set does not belong",
}


def card(config: dict[str, Any], name: str, loss: float | None) -> str:
    """README.md of a model folder. loss: of the last epoch of the training, if it is known."""
    fitted, params = config["fitted"], config["params"]
    expander = config["class"] not in _WHAT
    if expander:
        what, kind = "finds the elements that go with a few given ones", "an expander"
        asked = f"model.expand([{', '.join(map(repr, fitted['vocabulary_'][:2]))}], k=10"
        asked += ", z=…)" if fitted["n_context_"] else ")"
    else:
        what, kind = f"predicts {_predicts(config['class'], fitted)}", "an estimator"
        asked = "answers = model.predict(X)" + ("  # and z=…" if fitted["n_context_"] else "")
    lines = [
        f"# {name}",
        "",
        f"`{config['class']}`, {kind} of the Python library deepsets. It {what}.",
        "",
        "```python",
        "import deepsets",
        f'model = deepsets.load("{name}")',
        asked,
        "```",
        "",
        "## What it looks at",
        "",
        f"- members: {_members(fitted)}",
    ]
    if fitted["n_context_"]:
        names = fitted.get("context_names_in_")
        lines.append(f"- z, known of each set: {_names(names) if names else _count(fitted['n_context_'], 'number')}")
    if params.get("by"):
        lines.append(f"- in tables with a row for each member, the set is named by `{params['by']}`")
    missing = "replaced by the training mean" if params.get("impute") else "refused"
    lines += [*([] if expander else [f"- missing features (NaN) are {missing}"]), "", "## How it was trained", ""]
    if "n_sets_" in fitted:
        lines.append(f"- on {fitted['n_sets_']:,} sets with {fitted['n_members_']:,} members")
    if loss is not None:
        lines.append(f"- training loss of the last epoch: {loss:.4g}")
    settings = ", ".join(f"{key}={value!r}" for key, value in params.items() if key not in ("by", "columns"))
    lines += [f"- settings: `{settings}`", "", "## Versions", ""]
    lines += [f"- {key} {value}" for key, value in config["versions"].items()]
    return "\n".join([*lines, f"- model folder format {config['format_version']}", ""])


def _predicts(kind: str, fitted: dict[str, Any]) -> str:
    names = fitted.get("target_names_")
    return _WHAT[kind].format(
        target=_names(names) if names else ("the class" if "classes_" in fitted else "the target"),
        outputs=_count(fitted["n_outputs_"], "number"),
        classes=_names(map(repr, fitted["classes_"]["entries"])) if "classes_" in fitted else "",
    )


def _members(fitted: dict[str, Any]) -> str:
    if fitted.get("vocabulary_"):
        return f"tokens of a vocabulary of {len(fitted['vocabulary_']):,}"
    if "feature_names_in_" in fitted:
        names = fitted["feature_names_in_"]["entries"]
        return f"{_count(len(names), 'feature')}: {_names(names)}"
    return _count(fitted["n_features_in_"], "feature")


def _count(number: int, what: str) -> str:
    return f"{number} {what}" + "s" * (number != 1)


def _names(names: Any, most: int = 30) -> str:
    names = [f"`{name}`" for name in names]
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
