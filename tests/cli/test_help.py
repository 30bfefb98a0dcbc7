"""The help of the program and of every command."""

from importlib.metadata import version

import pytest
from typer.main import get_command

from frostline.cli.program import COMMANDS, app
from frostline.sweep.settings import Settings
from frostline.training.recipes import EXAMPLES
from tiny import Frostline


def test_every_setting_is_a_flag_with_a_description(frostline: Frostline) -> None:
    for command in ("sweep", "plan"):
        got = frostline(command, "--help")
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


def test_every_default_is_shown(frostline: Frostline) -> None:
    help_of_sweep = " ".join(frostline("sweep", "--help").out.split())
    for shown in ("[default: 5e-05]", "[default: held out of training data]", "[default: 0,1,2,3,4]", "[required]"):
        assert shown in help_of_sweep


def test_the_order_of_commands_names_every_command() -> None:
    assert set(COMMANDS) == get_command(app).commands.keys()  # type: ignore[attr-defined]


@pytest.mark.parametrize("command", [*COMMANDS, "cache ls", "cache rm", "cache verify"])
def test_every_command_has_help(frostline: Frostline, command: str) -> None:
    got = frostline(*command.split(), "--help")
    assert got.code == 0 and got.out.startswith("Usage: frostline " + command) and "--help" in got.out


def test_the_help_lists_every_command_on_a_line_that_is_not_truncated(frostline: Frostline) -> None:
    got = frostline("--help")
    commands = got.out.partition("Commands:")[2].strip()
    assert got.code == 0 and [line.split()[0] for line in commands.splitlines()] == list(COMMANDS)
    assert "..." not in commands


def test_the_help_of_find_shows_the_defaults_of_a_search(frostline: Frostline) -> None:
    shown = " ".join(frostline("find", "--help").out.split())
    for value in (
        "5e-05,0.0001,0.0002",
        "0.001,0.003,0.01,0.03",
        "5",
        "auto",
        "0",
        "the larger of 4 full fine-tunings and 120 s",
    ):
        assert f"[default: {value}]" in shown


def test_the_help_of_compare_shows_its_own_learning_rates(frostline: Frostline) -> None:
    shown = " ".join(frostline("compare", "--help").out.split())
    assert "[default: 2e-05,5e-05,0.0001]" in shown and "[default: frostline-compare]" in shown
    assert "[default: 5e-05]" not in shown


def test_the_help_of_compare_lists_every_kind_of_way(frostline: Frostline) -> None:
    shown = " ".join(frostline("compare", "--help").out.split())
    listed = shown.partition("Ways to tune: ")[2].partition(", or names of [way.NAME]")[0]
    assert listed.split(", ") == ["last-2", "full", *EXAMPLES]


def test_the_help_lists_the_formats_that_can_be_read_and_written(frostline: Frostline) -> None:
    shown = " ".join(frostline("predict", "--help").out.split())
    assert "Table of texts: CSV, TSV, JSON lines, Parquet or CoNLL." in shown
    assert "CSV, JSON lines or Parquet file; for tags of words CoNLL, JSON lines or Parquet." in shown
    assert (
        "training table: csv, tsv, json lines, parquet or conll"
        in " ".join(frostline("sweep", "--help").out.split()).lower()
    )


def test_version(frostline: Frostline) -> None:
    got = frostline("--version")
    assert (got.code, got.out) == (0, f"frostline {version('frostline')}\n")
