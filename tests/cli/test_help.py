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
            flag = name.replace("_", "-")
            assert f"--{flag} " in got.out or f"--[no-]{flag} " in got.out
        panels = ("Data:", "Model:", "Grid:", "Training:", "Resources:", "Output:")
        flags = ("train", "model", "tune", "num-train-epochs", "device", "out")
        starts = [
            got.out.index(part) for panel, flag in zip(panels, flags, strict=True) for part in (panel, f"  --{flag} ")
        ]
        assert starts == sorted(starts)  # each panel, and its most important flag


def test_every_default_is_shown(frostline: Frostline) -> None:
    help_of_sweep = " ".join(frostline("sweep", "--help").out.split())
    for shown in ("[default: 5e-05]", "[default: held out of training data]", "[default: 0,1,2,3,4]", "[required]"):
        assert shown in help_of_sweep


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


def test_every_verb_has_a_line_that_is_not_truncated(frostline: Frostline) -> None:
    got = frostline("--help")
    assert got.code == 0 and "..." not in got.out.partition("Commands:")[2]


def test_version(frostline: Frostline) -> None:
    got = frostline("--version")
    assert (got.code, got.out) == (0, f"frostline {version('frostline')}\n")
