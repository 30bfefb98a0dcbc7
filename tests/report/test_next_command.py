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

ALL = "frostline sweep o/sweep.toml --seeds 5"
EACH = (
    "frostline sweep o/sweep.toml --tune 2 --learning-rate 0.0002 --seeds 5 && "
    "frostline sweep o/sweep.toml --tune full --learning-rate 0.0001 --seeds 5"
)


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


def curve(probability: float = 0.7, seeds: int | None = None, *, of_full: float | None = None, **more: Any) -> Any:
    """A curve that recommends the last 2 layers, or full fine-tuning if ``of_full`` is the probability of the others."""
    choice = "last 2" if of_full is None else "full"
    last2 = SimpleNamespace(choice="last 2", probability=probability if of_full is None else of_full, value=0.8)
    known = {
        "decision": SimpleNamespace(choice=choice, probability=probability, reference="full"),
        "choices": [last2, SimpleNamespace(choice="full", probability=1.0, value=0.7)],
        "cells": [Known(Recipe("last 2"), 2e-4), Known(Recipe("full"), 1e-4)],
        "learned": True,
        "seeds_to_decide": seeds,
    }
    return SimpleNamespace(**{**known, **more})


def without_full(**more: Any) -> Any:
    """The curve of a search that has not trained full fine-tuning."""
    decision = SimpleNamespace(choice="last 2", probability=0.99, reference="last 2")
    return curve(0.99, decision=decision, cells=[Known(Recipe("last 2"), 2e-4)], **more)


FIVE = Known(Recipe("last 5"), 5e-5, tuned_layers=5)
SECOND = SimpleNamespace(choice="last 5", probability=0.9, value=0.79)
BESIDE = curve(of_full=0.5)
BESIDE.choices.insert(0, SECOND)
BESIDE.cells.insert(0, FIVE)


@pytest.mark.parametrize(
    ("known", "seeds", "options", "command"),
    [
        # a sweep gets the seeds that would probably decide; after one seed come five
        (curve(seeds=5), [0, 1, 2], {}, ALL),
        (curve(seeds=4), [5, 6], {}, ALL.replace("5", "5,6,7,8")),
        (curve(), [0], {}, ALL),
        # a sure answer needs none, nor one that seeds cannot improve
        *((curve(sure, 7), [0, 1, 2], {}, None) for sure in (0.96, 0.03)),
        *((curve(seeds=needed), [0, 1, 2], {}, None) for needed in (None, 3, 500)),
        # if full fine-tuning is recommended, the others must be sure to be worse
        (curve(1.0, 5, of_full=0.5), [0, 1], {}, ALL),
        (curve(1.0, 5, of_full=0.01), [0, 1], {}, None),
        # nothing was compared, or nothing was learned
        (curve(seeds=5, decision=None), [0], {}, None),
        (curve(seeds=5, learned=False), [0], {}, None),
        # after a search, only the compared choices get more seeds, with one command for each learning rate
        (curve(), [0, 1, 2], {"of_search": True}, EACH),
        (curve(1.0, of_full=0.5), [0, 1], {"of_search": True}, EACH),
        (BESIDE, [0, 1], {"of_search": True}, EACH),
        (
            *(BESIDE, [0, 1], {"of_search": True, "sure": 0.95}),
            EACH.replace("2 --learning-rate 0.0002", "5 --learning-rate 5e-05"),
        ),
        (
            *(curve(cells=[Known(Recipe(k), 1e-4) for k in (2, "full")]), [0], {"of_search": True}),
            ALL.replace("--seeds", "--tune 2,full --learning-rate 0.0001 --seeds"),
        ),
        # the reference that a search did not train is trained, unless every run of it failed
        (
            *(without_full(), [0, 1], {"of_search": True, "missing": "full"}),
            "frostline sweep o/sweep.toml --tune full --learning-rate 0.0002 --seeds 2",
        ),
        (curve(0.99), [0, 1], {"of_search": True, "missing": "full"}, None),
        # then come the k that a small budget did not allow, at most four
        (
            *(curve(), [0, 1], {"of_search": True, "untried": ["last 3", "last 4"]}),
            "frostline sweep o/sweep.toml --tune 3,4 --learning-rate 0.0001 --seeds 2",
        ),
        (
            *(curve(), [0, 1], {"of_search": True, "untried": [f"last {k}" for k in range(3, 13)]}),
            "frostline sweep o/sweep.toml --tune 3,6,9,12 --learning-rate 0.0001 --seeds 2",
        ),
        (curve(0.99), [0, 1], {"of_search": True, "untried": ["last 3"]}, None),
    ],
)
def test_the_command(known: Any, seeds: list[int], options: dict[str, Any], command: str | None) -> None:
    assert next_command(Path("o"), seeds, known, **options)[0] == command


def test_each_training_length_has_a_command_of_its_own() -> None:
    names = ("last 2 for 10 epochs", "full for 3 epochs")
    choices = [SimpleNamespace(choice=name, probability=0.7, value=0.8) for name in names]
    decision = SimpleNamespace(choice=names[0], probability=0.7, reference=names[1])
    known = curve(decision=decision, choices=choices, cells=[Known(Recipe(name), 1e-4) for name in names])
    command, _ = next_command(Path("o"), [0], known, of_search=True)
    assert command == (
        "frostline sweep o/sweep.toml --tune 2 --learning-rate 0.0001 --num-train-epochs 10 --seeds 5 && "
        "frostline sweep o/sweep.toml --tune full --learning-rate 0.0001 --num-train-epochs 3 --seeds 5"
    )


def test_a_folder_with_a_space_is_quoted() -> None:
    assert next_command(Path("my out"), [0], curve())[0] == "frostline sweep 'my out/sweep.toml' --seeds 5"


def test_the_time_is_that_of_the_runs_that_are_missing() -> None:
    known = curve(0.7, 5)
    known.cells[1] = replace(known.cells[1], runs=3, seconds=20.0)
    assert next_command(Path("o"), [0], known, of_search=True)[1] == 4 * 10 + 2 * 20
    assert next_command(Path("o"), [0], known) == (ALL, 2 * (4 * 10 + 2 * 20))  # a grid has every learning rate
    known.cells[0] = replace(known.cells[0], concurrent_runs=2)
    assert next_command(Path("o"), [0], known)[1] == 80
    known.cells[0] = replace(known.cells[0], seconds=None)
    assert next_command(Path("o"), [0], known) == (ALL, None)


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
    known = without_full() if instead else curve()
    spec = SimpleNamespace(values_of=lambda name: [0])
    folder: Any = SimpleNamespace(out=Path("o"), written=SimpleNamespace(own_code=False), spec=spec)
    search: Any = SimpleNamespace(failed_reference=failed_reference, untried=untried, over=True)
    outcome = SearchOutcome(skipped=["last 3", "last 4"], instead=instead)
    command = rebuild._next_command(folder, SimpleNamespace(sizes=[known], sure=None), search, outcome)[0]
    assert command is not None and ((f" --tune {tunes} " in command) if tunes else (command == EACH))
