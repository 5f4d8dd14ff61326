"""Plots show the numbers of the model: each is compared with what is read off the axes."""

from types import SimpleNamespace

import matplotlib as mpl
import numpy as np
import pytest
import torch

from deepsets import Sets, nn, plot
from deepsets.estimators import SetClassifier

plt = pytest.importorskip("matplotlib.pyplot")
mpl.use("Agg")


@pytest.fixture(autouse=True)
def close_figures():
    yield
    plt.close("all")


def bars(ax):
    """Label and length of each bar, from the bottom."""
    labels = [label.get_text() for label in ax.get_yticklabels()]
    return dict(zip(labels, (bar.get_width() for bar in ax.patches), strict=True))


@pytest.fixture(scope="module")
def fitted():
    rng = np.random.default_rng(0)
    X = [rng.normal(size=(5, 2)) + (i % 2) for i in range(40)]
    return SetClassifier(model="linear", random_state=0).fit(X, [i % 2 for i in range(40)]), X


def test_contributions_are_those_of_explain_largest_on_top(fitted):
    model, X = fitted
    expected = model.explain(X[:1])[0][:, 1]
    shown = bars(plot.contributions(model, X[:1], names=list("abcde")))
    assert shown == pytest.approx(dict(zip("abcde", expected, strict=True)))
    assert list(shown)[-1] == "abcde"[int(np.abs(expected).argmax())]
    assert len(bars(plot.contributions(model, X[:1], top=2))) == 2
    _, axes = plt.subplots(1, 2)
    assert plot.contributions(model, X[:1], ax=axes[1]) is axes[1]


def test_attention_weights_are_the_softmax_of_the_scores():
    pool = nn.GatedAttentionPooling(3)
    model = nn.DeepSet(torch.nn.Identity(), nn.mlp(3, 1), pool=pool)
    x = torch.randn(4, 3)
    with torch.no_grad():
        score = (torch.tanh(pool.content(x)) * torch.sigmoid(pool.gate(x))) @ pool.score.weight.T
        share = np.exp(score[:, 0].numpy())
    shown = bars(plot.attention(model, Sets.from_list([x])))
    assert [shown[str(i)] for i in range(4)] == pytest.approx(list(share / share.sum()), rel=1e-5)
    weighted = Sets.from_list([x], weights=[torch.tensor([1.0, 0.0, 2.0, 1.0])])
    expected = share * [1, 0, 2, 1]
    shown = bars(plot.attention(model, weighted))
    assert [shown[str(i)] for i in range(4)] == pytest.approx(list(expected / expected.sum()), rel=1e-5)
    assert not pool._forward_pre_hooks


def test_attention_of_seeds_has_a_head_and_takes_z():
    model = nn.DeepSet(nn.mlp(2, 8), nn.mlp(9, 1), pool=nn.SeedAttentionPooling(8, num_heads=2), condition="rho")
    x, z = Sets.from_list([torch.randn(6, 2)]), torch.randn(1, 1)
    first, second = (bars(plot.attention(model, x, z, head=head)) for head in (0, 1))
    assert sum(first.values()) == pytest.approx(1) and first != second


def test_calibration_of_a_calibrated_model_is_on_the_diagonal():
    rng = np.random.default_rng(0)
    p = rng.random(20_000)
    predicted, share = plot.calibration(rng.random(20_000) < p, p, bins=5).lines[1].get_data()
    assert len(share) == 5 and np.abs(predicted - share).max() < 0.02


def test_learning_curve_has_a_line_for_each_loss_there_is():
    history = [{"epoch": 1, "loss": 3.0, "validation": 4.0}, {"epoch": 2, "loss": 1.0, "validation": 2.0}]
    ax = plot.learning_curve(history)
    assert [list(line.get_ydata()) for line in ax.lines] == [[3.0, 1.0], [4.0, 2.0]]
    assert len(plot.learning_curve([{"epoch": 1, "loss": 3.0}]).lines) == 1


def test_importance_has_its_deviation():
    names, mean, std = np.array(["a", "b"]), np.array([0.1, 0.4]), np.array([0.01, 0.02])
    ax = plot.importance(SimpleNamespace(importances_mean=mean, importances_std=std, feature_names=names))
    assert bars(ax) == pytest.approx({"a": 0.1, "b": 0.4})
    ends = ax.collections[0].get_segments()[1][:, 0]
    assert list(ends) == pytest.approx([0.38, 0.42])


def test_more_than_one_set_is_refused(fitted):
    model, X = fitted
    with pytest.raises(ValueError, match=r"one set, found 2: pass X\[i:i \+ 1\]"):
        plot.contributions(model, X[:2])
    net = nn.DeepSet(torch.nn.Identity(), nn.mlp(3, 1), pool=nn.GatedAttentionPooling(3))
    with pytest.raises(ValueError, match=r"one set, found 2: pass sets\[\[i\]\]"):
        plot.attention(net, Sets.from_list([torch.randn(2, 3)] * 2))
    with pytest.raises(ValueError, match="one attention pooling, found 0"):
        plot.attention(nn.DeepSet(torch.nn.Identity(), nn.mlp(3, 1)), Sets.from_list([torch.randn(2, 3)]))
    with pytest.raises(ValueError, match="found 2 names and 5 members"):
        plot.contributions(model, X[:1], names=["a", "b"])
