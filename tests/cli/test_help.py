"""The help of the program and of every command."""

import re
from importlib.metadata import version

import pytest
from typer.main import get_command

from frostline.cli.program import COMMANDS, FIRST, app
from frostline.data.kinds import ENDINGS, either
from frostline.studies.protocol import protocol_names
from frostline.sweeps.settings import Settings
from tiny import Frostline


def test_every_setting_is_a_flag_with_a_description(frostline: Frostline) -> None:
    got = frostline("sweep", "--help-all")
    assert got.code == 0
    for name in Settings.model_fields.keys() - {"grid", "way"}:
        flag = name.replace("_", "-")
        assert f"--{flag} " in got.out or f"--[no-]{flag} " in got.out
    panels = ("Data:", "Model:", "Grid:", "Training:", "Resources:", "Output:")
    flags = ("train", "model", "tune", "num-train-epochs", "device", "out")
    starts = [
        got.out.index(part) for panel, flag in zip(panels, flags, strict=True) for part in (panel, f"  --{flag} ")
    ]
    assert starts == sorted(starts)  # each panel begins with its most important flag


SHOWN = {
    "sweep": (
        f"Training table: {either(*ENDINGS)}.",
        "[default: 5e-05]",
        "[default: held out of training data]",
        "[default: 0,1,2,3,4]",
        "counted from 1. [default: the second of two]",
        "[required]",
    ),
    "find": (
        *(
            "[default: 5e-05,0.0001,0.0002,0.0005]",
            "[default: 0.001,0.003,0.01,0.03]",
            "[default: 5]",
            "[default: auto]",
        ),
        *("[default: 0]", "[default: the larger of 4 full fine-tunings and 120 s]", "a number alone is seconds"),
    ),
    "predict": (
        f"Table of texts: {either(*ENDINGS)}.",
        "CSV, JSON lines or Parquet file; for tags of words CoNLL, JSON lines or Parquet.",
    ),
    "evaluate": ("counted from 1. [default: the second of two]",),
    "study": tuple(protocol_names()),
    "analyze": ("one table",),
}


@pytest.mark.parametrize("command", SHOWN)
def test_the_help_shows_the_defaults_and_values_of_its_command(frostline: Frostline, command: str) -> None:
    shown = " ".join(frostline(command, "--help-all" if command in FIRST else "--help").out.split())
    shown = shown.replace("- ", "-")  # a line may end within a word
    assert [text for text in SHOWN[command] if text not in shown] == []


def test_every_command_has_help(frostline: Frostline) -> None:
    assert set(COMMANDS) == get_command(app).commands.keys()  # type: ignore[attr-defined]
    for command in (*COMMANDS, "cache ls", "cache rm"):
        got = frostline(*command.split(), "--help")
        assert got.code == 0 and got.out.startswith("Usage: frostline " + command) and "--help" in got.out
        assert "<list" not in got.out
    assert frostline("sweep", "--train", "a", "--train", "b", "--help").out == frostline("sweep", "--help").out


def test_the_help_lists_every_command_on_a_line_that_is_not_truncated(frostline: Frostline) -> None:
    got = frostline("--help")
    commands = got.out.partition("Commands:")[2].strip()
    assert got.code == 0 and [line.split()[0] for line in commands.splitlines()] == list(COMMANDS)
    assert "..." not in commands


def test_the_help_of_a_command_with_many_flags_shows_the_first_ones_in_order(frostline: Frostline) -> None:
    shown = re.findall(r"^  --([a-z-]+)", frostline("find", "--help").out.partition("Options:")[2], re.MULTILINE)
    assert shown[:3] == ["model", "train", "validation"] and shown[-2:] == ["help", "help-all"] and len(shown) < 17
    everything = frostline("find", "--help-all").out
    assert "Training:\n" in everything and set(shown[:-1]) < set(re.findall(r"--([a-z-]+)", everything))


def test_an_unknown_flag_is_answered_with_the_most_similar_one(frostline: Frostline) -> None:
    got = frostline("find", "--modle", "m")
    assert got.code == 2 and got.err.endswith("No such option: --modle (Possible options: --model)\n")


def test_version(frostline: Frostline) -> None:
    got = frostline("--version")
    assert (got.code, got.out) == (0, f"frostline {version('frostline')}\n")
