"""What is drawn together can be taken apart again."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from frostline.data.folding import between_commas, capital, folded, stretches

NUMBERS = st.sets(st.integers(0, 30))


@given(NUMBERS)
def test_stretches_hold_every_number_and_a_gap_lies_between(numbers: set[int]) -> None:
    found = stretches(numbers)
    assert [n for first, last in found for n in range(first, last + 1)] == sorted(numbers)
    assert all(one[1] + 1 < other[0] for one, other in pairwise(found))


@given(st.lists(st.text("ab 1", max_size=4), min_size=1))
def test_what_stands_between_commas_comes_back_without_blanks(words: list[str]) -> None:
    assert between_commas(" , ".join(words)) == [word.strip() for word in words]


@given(st.text())
def test_a_capital_in_front_changes_no_other_letter(text: str) -> None:
    said = capital(text)
    assert said.endswith(text[1:]) and said[: len(said) - len(text[1:])] == text[:1].upper()


@given(NUMBERS, st.sampled_from(["", ".output", ".attention.query"]))
def test_folded_layers_can_be_unfolded(numbers: set[int], rest: str) -> None:
    found = folded([f"bert.layer.{n}{rest}" for n in numbers] + ["bert.pooler", "bert.layer"], "bert.layer.")
    assert found[:2] == ("bert.pooler", "bert.layer")
    ends = [one.removeprefix("bert.layer.").removesuffix(rest).split(" .. ") for one in found[2:]]
    assert [n for end in ends for n in range(int(end[0]), int(end[-1]) + 1)] == sorted(numbers)


def test_parts_of_the_same_layers_are_folded_into_one() -> None:
    paths = [f"l.{n}.{part}" for n in (0, 1, 2, 4) for part in ("a", "b.c")]
    assert folded([*paths, "l.7", "e"], "l.") == ("e", "l.0 .. 2.{a, b.c}", "l.4.{a, b.c}", "l.7")
    assert folded(["embeddings", "layer 3", "layer 4", "head"], "layer ") == ("embeddings", "head", "layer 3 .. 4")
