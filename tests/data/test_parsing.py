"""Values that users write as text: comma-separated lists, numbers, and spellings of names."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frostline.data.wording import (
    NUMBER,
    comma_joined,
    comma_separated,
    duration_at_least,
    normalized_name,
    parse_duration,
)


@given(st.lists(st.text("ab 1", max_size=4), min_size=1))
def test_comma_separated_parts_have_no_surrounding_white_space(words: list[str]) -> None:
    assert comma_separated(" , ".join(words)) == [word.strip() for word in words]


def test_only_letters_and_digits_of_a_name_matter() -> None:
    assert {normalized_name(name) for name in ("SST-2", "sst2", "sst_2", "Sst 2")} == {"sst2"}


@pytest.mark.parametrize(
    ("text", "is_number"), [("1", True), ("-.5e3", True), ("1.", True), ("1,5", False), ("nan", False)]
)
def test_numbers_are_recognized(text: str, is_number: bool) -> None:
    assert bool(NUMBER.fullmatch(text)) == is_number


@given(st.floats(0.01, 1e6))
def test_a_duration_for_a_flag_is_enough_and_little_more(seconds: float) -> None:
    assert seconds <= parse_duration(duration_at_least(seconds)) < seconds + 60
    assert [parse_duration(text) for text in ("5 minutes", "1 hour", "2sec", "7")] == [300, 3600, 2, 7]
    assert duration_at_least(62.1) == "63s" and duration_at_least(99.5) == "2min"


@given(st.lists(st.text('ab ",=\n', max_size=5).map(str.strip).filter(bool), min_size=1))
def test_parts_are_read_as_they_are_joined(words: list[str]) -> None:
    assert comma_separated(comma_joined(words)) == words


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ('"rock, pop",jazz', ["rock, pop", "jazz"]),
        (' "rock, pop" , jazz', ["rock, pop", "jazz"]),
        ('"say ""hi"", you",b', ['say "hi", you', "b"]),
        ('"rock, pop"=2,jazz=1', ["rock, pop=2", "jazz=1"]),
        ('5" disk,"quoted" word', ['5" disk', '"quoted" word']),
        ('"""quoted""",b', ['"quoted"', "b"]),
        ('"not closed,b', ['"not closed', "b"]),
        ("a,,b", ["a", "", "b"]),
    ],
)
def test_commas_in_quotes_separate_nothing(text: str, parts: list[str]) -> None:
    assert comma_separated(text) == parts
