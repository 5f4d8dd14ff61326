"""Plots of fitted models, with matplotlib: each function draws into an `ax` and returns it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from .nn import GatedAttentionPooling, SeedAttentionPooling
from .sets import Sets

__all__ = ["attention", "calibration", "contributions", "importance", "learning_curve"]


def contributions(
    model: Any,
    X: Any,
    *,
    z: Any = None,
    output: int = -1,
    names: Sequence[str] | None = None,
    top: int = 20,
    ax: Any = None,
) -> Any:
    """Plot how much each member of one set contributes to its prediction, largest on top.

    Parameters
    ----------
    model : SetClassifier or SetRegressor
        Fitted.
    X, z
        One set, in the form that `model.fit` took: a list of one array, or the rows of one set of a table.
    output : int, default=-1
        Class or target to show.
    names : sequence of str, optional
        One label per member; its position by default.
    top : int, default=20
        Show at most so many members, those with the largest contributions.
    ax : matplotlib Axes, optional
        Where to draw; a new figure by default.

    Examples
    --------
    >>> from deepsets.estimators import SetRegressor
    >>> X = [np.random.default_rng(i).normal(size=(4, 2)) for i in range(30)]
    >>> model = SetRegressor(model="linear").fit(X, [x.sum() for x in X])
    >>> contributions(model, X[:1], names=["a", "b", "c", "d"]).get_xlabel()
    'contribution to the prediction'
    """
    found = model.explain(X, z=z)
    if isinstance(found, list) and len(found) != 1:
        raise ValueError(f"contributions shows one set, found {len(found)}: pass X[i:i + 1].")
    values = (found[0] if isinstance(found, list) else found)[:, output]
    return _bars(values, names, top, "contribution to the prediction", ax)


def attention(
    model: torch.nn.Module,
    sets: Sets,
    z: torch.Tensor | None = None,
    *,
    head: int = 0,
    names: Sequence[str] | None = None,
    top: int = 20,
    ax: Any = None,
) -> Any:
    """Plot the attention weights of the members of one set, largest on top.

    Attention tells what the pooling looks at, which is not always what the prediction rests on: compare
    `contributions` and :func:`deepsets.nn.leave_one_out`.

    Parameters
    ----------
    model : nn.Module
        A model with one `GatedAttentionPooling` or `SeedAttentionPooling`.
    sets : Sets
        Input of the model: one set.
    z : Tensor, optional
        Vector of the set, (1, z), for a model that is conditioned.
    head : int, default=0
        Which head, for `SeedAttentionPooling`; head h of seed s is ``s * num_heads + h``.
    names, top, ax
        As in `contributions`.

    Examples
    --------
    >>> from deepsets import nn
    >>> model = nn.DeepSet(nn.mlp(2, 16, 8), nn.mlp(8, 1), pool=nn.GatedAttentionPooling(8))
    >>> attention(model, Sets.from_list([torch.randn(5, 2)])).get_xlabel()
    'attention weight'
    """
    if len(sets) != 1:
        raise ValueError(f"attention shows one set, found {len(sets)}: pass sets[[i]].")
    pools = [m for m in model.modules() if isinstance(m, GatedAttentionPooling | SeedAttentionPooling)]
    if len(pools) != 1:
        raise ValueError(f"attention needs a model with one attention pooling, found {len(pools)}.")
    seen: list[Sets] = []
    with torch.no_grad(), pools[0].register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0])):
        model(sets) if z is None else model(sets, z)
        members = seen[0].materialize()
        weights = pools[0].scored(members)[0][:, head].double().softmax(0)
    weights = weights if members.weights is None else weights * members.weights
    return _bars((weights / weights.sum()).cpu().numpy(), names, top, "attention weight", ax)


def calibration(y: Any, probability: Any, *, bins: int = 10, ax: Any = None) -> Any:
    """Plot how often an event happened against its predicted probability; a calibrated model is on the diagonal.

    Parameters
    ----------
    y : array of shape (sets,)
        Whether the event happened, 0 or 1.
    probability : array of shape (sets,)
        Predicted probability of the event, for example ``model.predict_proba(X)[:, 1]``.
    bins : int, default=10
        Groups with equally many predictions.
    ax
        As in `contributions`.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> p = rng.random(500)
    >>> calibration(rng.random(500) < p, p).get_xlabel()
    'predicted probability'
    """
    from sklearn.calibration import calibration_curve

    ax = _axes(ax)
    share, predicted = calibration_curve(np.asarray(y, dtype=int), probability, n_bins=bins, strategy="quantile")
    ax.plot([0, 1], [0, 1], color="0.6", linewidth=1, linestyle="--", label="calibrated")
    ax.plot(predicted, share, marker="o", label="model")
    ax.set(xlim=(0, 1), ylim=(0, 1), xlabel="predicted probability", ylabel="observed share", aspect="equal")
    ax.legend()
    return ax


def learning_curve(history: Sequence[Mapping[str, float]], *, ax: Any = None) -> Any:
    """Plot the loss of each epoch, and the validation loss where there is one.

    Parameters
    ----------
    history : sequence of dict
        What :func:`deepsets.train.train` returns, and fitted networks keep as ``history_``.
    ax
        As in `contributions`.

    Examples
    --------
    >>> learning_curve([{"epoch": 1, "loss": 0.7}, {"epoch": 2, "loss": 0.5}]).get_ylabel()
    'loss'
    """
    ax = _axes(ax)
    for key, label in (("loss", "training"), ("validation", "validation")):
        rows = [row for row in history if key in row]
        if rows:
            ax.plot([row["epoch"] for row in rows], [row[key] for row in rows], label=label)
    ax.set(xlabel="epoch", ylabel="loss")
    ax.legend()
    return ax


def importance(result: Any, *, top: int = 20, ax: Any = None) -> Any:
    """Plot the permutation importance of columns, with its standard deviation over the repeats.

    Parameters
    ----------
    result : Bunch
        What ``model.feature_importance(X, y)`` returns.
    top, ax
        As in `contributions`.

    Examples
    --------
    >>> from deepsets.estimators import SetRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = [rng.normal(size=(4, 2)) for _ in range(30)]
    >>> y = [x[:, 0].sum() for x in X]
    >>> result = SetRegressor(model="linear").fit(X, y).feature_importance(X, y)
    >>> [label.get_text() for label in importance(result).get_yticklabels()]
    ['x1', 'x0']
    """
    mean, deviation = result.importances_mean, result.importances_std
    return _bars(mean, result.feature_names, top, "loss of score when permuted", ax, deviation)


def _axes(ax: Any) -> Any:
    if ax is not None:
        return ax
    import matplotlib.pyplot as plt

    return plt.subplots(layout="constrained")[1]


def _bars(values: np.ndarray, names: Any, top: int, label: str, ax: Any, deviation: np.ndarray | None = None) -> Any:
    names = [str(i) for i in range(len(values))] if names is None else list(names)
    if len(names) != len(values):
        raise ValueError(f"names must have one entry per member: found {len(names)} names and {len(values)} members.")
    ax = _axes(ax)
    order = np.argsort(np.abs(values), kind="stable")[-top:]
    error = None if deviation is None else deviation[order]
    colors = np.where(values[order] >= 0, "tab:blue", "tab:red")
    ax.barh(range(len(order)), values[order], xerr=error, ecolor="0.3", color=colors)
    ax.set_yticks(range(len(order)), [names[i] for i in order])
    ax.set_xlabel(label)
    return ax
