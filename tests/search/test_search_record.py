"""The record of a search in ``search.json``."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from frostline import FrostlineError
from frostline.data.files import seal
from frostline.statistics.recipe import Recipe
from frostline.statistics.run_result import RunResult
from frostline.sweeps.results.search_record import (
    as_of_now,
    read_search,
    request_again,
    selected_learning_rates,
    write_search,
)
from frostline.sweeps.results.store import SEARCH
from records import record_of


def step(*runs: dict[str, Any]) -> dict[str, Any]:
    return {"why": "k = 0 first.", "results_so_far": [], "seconds": 1.0, "runs": runs}


def test_a_written_record_is_read_back(tmp_path: Path) -> None:
    assert read_search(tmp_path) is None
    record = record_of(why="It ended.", operations={"full": 2.5}, steps=[step()])
    write_search(tmp_path, record)
    assert read_search(tmp_path) == record
    facts = json.loads((tmp_path / SEARCH).read_text())
    assert facts.pop("checksum") and facts == record.model_dump() and list(facts)[:2] == ["train_size", "why"]


def test_a_forged_record_with_a_missing_or_a_wrong_value_is_refused(tmp_path: Path) -> None:
    whole = record_of().model_dump()
    missing = [{name: value for name, value in whole.items() if name != key} for key in whole]
    steps = ({**step(), "seconds": "long"}, step({}), 7)
    wrong = [*({"steps": [one]} for one in steps), {"over": "maybe"}, {"operations": [1]}, {"probes": {"probes": []}}]
    wrong += [{"train_size": 1.5}, {"train_size": "1"}, {"estimated_k": [None]}]
    for facts in (*missing, *({**whole, **change} for change in wrong)):
        (tmp_path / SEARCH).write_bytes(seal(facts))
        with pytest.raises(FrostlineError, match="cannot be read"):
            read_search(tmp_path)


def test_requested_runs_are_no_longer_abandoned(tmp_path: Path) -> None:
    request_again(tmp_path, {"a"})  # a folder without a search
    assert not (tmp_path / SEARCH).exists()
    write_search(tmp_path, record_of(abandoned=["a", "b"]))
    request_again(tmp_path, {"a", "c"})
    search = read_search(tmp_path)
    assert search is not None and search.abandoned == ["b"]


def test_a_k_with_new_learning_rates_has_no_selected_learning_rate() -> None:
    pairs = {"last 1": 1e-3, "full": 1e-4}
    tried = [{"recipe": k, "learning_rate": rate, "seed": 0, "score": 0.5, "seconds": 1.0} for k, rate in pairs.items()]
    search = record_of(selected_learning_rates=pairs, steps=[step(*tried)])
    done = [row("a", k, learning_rate=rate) for k, rate in pairs.items()]
    assert selected_learning_rates(search, done) == pairs
    new = row("b", "full", learning_rate=1e-5)
    assert selected_learning_rates(search, [*done, new]) == {"last 1": 1e-3}
    assert selected_learning_rates(search, [*done, replace(new, status="pending")]) == pairs


def row(run: str, recipe: str, *, train_size: int = 20, **more: Any) -> RunResult:
    return RunResult(run=run, recipe=Recipe(recipe), train_size=train_size, seed=0, **more)


def test_its_reason_to_stop_is_about_the_runs_that_the_search_knew() -> None:
    advice = (
        "The next step takes about 20 s, but only 2 s of the budget is left. With --budget 80s, it would be: k = 1."
    )
    search = record_of(why=advice, over=True, known=["a", "b"], skipped=["last 1", "last 2"])
    known = [row("a", "head only"), row("b", "full")]
    others = [row("c", "last 1", train_size=10), row("d", "last 1", status="pending")]
    assert as_of_now(search, [*known, *others]) == search
    more = as_of_now(search, [*known, row("e", "last 1")])
    assert more.why == "1 run has been added to this folder since the search ended; the answer counts all."
    assert list(more.skipped) == ["last 2"] and more.known == search.known
    two = as_of_now(search, [*known, row("e", "full"), row("f", "full")])
    assert two.why is not None and two.why.startswith("2 runs have been added") and two.skipped == search.skipped
