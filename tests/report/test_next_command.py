"""The command that would make an answer surer."""

from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from frostline.report import rebuild
from frostline.report.answer.next_command import next_command
from frostline.statistics.recipe import Recipe
from frostline.statistics.run_group import SearchOutcome

EACH = (
    "frostline sweep o/sweep.toml --tune 2 --learning-rate 0.0002 --seeds 5 && "
    "frostline sweep o/sweep.toml --tune full --learning-rate 0.0001 --seeds 5"
)


def text(*args: Any, **options: Any) -> str | None:
    return next_command(*args, **options)[0]


@dataclass(frozen=True)
class Known:
    """What the command depends on, of a cell."""

    recipe: Recipe
    learning_rate: float
    tuned_layers: int = 2
    runs: int = 1
    seconds: float | None = 10.0
    concurrent_runs: int | None = None
    learning_rates_tried: tuple[float, ...] = (1e-4, 2e-4)


def curve(probability: float, seeds: int | None, choice: str = "last 2", other: float = 0.5) -> Any:
    last2 = SimpleNamespace(choice="last 2", probability=probability if choice == "last 2" else other, value=0.8)
    full = SimpleNamespace(choice="full", probability=1.0, value=0.7)
    return SimpleNamespace(
        decision=SimpleNamespace(choice=choice, probability=probability, reference="full"),
        choices=[last2, full],
        cells=[Known(Recipe("last 2"), 2e-4), Known(Recipe("full"), 1e-4)],
        learned=True,
        seeds_to_decide=seeds,
    )


def test_it_adds_the_seeds_that_would_probably_decide() -> None:
    assert text(Path("my out"), [0, 1, 2], curve(0.7, 7)) == "frostline sweep 'my out/sweep.toml' --seeds 7"
    assert text(Path("o"), [5, 6], curve(0.7, 4)) == "frostline sweep o/sweep.toml --seeds 5,6,7,8"


def test_after_one_seed_come_five() -> None:
    assert text(Path("o"), [0], curve(0.7, None)) == "frostline sweep o/sweep.toml --seeds 5"


@pytest.mark.parametrize("probability, seeds", [(0.96, 7), (0.03, 7), (0.7, None), (0.7, 3), (0.7, 500)])
def test_a_sure_answer_or_one_that_seeds_cannot_improve_needs_none(probability: float, seeds: int | None) -> None:
    assert text(Path("o"), [0, 1, 2], curve(probability, seeds)) is None


def test_if_full_is_recommended_the_others_must_be_sure() -> None:
    assert text(Path("o"), [0, 1], curve(1.0, 7, choice="full", other=0.5)) is not None
    assert text(Path("o"), [0, 1], curve(1.0, 7, choice="full", other=0.01)) is None


def test_nothing_compared_or_nothing_learned_needs_none() -> None:
    for name, value in (("decision", None), ("learned", False)):
        known = curve(0.7, 5)
        setattr(known, name, value)
        assert text(Path("o"), [0], known) is None


def test_after_a_search_only_the_compared_choices_get_more_seeds() -> None:
    command = text(Path("o"), [0, 1, 2], curve(0.7, None), of_search=True)
    assert command == EACH
    full = text(Path("o"), [0, 1], curve(1.0, None, choice="full", other=0.5), of_search=True)
    assert full == command


def test_if_full_is_recommended_the_second_best_choice_gets_more_seeds() -> None:
    known = curve(1.0, None, choice="full", other=0.5)
    known.choices.insert(0, SimpleNamespace(choice="last 5", probability=0.9, value=0.79))
    known.cells.insert(0, Known(Recipe("last 5"), 5e-5, tuned_layers=5))
    by_value = text(Path("o"), [0, 1], known, of_search=True)
    assert by_value == EACH
    by_certainty = text(Path("o"), [0, 1], known, of_search=True, sure=0.95)
    assert by_certainty == EACH.replace("2 --learning-rate 0.0002", "5 --learning-rate 5e-05")


def test_a_reference_that_a_search_did_not_train_is_trained() -> None:
    known = curve(0.99, None)
    del known.cells[1]
    known.decision.reference = "last 2"
    command = text(Path("o"), [0, 1], known, of_search=True, missing="full")
    assert command == "frostline sweep o/sweep.toml --tune full --learning-rate 0.0002 --seeds 2"
    tried = curve(0.99, None)  # every run of it failed
    assert text(Path("o"), [0, 1], tried, of_search=True, missing="full") is None


def test_after_the_reference_come_the_k_that_a_small_budget_did_not_allow() -> None:
    command = text(Path("o"), [0, 1], curve(0.7, None), of_search=True, untried=["last 3", "last 4"])
    assert command == "frostline sweep o/sweep.toml --tune 3,4 --learning-rate 0.0001 --seeds 2"
    assert text(Path("o"), [0, 1], curve(0.99, None), of_search=True, untried=["last 3"]) is None
    many = text(Path("o"), [0, 1], curve(0.7, None), of_search=True, untried=[f"last {k}" for k in range(3, 13)])
    assert many == command.replace("3,4", "3,6,9,12")


def test_one_command_is_enough_at_one_learning_rate() -> None:
    known = curve(0.7, None)
    known.cells = [replace(cell, learning_rate=1e-4) for cell in known.cells]
    command = text(Path("o"), [0], known, of_search=True)
    assert command == "frostline sweep o/sweep.toml --tune 2,full --learning-rate 0.0001 --seeds 5"


def test_the_time_is_that_of_the_runs_that_are_missing() -> None:
    known = curve(0.7, 5)
    known.cells[1] = replace(known.cells[1], runs=3, seconds=20.0)
    assert next_command(Path("o"), [0], known, of_search=True)[1] == 4 * 10 + 2 * 20
    whole = next_command(Path("o"), [0], known)  # a grid has every learning rate
    assert whole == ("frostline sweep o/sweep.toml --seeds 5", 2 * (4 * 10 + 2 * 20))
    known.cells[0] = replace(known.cells[0], concurrent_runs=2)
    assert next_command(Path("o"), [0], known)[1] == 80
    known.cells[0] = replace(known.cells[0], seconds=None)
    assert next_command(Path("o"), [0], known) == (whole[0], None)


@pytest.mark.parametrize(
    ("failed_reference", "instead", "untried", "tunes"),
    [
        ("full", "Full fine-tuning was not run.", None, "full"),
        ("full", None, None, "3,4"),
        (None, None, "last 4", "4"),
        (None, None, "last 2", None),  # a sweep has trained it since
        (None, None, None, None),
    ],
)
def test_after_a_search_the_command_depends_on_what_its_budget_did_not_allow(
    failed_reference: str | None, instead: str | None, untried: str | None, tunes: str | None
) -> None:
    known = curve(0.7, None)
    if instead:
        del known.cells[1]
        known.decision.reference = "last 2"
    known_folder = {"out": Path("o"), "own_code": False, "spec": SimpleNamespace(values_of=lambda name: [0])}
    folder: Any = SimpleNamespace(**known_folder)
    search: Any = SimpleNamespace(failed_reference=failed_reference, untried=untried, over=True)
    outcome = SearchOutcome(skipped=["last 3", "last 4"], instead=instead)
    command = rebuild._next_command(folder, SimpleNamespace(sizes=[known], sure=None), search, outcome)
    assert command[0] is not None
    assert (f" --tune {tunes} " in command[0]) if tunes else (command[0] == EACH)
