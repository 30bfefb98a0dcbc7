"""JSON with its own checksum."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frostline.data.files import MOST, seal, unseal

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats(-MOST, MOST) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=5,
)
FACTS = st.dictionaries(st.text().filter(lambda key: key != "checksum"), VALUES, min_size=1)


@given(FACTS)
def test_sealed_facts_are_ordinary_json_and_are_read_back(facts: dict[str, object]) -> None:
    content = seal(facts)
    assert unseal(content) == facts and json.loads(content).items() >= facts.items()


@given(FACTS, st.integers(0, 10**9), st.integers(1, 255), st.sampled_from(["change", "truncate", "insert"]))
def test_every_other_content_is_refused(facts: dict[str, object], place: int, change: int, how: str) -> None:
    content = seal(facts)
    place %= len(content)
    after = {"change": content[place + 1 :], "truncate": b"", "insert": content[place:]}[how]
    byte = {"change": bytes([content[place] ^ change]), "truncate": b"", "insert": bytes([change])}[how]
    with pytest.raises(ValueError, match="checksum"):
        unseal(content[:place] + byte + after)
