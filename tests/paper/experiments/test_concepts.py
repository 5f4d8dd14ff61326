"""Text concept retrieval: the data, the protocol, the rows."""

import gzip
import json

import numpy as np
import pytest
import torch

from deepsets.expand import RandomExpander
from paper import Record
from paper.datasets import data_folder
from paper.datasets.words import cover, load_glove, load_topics
from paper.experiment import Trial
from paper.experiments.concepts import BUILDS, EXPERIMENT, METRICS, PARTS, ask, generated

has_data = pytest.mark.skipif(
    not (data_folder() / "lda").exists() or not (data_folder() / "glove").exists(),
    reason="the LDA topics and GloVe vectors are not below $DEEPSETS_DATA",
)


@has_data
@pytest.mark.parametrize(("size", "sets", "words"), [("1k", 1000, 17016), ("3k", 3000, 37718), ("5k", 5000, 61127)])
def test_the_topics_are_those_of_the_paper(size, sets, words):
    topics = load_topics(size)
    assert len(topics.words) == len(set(topics.words)) == words
    assert [len(part) for part in topics[1:]] == [sets * 8 // 10, sets // 10, sets // 10]
    for part in topics[1:]:
        assert part.shape[1] == 50
        assert all(len(set(row)) == 50 for row in part.tolist())
        with pytest.raises(ValueError, match="read-only"):
            part[0, 0] = 1


@has_data
def test_vectors_of_words_and_of_words_run_together():
    known = load_glove()
    assert known.vectors.shape == (83904, 100)
    assert known.words[0] == "the"
    found = cover(["schoolthe", "lion", "1848", "the"], known)
    assert found.words == ["the", "lion", "schoolthe"]  # frequent words first, run-together ones last
    np.testing.assert_array_equal(found.vectors[1], known.vectors[known.words.index("lion")])


def test_a_broken_file_and_a_wrong_size_are_named(tmp_path, monkeypatch):
    with pytest.raises(ValueError, match="sizes 1k, 3k, 5k; found '2k'"):
        load_topics("2k")
    monkeypatch.setenv("DEEPSETS_DATA", str(tmp_path))
    with pytest.raises(FileNotFoundError, match="manzilzaheer/DeepSets"):
        load_topics("1k")
    (tmp_path / "lda").mkdir()
    rows = {part: [[0, 2]] for part in ("train", "val", "test")}
    content = {"params": {"ind2word": {"0": "a", "1": "b"}}, "data": rows}
    (tmp_path / "lda" / "lda_top_words_split_allwords_1k.json.gz").write_bytes(
        gzip.compress(json.dumps(content).encode())
    )
    with pytest.raises(ValueError, match="'train' is not a table of ids below 2"):
        load_topics("1k")


def test_an_oracle_finds_everything_and_the_query_is_no_candidate():
    data = generated()
    owner = {frozenset(row[:5].tolist()): row for row in data.test}

    class Oracle(RandomExpander):
        def _scores(self, queries, z):
            scores = np.zeros((len(queries), len(data.words)))
            for row, query in zip(scores, queries, strict=True):
                row[owner[frozenset(query.tolist())]] = 1
                row[query] = 2
            return scores

    oracle = Oracle().fit(vocabulary=data.words)
    measured = {m.metric: m.value for m in ask(oracle, data, "generated").measures}
    assert measured["recall@100"] == measured["recall@1k"] == 100
    assert measured["median-rank"] == 8  # fifteen truths share the ranks 1 to 15


@pytest.mark.slow
def test_ours_is_better_than_chance_and_than_the_nearest_vectors_on_the_quick_data(tmp_path):
    trial = Trial(full=False, seed=0, folder=tmp_path)
    found = {}
    for method in ("Random", "Bayes Set", "w2v Near", "Ours"):
        outcome = EXPERIMENT.methods[method](trial, "generated")
        assert [m.metric for m in outcome.measures] == list(METRICS)
        found[method] = {m.metric: m.value for m in outcome.measures}
    assert found["Ours"]["mrr"] > found["w2v Near"]["mrr"] > 3 * found["Random"]["mrr"]
    assert found["Ours"]["recall@100"] > found["Bayes Set"]["recall@100"]


def test_every_row_of_the_paper_has_its_method_and_numbers():
    rows = set(EXPERIMENT.methods) - {"Ours", "Ours, open vocabulary", "w2v Near, centred"}
    assert {method for method, _, _ in EXPERIMENT.published} == rows
    assert len(EXPERIMENT.published) == len(rows) * len(PARTS) * len(METRICS)
    assert EXPERIMENT.published["Deep Sets", "lda-3k", "median-rank"] == 426


@pytest.mark.parametrize("method", ["NN-max", "NN-sum-con", "NN-max-con", "Deep Sets"])
def test_the_networks_have_the_layers_and_the_pooling_of_the_paper(method, tmp_path):
    data = generated()
    expander = BUILDS[method](data, Trial(False, 0, tmp_path, given={"epochs": 1}))
    expander.fit(data.named(data.train), vocabulary=data.words)
    weights = {name: w.detach().double() for name, w in expander.network_.named_parameters()}
    shapes = sorted(tuple(w.shape) for w in weights.values() if w.ndim == 2)
    concat = [(150, 150)] if method.endswith("con") else []
    # embedding of the vectors' width; phi 150-150; rho 150-75-1, its first layer twice if query and word are joined
    assert shapes == sorted([(1000, 30), (150, 30), (150, 150), (150, 150), *concat, (75, 150), (1, 75)])
    layers = [weights[name] for name in weights if name.startswith("phi.")]

    def phi(ids):
        x = weights["embedding.weight"][ids]
        for weight, bias in zip(layers[::2], layers[1::2], strict=True):
            x = (x @ weight.T + bias).relu()
        return x

    query = torch.from_numpy(data.test[0, :5].copy())
    pool = (lambda x: x.amax(0)) if "max" in method else (lambda x: x.sum(0))
    slow = []
    for word in range(0, 1000, 100):
        if concat:
            first = phi(word) @ weights["first.weight"].T + pool(phi(query)) @ weights["first_pooled.weight"].T
        else:
            first = pool(phi(torch.cat([query, torch.tensor([word])]))) @ weights["first.weight"].T
        x = (first + weights["first.bias"]).relu()
        *_, w1, b1, w2, b2 = weights.values()
        slow.append(float((x @ w1.T + b1).relu() @ w2.T + b2))
    found = expander.scores(data.named(data.test[:1, :5]))[0, ::100]
    np.testing.assert_allclose(found, slow, rtol=1e-3, atol=1e-4)


def test_expansions_hold_the_best_words_outside_the_query_and_are_drawn_with_marks(tmp_path):
    data = generated()
    expander = RandomExpander(random_state=0).fit(data.named(data.train), vocabulary=data.words)
    outcome = ask(expander, data, "generated")
    first = outcome.extra["expanded"][0]
    assert len(outcome.extra["expanded"]) == 6 and len(first["found"]) == 10
    assert first["true"][:5] == first["query"] and not set(first["found"]) & set(first["query"])
    scores = expander.scores([first["query"]])[0]
    best = [data.words[i] for i in np.argsort(-scores, kind="stable")]
    assert first["found"] == [word for word in best if word not in first["query"]][:10]
    record = Record.of(EXPERIMENT, False, "Deep Sets", 0)
    record.add("generated", outcome, Trial(False, 0, tmp_path), 0.0, 0.0)
    drawn = EXPERIMENT.figures["Expansions of test topics"]([record])
    texts = [cell.get_text().get_text() for cell in drawn.axes[0].tables[0].get_celld().values()]
    assert any(text.startswith(", ".join(first["query"]) + "\n→ " + first["true"][5]) for text in texts)
    wrong = next(word for word in first["found"] if word not in first["true"])
    assert any(f"{wrong}*" in text for text in texts)
