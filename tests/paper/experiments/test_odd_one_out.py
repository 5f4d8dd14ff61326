"""The odd one out: sets with members that stand out, the networks, the trainer's checkpoints, and the figure."""

from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F
from torch.testing import assert_close

from deepsets import Sets
from deepsets.testing import assert_equivariant
from paper import Record, Trial
from paper.datasets.celeba import moved, odd_sets, pairs, pool_for
from paper.experiments import odd_one_out
from paper.experiments.odd_networks import Traits, Verdict, ours, pooled, published, without_encoder
from paper.experiments.odd_one_out import figure
from paper.report.scoreboard import Scores
from paper.report.tables import Row

# ----------------------------------------------------------------------------------------------------------------- sets


@given(st.integers(0, 1000), st.integers(0, 2), st.integers(0, 2))
def test_members_share_both_attributes_and_odd_ones_have_none(seed, least, more):
    source = torch.Generator().manual_seed(seed)
    attributes = torch.rand(80, 5, generator=source) < 0.6
    both, none = pairs(attributes)
    odd = (least, max(1, least + more))
    batch, condition = odd_sets(torch.arange(80.0)[:, None], both, none, 30, odd, size=8, generator=source)
    members = batch.sets.element_ids.view(30, 8)
    assert all(len(set(row)) == 8 for row in members.tolist())
    marks = batch.y.bool()
    assert torch.equal(both[members, condition[:, None]], ~marks) and torch.equal(
        none[members, condition[:, None]], marks
    )
    assert odd[0] <= marks.sum(1).min() and marks.sum(1).max() <= odd[1]


def test_odd_members_occur_at_every_position():
    digit = torch.arange(200)[:, None] % 2 == torch.arange(2)
    batch, _ = odd_sets(torch.zeros(200, 1), digit, ~digit, 3200, generator=torch.Generator().manual_seed(0))
    counts = batch.y.sum(0)
    assert batch.y.shape == (3200, 16) and counts.min() > 140 and counts.max() < 260


def test_too_few_that_share_something_are_refused():
    shares = torch.arange(20)[:, None] < torch.tensor([5, 9])
    with pytest.raises(ValueError, match=r"no condition is shared by 15 of these 20 elements .* at most 9 share one"):
        odd_sets(torch.zeros(20, 1), shares, ~shares, 4)


def test_rare_conditions_come_as_often_as_they_are_planted():
    torch.manual_seed(0)
    shares = torch.arange(2000)[:, None] % torch.tensor([2, 50]) == 0  # every second, every fiftieth
    _, condition = odd_sets(torch.zeros(2000, 1), shares, ~shares, 1000, favoured=torch.tensor([1]))
    assert 0.7 < condition.double().mean() < 0.8  # half of them, and half of the others
    rows, planted = pool_for(torch.arange(100), shares, planted=2)
    assert sorted(planted.tolist()) == [0, 1] and shares[rows].sum(0).min() >= 16
    assert pool_for(torch.arange(100), shares, least=0.1)[1].tolist() == [0]


def test_faces_that_stand_still_are_only_scaled():
    torch.manual_seed(0)
    faces = torch.randint(256, (6, 3, 48, 48), dtype=torch.uint8)
    assert_close(moved(faces, still=True), (faces / 255 - 0.45) * 4)
    assert moved(faces).shape == faces.shape and not torch.equal(moved(faces), moved(faces))


# ------------------------------------------------------------------------------------------------------------- networks


@given(st.integers(0, 1000))
def test_the_score_of_a_member_is_the_likelihood_that_it_alone_lacks_two_traits(seed):
    torch.manual_seed(seed)
    layer = Traits(4).double()
    for weights in layer.parameters():
        nn.init.normal_(weights)
    t = torch.randn(5, 4, dtype=torch.float64)
    trust = F.softplus(layer.trust)
    has, lacks = trust * (F.logsigmoid(t) + layer.has), trust * (F.logsigmoid(-t) + layer.lacks)

    def likelihood(odd):
        logs = torch.stack([lacks[j] if j == odd else has[j] for j in range(5)]).sum(0)
        pairs = [(a, b) for a in range(4) for b in range(4) if a != b]
        return sum((logs[a] + logs[b] + layer.pairs[a, b] + layer.pairs[b, a]).exp() for a, b in pairs)

    slow = torch.stack([likelihood(i).log() - likelihood(None).log() for i in range(5)]) + layer.bias
    assert_close(layer(Sets.from_list([t])).values[:, 0], slow)


def test_scores_are_not_rounded_where_a_network_is_trained_in_bfloat16():
    torch.manual_seed(0)
    layer, sets = Verdict(6).eval(), Sets.from_list([torch.randn(16, 6)])
    nn.init.constant_(layer.rule.bias, 3000.0)  # bfloat16 has steps of 16 here
    expected = layer(sets).values
    with torch.autocast("cpu", torch.bfloat16):
        found = layer(sets).values
    assert found.dtype == torch.float32 and len(found.unique()) == 16
    assert_close(found, expected)


@pytest.mark.parametrize("build", [published, ours])
@pytest.mark.parametrize("side", [8, 48])
def test_scores_follow_their_members(build, side):
    torch.manual_seed(0)
    model = build(side).eval()
    images = torch.randn(20, 3 if side == 48 else 1, side, side)
    sets = Sets(images, torch.tensor([0, 16, 32]), torch.randint(20, (32,)))
    encoder, rest = without_encoder(model)
    assert_close(rest(Sets(encoder(images), sets.offsets, sets.element_ids)).values, model(sets).values)
    assert_equivariant(rest, Sets(encoder(images), sets.offsets, sets.element_ids).materialize())


def test_the_published_convolutions_are_those_of_the_appendix():
    kernels = [tuple(p.shape) for p in published(64).layers[0].parameters() if p.ndim == 4]
    widths = [3, 32, 32, 64, 64, 64, 128, 128, 128, 256]
    assert kernels == [(b, a, 3, 3) for a, b in pairwise(widths)]
    assert published(64).layers[0](torch.zeros(2, 3, 64, 64)).shape == (2, 256)


def test_every_dense_layer_of_the_published_network_sees_the_other_members():
    torch.manual_seed(0)
    model = published(48).double().eval()
    dense = [layer for layer in model.layers[1:] if any(True for _ in layer.parameters())]
    assert [tuple(w.shape) for layer in dense for w in layer.parameters() if w.ndim == 2] == [
        (256, 256), (256, 256), (128, 256), (128, 256), (1, 128), (1, 128),
    ]  # fmt: skip
    x = torch.randn(16, 256, dtype=torch.float64)
    for layer, width in zip(dense, (256, 256, 128), strict=True):
        one = x[:, :width]
        weight, bias, context = (w.detach() for w in layer.parameters())
        expected = one @ weight.T + bias - one.mean(0) @ context.T
        assert_close(layer(Sets(one, torch.tensor([0, 16]))).values, expected)
    kinds = [type(layer).__name__ for layer in model.layers[1:]]
    assert kinds == ["Equivariant", "ELU", "SetDropout", "Equivariant", "ELU", "SetDropout", "Equivariant"]


def test_set_pooling_cannot_tell_places_apart():
    torch.manual_seed(0)
    model = pooled(8).eval()
    images = torch.randn(16, 1, 8, 8)
    one, other = Sets.from_list([images]), Sets.from_list([images.flip(0)])
    assert_close(model(one), model(other))
    assert model(one).shape == (1, 16)


def test_a_face_and_its_mirror_image_have_one_code():
    torch.manual_seed(0)
    encoder, _ = without_encoder(published(48).eval())
    faces = torch.randn(3, 3, 48, 48)
    assert_close(odd_one_out._code(encoder, faces, (48,)), odd_one_out._code(encoder, faces.flip(3), (48,)))
    assert not torch.allclose(encoder(faces), encoder(faces.flip(3)))


def test_the_code_of_a_face_is_the_mean_over_its_sizes():
    faces = torch.full((2, 3, 48, 48), 5.0)

    def pixels_and_value(images):
        return torch.stack([torch.tensor([images.shape[3], *images[0, 0, 0, :1]])] * len(images))

    code = odd_one_out._code(pixels_and_value, faces, (40, 48, 56, 64))  # type: ignore[arg-type]
    assert_close(code, torch.tensor([[52.0, 5.0]] * 2))


# ------------------------------------------------------------------------------------------------------------- protocol


@pytest.mark.slow
def test_the_quick_form_finds_the_odd_digit(tmp_path):
    outcome = odd_one_out.EXPERIMENT.methods["Ours"](Trial(False, 0, tmp_path), "all")
    assert outcome.measures[0].value > 0.9
    assert (outcome.measures[-1].data, outcome.measures[-1].metric) == ("1 odd of 16, training", "accuracy")
    assert all(sum(row) == pytest.approx(1, abs=0.02) for row in outcome.extra["probability"])
    pytest.importorskip("matplotlib")
    record = Record("odd-one-out", False, "Ours", 0, "", [], parts={"all": {"extra": outcome.extra}})
    axes = figure([record]).axes
    framed = [a.spines["left"].get_linewidth() == 2 for a in axes]
    assert len(axes) == 64 and sum(framed) == 4
    assert [framed[16 * row : 16 * row + 16].index(True) for row in range(4)] == outcome.extra["odd"]


@pytest.mark.slow
def test_any_number_of_odd_digits(tmp_path):
    outcome = odd_one_out.EXPERIMENT.methods["Ours, sigmoid"](Trial(False, 0, tmp_path), "all")
    found = {(row.data, row.metric): row.value for row in outcome.measures}
    assert found["1 odd of 16", "accuracy"] > 0.8  # chance is 0.06
    assert found["0 to 3 odd of 16", "F1"] > 0.7 and found["0 to 3 odd of 16", "all 16 right"] > 0.4


def test_the_claim_about_set_pooling_needs_its_training_accuracy():
    def row(data, value):
        return Row("odd-one-out", data, "Set pooling", "accuracy", value, None, 1, None, "full", [], 1.0)

    check = odd_one_out.EXPERIMENT.claims[1].check
    test, seen, learned = row("1 odd of 16", 0.066), *(row("1 odd of 16, training", v) for v in (0.063, 0.5))
    assert check(Scores([test])) == (None, "test 6.6 %, training not measured")
    assert check(Scores([test, seen])).holds and check(Scores([test, learned])).holds is False
