"""Values given as text: lists with commas, and names written in several ways."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frostline.data.parsing import NUMBER, comma_separated, normalized_name


@given(st.lists(st.text("ab 1", max_size=4), min_size=1))
def test_comma_separated_parts_come_back_without_white_space(words: list[str]) -> None:
    assert comma_separated(" , ".join(words)) == [word.strip() for word in words]


def test_names_differ_in_letters_and_digits_only() -> None:
    assert {normalized_name(name) for name in ("SST-2", "sst2", "sst_2", "Sst 2")} == {"sst2"}


@pytest.mark.parametrize(
    ("text", "is_number"), [("1", True), ("-.5e3", True), ("1.", True), ("1,5", False), ("nan", False)]
)
def test_what_a_number_looks_like(text: str, is_number: bool) -> None:
    assert bool(NUMBER.fullmatch(text)) == is_number
