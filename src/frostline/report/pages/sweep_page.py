"""The page of a sweep: one self-contained file, built from the sweep's folder. It can be read without JavaScript."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from frostline.data.files import replace_file
from frostline.model.terms import EMBEDDINGS, layer_number
from frostline.report import formatting, names
from frostline.report.answer.recommended_classes import (
    WHO_APPLIES,
    calibration_sentences,
    is_saved,
    runs_of_choice,
    threshold_sentences,
)
from frostline.report.answer.scores_on_test import sentences_on_test
from frostline.report.error_analysis import errors_of_recommended
from frostline.report.explanations import (
    explain_uncertainty,
    headline,
    loading,
    machines,
    next_command,
    sentence_without_command,
    training_time,
    trouble,
)
from frostline.report.figures.drawing import save_figures
from frostline.report.figures.model_figures import reliability
from frostline.report.figures.quality_against_cost import quality_against_cost
from frostline.report.figures.score_figures import learning_curves, validation_curve
from frostline.report.pages.templates import render
from frostline.report.probe_report import probe_curve, probe_table
from frostline.report.tables.curve_tables import (
    choices_table,
    costs_table,
    failures_table,
    operating_points_table,
    rates_table,
    renamed,
    scores_table,
    shares_table,
    ways_table,
)
from frostline.report.tables.sweep_tables import (
    audit_table,
    class_scores_table,
    classes_table,
    failed_runs_table,
    forecast_table,
    search_table,
    splits_table,
    threshold_table,
)
from frostline.report.tables.table import ReportTable, save_tables
from frostline.statistics.answer import Answer, SizeAnswer
from frostline.statistics.cells import FAILURES, done, failures_by_rate, with_outcomes
from frostline.statistics.inference import failure_interval
from frostline.statistics.run_result import RunResult
from frostline.sweep.results.folder import Folder
from frostline.sweep.results.forecast_record import recorded
from frostline.sweep.results.search_record import SearchRecord
from frostline.training.result import AuditRecord, RunRecord


def write_page(folder: Folder, answer: Answer) -> None:
    """Write report.html, figures/ and tables/ into the folder of a sweep.

    Text from users (labels, texts, names) is escaped, so it never becomes markup.
    """
    out, results, runs = folder.out, folder.results, _with_outcomes(folder.rows, answer)
    sizes = [_with_tables(size, answer, folder) for size in answer.sizes]
    recommended, errors = answer.sizes[0].recommended, errors_of_recommended(folder, answer)
    audits = _audits(answer.sizes[0], results)
    tables = {
        **_tables(folder, answer, runs),
        "audit": audit_table(audits),
        "predicted": forecast_table(recorded(out), results.values()),
    }
    text = render(
        "report.html.j2",
        answer=answer,
        spec=folder.spec.model_dump(mode="json", exclude_none=True),
        identity=folder.identity,
        sizes=sizes,
        tuned=_tuned(results[recommended.run].audit.trained_places) if recommended else None,
        tables=tables,
        figures=save_figures(out, _figures(answer)),
        headline=headline(sentence_without_command(answer)),
        command=next_command(answer),
        command_time=training_time(answer),
        loading=loading(answer, out / "model"),
        trouble=trouble(answer.runs, answer.unusable_runs),
        failed_runs=_failure_rate(runs),
        errors=errors,
        classes=_class_sentences(answer),
        machines=machines([result.provenance for result in results.values()]),
        model=names.model_name(answer.model),
    )
    of_sizes = (table for size in sizes for table in size.tables.values())
    confusion = [errors.confusion] if errors and errors.confusion else []
    save_tables(out, [*tables.values(), *confusion, *of_sizes])
    replace_file(out / "report.html", text.encode(), inside=out)


def _with_outcomes(rows: Sequence[RunResult], answer: Answer) -> list[RunResult]:
    """Every run with its outcome. An outcome depends on the other runs of the same train size."""
    return [
        run
        for size in answer.sizes
        for run in with_outcomes(
            [row for row in rows if row.train_size == size.train_size], answer.chance, size.clear_distance
        )
    ]


@dataclass(frozen=True)
class _Size:
    """A train size of the answer with its tables and sentences; ``suffix`` ends the names of their files."""

    answer: SizeAnswer
    suffix: str
    explanation: str | None
    test_sentences: list[str]
    tables: dict[str, ReportTable]


def _with_tables(size: SizeAnswer, answer: Answer, folder: Folder) -> _Size:
    metric = answer.metric
    seeds = len({point.seed for cell in size.cells for point in cell.points})
    ways = ways_table(size, {cell.recipe: folder.spec.way_of(cell.recipe).in_words for cell in size.cells})
    tables = {
        "scores": scores_table(size, metric, tested=answer.tested),
        "shares": shares_table(size, metric),
        "costs": costs_table(size),
        "failures": failures_table(size),
        "choices": choices_table(size, price=answer.price),
        "points": operating_points_table(size),
        **({"ways": ways} if ways else {}),
    }
    suffix = _suffix(size, answer)
    about = f"{size.train_size:,} examples" if suffix else ""
    return _Size(
        size,
        suffix,
        explain_uncertainty(size, seeds, baseline=names.baseline(metric)) if size.recommended else None,
        [formatting.unbroken(sentence) for sentence in (sentences_on_test(size, metric) if answer.tested else [])],
        {name: renamed(table, suffix, about) for name, table in tables.items()},
    )


def _suffix(size: SizeAnswer, answer: Answer) -> str:
    return "" if size.train_size == answer.sizes[0].train_size else f"_{size.train_size}"


def _figures(answer: Answer) -> dict[str, Any]:
    """Every figure of the page by name."""
    figures: dict[str, Any] = {}
    metric, chance = answer.metric, answer.chance
    for size in answer.sizes:
        suffix = _suffix(size, answer)
        figures[f"quality_against_cost{suffix}"] = quality_against_cost(size, metric=metric)
        figures[f"validation_curve{suffix}"] = validation_curve(size, metric=metric, chance=chance)
    if len(answer.sizes) > 1:
        figures["learning_curves"] = learning_curves(answer.sizes, metric=metric, chance=chance)
    if answer.search and answer.search["probes"]:
        figures["probe_curve"] = probe_curve(answer.search["probes"])
    if answer.calibration:
        figures["reliability"] = reliability(answer.calibration)
    return {name: figure for name, figure in figures.items() if figure is not None}


def _tables(folder: Folder, answer: Answer, runs: Sequence[RunResult]) -> dict[str, ReportTable]:
    """The tables of runs, data, classes and search. A table that would be about nothing is left out."""
    labels, task_type = folder.identity.labels, answer.task_type
    tables = {"failed_runs": failed_runs_table(runs), "splits": splits_table(folder.data)}
    if any(len(cell.learning_rates_tried) > 1 for size in answer.sizes for cell in size.cells):
        tables["rates"] = rates_table(failures_by_rate(done(runs)))
    if labels:
        tables["classes"] = classes_table(folder.data, labels, task_type)
    if answer.search:
        tables["search"] = search_table(SearchRecord.model_validate(answer.search))
        if answer.search["probes"]:
            tables["probes"] = probe_table(answer.search["probes"])
    if answer.classes:
        thresholds = answer.threshold.by_label if answer.threshold else None
        count = len(runs_of_choice(answer.sizes[0]))
        tables["class_scores"] = class_scores_table(answer.classes, count, task_type, thresholds)
    if answer.threshold:
        tables["threshold"] = threshold_table(answer.threshold)
    return tables


def _class_sentences(answer: Answer) -> dict[str, Any]:
    """The sentences on the probabilities of the recommended model, and on its threshold."""
    calibration, threshold = answer.calibration, answer.threshold
    return {
        "calibration": calibration_sentences(calibration) if calibration else [],
        "threshold": threshold_sentences(threshold) if threshold else [],
        "saved": WHO_APPLIES if is_saved(answer) else "",
    }


def _audits(size: SizeAnswer, results: Mapping[str, RunRecord]) -> dict[str, AuditRecord]:
    """The audit of the first run of each k that was trained in the training loop, which checks what it trains."""
    firsts = {cell.recipe: cell.points[0].run for cell in size.cells if cell.points}
    return {name: audit for name, run in firsts.items() if (audit := results[run].audit).checks}


def _tuned(places: Sequence[str]) -> dict[str, Any]:
    """Whether the embeddings are trained, and the indices of the trained layers, for the drawing of the model."""
    layers = [number for place in places if (number := layer_number(place)) is not None]
    return {"embeddings": EMBEDDINGS in places, "layers": layers}


def _failure_rate(runs: Sequence[RunResult]) -> dict[str, Any] | None:
    """The number of failed runs, with the Clopper-Pearson interval of the rate; None if no run has finished."""
    ended = done(runs)
    if not ended:
        return None
    failed = sum(run.outcome in FAILURES for run in ended)
    low, high = failure_interval(failed, len(ended))
    return {"failed": failed, "runs": len(ended), "low": low, "high": high}
