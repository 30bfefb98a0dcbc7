"""Results from wherever they lie: tables of anybody, and the folders of sweeps with every prediction."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from frostline import FrostlineError
from frostline.report.answer.analysis import Group, group_of
from frostline.statistics.evidence import Labelled, Predictions, Run
from frostline.statistics.published_results import read_results


def gather(
    sources: Sequence[str | Path],
    *,
    columns: Mapping[str, str] | None = None,
    constants: Mapping[str, str] | None = None,
    metrics: Mapping[str, str] | None = None,
    chances: Mapping[str, float] | None = None,
    paired: bool = True,
) -> list[Group]:
    """The runs of tables and of sweeps' folders (or folders that hold such), by model and task.

    ``columns``, ``constants``, ``metrics`` and ``chances`` are for tables, as in
    :func:`frostline.statistics.published_results.read_results`.
    """
    groups: list[Group] = []
    for source in map(Path, sources):
        if source.is_dir():
            groups += _of_folders(source)
        else:
            read = read_results(source, columns=columns, constants=constants, metrics=metrics, chances=chances)
            groups += [group_of(results, paired=paired) for results in read]
    seen: set[tuple[str, str]] = set()
    for group in groups:
        if (group.model, group.task) in seen:
            raise FrostlineError(
                f"{group.model} on {group.task} stands in two of the sources: give each once, or put the rows in one table."
            )
        seen.add((group.model, group.task))
    return groups


def _of_folders(folder: Path) -> Iterator[Group]:
    found = sorted(path.parent for path in folder.rglob("sweep.toml"))
    if not found:
        raise FrostlineError(f"{folder}: there is no sweep in it (no sweep.toml); give a sweep's --out, or a table.")
    for one in found:
        yield from sweep_groups(one)


def sweep_groups(folder: Path) -> Iterator[Group]:
    """The runs of a sweep, with the predictions behind its scores; those on a further set (MNLI's mismatched) as a task
    of their own."""
    from frostline.report.formatting import model_name
    from frostline.sweep.results.folder import Folder
    from frostline.sweep.results.search_record import read_search

    sweep, search = Folder(folder), read_search(folder)
    looks = search["looks"] if search else 1
    model, layers = model_name(sweep.spec.model), sweep.identity.layers
    rows = [{**row, "model": model} for row in sweep.rows()]
    for split in sweep.scored_splits:
        examples = sweep.split(split)
        if examples is None:
            raise FrostlineError(f"{folder} holds no {split}.parquet: run the sweep's command again.")
        identity = sweep.identity
        labelled = Labelled(examples.targets, identity.problem_type, identity.labels, identity.metric)
        name = "validation_best" if split == "validation" else split
        task = identity.task if split == "validation" else f"{identity.task}-{short(split)}"
        evidence = Predictions(labelled, partial(sweep.predictions, split=name), looks)
        runs = rows if split == "validation" else _on(rows, split, task, sweep.scores(), identity.metric)
        yield Group(
            model, task, layers, [{**row, "task": task} for row in runs], evidence, folder, split != "validation"
        )


def short(split: str) -> str:
    """What a further validation set is called behind the task's name: MNLI-mm."""
    words = split.removeprefix("validation_")
    return {"mismatched": "mm"}.get(words, words)


def _on(rows: Sequence[Run], split: str, task: str, scores: Sequence[Mapping[str, Any]], metric: str) -> list[Run]:
    """The runs with their scores on a further set."""
    values = {score["run"]: score["value"] for score in scores if (score["split"], score["metric"]) == (split, metric)}
    return [{**row, "task": task, "validation_best": values.get(row["run"]), "validation_last": None} for row in rows]
