"""Recurrent networks and convolutions on neighbour graphs, against plain loops."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.testing import assert_close

from deepsets import Sets
from deepsets.testing import assert_invariant
from paper.baselines.networks import EdgeConvolution, GraphConvolution, Recurrent, neighbours

TWO = Sets.from_list([torch.randn(size, 3, generator=torch.Generator().manual_seed(size)) for size in (30, 12)])


@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_a_recurrent_network_reads_each_set_alone_and_in_order(cell):
    torch.manual_seed(0)
    model = Recurrent(cell, nn.Linear(3, 5), width=5, state=7, out=2).eval()
    sets = Sets.from_list([torch.randn(n, 3) for n in (4, 1, 0, 6)])
    slow = []
    for rows in sets:
        read = model.phi(rows) if len(rows) else torch.zeros(1, 5)
        slow.append(model.rho(model.cell(read[None])[0][0, -1]))
    assert_close(model(sets), torch.stack(slow))
    assert model(Sets(torch.zeros(0, 3), torch.tensor([0, 0]))).shape == (1, 2)
    with pytest.raises(AssertionError):
        assert_invariant(model, sets)


def test_in_training_the_order_changes_and_the_members_stay():
    torch.manual_seed(0)
    model = Recurrent("gru", nn.Identity(), width=3, state=4, out=1)
    ordered = Sets.from_list([torch.randn(9, 3), torch.randn(1, 3)])
    one, two = model(ordered), model(ordered)
    assert not torch.allclose(one[0], two[0]) and torch.equal(one[1], two[1])


def test_another_cell_is_refused():
    with pytest.raises(ValueError, match="'lstm' or 'gru', found 'rnn'"):
        Recurrent("rnn", nn.Identity(), width=1, state=1, out=1)


@given(st.lists(st.integers(9, 25), min_size=1, max_size=3), st.integers(0, 1000))
def test_neighbours_are_the_nearest_of_the_same_set(sizes, seed):
    torch.manual_seed(seed)
    sets = Sets.from_list([torch.randn(n, 3) for n in sizes])
    near = neighbours(sets, 8)
    distance = torch.cdist(sets.values, sets.values).masked_fill(sets.set_ids[:, None] != sets.set_ids, torch.inf)
    assert near[:, 0].tolist() == list(range(sets.total))
    assert_close(distance.gather(1, near), distance.sort(1).values[:, :9])


def test_neighbours_of_some_members_are_those_of_all_members():
    sets = Sets.from_list([torch.randn(size, 3) for size in (20, 9, 30)])
    some = torch.tensor([3, 0, 19, 40, 57])  # none of the second set
    assert neighbours(sets, 8, some).tolist() == neighbours(sets, 8)[some].tolist()


def test_a_point_that_many_share_is_not_its_own_neighbour():
    near = neighbours(Sets.from_list([torch.zeros(6, 3)]), 2)
    assert all(i not in row and len(set(row)) == 2 for i, (_, *row) in enumerate(near.tolist()))


def test_too_few_members_for_a_graph_are_refused():
    with pytest.raises(ValueError, match="needs 8 neighbours in its set, but a set has 5 members"):
        neighbours(Sets.from_list([torch.randn(20, 3), torch.randn(5, 3)]), 8)


def test_convolutions_on_the_graph_equal_the_plain_loop():
    torch.manual_seed(0)
    x, near = torch.randn(42, 4, dtype=torch.float64, requires_grad=True), neighbours(TWO, 8)
    mean, edge = GraphConvolution(4, 5).double(), EdgeConvolution(4, 5).double()
    assert_close(mean(x, near), torch.stack([mean.map(x[rows].mean(0)) for rows in near]))
    slow = [edge.member(x[i]) + edge.edge(x[rows] - x[i]).amax(0) for i, rows in enumerate(near)]
    assert_close(edge(x, near), torch.stack(slow))
    weight = torch.randn(len(near), 5, dtype=x.dtype)
    fast, wanted = (
        torch.autograd.grad((found * weight).sum(), [x, *edge.parameters()])
        for found in (edge(x, near), torch.stack(slow))
    )
    assert_close(fast, wanted)
    with torch.autocast("cpu", torch.bfloat16):
        assert_close(edge.float()(x.float(), near), torch.stack(slow).float(), rtol=0.05, atol=0.05)
