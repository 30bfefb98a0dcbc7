"""The page of a sweep: one self-contained file, built from the sweep's folder. It can be read without JavaScript."""

from collections.abc import Sequence
from typing import Any

from frostline.data.wording import model_name
from frostline.model.terms import EMBEDDINGS, layer_numbers
from frostline.report import names
from frostline.report.answer.recommended_classes import (
    WHO_APPLIES,
    calibration_sentences,
    is_saved,
    runs_of_choice,
    threshold_sentences,
)
from frostline.report.error_analysis import errors_of_recommended
from frostline.report.explanations import (
    headline,
    loading,
    machines,
    next_command,
    next_title,
    refit_sentence,
    sentence_without_command,
    training_time,
    trouble,
)
from frostline.report.figures.score_figures import reliability
from frostline.report.pages.curves import curves_of
from frostline.report.pages.templates import write_report_page
from frostline.report.probe_report import probe_curve, probe_table
from frostline.report.tables.sweep_tables import (
    audit_table,
    class_scores_table,
    classes_table,
    failed_runs_table,
    search_table,
    splits_table,
    threshold_table,
)
from frostline.report.tables.table import ReportTable
from frostline.statistics.answer import Answer
from frostline.statistics.cells import done, failures, outcomes_at_each_size
from frostline.statistics.run_result import RunResult
from frostline.sweeps.results.folder import Folder
from frostline.sweeps.results.search_record import SearchRecord


def write_page(folder: Folder, answer: Answer) -> None:
    """Write report.html, figures/ and tables/ into the folder of a sweep.

    Text from users (labels, texts, names) is escaped, so it never becomes markup.
    """
    out, results = folder.out, folder.results
    runs = outcomes_at_each_size(folder.rows, answer.sizes, answer.chance)
    ways: dict[str, str] = {
        cell.recipe: folder.spec.way_of(cell.recipe).in_words for size in answer.sizes for cell in size.cells
    }
    curves = curves_of(answer, price=answer.price, tested=answer.tested, ways=ways)
    recommended, errors = answer.sizes[0].recommended, errors_of_recommended(folder, answer)
    search = SearchRecord.model_validate(answer.search) if answer.search else None
    tables = _tables(folder, answer, runs, search)
    figures = dict(curves.figures)
    if search and search.probes:
        figures["probe_curve"] = probe_curve(search.probes)
    if answer.calibration:
        figures["reliability"] = reliability(answer.calibration)
    confusion = [errors.confusion] if errors and errors.confusion else []
    write_report_page(
        out,
        "report.html.j2",
        [*tables.values(), *confusion, *curves.tables],
        figures,
        answer=answer,
        spec=folder.spec.model_dump(mode="json", exclude_none=True),
        identity=folder.identity,
        curves=curves,
        tuned=_tuned(results[recommended.run].audit.trained_places) if recommended else None,
        tables=tables,
        headline=headline(sentence_without_command(answer)),
        command=next_command(answer),
        command_title=next_title(answer),
        command_time=training_time(answer),
        loading=loading(answer, out / "model"),
        refit=refit_sentence(answer),
        trouble=trouble(answer),
        failed_runs=failures(done(runs)),
        errors=errors,
        classes={
            "calibration": calibration_sentences(answer),
            "threshold": threshold_sentences(answer.threshold) if answer.threshold else [],
            "saved": WHO_APPLIES if is_saved(answer) else "",
        },
        machines=machines([result.provenance for result in results.values()]),
        model=model_name(answer.model),
    )


def _tables(
    folder: Folder, answer: Answer, runs: Sequence[RunResult], search: SearchRecord | None
) -> dict[str, ReportTable]:
    """The tables of runs, data, classes and search, by name. A table that would be about nothing is left out."""
    labels, task_type, results = folder.identity.labels, answer.task_type, folder.results
    firsts = {cell.recipe: cell.points[0].run for cell in answer.sizes[0].cells if cell.points}
    # of the first run of each k that was trained in the training loop, which checks what it trains
    audits = {str(name): audit for name, run in firsts.items() if (audit := results[run].audit).checks}
    tables = [failed_runs_table(runs), splits_table(folder.data), audit_table(audits)]
    if labels:
        tables.append(classes_table(folder.data, labels, task_type))
    if search:
        tables.append(search_table(search))
        if search.probes:
            tables.append(probe_table(search.probes))
    if answer.classes:
        count = len(runs_of_choice(answer.sizes[0]))
        mark = names.mark_of_choice(answer.sizes[0].decision)
        tables.append(class_scores_table(answer.classes, count, task_type, mark, answer.threshold))
    if answer.threshold:
        tables.append(threshold_table(answer.threshold))
    return {table.name: table for table in tables}


def _tuned(places: Sequence[str]) -> dict[str, Any]:
    """Whether the embeddings are trained, and the indices of the trained layers, for the drawing of the model."""
    return {"embeddings": EMBEDDINGS in places, "layers": layer_numbers(places)}
