"""The state of a search, as the answer about the runs in its folder needs it."""

from frostline.report.answer.run_groups import search_outcome
from frostline.statistics.recipe import Recipe
from frostline.statistics.run_result import RunResult
from search_runs import record_of

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


def test_a_newer_run_of_full_fine_tuning_ends_the_advice() -> None:
    known = row("a", "head only")
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


def test_a_k_that_was_trained_since_is_not_skipped() -> None:
    search = record_of(over=True, known=["a"], skipped=["last 1", "last 2"])
    assert search_outcome(search, [row("a", "head only"), row("b", "last 1")], ()).skipped == ["last 2"]
