"""The help of the program and of every verb."""

from importlib.metadata import version

import pytest

from frostline.sweep.specification import SweepSpec
from tiny import Frostline


def test_every_setting_is_a_flag_with_a_description(frostline: Frostline) -> None:
    for verb in ("sweep", "plan"):
        got = frostline(verb, "--help")
        assert got.code == 0
        for name in SweepSpec.model_fields.keys() - {"grid"}:
            assert f"--{name.replace('_', '-')}" in got.out
        places = [got.out.index(f"  --{name} ") for name in ("model", "tune", "seeds", "out", "weight-decay")]
        assert places == sorted(places)  # the grid first


@pytest.mark.parametrize(
    "verb",
    [
        *("demo", "sweep", "find", "plan", "status", "report", "probe", "predict", "check", "analyze", "study"),
        *("cache", "cache ls", "cache rm", "cache verify"),
    ],
)
def test_every_verb_has_help(frostline: Frostline, verb: str) -> None:
    got = frostline(*verb.split(), "--help")
    assert got.code == 0 and got.out.startswith("Usage: frostline " + verb) and "--help" in got.out


def test_the_verbs_are_told_in_a_line_each(frostline: Frostline) -> None:
    got = frostline("--help")
    assert got.code == 0 and "..." not in got.out.partition("Commands:")[2]


def test_the_version_is_told(frostline: Frostline) -> None:
    got = frostline("--version")
    assert (got.code, got.out) == (0, f"frostline {version('frostline')}\n")
