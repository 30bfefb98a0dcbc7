"""Labels that look like lists of labels."""

import pytest

from frostline.data.labels import lists_in


@pytest.mark.parametrize(
    ("labels", "separator"),
    [
        (["positive;books", "negative;books", "positive", "negative"], ";"),
        (["a|b", "b|c", "a|c"], "|"),
        (["price, story", "story", "price, cast", "cast"], ","),
        (["1,3,5", "1,3", "3,5,1", "5"], ","),
        (["books", "good;books", "good;dvd"], ";"),  # a part that occurs once
        (["Albany, NY", "Boston, MA", "New York, NY"], None),
        (["arts; culture", "sports", "politics"], None),
        (["arts; culture", "home; garden", "food; drink"], None),  # names of two words each
        (["arts; culture", "arts", "culture", *(f"class {n}" for n in range(8))], None),
        (["Smith, John", "Smith, Jane", "Doe, Kim", "Diaz, Maria"], None),
        (["3,5", "4,0", "4,5", "3,0", "5,4"], None),  # decimal commas
        (["a", "b"], None),
        ([], None),
    ],
)
def test_labels_are_lists_if_their_parts_recur(labels: list[str], separator: str | None) -> None:
    found = lists_in(labels)
    assert (found and found[0]) == separator
    assert found is None or (found[1] in labels and found[0] in found[1])


def test_a_name_in_many_rows_is_no_list() -> None:
    assert lists_in(["arts; culture"] * 50 + ["sports"] * 50) is None
