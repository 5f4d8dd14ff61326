"""Point clouds: the graph of neighbours, the networks, the protocol and its figures."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

from deepsets import Sets
from deepsets.testing import assert_invariant
from paper import Record, Trial
from paper.baselines.networks import DescribedGraphNet, EdgeNet, neighbours
from paper.datasets.clouds import SURFACES, generate
from paper.experiments import clouds
from paper.experiments import clouds_figures as figures
from paper.experiments.clouds_networks import Outer, SetNet, Surroundings, pooling_only, published
from paper.experiments.clouds_training import (
    DRAWS,
    Recipe,
    accuracy,
    any_size,
    as_sets,
    fading,
    nearly_whole,
    still,
    stretched,
    subset,
    up_to_1000,
)


def near_8(classes, **sizes):
    """SetNet with 8 neighbours of each point."""
    return WithNeighbours(SetNet(classes, **sizes))


class WithNeighbours(torch.nn.Module):
    def __init__(self, network):
        super().__init__()
        self.network = network

    def forward(self, sets):
        return self.network(sets.with_values(sets.values[neighbours(sets, 8)]))


RECIPE = Recipe(SetNet, epochs=1)
TWO = Sets.from_list([torch.randn(size, 3, generator=torch.Generator().manual_seed(size)) for size in (30, 12)])


# ------------------------------------------------------------------------------------------------------------- networks


@pytest.mark.parametrize("build", [published, pooling_only, near_8, DescribedGraphNet, EdgeNet])
def test_networks_do_not_see_the_order_and_learn_in_every_weight(build):
    torch.manual_seed(0)
    model = build(7).double()  # so that rounding errors are far from gradients
    model(TWO.map(torch.Tensor.double)).square().sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())
    still = {name for name, p in model.named_parameters() if p.grad.abs().max() < 1e-10}
    # The last map of a residual block starts at 0, so what comes before it has no gradient yet; and a bias that batch
    # norm takes away again has rounding errors alone.
    begins = {name for name, _ in model.named_parameters() if ".norm." in name or ".mix." in name}
    edges = {f"layers.{i}.member.bias" for i in range(3)}
    taken = {near_8: {"network.rho.0.bias", "network.rho.1.bias"}, EdgeNet: {"rho.0.bias", *edges}}
    assert still == begins | taken.get(build, set())
    assert_invariant(model.float().eval(), TWO)
    assert model(TWO).shape == (2, 7)


def test_the_published_network_has_the_published_sizes():
    shapes = [tuple(p.shape) for p in published(40).parameters() if p.ndim == 2]
    assert shapes == [(256, 3), (256, 256), (256, 256), (256, 256), (40, 256)]
    moved = Sets.from_list([5 + 3 * TWO[0]])
    model = published(4).eval()
    assert_close(model(moved), model(TWO[[0]]), rtol=1e-3, atol=1e-4)  # zero mean, unit variance comes first


def test_mean_products_equal_the_plain_loop():
    torch.manual_seed(0)
    layer, sets = Outer(3, 5).double(), TWO.map(torch.Tensor.double)
    slow = []
    for x in sets:
        products = [torch.outer(layer.one(member).relu(), layer.other(member)) for member in x]
        slow.append(torch.stack(products).mean(0).flatten())
    assert_close(layer(sets), torch.stack(slow))


def test_mean_products_of_an_empty_set_are_0():
    assert_close(Outer(3, 2)(Sets.from_list([torch.zeros(0, 3), torch.randn(1, 3)]))[0], torch.zeros(4))


def test_surroundings_equal_the_plain_loop():
    torch.manual_seed(0)
    layer = Surroundings(6).double()
    offsets = torch.randn(4, 5, 3, dtype=torch.float64)
    upper = [(0, 0), (0, 1), (0, 2), (1, 1), (1, 2), (2, 2)]
    for point, found in zip(offsets, layer(offsets), strict=True):
        seen = []
        for nearest in (point[:3], point):
            r = math.sqrt(sum(float(d @ d) for d in nearest) / len(nearest))
            seen += [sum(float(d[a]) for d in nearest) / len(nearest) / r for a in range(3)]
            for a, b in upper:  # of points in all directions alike, this is 0
                seen.append(3 * sum(float(d[a] * d[b]) for d in nearest) / len(nearest) / r**2 - (a == b))
            seen.append(math.log(r) + 2)
        each = torch.stack([layer.phi(torch.cat([d, d.norm()[None]]) / r) for d in point])
        numbers = torch.cat([torch.tensor(seen, dtype=torch.float64), each.max(0).values, each.mean(0)])
        assert_close(found, layer.out(numbers))


def test_surroundings_tell_sizes_by_their_logarithms_alone_and_bear_points_in_one_place():
    torch.manual_seed(0)
    layer, offsets = Surroundings(6).double(), torch.randn(4, 8, 3, dtype=torch.float64)
    with torch.no_grad():
        layer.out.weight[:, [9, 19]] = 0  # log r of both halves
    assert_close(layer(7 * offsets), layer(offsets))
    assert layer(0 * offsets).isfinite().all()


def test_members_of_a_set_network_are_some_points_and_their_neighbours_among_all():
    torch.manual_seed(0)
    clouds = torch.randn(2, 50, 3)
    sets = as_sets(clouds, near=4, seen=10)
    assert sets.values.shape == (20, 5, 3) and sets.sizes.tolist() == [10, 10]
    for cloud, members in zip(clouds, sets, strict=True):
        assert_close(members[:, 0], cloud[:10])
        distance = torch.cdist(cloud[:10], cloud)
        assert_close((members - members[:, :1]).norm(dim=2), distance.sort(1).values[:, :5])


# ------------------------------------------------------------------------------------------------------------- protocol


def test_votes_are_one_answer_from_stretched_copies():
    data = generate(train=1, test=3, points=40)

    class Place(torch.nn.Module):  # the class of a cloud is its place
        def forward(self, sets):
            seen.append(sets.values)
            return torch.eye(8)[: len(sets.sizes)]

    seen: list[torch.Tensor] = []
    state = torch.get_rng_state()
    single = accuracy(Place(), RECIPE, data._replace(x_test=data.x_test[:8], y_test=np.arange(8)), 30, seed=0)
    assert single == 1 and len(seen) == DRAWS and seen[0].abs().max() <= 1
    wrong = data._replace(x_test=data.x_test[:8], y_test=np.array([0, 1, 2, 3, 0, 0, 0, 0]))
    assert accuracy(Place(), RECIPE, wrong, 30, seed=0, votes=5) == 0.5
    assert len(seen) == DRAWS + 5 and max(x.abs().max() for x in seen) > 1
    assert_close(torch.get_rng_state(), state)

    class Fickle(torch.nn.Module):  # two of three answers say 0, the third says 1, louder
        def forward(self, sets):
            asked.append(len(sets.sizes))
            return torch.tensor([[0.5, 0.0], [0.5, 0.0], [0.0, 9.0]])[len(asked) - 1].expand(len(sets.sizes), 2)

    asked: list[int] = []
    all_one = wrong._replace(y_test=np.ones(8, dtype=int))
    assert accuracy(Fickle(), RECIPE, all_one, 30, seed=0, votes=3) == 1  # their mean says 1
    asked.clear()
    assert accuracy(Fickle(), RECIPE, all_one, 30, seed=0) == pytest.approx(1 / 3)


def test_a_cloud_with_more_points_than_in_training_is_asked_about_in_parts():
    class Size(torch.nn.Module):  # the class of a cloud is a tenth of the number of its points
        def forward(self, sets):
            asked.append(sets.sizes.tolist())
            return torch.eye(8)[sets.sizes // 10] * 9

    asked: list[list[int]] = []
    data = generate(train=1, test=1, points=50)._replace(y_test=np.full(8, 2))
    assert accuracy(Size(), replace(RECIPE, most=25), data, 50, seed=0) == 1
    assert asked == [[25] * 8] * 2
    assert accuracy(Size(), RECIPE, data, 50, seed=0) == 0 and asked[2:] == [[50] * 8]


def test_more_points_than_a_cloud_has_are_refused():
    with pytest.raises(ValueError, match="wanted 50 points of each cloud, but the test clouds have 40"):
        accuracy(SetNet(8), RECIPE, generate(train=1, test=1, points=40), 50, seed=0)


@given(st.floats(0, 1, exclude_max=True), st.sampled_from([100, 300, 1000, 5000]), st.integers(0, 1000))
def test_a_step_sees_100_points_or_more_and_never_more_than_there_are(done, most, seed):
    torch.manual_seed(seed)
    sizes = [rule(done, most) for rule in (subset, any_size, up_to_1000)]
    assert all(100 <= size <= most for size in sizes)
    assert all(100 <= any_size(share, 1000) <= top for share, top in ((0.1, 166), (0.7, 400), (0.95, 1000)))
    assert nearly_whole(done, most) in (most // 4, most)
    assert [subset(share, 1000) for share in (0.1, 0.7, 0.97)] == [125, 250, 1000] and subset(0.1, 100) == 100
    assert [nearly_whole(share, 1000) for share in (0.5, 0.9)] == [250, 1000]


@pytest.mark.slow
def test_the_full_form_trains_on_subsets_and_scores_every_size_with_and_without_votes(tmp_path, monkeypatch):
    sizes = []

    def sizes_seen(done, most):
        sizes.append(any_size(done, most))
        return sizes[-1]

    data = generate(train=10, test=2, points=128)
    monkeypatch.setattr(clouds, "clouds", lambda full, points: data)
    recipe = clouds.MODERN(lambda classes: SetNet(classes, 48, 1), 2, sizes=sizes_seen, near=8, also=(100,), votes=2)
    found = clouds.method({128: recipe})(Trial(True, 0, tmp_path), "surfaces-128").measures
    assert [(row.data, row.metric) for row in found] == [
        (f"surfaces-{n}", metric) for n in (128, 100) for metric in ("accuracy", "accuracy, votes")
    ]
    assert len(sizes) == 2 and all(100 <= size <= 128 for size in sizes)
    assert clouds.method({128: recipe})(Trial(True, 0, tmp_path), "surfaces-64").measures == []


def test_generated_clouds_lie_in_the_unit_sphere_and_differ_between_parts():
    data = generate(train=2, test=2, points=50, seed=3)
    assert data.x_train.shape == (2 * len(SURFACES), 50, 3) and data.x_train.dtype == np.float32
    assert_close(torch.from_numpy(data.x_test).norm(dim=2).amax(1), torch.ones(16))
    assert not np.allclose(data.x_train, data.x_test)


def test_5000_points_have_a_wider_network_trained_on_up_to_1000_of_them(tmp_path, monkeypatch):
    monkeypatch.setattr(clouds, "clouds", lambda full, points: generate(train=8, test=2, points=128))
    seen = []
    adamax = type("Adamax", (torch.optim.Adamax,), {"step": lambda self: seen.append(len(self.param_groups))})
    recipe = replace(clouds.LARGE, epochs=1, optimizer=adamax)
    (row,) = clouds.method({128: recipe})(Trial(True, 0, tmp_path), "surfaces-128").measures
    assert seen == [2] and 0 <= row.value <= 1
    assert {tuple(p.shape) for p in recipe.build(4).parameters() if p.ndim == 2} == {(512, 3), (512, 512), (4, 512)}
    assert clouds.LARGE.moves is fading and clouds.LARGE.optimizer is clouds.MuonAdamW
    assert [clouds.LARGE.sizes(done, 5000) for done in (0.1, 0.7, 0.9, 0.99)] == [125, 250, 250, 1000]


def test_stretching_fades_until_it_is_that_of_the_votes():
    cloud = torch.randn(3, 20, 3)

    def moved(move, *how):
        torch.manual_seed(1)
        return move(cloud, *how)

    assert_close(moved(fading, 0.0), moved(stretched, 1.0))
    assert_close(moved(fading, 1.0), moved(stretched))
    assert (moved(stretched, 1.0) - cloud).abs().amax((1, 2)).gt((moved(stretched) - cloud).abs().amax((1, 2))).all()
    assert still(cloud, 0.5) is cloud


@pytest.mark.slow
def test_the_quick_form_learns_the_surfaces(tmp_path):
    (row,) = clouds.EXPERIMENT.methods["Ours"](Trial(False, 0, tmp_path), "surfaces-64").measures
    assert (row.data, row.metric) == ("surfaces-64", "accuracy") and row.value > 0.85


def test_a_method_without_some_size_gives_no_result_for_it(tmp_path):
    assert clouds.EXPERIMENT.methods["KNN graph"](Trial(True, 0, tmp_path), "modelnet40-100").measures == []


# -------------------------------------------------------------------------------------------------------------- figures


def test_excited_clouds_excite_their_unit_more_than_where_they_began():
    torch.manual_seed(0)
    layers = type(published(4).phi)(*published(4).phi.layers[:2])
    _, before = figures.excite(layers, units=5, points=40, steps=0)
    found, after = figures.excite(layers, units=5, points=40, steps=25)
    assert (after > before).all() and found.shape == (5, 40, 3) and found.abs().max() <= 1


def test_points_that_do_not_win_change_nothing():
    torch.manual_seed(0)
    model, cloud = pooling_only(4).eval(), torch.randn(60, 3)
    model.phi.layers[0] = torch.nn.Identity()  # else the mean and deviation of the rest would be other ones
    points = figures.winners(model, cloud)
    assert 0 < len(points) < 60
    assert_close(model(Sets.from_list([cloud[points]])), model(Sets.from_list([cloud])))


def test_figures_show_classes_units_and_winners():
    pytest.importorskip("matplotlib")
    torch.manual_seed(0)
    extra = figures.look(published(8, 16), clouds.clouds(False, 64), steps=2, points=30)
    record = Record("clouds", False, "Deep Sets", 0, "", [], parts={"surfaces-64": {"extra": extra}})
    for draw in (figures.examples, figures.units):
        assert len(draw([record]).axes) == 2 * figures.SHOWN
    titles = [axes.get_title() for axes in figures.critical([record]).axes]
    assert titles[0].startswith("sphere") and titles[0].endswith("of 128") and len(titles) == figures.SHOWN


def test_winners_are_shown_in_the_clouds_that_they_were_found_in(monkeypatch):
    """A record of clouds of 5000 points may be read where only those of 1024 are."""
    pytest.importorskip("matplotlib")
    asked = []

    def load(points):
        asked.append(points)
        if points > 1024:
            raise FileNotFoundError
        return generate(train=1, test=1, points=points)

    monkeypatch.setattr(figures, "load", load)
    for last, number in ((1023, 1), (1066, 0)):
        parts = {"modelnet40-1000": {"extra": {"units": {"layer 1": []}, "critical": {"0": [3, last]}}}}
        drawn = figures.critical([Record("clouds", True, "Deep Sets", 0, "", [], parts=parts)])
        assert len(drawn.axes) == number
    assert asked == [1024, 5000] and "not available" in drawn.texts[0].get_text()


def test_clouds_keep_their_place_in_a_record():
    cloud = np.random.default_rng(0).uniform(-1, 1, size=(9, 3))
    assert np.abs(figures._unpack(figures._pack(cloud)) - cloud).max() < 1 / 127


def test_the_variants_of_appendix_h_have_other_layers_and_are_compared_at_the_same_number_of_epochs(tmp_path):
    layers = {name: published(4, **changes).phi.layers[1:] for name, changes in clouds.VARIANTS.items()}
    assert [len(found) for found in layers.values()] == [3, 3, 3, 3, 6]
    first = [found[0] for found in layers.values()]
    assert [layer.member.weight.shape[0] for layer in first] == [256, 64, 256, 256, 256]
    assert [layer.form for layer in first] == ["factored", "factored", "factored", "full", "factored"]
    assert type(first[2].pool) is not type(first[0].pool)
    assert all(
        clouds.EXPERIMENT.methods[name](Trial(False, 0, tmp_path), "surfaces-64").measures == [] for name in layers
    )

    def verdict(*values):
        rows = {name: value for name, value in zip(clouds.VARIANTS, values, strict=False)}
        return clouds._little_change(lambda method, data, metric: rows.get(method, math.nan))

    assert verdict(0.80, 0.78, 0.81, 0.79).holds is True and verdict(0.80, 0.74, 0.81, 0.79).holds is False
    assert verdict(0.80, 0.78).holds is None
