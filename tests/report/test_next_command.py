"""The one step that would make an answer surer, and what the state of a search says of it."""

from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from frostline.model.ways import way_named
from frostline.report import rebuild
from frostline.report.answer.next_command import MORE_ROWS, next_command
from frostline.report.answer.run_groups import search_outcome
from frostline.statistics.answer import Failures
from frostline.statistics.inference import Summary, summarize
from frostline.statistics.recipe import Recipe
from frostline.statistics.run_group import SearchOutcome
from frostline.statistics.run_result import RunResult
from records import record_of

ALL = "frostline sweep o/sweep.toml --seeds 5"
EACH = (
    "frostline sweep o/sweep.toml --tune 2 --learning-rate 0.0002 --seeds 5 && "
    "frostline sweep o/sweep.toml --tune full --learning-rate 0.0001 --seeds 5"
)


KINDS = ("diverged", "degenerate", "at_chance", "collapsed", "failed", "undefined")
NONE = Failures(**dict.fromkeys(KINDS, 0), runs=1, interval=None, not_above_baseline=None)
FITTED, OTHERS = summarize(np.array([0.99])), summarize(np.array([0.9]))


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
    failures: Failures = NONE
    train_last: Summary = FITTED
    validation_last: Summary = OTHERS
    num_train_epochs: float = 3.0
    tune_embeddings: bool = False


def curve(probability: float = 0.7, seeds: int | None = None, *, of_full: float | None = None, **more: Any) -> Any:
    """A curve that recommends the last 2 layers, or full fine-tuning if ``of_full`` is the probability of the others."""
    choice = "last 2" if of_full is None else "full"
    last2 = SimpleNamespace(choice="last 2", probability=probability if of_full is None else of_full, value=0.8)
    known = {
        "decision": SimpleNamespace(choice=choice, probability=probability, reference="full", above_baseline=True),
        "choices": [last2, SimpleNamespace(choice="full", probability=1.0, value=0.7)],
        "cells": [Known(Recipe("last 2"), 2e-4), Known(Recipe("full"), 1e-4)],
        "learned": True,
        "seeds_to_decide": seeds,
        "deciding_point": SimpleNamespace(verdict="undecided"),
    }
    return SimpleNamespace(**{**known, **more})


UNFITTED = Known(Recipe("full"), 1e-4, train_last=OTHERS)
FIVE = Known(Recipe("last 5"), 5e-5, tuned_layers=5)
SECOND = SimpleNamespace(choice="last 5", probability=0.9, value=0.79)
DIVERGED = Known(Recipe("full"), 1e-4, failures=replace(NONE, diverged=1, failed=1))
UNSCORED = Known(Recipe("full"), 1e-4, failures=replace(NONE, undefined=1))
LONG = "frostline sweep o/sweep.toml --num-train-epochs 10"
NOTHING = SimpleNamespace(reference="full", above_baseline=False)
UNSHOWN = SimpleNamespace(choice="last 2", probability=0.7, reference="full", above_baseline=False)
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
        *((curve(seeds=needed), [0, 1, 2], {}, MORE_ROWS) for needed in (None, 3, 500)),
        (curve(deciding_point=SimpleNamespace(verdict="decided")), [0, 1, 2], {}, None),
        (curve(seeds=500), [0, 1, 2], {"more_rows": "folds"}, "folds"),
        # if full fine-tuning is recommended, the others must be sure to be worse
        (curve(1.0, 5, of_full=0.5), [0, 1], {}, ALL),
        (curve(1.0, 5, of_full=0.01), [0, 1], {}, None),
        # a sweep that learned nothing trains as long as a search would, unless it has, or all of its runs diverged
        *((curve(seeds=5, learned=False, decision=one), [0], {}, LONG) for one in (None, NOTHING)),
        *((curve(learned=False, decision=one), [0], {"of_search": True}, None) for one in (None, NOTHING)),
        (curve(seeds=5, decision=UNSHOWN), [0, 1, 2], {}, ALL),  # what is recommended may yet be above the baseline
        (curve(decision=None, cells=[Known(Recipe("full"), 1e-4, num_train_epochs=10.0)]), [0], {}, None),
        *((curve(decision=None, cells=[one]), [0], {}, None) for one in (DIVERGED, UNSCORED)),
        (curve(decision=SimpleNamespace(reference=None, above_baseline=True)), [0], {}, None),
        (curve(seeds=5, decision=NOTHING), [0], {"of_search": True, "larger": ("larger", 9.0)}, "larger"),
        # full fine-tuning has not learned yet, but what is recommended has
        (curve(learned=False), [0, 1], {}, ALL),
        (curve(learned=False), [0, 1, 2, 3, 4], {}, MORE_ROWS),
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
        # a larger budget comes before all others, and longer training before more seeds
        (curve(), [0, 1], {"of_search": True, "larger": ("larger", 9.0)}, "larger"),
        (curve(0.99), [0, 1], {"of_search": True, "larger": ("larger", 9.0)}, None),
        (
            *(curve(cells=[Known(Recipe("last 2"), 2e-4), UNFITTED]), [0, 1], {}),
            "frostline sweep o/sweep.toml --tune 2 --learning-rate 0.0002 --num-train-epochs 10 --seeds 2 && "
            "frostline sweep o/sweep.toml --tune full --learning-rate 0.0001 --num-train-epochs 10 --seeds 2",
        ),
    ],
)
def test_the_command(known: Any, seeds: list[int], options: dict[str, Any], command: str | None) -> None:
    assert next_command(Path("o"), seeds, known, **options)[0] == command


def test_each_training_length_has_a_command_of_its_own() -> None:
    names = ("last 2 for 10 epochs", "full for 3 epochs")
    choices = [SimpleNamespace(choice=name, probability=0.7, value=0.8) for name in names]
    decision = SimpleNamespace(choice=names[0], probability=0.7, reference=names[1], above_baseline=True)
    known = curve(decision=decision, choices=choices, cells=[Known(Recipe(name), 1e-4) for name in names])
    command, _ = next_command(Path("o"), [0], known, of_search=True)
    assert command == (
        "frostline sweep o/sweep.toml --tune 2 --learning-rate 0.0001 --num-train-epochs 10 --seeds 5 && "
        "frostline sweep o/sweep.toml --tune full --learning-rate 0.0001 --num-train-epochs 3 --seeds 5"
    )


def test_a_k_of_two_lengths_is_named_once() -> None:
    """``--tune 2,2`` is refused."""
    names = ("last 2 for 2 epochs", "last 2 for 4 epochs")
    choices = [SimpleNamespace(choice=name, probability=0.7, value=0.8) for name in names]
    decision = SimpleNamespace(choice=names[0], probability=0.7, reference=names[1], above_baseline=True)
    cells = [Known(Recipe(name), 1e-4, train_last=OTHERS, num_train_epochs=float(name[11])) for name in names]
    got = next_command(Path("o"), [0], curve(decision=decision, choices=choices, cells=cells))
    step = "frostline sweep o/sweep.toml --tune 2 --learning-rate 0.0001 --num-train-epochs 14 --seeds 1"
    assert got == (step, pytest.approx(14 / 4 * 10))


def test_the_learning_rate_of_a_way_is_that_of_the_grid() -> None:
    """LoRA multiplies it by ten."""
    choices = [SimpleNamespace(choice=name, probability=0.7, value=0.7) for name in ("lora-2", "full")]
    known = curve(decision=SimpleNamespace(**{**vars(choices[0]), "reference": "full", "above_baseline": True}))
    known.choices, known.cells = choices, [Known(Recipe("full"), 1e-4), Known(Recipe("lora-2"), 1e-3)]
    known.seeds_to_decide = 5
    got, _ = next_command(Path("o"), [0], known, of_search=True, factor=lambda recipe: way_named(recipe).rate_factor)
    assert got == "frostline sweep o/sweep.toml --tune lora-2,full --learning-rate 0.0001 --seeds 5"


def test_the_time_is_that_of_the_runs_that_are_missing() -> None:
    known = curve(0.7, 5)
    known.cells[1] = replace(known.cells[1], runs=3, seconds=20.0)
    assert next_command(Path("o"), [0], known, of_search=True)[1] == 4 * 10 + 2 * 20
    assert next_command(Path("o"), [0], known) == (ALL, 2 * (4 * 10 + 2 * 20))  # a grid has every learning rate
    smaller: Any = SimpleNamespace(cell=lambda name: Known(name, 1e-4, runs=1, seconds=1.0))
    assert next_command(Path("o"), [0], known, smaller=[smaller])[1] == 2 * (
        40 + 2 * 20 + 2 * 4
    )  # it trains every size
    nothing = curve(decision=None)
    nothing.cells.append(Known(Recipe("full for 6 epochs"), 1e-4, num_train_epochs=6.0))
    assert next_command(Path("o"), [0, 1], nothing) == (
        LONG,
        pytest.approx(2 * 2 * 10 * 10 / 6),
    )  # one run for each k and rate
    known.cells[0] = replace(known.cells[0], concurrent_runs=2)
    assert next_command(Path("o"), [0], known)[1] == 80
    known.cells[0] = replace(known.cells[0], seconds=None)
    assert next_command(Path("my out"), [0], known) == ("frostline sweep 'my out/sweep.toml' --seeds 5", None)


@pytest.mark.parametrize(
    ("enough", "instead", "newer", "step"),
    [
        (75.0, "Full fine-tuning was not run.", False, "the same command with --budget 75s"),
        (75.0, None, False, "the same command with --budget 75s"),
        (75.0, None, True, EACH),  # a sweep has trained more since
        (None, None, False, EACH),
    ],
)
def test_after_a_search_it_is_a_larger_budget_if_that_ended_it(
    enough: float | None, instead: str | None, newer: bool, step: str
) -> None:
    spec = SimpleNamespace(values_of=lambda name: [0], validation=None, way_of=way_named)
    known = {"written": SimpleNamespace(own_code=False), "identity": SimpleNamespace(folds=5, train_rows=200)}
    rows = [SimpleNamespace(train_size=20, status="done", run="b")] if newer else []
    folder: Any = SimpleNamespace(out=Path("o"), spec=spec, rows=rows, **known)
    search = record_of(enough_budget=enough, over=True, spent_seconds=60.0)
    outcome = SearchOutcome(instead=instead)
    assert rebuild._next_command(folder, SimpleNamespace(sizes=[curve()], sure=None), search, outcome)[0] == step  # type: ignore[arg-type]


ADVICE = "Full fine-tuning was not run: only 2 s of the budget are left. Give at least --budget 40s."


def row(run: str, recipe: str, outcome: str | None = "ok", status: str = "done") -> RunResult:
    about = {"run": run, "recipe": Recipe(recipe), "train_size": 20, "learning_rate": 1e-4, "seed": 0}
    return RunResult(**about, status=status, outcome=outcome)


def instead(*rows: RunResult) -> str | None:
    """The sentence of a search that ended without full fine-tuning, for a folder with these runs."""
    search = record_of(why=ADVICE, over=True, known=["a"], failed_reference="full")
    return search_outcome(search, rows, ()).instead


def test_the_budget_of_the_search_is_named_only_for_the_runs_that_it_knew() -> None:
    known = row("a", "head only")
    assert instead(known) == ADVICE
    newer = instead(known, row("b", "last 1"))
    assert newer is not None and newer.startswith("Full fine-tuning has no result: search again with a larger --budget")
    assert "40s" not in newer and "2 s" not in newer
    assert instead(known, row("b", "full")) is None
    assert instead(known, row("b", "full", None, "pending")) == ADVICE
    unusable = "No run of full fine-tuning has a usable score, so nothing can be compared with it."
    assert instead(known, row("b", "full", "diverged")) == instead(known, row("b", "full", None, "failed")) == unusable


def test_a_larger_k_takes_the_place_of_a_reference_without_result() -> None:
    known, larger = row("a", "head only"), row("b", "full")
    failed = record_of(why=ADVICE, over=True, known=["a"], failed_reference="last 2")
    assert search_outcome(failed, [known, larger], ()).instead is None
    assert search_outcome(failed, [known, row("b", "last 1"), row("c", "lora-2")], ()).instead is not None
    assert search_outcome(failed, [known], ()).over
    waiting = record_of(pending_reference="last 2")
    assert not search_outcome(waiting, [known], ()).over
    assert search_outcome(waiting, [known, larger], ()).awaited is None
    for other in (row("b", "last 1"), row("c", "lora-2"), row("b", "full", None, "pending")):
        assert search_outcome(waiting, [known, other], ()).awaited == "last 2"


def test_a_k_that_was_trained_for_another_number_of_epochs_is_not_skipped() -> None:
    """Each name holds its length as soon as the folder has several."""
    search = record_of(over=True, known=["a"], skipped=["last 1", "last 2"])
    rows = [row("a", "head only for 3 epochs"), row("b", "last 1 for 10 epochs")]
    assert search_outcome(search, rows, ()).skipped == ["last 2"]
    search = record_of(over=True, known=["a"], skipped=["last 1 for 3 epochs", "last 2 for 3 epochs"])
    assert search_outcome(search, rows, ()).skipped == ["last 2 for 3 epochs"]
