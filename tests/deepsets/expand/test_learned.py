"""The learnt expander: its scorer against the plain forward pass, its training pairs, z, seeds."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from deepsets import Sets, nn
from deepsets.expand import SetExpander
from deepsets.expand import scorer as scorer_module
from deepsets.expand.network import ExpansionObjective, ScoreNetwork, draw_pairs
from deepsets.expand.scorer import Scorer
from deepsets.train import Batch

KINDS = [(pool, concat) for pool in ("sum", "max") for concat in (False, True)]


def network(pool: str, concat: bool, count: int, z: int = 0, rho: tuple[int, ...] = (12, 7)) -> ScoreNetwork:
    torch.manual_seed(0)
    out = ScoreNetwork(count, 6, 0, z, phi=(9, 10), rho=rho, pool=pool, concat=concat)
    for parameter in out.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return out.eval()


@torch.no_grad()
def plain(model: ScoreNetwork, query: list[int], z: torch.Tensor | None = None) -> torch.Tensor:
    """Every candidate joins the query, and the whole set goes through φ, pooling and ρ, one after the other."""
    found = []
    for x in range(model.embedding.num_embeddings):
        members = model.phi(model.embedding(torch.tensor([*query, x])))
        pool = torch.sum if isinstance(model.pool, nn.SumPooling) else torch.amax
        if model.first_pooled is None:
            first = model.first(pool(members, 0))
        else:
            first = model.first_pooled(pool(members[:-1], 0)) + model.first(members[-1])
        found.append(model.rest(first + (0 if z is None else model.context(z))))
    return torch.cat(found)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("pool", "concat"), KINDS)
@settings(max_examples=8, deadline=None)
@given(st.integers(1, 70), st.integers(1, 6), st.sampled_from([(12, 7), (12,), (12, 7, 5)]))
def test_the_scorer_is_the_plain_forward_pass(pool, concat, dtype, count, size, rho):
    model = network(pool, concat, count, z=3, rho=rho).to(dtype)
    queries = [np.random.default_rng(q).permutation(count)[:size].tolist() for q in range(3)]
    z = torch.randn(3, 3, dtype=dtype)
    phi = model.encode_elements(torch.arange(count), None).detach()
    asked = model.encode_queries(Sets.from_list([phi[q] for q in queries]), z)
    before, scorer_module.BLOCK = scorer_module.BLOCK, 32  # several blocks, the last one not full
    try:
        scorer = Scorer(model, count)
        scorer.put(0, phi)
    finally:
        scorer_module.BLOCK = before
    slow = torch.stack([plain(model, q, z[i]) for i, q in enumerate(queries)])
    close = 1e-4 if dtype == torch.float32 else 1e-10
    np.testing.assert_allclose(scorer.scores(asked), slow.numpy(), rtol=close, atol=close)


def test_sum_is_the_deep_set_of_the_library():
    model = network("sum", False, 20)
    rho = torch.nn.Sequential(model.first, *model.rest)
    whole = nn.DeepSet(torch.nn.Sequential(model.embedding, *model.phi), rho, pool="sum")
    sets = Sets.from_list([torch.tensor([3, 5, 8, x]) for x in range(20)])
    np.testing.assert_allclose(plain(model, [3, 5, 8]), whole(sets).detach()[:, 0], rtol=1e-4, atol=1e-4)


@pytest.mark.skipif(not scorer_module.has_bfloat16(), reason="needs a processor with bfloat16")
@pytest.mark.parametrize(("pool", "concat"), KINDS)
@pytest.mark.parametrize("spread", [1.0, 1e-3], ids=["apart", "close"])
def test_a_pass_in_bfloat16_finds_the_same_best_candidates(monkeypatch, pool, concat, spread):
    """Where scores are too close for bfloat16, the query is scored in float32."""
    monkeypatch.setattr(scorer_module, "RESCORED", 44)
    model, passes = network(pool, concat, 3000), []
    with torch.no_grad():
        model.embedding.weight[:] = model.embedding.weight[:1] + spread * torch.randn_like(model.embedding.weight)
        phi = model.encode_elements(torch.arange(3000), None)
        scorer = Scorer(model, 3000)
        scorer.put(0, phi)
        asked = model.encode_queries(Sets(phi[:20], torch.arange(0, 21, 4)), None)
        exact = scorer.scores(asked)
        run = scorer._pass
        monkeypatch.setattr(scorer, "_pass", lambda asked, keys: (passes.append(keys.dtype), run(asked, keys))[1])
        found = scorer.scores(asked, best=20)
    assert passes[0] == torch.bfloat16
    for q in range(5):
        assert set(np.argsort(-found[q])[:20]) == set(np.argsort(-exact[q])[:20])
        best = np.argsort(-exact[q])[:20]
        np.testing.assert_allclose(found[q, best], exact[q, best], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("pool", "concat"), KINDS)
def test_equal_candidates_tie_exactly_wherever_they_stand(pool, concat):
    model = network(pool, concat, 1500)
    with torch.no_grad():
        model.embedding.weight[1:] = model.embedding.weight[0]
        scorer = Scorer(model, 1500)
        phi = model.encode_elements(torch.arange(1500), None)
        scorer.put(0, phi[:1].expand(1500, -1))
        scores = scorer.scores(model.encode_queries(Sets(phi[:3], torch.tensor([0, 3])), None))
    assert (scores == scores[0, 0]).all()


@settings(deadline=None)
@given(st.lists(st.integers(0, 12), min_size=1, max_size=6), st.integers(0, 1000))
def test_a_positive_is_never_in_its_query_and_a_member_never_counts_as_negative(sizes, seed):
    torch.manual_seed(seed)
    sets = Sets.from_list([torch.randperm(30)[:n] for n in sizes] + [torch.tensor([1, 2])])
    task = draw_pairs(sets, 30, (1, 4), 5, 40)
    kept = [set(s.tolist()) for s in sets if len(s) > 1]
    queries = [set(q.tolist()) for q in task.queries]
    assert all(1 <= len(q) <= 4 and q < s for q, s in zip(queries, kept, strict=True))
    for b in range(len(kept)):
        wanted = set(task.positives[task.owner == b].tolist())
        assert wanted <= kept[b] - queries[b]
        assert len(wanted) == min(5, len(kept[b]) - len(queries[b]))
        assert task.clash[b].tolist() == [i in kept[b] for i in task.negatives.tolist()]


def test_every_member_and_every_word_is_drawn_at_times():
    torch.manual_seed(0)
    sets = Sets.from_list([torch.arange(6)])
    tasks = [draw_pairs(sets, 9, (1, 3), 2, 4) for _ in range(300)]
    assert {int(i) for t in tasks for i in t.queries.values} == set(range(6))
    assert {int(i) for t in tasks for i in t.positives} == set(range(6))
    assert {int(i) for t in tasks for i in t.negatives} == set(range(9))
    assert {t.queries.total for t in tasks} == {1, 2, 3}


@pytest.mark.parametrize("loss", ["margin", "softmax"])
def test_the_losses_are_their_formulas(loss):
    model = network("sum", False, 15).train()
    batch = Batch(Sets.from_list([torch.arange(5), torch.arange(4, 11)]))
    objective = ExpansionObjective(None, 15, loss=loss, margin=0.7, query=(2, 3), positives=3, negatives=6)
    torch.manual_seed(3)
    total, number = objective(model, batch)
    torch.manual_seed(3)
    task = draw_pairs(batch.sets, 15, (2, 3), 3, 6)
    slow = 0.0
    for x, b in zip(task.positives.tolist(), task.owner.tolist(), strict=True):
        scores = plain(model, task.queries[b].tolist())
        negatives = [scores[n] for n in task.negatives.tolist() if n not in batch.sets[b].tolist()]
        if loss == "margin":
            slow += sum(max(0.0, float(s - scores[x] + 0.7)) for s in negatives) / 6
        else:
            slow += float(torch.stack([scores[x], *negatives]).logsumexp(0) - scores[x])
    assert number == len(task.positives)
    assert float(total.detach()) == pytest.approx(slow, rel=1e-4)


GROUPS = [[f"{g}{i}" for i in range(6)] for g in "abcd"]
QUICK = {"phi": (32, 32), "rho": (32, 16), "embedding": 16, "batch_size": 4, "negatives": 16, "learning_rate": 0.01}


def test_a_seed_decides_everything_and_no_global_state_is_touched():
    before = torch.get_rng_state()
    a, b, c = (SetExpander(epochs=2, random_state=s, **QUICK).fit(GROUPS).score(["a0"]) for s in (0, 0, 1))
    assert torch.equal(torch.get_rng_state(), before)
    np.testing.assert_array_equal(a, b)
    assert (a != c).any()


def test_z_tells_which_of_two_lists_is_meant():
    """The same query, "a0 …", belongs to two sets; z says to which."""
    left, right = ["a0", "a1", *GROUPS[1]], ["a0", "a1", *GROUPS[2]]
    sets, z = [left, right] * 8, np.tile(np.eye(2), (8, 1))
    assert "validation" in SetExpander(epochs=1, **QUICK).fit(sets, z=z, validation=(sets[:2], z[:2])).history_[0]
    expander = SetExpander(epochs=60, query=(1, 2), **QUICK).fit(sets, z=z)
    asked = [{c.element[0] for c in expander.expand(["a0", "a1"], k=5, z=row)} for row in np.eye(2)]
    assert asked == [{"b"}, {"c"}]
    assert expander.scores([["a0"], ["a0"]], z=np.eye(2)).shape == (2, 14)
    assert expander.fits(["a0", "b1", "b2"], z=[1.0, 0.0]).shape == (3,)
    with pytest.raises(ValueError, match="was fitted with z of 2 numbers; z was not given"):
        expander.expand(["a0"])
    with pytest.raises(ValueError, match=r"shape \(1, 2\); found \(3,\)"):
        expander.expand(["a0"], z=[1.0, 2.0, 3.0])


def test_validation_sets_stop_the_training():
    rng = np.random.default_rng(0)
    noise = [[f"w{i}" for i in rng.permutation(40)[:6]] for _ in range(30)]
    words = [f"w{i}" for i in range(40)]
    expander = SetExpander(epochs=60, patience=2, **QUICK).fit(noise[:20], items=words, validation=noise[20:])
    assert len(expander.history_) < 60
    assert "validation" in expander.history_[0]


def test_averaged_weights_are_those_of_the_trainer():
    sets = [["oak", "elm", "fir", "ash"], ["lion", "puma", "lynx", "cat"]]
    last, mean = (SetExpander(epochs=5, average_weights=share).fit(sets) for share in (0.0, 0.9))
    differences = [
        (a - b).abs().max() for a, b in zip(last.network_.parameters(), mean.network_.parameters(), strict=True)
    ]
    assert max(differences) > 0
    with pytest.raises(ValueError, match=r"average_weights is a share .* found 1.5"):
        SetExpander(epochs=5, average_weights=1.5).fit(sets)


def test_new_rows_are_scored_without_fitting_again():
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(6, 4))
    x = np.repeat(centres, 10, 0) + 0.1 * rng.normal(size=(60, 4))
    sets = [rng.permutation(np.arange(10) + 10 * g)[:6].tolist() for g in range(6) for _ in range(4)]
    expander = SetExpander(epochs=40, query=(2, 5), **QUICK | {"embedding": 0}).fit(sets, items=x)
    new = centres + 0.1 * rng.normal(size=centres.shape)
    found = [expander.score(x[10 * g : 10 * g + 4], new).argmax() for g in range(6)]
    assert np.mean(np.array(found) == np.arange(6)) >= 5 / 6


def test_with_z_an_empty_query_asks_what_goes_with_z_alone():
    sets, z = [["a", "b", "c"], ["d", "e"], ["f"]] * 6, np.tile(np.eye(3), (6, 1))
    expander = SetExpander(epochs=60, query=(0, 2), **QUICK).fit(sets, z=z)
    found = [{c.element for c in expander.expand([], k=k, z=row)} for k, row in zip((3, 2, 1), np.eye(3), strict=True)]
    assert found == [{"a", "b", "c"}, {"d", "e"}, {"f"}]
    with pytest.raises(ValueError, match="the query is empty"):
        SetExpander(epochs=1, **QUICK).fit(sets, z=z).expand([], z=z[0])
    with pytest.raises(ValueError, match="0 only with z"):
        SetExpander(query=(0, 2)).fit(sets)


def test_fits_of_many_members_are_relative_to_some_elements(monkeypatch):
    """Work is bounded: the softmax runs over evenly spaced elements where sets times elements would be too many."""
    expander = SetExpander(epochs=2, random_state=0, **QUICK).fit(GROUPS)
    query = [*GROUPS[0][:3], GROUPS[1][0]]
    whole = expander.scores([[m for m in query if m != left] for left in query]).astype(np.float64)
    own = whole[np.arange(4), expander.ids(query)]
    exact = own - np.log(np.exp(whole).sum(1))
    np.testing.assert_allclose(expander.fits(query), exact, rtol=1e-4)
    monkeypatch.setattr("deepsets.expand.learned._FIT_SCORES", 4 * 12)
    some = whole[:, np.linspace(0, 23, 12).astype(int)]
    np.testing.assert_allclose(expander.fits(query), own - np.log(2 * np.exp(some).sum(1)), rtol=1e-4)


def test_stored_weights_that_are_not_finite_are_refused():
    expander = SetExpander(epochs=1, embedding=4, phi=(4,), rho=(4,)).fit([["a", "b"], ["b", "c"]])
    tensors, facts = expander.get_state()
    tensors["network_.first.bias"][0] = torch.nan
    with pytest.raises(ValueError, match=r"the weights 'first\.bias' are not finite"):
        SetExpander(embedding=4, phi=(4,), rho=(4,)).set_state(tensors, facts)
