"""Runs grouped by model and task, from tables of results and from sweep folders with their predictions."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from frostline import FrostlineError
from frostline.report.answer.search_outcome import NO_SEARCH, SearchOutcome
from frostline.report.names import model_name
from frostline.statistics.evidence import Evidence, Scores
from frostline.statistics.predictions import Labelled, RunPredictions
from frostline.statistics.results_table import Results, read_results
from frostline.statistics.run_result import RunResult


@dataclass(frozen=True)
class RunGroup:
    """The runs of one model on one task, with their scores.

    Attributes:
        layers: The number of layers of the model, if it is known.
        folder: The folder of the sweep that the runs come from; None for a table.
        search: The outcome of the search that trained the runs, if one did.
        same_runs: Whether these are the runs of another group, scored on a further evaluation set.
    """

    model: str
    task: str
    layers: int | None
    runs: Sequence[RunResult]
    evidence: Evidence
    folder: Path | None = None
    search: SearchOutcome = NO_SEARCH
    same_runs: bool = False


def load_groups(
    sources: Sequence[str | Path],
    *,
    columns: Mapping[str, str] | None = None,
    constants: Mapping[str, str] | None = None,
    metrics: Mapping[str, str] | None = None,
    chances: Mapping[str, float] | None = None,
    encoding: str | None = None,
    paired: bool = True,
) -> list[RunGroup]:
    """The runs of tables of results, and of sweeps in or below folders, by model and task.

    ``columns``, ``constants``, ``metrics``, ``chances`` and ``encoding`` apply to tables only. See
    :func:`frostline.statistics.results_table.read_results`.

    Raises:
        FrostlineError: A folder holds no sweep, or two sources hold the same model and task.
    """
    groups: list[RunGroup] = []
    for source in map(Path, sources):
        if source.is_dir():
            groups += _groups_in(source)
        else:
            tables = read_results(
                source, columns=columns, constants=constants, metrics=metrics, chances=chances, encoding=encoding
            )
            groups += [group_of(results, paired=paired) for results in tables]
    seen: set[tuple[str, str]] = set()
    for group in groups:
        if (group.model, group.task) in seen:
            raise FrostlineError(
                f"{group.model} on {group.task} is in two of the sources: give each once, or put the rows in one table."
            )
        seen.add((group.model, group.task))
    return groups


def group_of(results: Results, *, paired: bool = True) -> RunGroup:
    """The runs of a table as a group; their predictions are unknown."""
    evidence = Scores(results.metric, results.chance, paired)
    return RunGroup(results.model, results.task, results.layers, results.runs, evidence)


def _groups_in(folder: Path) -> Iterator[RunGroup]:
    sweeps = sorted(path.parent for path in folder.rglob("sweep.toml"))
    if not sweeps:
        raise FrostlineError(f"{folder} contains no sweep (no sweep.toml): give the folder of a sweep, or a table.")
    for sweep in sweeps:
        yield from sweep_groups(sweep)


def sweep_groups(folder: Path) -> Iterator[RunGroup]:
    """The runs of a sweep with their predictions. A further evaluation set (MNLI mismatched) is a separate task."""
    from frostline.sweep.results.folder import Folder, read_alternatives
    from frostline.sweep.results.search_record import read_search

    sweep, record = Folder(folder), read_search(folder)
    alternatives = read_alternatives(folder) if record else {}
    model, identity = model_name(sweep.spec.model), sweep.identity
    rows = [replace(row, model=model) for row in sweep.rows()]
    search = SearchOutcome.of(record, rows, tuple(alternatives)) if record else NO_SEARCH

    def logits(run: str, split: str) -> Any:
        return alternatives[run] if run in alternatives else sweep.predictions(run, split=split)

    for split in sweep.scored_splits:
        examples = sweep.split(split)
        if examples is None:
            raise FrostlineError(f"{folder} holds no {split}.parquet: run the sweep's command again.")
        labelled = Labelled(examples.targets, identity.task_type, identity.labels, identity.metric)
        main = split == "validation"
        name = "validation_best" if main else split
        task = identity.task if main else f"{identity.task}-{short_name(split)}"
        evidence = RunPredictions(labelled, partial(logits, split=name), search.interim_analyses)
        runs = rows if main else _scored_on(rows, split, sweep.scores(), identity.metric)
        yield RunGroup(
            model=model,
            task=task,
            layers=identity.layers,
            runs=[replace(row, task=task) for row in runs],
            evidence=evidence,
            folder=folder,
            search=search if main else replace(search, alternatives=()),  # alternatives are scored on validation only
            same_runs=not main,
        )


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
