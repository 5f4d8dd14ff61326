"""Look-up of what people type."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepsets.expand import Vocabulary
from deepsets.expand.vocabulary import fold

PHRASES = ["grand piano", "hip-hop", "whole milk", "skim milk", "los angeles"]
WORDS = Vocabulary(["lion", "Lion", "Paris", *PHRASES, 17, "café"])


@pytest.mark.parametrize(
    ("typed", "wanted"),
    [
        (["lion"], ["lion"]),
        (["Lion"], ["Lion"]),  # exact spelling first
        (["LION"], ["lion"]),
        (["grand_piano", "PARIS"], ["grand piano", "Paris"]),
        (["hip hop", "cafe"], ["hip-hop", "café"]),
        (["'paris'", "“lion”"], ["Paris", "lion"]),
        (["lion,", "paris,", "grand", "piano"], ["lion", "Paris", "grand piano"]),
        (["lion,paris"], ["lion", "Paris"]),
        (["los", "angeles"], ["los angeles"]),
        ("lion paris grand piano", ["lion", "Paris", "grand piano"]),
        ('"grand piano" lion', ["grand piano", "lion"]),
        ("lion; paris", ["lion", "Paris"]),
        ("lion\nparis\n", ["lion", "Paris"]),
        ("lion\rparis\r\n", ["lion", "Paris"]),
        ('lion, "grand piano"', ["lion", "grand piano"]),
        ("lion paris, hip-hop", ["lion", "Paris", "hip-hop"]),
        ([17, "17"], [17]),
        ("", []),
    ],
)
def test_queries_are_read_as_people_write_them(typed, wanted):
    assert WORDS.parse(typed) == (wanted, [])


def test_unknown_words_come_with_suggestions():
    members, unknown = WORDS.parse(["lion", "milk", "pariz", "qqqq"])
    assert members == ["lion"]
    assert [(u.element, u.suggestions) for u in unknown] == [
        ("milk", ["whole milk", "skim milk"]),
        ("pariz", ["Paris"]),
        ("qqqq", []),
    ]
    assert str(unknown[1]) == "'pariz' (did you mean Paris?)"
    assert WORDS.parse([(1, 2)]).unknown[0].suggestions == []


@given(st.text(max_size=20))
def test_folding_twice_is_folding_once(text):
    assert fold(fold(text)) == fold(text)


@given(st.text(max_size=30))
def test_any_text_is_a_query(text):
    members, unknown = Vocabulary(["a", "b", "ab c"]).parse(text)
    assert len(members) + len(unknown) <= len(text)


@given(st.lists(st.text("abc ,'-", min_size=1, max_size=6), max_size=5))
def test_nothing_typed_is_lost_or_raises(words):
    members, _ = Vocabulary(["a", "b", "ab c"]).parse(words)
    assert set(members) <= {"a", "b", "ab c"}
    assert len(set(members)) == len(members)
