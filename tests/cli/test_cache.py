"""`frostline check` and `frostline cache`."""

from pathlib import Path

import pytest

from tiny import FAST, Frostline


@pytest.mark.usefixtures("here")
def test_check_and_cache(frostline: Frostline, empty_cache: Path) -> None:
    cache = empty_cache / "frostline" / "hidden-states" / "default"
    assert frostline("cache", "ls").out == f"{cache}: 0 B\n"
    checked = frostline("check", "m")
    assert (
        checked.code == 0 and "\nEqual: every difference is below 1e-05 of the largest value (float32)." in checked.out
    )
    assert "refused" not in checked.out
    names = ("head only", "last 1", "last 2", "last 3", "full")
    assert [line.split("packed")[0].strip() for line in checked.out.splitlines()[1:-1]] == list(names)
    assert (
        frostline("sweep", "--model", "m", "--train", "t.csv", "--tune", "1", "--seeds", "1", "--out", "o", *FAST).code
        == 0
    )
    listed = frostline("cache", "ls").out.splitlines()
    assert len(listed) == 3 and listed[1].split()[:3] == ["key", "model", "precision"] and " 160 " in listed[2]
    next(cache.glob("*/recipe.json")).write_text("{")
    assert "(its record is damaged)" in frostline("cache", "ls").out
    assert frostline("cache", "rm", listed[2].split()[0]).out.startswith("Entries removed: 1, ")
    assert frostline("cache", "rm", "--all", "--yes").out == "Entries removed: 0, 0 B.\n"
