"""The runs that an answer is about: those of sweeps with their predictions, and those of tables of results."""

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from frostline import FrostlineError
from frostline.data.wording import capitalized, model_name
from frostline.report.names import tuning
from frostline.statistics.cells import ANSWERS
from frostline.statistics.predictions import Labelled, RunPredictions
from frostline.statistics.recipe import Recipe
from frostline.statistics.results_table import read_results
from frostline.statistics.run_group import NO_SEARCH, RunGroup, SearchOutcome
from frostline.statistics.run_result import RunResult

if TYPE_CHECKING:
    from frostline.sweeps.results.folder import Folder
    from frostline.sweeps.results.search_record import SearchRecord


def load_groups(sources: Sequence[str | Path], **of_tables: Any) -> list[RunGroup]:
    """The runs of tables of results, and of sweeps in or below folders, by model and task.

    ``of_tables`` are arguments of :func:`frostline.statistics.results_table.read_results`.

    Raises:
        FrostlineError: A folder holds no sweep, or two sources hold the same model and task.
    """
    groups: list[RunGroup] = []
    for source in map(Path, sources):
        groups += _groups_in(source) if source.is_dir() else read_results(source, **of_tables)
    seen: set[tuple[str, str]] = set()
    for group in groups:
        if (group.model, group.task) in seen:
            raise FrostlineError(
                f"{group.model} on {group.task} is in two of the sources: give each once, or put the rows in one table."
            )
        seen.add((group.model, group.task))
    return groups


def _groups_in(folder: Path) -> Iterator[RunGroup]:
    from frostline.sweeps.results.folder import Folder  # sweeps need torch, tables do not

    sweeps = sorted(Path(path) for path, _, files in os.walk(folder) if "sweep.toml" in files)
    if not sweeps:
        raise FrostlineError(f"{folder} contains no sweep (no sweep.toml): give the folder of a sweep, or a table.")
    groups = list[RunGroup]()
    for sweep in map(Folder, sweeps):
        name = model_name(sweep.spec.model) + (f"-{sweep.spec.depth}-layers" if sweep.spec.depth else "")
        groups += [replace(group, model=name) for group in sweep_groups(sweep)]
    several = Counter((group.model, group.task) for group in groups)
    for group in groups:  # two models of one name have folders beside each other
        again = several[group.model, group.task] > 1
        yield replace(group, model=group.folder.name) if again and group.folder else group


def sweep_groups(sweep: "Folder") -> Iterator[RunGroup]:
    """The runs of a sweep with their predictions. A further evaluation set (MNLI mismatched) is a separate task.

    Raises:
        FrostlineError: Files of the sweep's folder are missing or damaged.
    """
    from frostline.sweeps.results.folder import read_alternatives

    rows, identity = sweep.rows, sweep.identity
    alternatives = read_alternatives(sweep.out) if sweep.search else {}
    search = search_outcome(sweep.search, rows, tuple(map(Recipe, alternatives))) if sweep.search else NO_SEARCH

    def logits(run: str, split: str) -> Any:
        return alternatives[run] if run in alternatives else sweep.predictions(run, split=split)

    for split in sweep.scored_splits:
        main = split == "validation"
        labelled = labelled_split(sweep, split)
        if labelled is None:
            raise FrostlineError(f"{sweep.out} holds no {split}.parquet: run the sweep's command again.")
        read = partial(logits, split="validation_best" if main else split)
        yield RunGroup(
            model=sweep.spec.model,
            task=identity.task if main else f"{identity.task}-{short_name(split)}",
            layers=identity.layers,
            runs=rows if main else _scored_on(rows, split, sweep.scores(), identity.metric),
            evidence=RunPredictions(labelled, read, search.interim_analyses),
            folder=sweep.out,
            search=search if main else replace(search, alternatives=()),  # alternatives are scored on validation only
            same_runs=not main,
        )


def labelled_split(sweep: "Folder", split: str) -> Labelled | None:
    """The targets and the metric of a split of a sweep; None if it has no such split."""
    examples, identity = sweep.split(split), sweep.identity
    if examples is None:
        return None
    return Labelled.of(examples, identity.task_type, identity.labels, identity.metric)


def short_name(split: str) -> str:
    """The suffix of a task's name for a further evaluation set, as in MNLI-mm."""
    name = split.removeprefix("validation_")
    return {"mismatched": "mm"}.get(name, name)


def _scored_on(
    rows: Sequence[RunResult], split: str, scores: Sequence[Mapping[str, Any]], metric: str
) -> list[RunResult]:
    """The runs with their scores on a further evaluation set."""
    values = {score["run"]: score["value"] for score in scores if (score["split"], score["metric"]) == (split, metric)}
    return [replace(row, validation_best=values.get(row.run), validation_last=None) for row in rows]


def search_outcome(search: "SearchRecord", rows: Sequence[RunResult], alternatives: Sequence[Recipe]) -> SearchOutcome:
    """The outcome of a recorded search for the answer about these runs, of which some may be newer than the search."""
    from frostline.sweeps.results.search_record import selected_learning_rates, still_skipped

    of_search = [row for row in rows if row.train_size == search.train_size]
    return SearchOutcome(
        interim_analyses=search.interim_analyses,
        skipped=still_skipped(search, of_search),
        over=search.over,
        instead=_instead(search, of_search),
        awaited=None if _has_result(search.pending_reference, of_search) else search.pending_reference,
        learning_rates=selected_learning_rates(search, of_search),
        longest=max(search.num_train_epochs),
        alternatives=alternatives,
        train_size=search.train_size,
    )


def _instead(search: "SearchRecord", rows: Sequence[RunResult]) -> str | None:
    """The sentence of a search whose reference has no result; None if newer runs have one of it, or of a larger k."""
    from frostline.sweeps.results.search_record import newer_runs

    failed = search.failed_reference
    if not failed or _has_result(failed, rows):
        return None
    newer = newer_runs(search, rows)
    if not newer:
        return search.why
    if any(row.recipe == failed for row in newer):
        return f"No run of {tuning(failed)} has a usable score, so nothing can be compared with it."
    again = "search again with a larger --budget, or add it with --tune of `frostline sweep`"
    return f"{capitalized(tuning(failed))} has no result: {again}."


def _has_result(reference: Recipe | None, rows: Sequence[RunResult]) -> bool:
    """Whether the reference of a search has a usable score, or a larger k, which is then the reference of the answer."""
    if reference is None:
        return False
    with_score = [row.recipe for row in rows if row.recipe.is_k and row.outcome in ANSWERS]
    return any(k.order >= reference.order for k in with_score)
