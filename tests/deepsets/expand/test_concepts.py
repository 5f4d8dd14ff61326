"""The concepts that come with the library: the file, how it is made, and the expanders that know it."""

import gzip
import importlib.util
from pathlib import Path

import numpy as np
import pytest
import torch

from deepsets import Sets
from deepsets.expand import BayesianSets, set_vectors
from deepsets.expand.concepts import METHODS, concept_expander, concept_sets, fit_expander
from deepsets.expand.concepts import wordnet as _wordnet

FOLDER = Path(_wordnet.__file__).parent
SCRIPT = Path(__file__).parents[3] / "scripts" / "wordnet_concepts.py"
BASKETS = [["milk", "bread"], ["bread", "butter", "milk"], ["nails", "hammer"], ["hammer", "saw", "nails"]]


# -------------------------------------------------------------------------------------------------------- the file


def test_the_file_is_small_and_the_notice_stands_beside_it():
    assert (FOLDER / "concepts.txt.gz").stat().st_size <= 1_000_000
    notice = (FOLDER / "WORDNET-LICENSE").read_text()
    assert "WordNet 3.1 Copyright 2011 by Princeton University" in notice
    assert "Permission to use, copy, modify and distribute" in notice


def test_the_file_holds_lists_of_words_and_nothing_else():
    found = concept_sets()
    assert len(found.names) == len(found.sets) > 5000
    assert {word for members in found.sets for word in members} == set(found.words)
    assert len({word.casefold() for word in found.words}) == len(found.words)
    for members in found.sets:
        assert 4 <= len(members) <= 60
        assert len(set(members)) == len(members)
    assert all(word[0].isalpha() and len(word.split()) <= 3 for word in found.words)


def test_familiar_words_come_first_everywhere():
    found = concept_sets()
    place = {word: i for i, word in enumerate(found.words)}
    assert all(np.diff([place[word] for word in members]).min() > 0 for members in found.sets)
    assert place["lion"] < place["cheetah"] < place["grand piano"]


@pytest.mark.parametrize(
    ("query", "wanted"),
    [
        ("lion tiger leopard", "cheetah panther jaguar"),
        ("violin cello", "viola"),
        ("Monday Tuesday", "Wednesday Thursday Friday Saturday"),
        ("oak elm", "birch beech chestnut"),
        ("France Italy", "Spain Germany Portugal"),
        ("apple pear", "cherry plum peach"),
        ("red blue green", "yellow orange purple"),
        ("Mars Venus", "Jupiter Saturn Neptune"),
        ("Mozart Beethoven", "Bach Schubert Haydn"),
        ("chess poker", "checkers"),
    ],
)
def test_a_few_words_bring_more_like_them(query, wanted):
    answers = [found.element for found in concept_expander().expand(query.split(), k=10)]
    assert set(wanted.split()) <= set(answers)


def test_the_odd_member_is_found():
    fits = concept_expander().fits(["lion", "hammer", "tiger", "leopard"])
    assert fits.argmin() == 1


# ------------------------------------------------------------------------------------------------------ the methods


@pytest.mark.parametrize("method", METHODS)
def test_every_method_learns_from_baskets(method):
    expander = fit_expander(BASKETS, method, epochs=1)
    assert set(expander.vocabulary_) == {"milk", "bread", "butter", "nails", "hammer", "saw"}
    assert len(expander.expand(["milk"], k=9)) == 5
    if method != "deep-sets":
        assert {found.element for found in expander.expand(["milk"], k=2)} == {"bread", "butter"}


def test_unknown_methods_and_empty_sets_are_refused():
    with pytest.raises(ValueError, match=r"method must be one of bayesian-sets, .*; found 'magic'"):
        fit_expander(BASKETS, "magic")
    with pytest.raises(ValueError, match="no set holds an element"):
        fit_expander([[], []])


def test_the_vectors_of_elements_are_those_of_a_full_decomposition():
    rng = np.random.default_rng(0)
    sizes = rng.integers(1, 6, 12)
    values = np.concatenate([rng.choice(15, size, replace=False) for size in sizes])
    sets = Sets(torch.from_numpy(values), torch.from_numpy(np.concatenate([[0], sizes.cumsum()])))
    table = np.zeros((15, 12))
    table[values, np.repeat(np.arange(12), sizes)] = np.repeat(sizes**-0.5, sizes)
    left, singular, _ = np.linalg.svd(table)
    slow = left[:, :12] * np.sqrt(singular)
    slow /= np.linalg.norm(slow, axis=1, keepdims=True).clip(1e-9)
    seen = np.unique(values)
    fast = set_vectors(sets, 15, width=99)
    np.testing.assert_allclose(fast[seen] @ fast[seen].T, slow[seen] @ slow[seen].T, atol=1e-4)


def test_the_learnt_expander_is_kept_in_the_cache(tmp_path, monkeypatch):
    fitted = []

    def fit(sets, method, words, verbose=False):
        fitted.append(method)
        return BayesianSets().fit(BASKETS)

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(_wordnet, "fit_expander", fit)
    make = concept_expander.__wrapped__
    first, second = make("deep-sets"), make("deep-sets")
    assert fitted == ["deep-sets"]
    assert second.expand(["milk"], k=3) == first.expand(["milk"], k=3)
    (folder,) = (tmp_path / "deepsets").iterdir()
    (folder / "model.safetensors").write_bytes(b"damaged")
    make("deep-sets")
    assert fitted == ["deep-sets"] * 2
    assert make("deep-sets").vocabulary_ == first.vocabulary_
    assert fitted == ["deep-sets"] * 2


def test_a_cache_that_cannot_be_written_is_no_obstacle(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("not a folder")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.setattr(_wordnet, "fit_expander", lambda *_, **__: BayesianSets().fit(BASKETS))
    assert concept_expander.__wrapped__("deep-sets").expand(["milk"], k=1)[0].element == "bread"


# ------------------------------------------------------------------------------------------------------- the script


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("wordnet_concepts", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def small_wordnet(folder: Path) -> None:
    """A noun with six kinds: one is a rare sense of a word that is used otherwise, and one has no vector."""
    cats = ["lion", "tiger", "puma", "lynx", "go", "zzyzx"]
    lines = ["  1 the notice\n"]
    pointers = " ".join(f"~ {i:08d} n 0000" for i in range(2, 8))
    lines.append(f"00000001 05 n 01 big_cat 0 {len(cats):03d} {pointers} | a large feline  \n")
    for i, cat in enumerate(cats, 2):
        gloss = "a feline of the forest" if cat != "go" else "a turn"
        lines.append(f"{i:08d} 05 n 01 {cat} 0 001 @ 00000001 n 0000 | {gloss}  \n")
    (folder / "data.noun.gz").write_bytes(gzip.compress("".join(lines).encode()))
    rng = np.random.default_rng(0)
    wild = ["lion", "tiger", "puma", "lynx", "feline", "forest", "cat"]
    words = [*(f"w{i}" for i in range(200)), "go", "turn", *wild]
    vectors = rng.normal(size=(len(words), 30))
    vectors[-len(wild) :] = 4 * rng.normal(size=30) + rng.normal(size=(len(wild), 30))
    (folder / "words.txt").write_text("\n".join(words))
    # two strong directions, which are taken away as those of frequency
    np.save(folder / "vectors_f16.npy", np.hstack([vectors, 50 * rng.normal(size=(len(words), 2))]).astype(np.float16))


def test_the_script_keeps_what_is_known_and_goes_together(script, tmp_path):
    small_wordnet(tmp_path)
    synsets = script.read_wordnet(tmp_path / "data.noun.gz")
    assert synsets["00000001"].words == ["big cat"]
    assert synsets["00000002"].above == ["00000001"]
    (found,) = script.concepts(synsets, script.Vectors(tmp_path))
    assert found.name == "big cat"
    assert set(found.members) == {"lion", "tiger", "puma", "lynx"}


def test_nearly_the_same_concepts_are_kept_once(script):
    words = [f"w{i}" for i in range(20)]
    large, small = script.Concept("a", words, 20, False), script.Concept("b", words[:18], 18, False)
    other, group = script.Concept("c", words[:8], 8, False), script.Concept("d", words[:12], 20, True)
    assert script.different([group, small, other, large]) == [large, other]
