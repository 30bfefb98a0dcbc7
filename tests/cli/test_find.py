"""The command of a search."""

from pathlib import Path

import pytest

from cli.test_search_plan_output import forecast
from tiny import Frostline


@pytest.mark.parametrize("budget", [("5", "minutes"), ("5minutes",), ("300",)])
def test_a_budget_may_have_two_words(
    budget: tuple[str, ...], frostline: Frostline, tiny_bert: Path, tiny_table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("frostline.search.search_plan.make_forecast", forecast)
    got = frostline("find", "--model", tiny_bert, "--budget", *budget, "--train", tiny_table, "--out", "f", "--plan")
    assert got.code == 0 and "Budget: 5 min of training, as given." in " ".join(got.out.split())


def test_the_help_says_the_unit_of_a_number_alone(frostline: Frostline) -> None:
    assert "a number alone is seconds" in " ".join(frostline("find", "--help").out.split())


def test_other_words_after_a_budget_are_refused(frostline: Frostline) -> None:
    got = frostline("find", "--budget", "5", "minuets")
    assert got.code == 2 and "minuets" in got.err
