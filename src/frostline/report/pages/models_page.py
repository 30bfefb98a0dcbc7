"""The page of a search over several models. Each model has a page of its own, which it links to."""

from collections.abc import Mapping
from pathlib import Path

from pydantic_core import to_jsonable_python

from frostline.data.files import write_json
from frostline.data.wording import counted
from frostline.report import formatting
from frostline.report.answer.models_answer import by_value, status
from frostline.report.explanations import headline
from frostline.report.figures.quality_of_models import against_training
from frostline.report.names import printed
from frostline.report.pages.templates import write_report_page
from frostline.report.tables.table import Column, ReportTable, Row
from frostline.statistics.answer import Answer, ModelAnswer, ModelsAnswer


def models_table(answer: ModelsAnswer) -> ReportTable:
    """A row for each model, the best first."""
    best = answer.model(answer.recommended)

    def times(one: ModelAnswer) -> float | None:
        return one.inference_operations / best.inference_operations if best and best.inference_operations else None

    columns = (
        Column("model", "model", number=False, user_text="value"),
        Column(
            "choice", "what to tune", printed, number=False, small=lambda one: [f"of {counted(one.layers, 'layer')}"]
        ),
        Column("expected", "expected", formatting.score),
        Column(
            "below",
            "points\nbelow",
            formatting.points,
            ends=("low", "high"),
        ),
        Column("training_operations", "training,\noperations", formatting.operations),
        Column("inference_operations", "prediction,\noperations", formatting.operations),
        Column("times", "times the\nbest's", formatting.times, of=times),
        Column("probe", "linear\nprobe", formatting.score),
        Column("parameters", "parameters", formatting.parameters),
        Column("runs", "runs", formatting.count),
        Column("seconds", "training", formatting.seconds),
        *(Column(name) for name in ("rows", "why", "folder", "layers", "value")),
    )
    rows = tuple(Row(one, tuple(filter(None, (status(one, answer),))), chosen=one is best) for one in by_value(answer))
    return ReportTable(
        "models",
        "Models.",
        "Points are below the recommended model, with the 95 % interval. Operations of training are for the recommended choice, "
        "once; those of a prediction are for one validation text.",
        columns,
        rows,
    )


def write_models(out: Path, answer: ModelsAnswer, answers: Mapping[str, Answer]) -> None:
    """Write answer.json, report.html, tables/ and figures/ of a search over several models.

    Args:
        out: The folder, with that of each model in it.
        answer: About all models.
        answers: About each model with runs, by its name.
    """
    figure, table = against_training(answer, answers), models_table(answer)
    write_json(out / "answer.json", to_jsonable_python(answer), inside=out)
    write_report_page(
        out,
        "models.html.j2",
        [table],
        {"against_training": figure} if figure else {},
        answer=answer,
        headline=headline(answer.sentence),
        table_of_models=table,
        pages={one.model: f"{one.folder}/report.html" for one in answer.models if one.model in answers},
    )
