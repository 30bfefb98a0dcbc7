"""The analysis of many results: an answer for every model, task and train size, and summaries over all. Imports no torch."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from frostline.report.answer.across_groups import above_full, failures_by_depth, half_frozen, head_only
from frostline.report.answer.across_tasks import task_sentence
from frostline.report.answer.answer import answer_one
from frostline.report.answer.groups import RunGroup
from frostline.report.answer.search_outcome import NO_SEARCH
from frostline.statistics.analysis_settings import AnalysisSettings
from frostline.statistics.cells import by_depth, clear_distance, counted, done, failures, scored, with_outcomes
from frostline.statistics.curve import adjust
from frostline.statistics.run_result import RunResult
from frostline.statistics.train_sizes import across_tasks, interaction, pays_from, spread

SCHEMA_VERSION = 4
Analysis = Mapping[str, Any]  # analysis.json, from :func:`analyze`


def analyze(groups: Sequence[RunGroup], settings: AnalysisSettings) -> dict[str, Any]:
    """The analysis of the groups, as plain values for JSON.

    P-values of differences are adjusted by Holm's method over all comparisons of the analysis.
    """
    found = [_group(group, settings) for group in groups]
    comparisons = adjust([size for group in found for size in group["sizes"]])
    models = dict.fromkeys(group["model"] for group in found)
    return {
        "schema_version": SCHEMA_VERSION,
        "settings": asdict(settings),
        "groups": found,
        "comparisons": comparisons,  # the number that Holm's method adjusts for
        "models": [_model(model, [group for group in found if group["model"] == model], settings) for model in models],
        "failures": failures_by_depth([run for group in groups if not group.same_runs for run in _finished(group)]),
        "head_only": head_only(found),
        "above_full": above_full(found),
        "half_frozen": half_frozen(found),
    }


def _group(group: RunGroup, settings: AnalysisSettings) -> dict[str, Any]:
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
    answers.sort(key=lambda answer: answer["recommended"] is None)  # the largest size with an answer comes first
    return {
        "model": group.model,
        "task": group.task,
        "metric": evidence.metric,
        "chance": evidence.chance,
        "rows": evidence.rows,
        "same_runs": group.same_runs,
        "layers": group.layers,
        "sentence": _sentence(answers),
        "sizes": answers,
        "rates": _by_learning_rate(_finished(group), settings),
        "train_sizes": {"pays_from": pays_from(answers), "interaction": interaction(answers), "spread": spread(answers)}
        if len(sizes) > 1
        else None,
    }


def _sentence(answers: Sequence[Mapping[str, Any]]) -> str:
    """The sentence of the first train size. It begins with the size if there are several."""
    first, several = answers[0], len(answers) > 1 and answers[0]["train_size"]
    return f"With {first['train_size']:,} examples: {first['sentence']}" if several else str(first["sentence"])


def _by_learning_rate(runs: Sequence[RunResult], settings: AnalysisSettings) -> list[dict[str, Any]]:
    """For every train size, k and learning rate: the failures, and the mean with and without failed runs."""
    cells: dict[tuple[Any, ...], list[RunResult]] = {}
    by_k = by_depth(runs)
    for name, of_k in by_k.items():
        for run in of_k:
            cells.setdefault((run.train_size, name, run.learning_rate), []).append(run)
    position = {name: n for n, name in enumerate(by_k)}
    order = sorted(cells, key=lambda key: (key[0] or 0, position[key[1]], key[2] or 0.0))
    return [
        {
            **dict(zip(("train_size", "recipe", "learning_rate"), key, strict=True)),
            **failures(cells[key]),
            "mean": _mean(counted(cells[key], settings)),
            "mean_with_failures": _mean(scored(cells[key])),
        }
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


def _model(model: str, groups: Sequence[Mapping[str, Any]], settings: AnalysisSettings) -> dict[str, Any]:
    """The summary over all tasks of one model."""
    curves = {group["task"]: group["sizes"][0] for group in groups}
    layers = max((group["layers"] for group in groups if group["layers"]), default=None)
    tasks = across_tasks(curves, settings)
    sentence = task_sentence(tasks, layers, settings) if tasks else None
    return {"model": model, "layers": layers, "sentence": sentence, "tasks": tasks}
