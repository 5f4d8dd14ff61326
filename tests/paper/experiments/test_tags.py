"""Tag precision, recall, F1 and N+; the tagging networks; the experiment in small."""

import os
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import paper
from deepsets.train import Batch
from paper import Outcome, Record, Trial
from paper.baselines.tagging import LeastSquares, tag_scores, top_tags
from paper.datasets.tagging import generated, load_corel5k
from paper.experiments.tags import EXPERIMENT, HINGE, SMOOTH
from paper.experiments.tags_networks import TagHeads, TagLoss, TagNetwork, as_sets, fit_network, network_scores

EMPTY = np.zeros(0, np.int64)


@settings(deadline=None)
@given(st.data())
def test_tag_scores_equal_the_plain_loop(data):
    shape = data.draw(st.tuples(st.integers(1, 8), st.integers(3, 6)))
    scores = data.draw(arrays(float, shape, elements=st.integers(0, 4).map(float)))
    truth = data.draw(arrays(np.uint8, shape, elements=st.integers(0, 1)))
    truth[0, 0] = 1
    given_tags = [sorted(range(shape[1]), key=lambda t: (-row[t], t))[:3] for row in scores]
    precision, recall = [], []
    for tag in range(shape[1]):
        has, gets = truth[:, tag].sum(), sum(tag in tags for tags in given_tags)
        right = sum(tag in tags and truth[i, tag] for i, tags in enumerate(given_tags))
        if has:
            precision.append(right / gets if gets else 0)
            recall.append(right / has)
    found = tag_scores(scores, truth, per_image=3)
    assert found.precision == pytest.approx(np.mean(precision)) and found.recall == pytest.approx(np.mean(recall))
    assert found.n_plus == np.count_nonzero(recall)
    assert top_tags(scores, 3).tolist() == given_tags


def test_perfect_and_hopeless_tags():
    tags = np.array([[1, 1, 0, 0], [0, 0, 1, 1]])
    assert tag_scores(tags, tags, per_image=2) == (1, 1, 1, 4)
    assert tag_scores(1 - tags, tags, per_image=2) == (0, 0, 0, 0)


def test_scores_and_tags_of_other_shapes_are_refused():
    with pytest.raises(ValueError, match=r"found \(2, 3\) and \(3, 2\)"):
        tag_scores(np.zeros((2, 3)), np.zeros((3, 2)))
    with pytest.raises(ValueError, match="between 1 and the 3 tags, found 5"):
        tag_scores(np.zeros((2, 3)), np.zeros((2, 3)))


@pytest.mark.parametrize("kind", [TagNetwork, TagHeads])
@pytest.mark.parametrize("features", [0, 4])
def test_the_order_of_the_tags_does_not_matter(kind, features):
    torch.manual_seed(0)
    network = kind(9, features).eval()
    z = torch.randn(3, features) if features else None
    one = network(as_sets([np.array([1, 5, 2]), EMPTY, np.array([8])]), z)
    other = network(as_sets([np.array([2, 1, 5]), EMPTY, np.array([8])]), z)
    torch.testing.assert_close(one, other)


def test_the_published_score_is_rho_of_one_sum():
    torch.manual_seed(0)
    network, z = TagNetwork(9, 4).eval(), torch.randn(1, 4)
    score, query = network.score, torch.tensor([1, 5])
    scores = network(as_sets([query.numpy()]), z)[0]
    for tag in range(9):
        pooled = score.phi(score.embedding(torch.cat([query, torch.tensor([tag])]))).sum(0)
        slow = score.rest(score.first(pooled) + score.context(z)[0])
        torch.testing.assert_close(scores[tag], slow[0])


@pytest.mark.parametrize("kind", [TagNetwork, TagHeads])
def test_networks_learn_from_the_image_and_rare_tags_can_be_favoured(kind):
    data = generated(images=160)
    nothing = [EMPTY] * len(data.test)
    scores, balanced = (
        network_scores(
            fit_network(kind, data.train, data.z_train, 30, balance=balance, epochs=10, learning_rate=3e-3),
            nothing, data.z_test,
        )
        for balance in (0.0, 1.0)
    )  # fmt: skip
    truth = data.matrix(data.test)
    assert scores[truth > 0].mean() > scores[truth == 0].mean() + 0.2
    often = np.argsort(-np.bincount(np.concatenate(data.train), minlength=30))[:8]
    assert np.isin(top_tags(balanced), often).mean() < np.isin(top_tags(scores), often).mean()


def test_drawn_candidates_stand_for_all():
    loss = TagLoss(torch.tensor([0.5, 0.3, 0.1, 0.01]), balance=0.0, alone=0.5, drop=0.0, candidates=3, margin=None)
    scores, total = torch.tensor([0.3, -1.0, 2.0, 1.0]), 0.0
    torch.manual_seed(0)
    for _ in range(5000):
        other, weight = loss._others()
        total += float((scores[other] + weight).exp().sum()) / 5000
    assert total == pytest.approx(float(scores.exp().sum()), rel=0.03)


def test_global_random_state_is_left_alone():
    data = generated(images=40)
    torch.manual_seed(3)
    before = torch.get_rng_state()
    fit_network(TagNetwork, data.train, None, 30, epochs=1)
    assert torch.equal(torch.get_rng_state(), before)


def test_queries_and_what_is_looked_for_share_nothing():
    data = generated()
    for tags, asked, wanted in zip(data.test, data.asked, data.wanted, strict=True):
        assert sorted([*asked, *wanted]) == tags.tolist() and len(asked) >= 1 and len(wanted) >= 1


@pytest.mark.parametrize("method", ["Least Sq.", "MBRM", "JEC", "FastTag", "w2v NN (blind)", "w2v NN, centred (blind)"])
def test_baselines_run_in_small(method, tmp_path):
    outcome = EXPERIMENT.methods[method](Trial(False, 0, tmp_path), "generated")
    values = {measure.metric: measure.value for measure in outcome.measures}
    if "blind" in method:
        assert values["recall@10"] > 100 * 10 / 30 and len(outcome.extra["retrieved"]) == 8
    else:
        assert values["f1"] > 20 and set(values) == {"precision", "recall", "f1", "n+"}
        assert set(outcome.extra["tagged"][0]) == {"true", "query", "found"}


def test_the_page_of_tags_marks_what_is_not_true():
    pytest.importorskip("matplotlib")
    record = Record.of(EXPERIMENT, False, "Ours", 0)
    shown = {"true": ["sky", "sun", "sea"], "query": ["sky"], "found": ["sun", "cat"]}
    record.add("generated", Outcome([], {"tagged": [shown], "retrieved": [shown]}), Trial(False, 0, Path()), 0.0, 0.0)
    for title, text in (("Tags of eight test images", "sky, sun, sea"), ("The other tags of", "sky\n→ sun, sea")):
        make = next(make for name, make in EXPERIMENT.figures.items() if name.startswith(title))
        (table,) = make([record]).axes[0].tables
        texts = {cell.get_text().get_text() for cell in table.get_celld().values()}
        assert {text, "sun, cat*"} <= texts


@pytest.mark.skipif("DEEPSETS_DATA" not in os.environ, reason="needs Corel5K below $DEEPSETS_DATA")
def test_ridge_on_corel5k_gives_the_known_numbers():
    try:
        data = load_corel5k()
    except FileNotFoundError:
        pytest.skip("Corel5K is not below $DEEPSETS_DATA")

    def matrix(part):
        return np.stack([np.isin(np.arange(len(data.names)), tags) for tags in part.sets]).astype(np.uint8)

    tagger = LeastSquares(3000 / 4500).fit(data.train.features, matrix(data.train))
    found = tag_scores(tagger.scores(data.test.features), matrix(data.test))
    assert (round(found.precision, 3), round(found.recall, 3), found.n_plus) == (0.277, 0.388, 137)


def test_the_hinge_loss_is_that_of_the_paper():
    torch.manual_seed(0)
    loss = TagLoss(torch.full((5,), 0.2), balance=0.0, alone=1.0, drop=0.0, candidates=5, margin=1.0)
    network = TagNetwork(5, 2, width=6)
    z, has = torch.randn(2, 2), [[0, 3], [2]]
    sets = as_sets([np.array(tags) for tags in has])
    total, number = loss(network, Batch(sets, z=z))
    scores = network(as_sets([EMPTY, EMPTY]), z).detach()
    slow = [
        sum(max(0.0, float(s[other] - s[tag]) + 1.0) for other in range(5) if other not in tags) / 5
        for s, tags in zip(scores, has, strict=True)
        for tag in tags
    ]
    assert number == 3
    assert float(total.detach()) == pytest.approx(sum(slow), rel=1e-5)


def test_deep_sets_has_the_hinge_loss_and_the_smooth_rows_do_not():
    assert HINGE.tagging["margin"] == HINGE.retrieval["margin"] == 1.0
    assert "margin" not in SMOOTH.tagging and SMOOTH.tagging["balance"] == 0.5


@pytest.mark.parametrize(
    ("name", "part", "message"),
    [
        ("tags", "espgame", r"espgame_dictionary\.txt from https://lear\.inrialpes\.fr"),
        ("tags", "iaprtc12", r"iaprtc12_dictionary\.txt from https://lear\.inrialpes\.fr"),
        ("tags", "coco-tag", r"captions_train2014\.json from https://cocodataset\.org"),
        ("redshift", "redmapper", r"redmapper_dr8_public_v6\.3_members\.fits from"),
        ("clouds", "modelnet40-5000", "no clouds of 5000 points in"),
    ],
)
def test_a_part_whose_files_are_missing_is_an_error_that_names_them(tmp_path, monkeypatch, name, part, message):
    monkeypatch.setenv("DEEPSETS_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert part not in paper.get_experiment(name).parts(True)
    with pytest.raises(FileNotFoundError, match=message):
        paper.run(name, tmp_path / "results", full=True, parts=[part])
    with pytest.raises(ValueError, match=f"{name} has no part {part!r} in this form"):
        paper.run(name, tmp_path / "results", parts=[part])
