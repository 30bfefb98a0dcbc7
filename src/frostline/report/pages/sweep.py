"""The page of a sweep: one self-contained file, built from the sweep's folder. It can be read without JavaScript."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from frostline.data.files import replace_file
from frostline.report import names
from frostline.report.figures.files import save_figures
from frostline.report.figures.learning_curves import learning_curves
from frostline.report.figures.probe_curve import probe_curve
from frostline.report.figures.quality_against_cost import quality_against_cost
from frostline.report.figures.reliability import reliability
from frostline.report.figures.validation_curve import validation_curve
from frostline.report.next_steps import loading, next_command, sentence_without_command, training_time
from frostline.report.pages.sentences import headline, machines, trouble
from frostline.report.pages.sweep_classes import class_content
from frostline.report.pages.sweep_errors import errors_of_recommended
from frostline.report.pages.sweep_sizes import size_content
from frostline.report.pages.templates import render
from frostline.report.tables.audit import audit_table, phases_table
from frostline.report.tables.costs import forecast_table
from frostline.report.tables.data import classes_table, splits_table
from frostline.report.tables.failures import failed_runs_table, failure_rates_table, missing_runs_table
from frostline.report.tables.probes import probe_table
from frostline.report.tables.search import estimates_table, search_table
from frostline.report.tables.table import ReportTable, save_tables
from frostline.statistics.answer import Answer, SizeAnswer
from frostline.statistics.inference import failure_interval
from frostline.statistics.outcomes import FAILURES, done, with_outcomes
from frostline.statistics.run_result import RunResult
from frostline.sweep.results.folder import Folder
from frostline.sweep.results.forecast_record import recorded


def write_page(out: Path) -> Path:
    """Write report.html, figures/ and tables/ into ``out`` from its answer and results, and return the path of the page.

    Text from users (labels, texts, names) is escaped, so it never becomes markup.
    """
    folder = Folder(out)
    answer = Answer.read(out / "answer.json")
    results, runs = folder.store.results(), _with_outcomes(folder.rows(), answer)
    page, figures = out / "report.html", _figures(answer)
    sizes = [size_content(size, answer, results, train_size_suffix(size, n)) for n, size in enumerate(answer["sizes"])]
    errors, failed_runs = errors_of_recommended(folder, answer), _failure_rate(done(runs))
    classes = class_content(answer)
    tables = {
        **_run_tables(runs),
        **_data_tables(folder, answer),
        **_search_tables(answer),
        **(classes["tables"] if classes else {}),
        "audit": audit_table(sizes[0]["audits"]),
        "phases": phases_table(sizes[0]["audits"]),
        "predicted": forecast_table(recorded(out), results.values()),
    }
    text = render(
        "report.html.j2",
        answer=answer,
        spec=folder.spec.model_dump(mode="json", exclude_none=True),
        identity=folder.identity,
        sizes=sizes,
        tables=tables,
        figures=save_figures(out, figures),
        headline=headline(sentence_without_command(answer)),
        command=next_command(answer),
        command_time=training_time(answer),
        loading=loading(answer, out / "model"),
        trouble=trouble(answer["runs"], answer["unusable_runs"]),
        failed_runs=failed_runs,
        several_rates=any(len(cell["learning_rates_tried"]) > 1 for size in answer["sizes"] for cell in size["cells"]),
        errors=errors,
        classes=classes,
        machines=machines([facts["provenance"] for facts in results.values()]),
        model=names.model_name(answer["model"]),
    )
    of_sizes = (table for size in sizes for table in size["tables"].values())
    save_tables(out, [table for table in (*tables.values(), errors and errors["confusion"], *of_sizes) if table])
    replace_file(page, text.encode(), inside=out)
    return page


def train_size_suffix(size: SizeAnswer, n: int) -> str:
    """The end of the file names of the n-th train size; empty for the first one, which the page is about."""
    return "" if n == 0 else f"_{size['train_size']}"


def _with_outcomes(rows: Sequence[RunResult], answer: Answer) -> list[RunResult]:
    """Every run with its outcome. An outcome depends on the other runs of the same train size."""
    return [
        run
        for size in answer["sizes"]
        for run in with_outcomes(
            [row for row in rows if row.train_size == size["train_size"]], answer["chance"], size["clear_distance"]
        )
    ]


def _figures(answer: Answer) -> dict[str, Figure]:
    """Every figure of the page by name."""
    figures: dict[str, Figure | None] = {}
    metric, chance = answer["metric"], answer["chance"]
    for n, size in enumerate(answer["sizes"]):
        suffix = train_size_suffix(size, n)
        figures[f"quality_against_cost{suffix}"] = quality_against_cost(size, metric=metric)
        figures[f"validation_curve{suffix}"] = validation_curve(size, metric=metric, chance=chance)
    if len(answer["sizes"]) > 1:
        figures["learning_curves"] = learning_curves(answer["sizes"], metric=metric, chance=chance)
    if answer["search"] and answer["search"]["probes"]:
        figures["probe_curve"] = probe_curve(answer["search"]["probes"])
    if answer["calibration"]:
        figures["reliability"] = reliability(answer["calibration"])
    return {name: figure for name, figure in figures.items() if figure is not None}


def _run_tables(runs: Sequence[RunResult]) -> dict[str, ReportTable]:
    return {
        "failure_rates": failure_rates_table(done(runs)),
        "failed_runs": failed_runs_table(runs),
        "missing_runs": missing_runs_table(runs),
    }


def _data_tables(folder: Folder, answer: Answer) -> dict[str, ReportTable | None]:
    labels = folder.identity.labels
    return {
        "splits": splits_table(answer["data"]),
        "classes": classes_table(answer["data"], labels, folder.identity.task_type) if labels else None,
    }


def _search_tables(answer: Mapping[str, Any]) -> dict[str, ReportTable | None]:
    """The tables of a search. A table that would be empty is None."""
    search = answer["search"]
    probes = search and search["probes"]
    return {
        "search": search_table(search) if search else None,
        "estimates": estimates_table(answer) if search and search["estimates"] else None,
        "probes": probe_table(probes) if probes else None,
    }


def _failure_rate(runs: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """The number of failed runs, with the Clopper-Pearson interval of the rate; None if no run has finished."""
    if not runs:
        return None
    failed = sum(run["outcome"] in FAILURES for run in runs)
    low, high = failure_interval(failed, len(runs))
    return {"failed": failed, "runs": len(runs), "low": low, "high": high}
