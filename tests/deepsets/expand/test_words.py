"""English words that come with the library: the files, how they are made, and the expanders."""

import gzip
import importlib.util
from pathlib import Path

import numpy as np
import pytest

from deepsets.expand import UnknownElementWarning
from deepsets.expand import words as words_package
from deepsets.expand.vocabulary import fold
from deepsets.expand.words import WORD_METHODS, concept_sets, word_data, word_expander

FOLDER = Path(words_package.__file__).parent
SCRIPTS = Path(__file__).parents[3] / "scripts"


# -------------------------------------------------------------------------------------------------------- the files


def test_the_files_are_small_and_the_notices_are_beside_them():
    files = [path for path in FOLDER.iterdir() if path.suffix in (".gz", ".npz", ".safetensors")]
    sizes = {path.name: path.stat().st_size for path in files}
    assert sizes["vectors.npz"] + sizes["words.txt.gz"] <= 5_000_000
    assert sum(sizes.values()) <= 6_500_000
    notice = (FOLDER / "WORDNET-LICENSE").read_text()
    assert "WordNet 3.1 Copyright 2011 by Princeton University" in notice
    assert "Permission to use, copy, modify and distribute" in notice
    assert "Public Domain Dedication and License" in (FOLDER / "NOTICE").read_text()


def test_concepts_are_lists_of_words_the_familiar_ones_first():
    found = concept_sets()
    assert len(found.names) == len(found.sets) > 5000
    assert {word for members in found.sets for word in members} == set(found.words)
    place = {word: i for i, word in enumerate(found.words)}
    for members in found.sets:
        assert 4 <= len(members) <= 60
        assert np.diff([place[word] for word in members]).min() > 0


def test_every_concept_word_is_in_the_vocabulary_once_and_has_a_vector():
    found, words = concept_sets(), word_data()
    folded = {fold(word) for word in words.words}
    assert {fold(word) for word in found.words} <= folded
    assert len(set(words.words)) == len(words.words)
    np.testing.assert_allclose(np.linalg.norm(words.vectors, axis=1), 1, rtol=1e-4)
    t = found.names.index("big cat")
    row = words.members.indices[words.members.indptr[t] : words.members.indptr[t + 1]]
    assert {words.words[i] for i in row} == set(found.sets[t])


def test_inflections_have_the_stem_of_their_word():
    words = word_data()
    place = {word: i for i, word in enumerate(words.words)}
    for plural, single in {"lions": "lion", "cities": "city", "knives": "knife", "boxes": "box"}.items():
        assert words.stems[place[plural]] == words.stems[place[single]]
    assert words.stems[place["glass"]] == place["glass"]
    assert words.function[place["the"]]
    assert not words.function[place["lion"]]


# -------------------------------------------------------------------------------------------------------- the answers


@pytest.mark.parametrize(
    ("query", "wanted"),
    [
        ("lion tiger leopard", "cheetah panther jaguar"),
        ("violin cello", "viola"),
        ("Monday Tuesday", "Wednesday Thursday Friday Saturday Sunday"),
        ("oak elm", "birch beech chestnut"),
        ("red blue green", "yellow orange purple"),
        ("Mars Venus", "Jupiter Saturn"),
        ("cheddar brie gouda", "mozzarella gruyere"),
        ("toyota honda ford", "nissan bmw chrysler"),
    ],
)
def test_a_few_words_bring_more_like_them(query, wanted):
    answers = {found.element.casefold() for found in word_expander().expand(query, k=15)}
    assert {word.casefold() for word in wanted.split()} <= answers


def test_the_sense_that_all_members_share_decides():
    answers = [found.element.casefold() for found in word_expander().expand("python java ruby", k=10)]
    assert not {"monkey", "sapphire", "dragon"} & set(answers)
    assert len({"php", "perl", "javascript", "smalltalk", "lisp", "fortran", "cobol"} & set(answers[:5])) >= 3


def test_plurals_are_in_the_concepts_of_their_word():
    answers = {found.element.removesuffix("s") for found in word_expander().expand("almonds walnuts", k=10)}
    assert len(answers & {"pecan", "cashew", "hazelnut", "pistachio", "peanut", "coconut"}) >= 4
    assert "nut" in word_expander().explain(["almonds", "walnuts"], "cashew").sets


def test_phrases_of_a_concept_of_all_members_are_answers():
    answers = {found.element for found in word_expander().expand("ontario quebec manitoba", k=10)}
    assert {"Alberta", "Saskatchewan", "British Columbia", "Nova Scotia", "New Brunswick"} <= answers


def test_inflections_function_words_and_names_of_the_kind_are_no_answers():
    expander = word_expander()
    answers = {found.element.casefold() for found in expander.expand("cheddar brie gouda", k=50)}
    assert not answers & {"cheese", "cheeses", "cheddars", "the", "and"}
    stems = [expander.data.stems[expander.find(found.element)] for found in expander.expand("cat dog", k=50)]
    assert len(set(stems)) == 50
    assert not {expander.data.stems[expander.find(w)] for w in ("cat", "dog")} & set(stems)


def test_the_order_and_spelling_of_a_query_change_nothing():
    expander = word_expander()
    wanted = expander.expand(["grand piano", "violin", "Paris"], k=5)
    assert expander.expand("paris, Violin, grand_piano", k=5) == wanted
    with pytest.warns(UnknownElementWarning, match="'zzyzxq'"):
        assert expander.expand(["violin", "paris", "zzyzxq", "grand piano"], k=5) == wanted


@pytest.mark.parametrize("method", WORD_METHODS)
def test_every_method_answers_and_finds_the_odd_member(method):
    expander = word_expander(method)
    assert len(expander.expand(["lion", "tiger"], k=5)) == 5
    assert expander.fits(["lion", "hammer", "tiger", "leopard"]).argmin() == 1
    assert word_expander(method) is expander


def test_an_explanation_names_common_concepts():
    found = word_expander().explain(["lion", "tiger", "violin"], "leopard")
    assert "big cat" in found.sets
    assert found.members[-1].element == "violin"


def test_unknown_methods_are_refused():
    with pytest.raises(ValueError, match=r"method must be one of blend, .*; found 'magic'"):
        word_expander("magic")


# ------------------------------------------------------------------------------------------------------- the script


def load_script(name):
    spec = importlib.util.spec_from_file_location(name, SCRIPTS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def script():
    return load_script("wordnet_concepts")


def test_quantised_vectors_are_near_the_originals():
    table = np.random.default_rng(0).normal(size=(2000, 40)) * np.linspace(1, 3, 40)
    table = (table / np.linalg.norm(table, axis=1, keepdims=True)).astype(np.float32)
    found = load_script("word_vectors").quantise(table)
    assert found["codes"].shape == (2000, 20)
    codes = np.stack([found["codes"] >> 4, found["codes"] & 15], 2).reshape(2000, 40)
    decoded = found["levels"][codes] * found["scale"] + found["mean"]
    error = decoded @ decoded.T - table @ table.T  # the rotation keeps cosines
    assert np.sqrt(np.mean(error**2)) < 0.03


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
