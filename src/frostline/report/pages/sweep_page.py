"""The page of a sweep: one self-contained file, built from the sweep's folder. It can be read without JavaScript."""

from collections.abc import Mapping, Sequence
from typing import Any

from frostline.data.files import replace_file
from frostline.model.terms import EMBEDDINGS, layer_number
from frostline.report import formatting, names
from frostline.report.answer.output_sentences import (
    WHO_APPLIES,
    calibration_sentences,
    is_saved,
    threshold_sentences,
)
from frostline.report.answer.recommended_classes import runs_of_choice
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
    is_checked,
    search_table,
    splits_table,
    threshold_table,
)
from frostline.report.tables.table import ReportTable, save_tables
from frostline.statistics.curve import Curve, main_point
from frostline.statistics.inference import failure_interval
from frostline.statistics.outcomes import FAILURES, done, failure_table, with_outcomes
from frostline.statistics.recipe import Recipe
from frostline.sweep.results.folder import Folder
from frostline.sweep.results.forecast_record import recorded

Answer = Mapping[str, Any]  # answer.json


def write_page(folder: Folder, answer: Answer) -> None:
    """Write report.html, figures/ and tables/ into the folder of a sweep.

    Text from users (labels, texts, names) is escaped, so it never becomes markup.
    """
    out, results, runs = folder.out, folder.store.results(), _with_outcomes(folder.rows(), answer)
    sizes = [_with_tables(size, answer, folder) for size in answer["sizes"]]
    first, errors = sizes[0], errors_of_recommended(folder, answer)
    audits = _audits(answer["sizes"][0], results)
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
        tuned=_tuned(results[first["recommended"]["run"]]["audit"]["by_place"]) if first["recommended"] else None,
        tables=tables,
        figures=save_figures(out, _figures(answer)),
        headline=headline(sentence_without_command(answer)),
        command=next_command(answer),
        command_time=training_time(answer),
        loading=loading(answer, out / "model"),
        trouble=trouble(answer["runs"], answer["unusable_runs"]),
        failed_runs=_failure_rate(runs),
        errors=errors,
        classes=_class_sentences(answer),
        machines=machines([facts["provenance"] for facts in results.values()]),
        model=names.model_name(answer["model"]),
    )
    of_sizes = (table for size in sizes for table in size["tables"].values())
    confusion = [errors.confusion] if errors and errors.confusion else []
    save_tables(out, [*tables.values(), *confusion, *of_sizes])
    replace_file(out / "report.html", text.encode(), inside=out)


def _with_outcomes(rows: Sequence[Mapping[str, Any]], answer: Answer) -> list[dict[str, Any]]:
    """Every run with its outcome. An outcome depends on the other runs of the same train size."""
    return [
        run
        for size in answer["sizes"]
        for run in with_outcomes(
            [row for row in rows if row["train_size"] == size["train_size"]], answer["chance"], size["clear_distance"]
        )
    ]


def _with_tables(size: Curve, answer: Answer, folder: Folder) -> dict[str, Any]:
    """A train size of the answer with its tables and sentences. Files of the first train size have no suffix."""
    recommended, metric = size["recommended"], answer["metric"]
    seeds = len({point["seed"] for cell in size["cells"] for point in cell["points"]})
    in_words = {cell["recipe"]: folder.spec.way_of(cell["recipe"]).in_words for cell in size["cells"]}
    ways = ways_table(size, in_words)
    tables = {
        "scores": scores_table(size, metric, tested=answer["tested"]),
        "shares": shares_table(size, metric),
        "costs": costs_table(size),
        "failures": failures_table(size),
        "choices": choices_table(size, price=answer["price"]),
        "points": operating_points_table(size),
        **({"ways": ways} if ways else {}),
    }
    suffix = _suffix(size, answer)
    about = f"{size['train_size']:,} examples" if suffix else ""
    explanation = None
    if recommended:
        explanation = explain_uncertainty(size, main_point(size), seeds, baseline=names.baseline(metric))
    test_sentences = sentences_on_test(size, metric) if answer["tested"] else []
    return {
        **size,
        "suffix": suffix,
        "explanation": explanation,
        "test_sentences": [formatting.unbroken(sentence) for sentence in test_sentences],
        "tables": {name: renamed(table, suffix, about) for name, table in tables.items()},
    }


def _suffix(size: Curve, answer: Answer) -> str:
    return "" if size["train_size"] == answer["sizes"][0]["train_size"] else f"_{size['train_size']}"


def _figures(answer: Answer) -> dict[str, Any]:
    """Every figure of the page by name."""
    figures: dict[str, Any] = {}
    metric, chance = answer["metric"], answer["chance"]
    for size in answer["sizes"]:
        suffix = _suffix(size, answer)
        figures[f"quality_against_cost{suffix}"] = quality_against_cost(size, metric=metric)
        figures[f"validation_curve{suffix}"] = validation_curve(size, metric=metric, chance=chance)
    if len(answer["sizes"]) > 1:
        figures["learning_curves"] = learning_curves(answer["sizes"], metric=metric, chance=chance)
    if answer["search"] and answer["search"]["probes"]:
        figures["probe_curve"] = probe_curve(answer["search"]["probes"])
    if answer["calibration"]:
        figures["reliability"] = reliability(answer["calibration"])
    return {name: figure for name, figure in figures.items() if figure is not None}


def _tables(folder: Folder, answer: Answer, runs: Sequence[Mapping[str, Any]]) -> dict[str, ReportTable]:
    """The tables of runs, data, classes and search. A table that would be about nothing is left out."""
    labels, task_type = folder.identity.labels, answer["task_type"]
    tables = {"failed_runs": failed_runs_table(runs), "splits": splits_table(answer["data"])}
    if any(len(cell["learning_rates_tried"]) > 1 for size in answer["sizes"] for cell in size["cells"]):
        by = {
            "size": lambda run: -run["train_size"],
            "k": lambda run: (Recipe(run["recipe"]).order, run["recipe"]),
            "learning_rate": lambda run: run["learning_rate"],
        }
        rates = failure_table(done(runs), by)
        tables["rates"] = rates_table([{**row, "train_size": -row["size"], "recipe": row["k"][1]} for row in rates])
    if labels:
        tables["classes"] = classes_table(answer["data"], labels, task_type)
    if answer["search"]:
        tables["search"] = search_table(answer["search"])
        if answer["search"]["probes"]:
            tables["probes"] = probe_table(answer["search"]["probes"])
    if answer["classes"]:
        thresholds = (answer["threshold"] or {}).get("by_label")
        count = len(runs_of_choice(answer["sizes"][0]))
        tables["class_scores"] = class_scores_table(answer["classes"], count, task_type, thresholds)
    if answer["threshold"]:
        tables["threshold"] = threshold_table(answer["threshold"])
    return tables


def _class_sentences(answer: Answer) -> dict[str, Any]:
    """The sentences on the probabilities of the recommended model, and on its threshold."""
    calibration, threshold = answer["calibration"], answer["threshold"]
    return {
        "calibration": calibration_sentences(calibration) if calibration else [],
        "threshold": threshold_sentences(threshold) if threshold else [],
        "saved": WHO_APPLIES if is_saved(answer) else "",
    }


def _audits(size: Curve, results: Mapping[str, Any]) -> dict[str, Any]:
    """The audit of the first run of each k that was trained in the training loop, which checks what it trains."""
    firsts = {cell["recipe"]: cell["points"][0]["run"] for cell in size["cells"] if cell["points"]}
    return {name: audit for name, run in firsts.items() if is_checked(audit := results[run]["audit"])}


def _tuned(by_place: Mapping[str, Mapping[str, int]]) -> dict[str, Any]:
    """Whether the embeddings are trained, and the indices of the trained layers, for the drawing of the model."""
    places = [place for place, counts in by_place.items() if counts["trained"]]
    layers = [number for place in places if (number := layer_number(place)) is not None]
    return {"embeddings": EMBEDDINGS in places, "layers": layers}


def _failure_rate(runs: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """The number of failed runs, with the Clopper-Pearson interval of the rate; None if no run has finished."""
    ended = done(runs)
    if not ended:
        return None
    failed = sum(run["outcome"] in FAILURES for run in ended)
    low, high = failure_interval(failed, len(ended))
    return {"failed": failed, "runs": len(ended), "low": low, "high": high}
