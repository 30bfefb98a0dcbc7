"""The analysis of many results: an answer for every model, task and train size, and summaries over all. Imports no torch.

Runs come from tables of results, and from sweep folders with their predictions.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from frostline import FrostlineError
from frostline.data.wording import capitalized
from frostline.report.answer.make_answer import answer_one
from frostline.report.answer.search_outcome import NO_SEARCH, SearchOutcome
from frostline.report.names import model_name, tuning
from frostline.statistics.analysis_settings import AnalysisSettings
from frostline.statistics.answer import Failures, SizeAnswer
from frostline.statistics.cells import Rate, by_depth, clear_distance, counted, done, failures, scored, with_outcomes
from frostline.statistics.curve import adjust
from frostline.statistics.evidence import Evidence, Scores
from frostline.statistics.predictions import Labelled, RunPredictions
from frostline.statistics.recipe import FULL, HEAD_ONLY, NAMED, Recipe
from frostline.statistics.results_table import Results, read_results
from frostline.statistics.run_result import RunResult
from frostline.statistics.train_sizes import (
    OverTasks,
    PaysFrom,
    Slope,
    Spread,
    across_tasks,
    interaction,
    pays_from,
    spread,
)


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
    rows = [replace(row, model=model) for row in sweep.rows]
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


@dataclass(frozen=True, kw_only=True)
class HeadOnly:
    """The share of full fine-tuning's score that k = 0 reaches, as the mean over every model and task with both."""

    mean_share: float
    groups: int


@dataclass(frozen=True, kw_only=True)
class AboveFull:
    """A smaller k whose mean is above that of full fine-tuning, with the difference and its p-values."""

    model: str
    task: str
    layers: int | None
    recipe: Recipe
    tuned_layers: int | None
    estimate: float
    low: float | None
    high: float | None
    p: float | None
    p_holm: float | None


@dataclass(frozen=True, kw_only=True)
class HalfFrozen:
    """The number of curves with a half-frozen model, and in how many it is above or below full fine-tuning (Holm)."""

    curves: int
    above: int
    significantly_above: int
    significantly_below: int


@dataclass(frozen=True, kw_only=True)
class FailuresOf:
    """The failures of all runs that train about as much."""

    what: str
    failures: Failures


@dataclass(frozen=True, kw_only=True)
class OverSizes:
    """The comparison of several train sizes (see :mod:`frostline.statistics.train_sizes`)."""

    pays_from: list[PaysFrom]
    interaction: list[Slope]
    spread: list[Spread]


@dataclass(frozen=True, kw_only=True)
class GroupAnalysis:
    """The answers of one model on one task, that of the largest train size with an answer first."""

    model: str
    task: str
    metric: str
    chance: float | None
    rows: int | None
    same_runs: bool
    layers: int | None
    sentence: str
    sizes: list[SizeAnswer]
    rates: list[Rate]
    train_sizes: OverSizes | None


@dataclass(frozen=True, kw_only=True)
class ModelAnalysis:
    """The summary over all tasks of one model; None if there are too few."""

    model: str
    layers: int | None
    sentence: str | None
    tasks: OverTasks | None


@dataclass(frozen=True, kw_only=True)
class Analysis:
    """The analysis of many results. ``comparisons`` is the number that Holm's method adjusts for."""

    schema_version: int
    settings: AnalysisSettings
    groups: list[GroupAnalysis]
    comparisons: int
    models: list[ModelAnalysis]
    failures: list[FailuresOf]
    head_only: HeadOnly | None
    above_full: list[AboveFull]
    half_frozen: HalfFrozen


SIGNIFICANT = 0.05  # level of adjusted p-values


def head_only(groups: Sequence[GroupAnalysis]) -> HeadOnly | None:
    """Of the groups whose runs are their own; None if there is no such share."""
    shares = [
        cell.share.estimate
        for group in groups
        for cell in group.sizes[0].cells
        if cell.recipe == HEAD_ONLY and cell.share and cell.share.estimate is not None
        if group.sizes[0].reference_is_full and not group.same_runs
    ]
    return HeadOnly(mean_share=sum(shares) / len(shares), groups=len(shares)) if shares else None


def above_full(groups: Sequence[GroupAnalysis]) -> list[AboveFull]:
    """Every smaller k whose mean is above that of full fine-tuning."""
    return [
        AboveFull(
            **{name: getattr(group, name) for name in ("model", "task", "layers")},
            **{name: getattr(cell, name) for name in ("recipe", "tuned_layers")},
            **{name: getattr(cell.difference, name) for name in ("estimate", "low", "high", "p", "p_holm")},
        )
        for group in groups
        for cell in group.sizes[0].cells
        if cell.difference
        and cell.recipe != group.sizes[0].reference
        and group.sizes[0].reference_is_full
        and cell.difference.estimate > 0
    ]


def half_frozen(groups: Sequence[GroupAnalysis]) -> HalfFrozen:
    """How half-frozen models compare with full fine-tuning."""
    differences = [
        cell.difference
        for group in groups
        for cell in group.sizes[0].cells
        if group.sizes[0].reference_is_full and cell.recipe.k is not None
        if group.layers and 2 * (cell.tuned_layers or 0) == group.layers and cell.difference
    ]
    significant = [d.estimate for d in differences if d.p_holm is not None and d.p_holm < SIGNIFICANT]
    return HalfFrozen(
        curves=len(differences),
        above=sum(difference.estimate > 0 for difference in differences),
        significantly_above=sum(estimate > 0 for estimate in significant),
        significantly_below=sum(estimate < 0 for estimate in significant),
    )


def failures_by_depth(runs: Sequence[RunResult]) -> list[FailuresOf]:
    """The failures of finished runs, by how much of the model was trained."""
    kinds: dict[str, list[RunResult]] = {HEAD_ONLY: [], "some layers": [], FULL: [], NAMED: []}
    for run in runs:
        kinds.get(run.recipe, kinds["some layers"]).append(run)
    return [FailuresOf(what=kind, failures=failures(of_kind)) for kind, of_kind in kinds.items() if of_kind]


def task_sentence(tasks: OverTasks, layers: int | None, settings: AnalysisSettings) -> str:
    """The sentence on what :func:`frostline.statistics.train_sizes.across_tasks` found."""
    point = next(point for point in tasks.points if point.target == settings.target)
    sufficient, not_ruled_out = point.estimate if settings.by_mean else point.confident, point.not_ruled_out
    of_layers, goal = f" of {layers}" if layers else "", _goal_in_tasks(tasks, settings)
    if sufficient not in (None, FULL):
        certainty = "by mean score" if settings.by_mean else "with 95 % confidence"
        text = f"{capitalized(tuning(sufficient))}{of_layers} reaches {goal}, {certainty}"
    elif settings.by_mean:
        text = f"No k below full fine-tuning reaches {goal}, by mean score"
    else:
        text = f"No k below full fine-tuning is shown with 95 % confidence to reach {goal}"
    text += _exceptions(tasks)
    if not_ruled_out not in (sufficient, None) and not settings.by_mean:
        text += f"; {tuning(not_ruled_out)}{of_layers} is not ruled out"
    return f"{text}."


def _goal_in_tasks(tasks: OverTasks, settings: AnalysisSettings) -> str:
    """The target, and the number of tasks in which it must be reached."""
    counted, raw = tasks.counted, tasks.raw
    of_gain = settings.corrected and len(raw) < counted
    whole = "gain of full fine-tuning over the baseline" if of_gain else "score of full fine-tuning"
    where = "in the one task that counts" if counted == 1 else f"in each of {counted} tasks"
    return f"{100 * settings.target:g} % of the {whole} {where}"


def _exceptions(tasks: OverTasks) -> str:
    """In parentheses, the tasks that do not count and those whose shares are of the score."""
    text = ""
    for why, names in (
        ("excluded by choice", tasks.left_out),
        ("full fine-tuning is not above the baseline", tasks.undefined),
    ):
        text += f" (without {' and '.join(names)}: {why})" if names else ""
    raw = tasks.raw
    if raw and len(raw) < tasks.counted:
        text += f" (of the score in {' and '.join(raw)}, where the score of the baseline is unknown)"
    return text


SCHEMA_VERSION = 5


def analyze(groups: Sequence[RunGroup], settings: AnalysisSettings) -> Analysis:
    """The analysis of the groups.

    P-values of differences are adjusted by Holm's method over all comparisons of the analysis.
    """
    found = [_group(group, settings) for group in groups]
    comparisons = adjust([size for group in found for size in group.sizes])
    models = dict.fromkeys(group.model for group in found)
    return Analysis(
        schema_version=SCHEMA_VERSION,
        settings=settings,
        groups=found,
        comparisons=comparisons,
        models=[_model(model, [group for group in found if group.model == model], settings) for model in models],
        failures=failures_by_depth([run for group in groups if not group.same_runs for run in _finished(group)]),
        head_only=head_only(found),
        above_full=above_full(found),
        half_frozen=half_frozen(found),
    )


def _group(group: RunGroup, settings: AnalysisSettings) -> GroupAnalysis:
    """The answer of one model on one task for every train size, and the comparison of the sizes."""
    evidence = group.evidence
    sizes = sorted({run.train_size for run in group.runs}, key=lambda n: n or 0, reverse=True)
    answers = [
        answer_one(
            [run for run in group.runs if run.train_size == size],
            evidence,
            settings,
            group.layers,
            group.search if group.search.applies_to(size) else NO_SEARCH,
        )
        for size in sizes
    ]
    answers.sort(key=lambda answer: answer.recommended is None)  # the largest size with an answer comes first
    over_sizes = None
    if len(sizes) > 1:
        over_sizes = OverSizes(pays_from=pays_from(answers), interaction=interaction(answers), spread=spread(answers))
    return GroupAnalysis(
        model=group.model,
        task=group.task,
        metric=evidence.metric,
        chance=evidence.chance,
        rows=evidence.rows,
        same_runs=group.same_runs,
        layers=group.layers,
        sentence=_sentence(answers),
        sizes=answers,
        rates=_by_learning_rate(_finished(group), settings),
        train_sizes=over_sizes,
    )


def _sentence(answers: Sequence[SizeAnswer]) -> str:
    """The sentence of the first train size. It begins with the size if there are several."""
    first, several = answers[0], len(answers) > 1 and answers[0].train_size
    return f"With {first.train_size:,} examples: {first.sentence}" if several else first.sentence


def _by_learning_rate(runs: Sequence[RunResult], settings: AnalysisSettings) -> list[Rate]:
    """For every train size, k and learning rate: the failures, and the mean with and without failed runs."""
    cells: dict[tuple[Any, ...], list[RunResult]] = {}
    by_k = by_depth(runs)
    for name, of_k in by_k.items():
        for run in of_k:
            cells.setdefault((run.train_size, name, run.learning_rate), []).append(run)
    position = {name: n for n, name in enumerate(by_k)}
    order = sorted(cells, key=lambda key: (key[0] or 0, position[key[1]], key[2] or 0.0))
    return [
        Rate(
            **dict(zip(("train_size", "recipe", "learning_rate"), key, strict=True)),
            failures=failures(cells[key]),
            mean=_mean(counted(cells[key], settings)),
            mean_with_failures=_mean(scored(cells[key])),
        )
        for key in order
    ]


def _mean(runs: Sequence[RunResult]) -> float | None:
    return sum(run.score for run in runs) / len(runs) if runs else None


def _finished(group: RunGroup) -> list[RunResult]:
    """The finished runs with their outcomes. An outcome depends on the best run of the same train size."""
    sizes: dict[int | None, list[RunResult]] = {}
    for run in group.runs:
        sizes.setdefault(run.train_size, []).append(run)
    evidence = group.evidence
    return [
        run
        for runs in sizes.values()
        for run in done(with_outcomes(runs, evidence.chance, clear_distance(runs, evidence)))
    ]


def _model(model: str, groups: Sequence[GroupAnalysis], settings: AnalysisSettings) -> ModelAnalysis:
    """The summary over all tasks of one model."""
    layers = max((group.layers for group in groups if group.layers), default=None)
    tasks = across_tasks({group.task: group.sizes[0] for group in groups}, settings)
    sentence = task_sentence(tasks, layers, settings) if tasks else None
    return ModelAnalysis(model=model, layers=layers, sentence=sentence, tasks=tasks)
