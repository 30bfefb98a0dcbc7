"""The names of ways."""

import re
from pathlib import Path

import pytest

from frostline import FrostlineError
from frostline.training.recipes import EXAMPLES, NUMBERED_WAYS, Way, way_named

PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "ways-to-tune.md"


def test_names_of_the_grid_are_no_ways() -> None:
    assert [way_named(name, {}) for name in ("last-2", "head", "full", "named")] == [None] * 4


def test_every_name_stands_for_a_way_of_its_own() -> None:
    ways = [way_named(name, {}) for name in EXAMPLES]
    assert all(ways) and len({str(way) for way in ways}) == len(ways)


def test_a_number_is_that_of_layers() -> None:
    assert way_named("lora-3", {}) == Way(tune=3, low_rank=8, rate_factor=10)
    assert way_named("spectrum-25", {}) == Way(signal_share=0.25)
    assert way_named("random-2", {}) == Way(tune=2, layers="random")
    assert way_named("reinit-2", {}) == Way(reinitialized=2)
    assert way_named("transferred-4", {}) == Way(transferred=4)
    assert way_named("mean-pooled-0", {}) == Way(tune=0, head_reads="mean")
    assert way_named("bilstm", {}) == Way(tune=0, lstm_width=768)
    assert way_named("bilstm-4", {}) == Way(tune=0, lstm_width=768, lstm_states=4)
    assert way_named("gradual-2", {}) == Way(tune=2, order="gradual")


def test_own_ways_come_first() -> None:
    own = {"gradual": Way(mixout=0.1), "mine": Way(tune=1)}
    assert way_named("gradual", own) == own["gradual"] and way_named("mine", own) == own["mine"]


def test_an_unknown_name_lists_the_nearest() -> None:
    with pytest.raises(FrostlineError, match=r"no way to tune called 'mixot' \(did you mean 'mixout'\?\)"):
        way_named("mixot", {})
    with pytest.raises(FrostlineError, match="no way to tune called 'lora-02'"):
        way_named("lora-02", {})
    with pytest.raises(FrostlineError, match=r"choose from llrds, lora-all, .*, lora-2, .*, last-2"):
        way_named("zzzz", {"llrds": Way()})


def kind(name: str) -> str:
    """A name without its number, if any number will do: ``lora-N``."""
    beginning = re.sub(r"-\d+$", "", name)
    return f"{beginning}-N" if beginning != name and beginning in NUMBERED_WAYS else name


def test_the_page_lists_every_name() -> None:
    _, _, table = PAGE.read_text(encoding="utf-8").partition("| name | what it does |\n")
    rows = table.partition("\n\n")[0].splitlines()
    listed = [kind(name) for row in rows for name in re.findall(r"`([\w-]+)`", row.split("|")[1])]
    assert sorted(listed) == sorted(["last-2", "full", "head", *map(kind, EXAMPLES)])
