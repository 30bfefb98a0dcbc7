"""The content of a sweep's page for one train size: its tables and sentences."""

from collections.abc import Mapping
from typing import Any

from frostline.model.terms import EMBEDDINGS, layer_number
from frostline.report import formatting
from frostline.report.answer.scores_on_test import sentences_on_test
from frostline.report.names import baseline
from frostline.report.pages.sentences import explain_uncertainty
from frostline.report.tables.audit import is_checked
from frostline.report.tables.choices import choices_table
from frostline.report.tables.costs import costs_table
from frostline.report.tables.failures import failures_table
from frostline.report.tables.operating_points import operating_points_table
from frostline.report.tables.scores import scores_table, shares_table
from frostline.report.tables.table import ReportTable
from frostline.report.tables.ways import ways_table
from frostline.statistics.answer import SizeAnswer


def size_content(
    size: SizeAnswer, answer: Mapping[str, Any], results: Mapping[str, Any], suffix: str
) -> dict[str, Any]:
    """A train size of the answer with its tables and sentences.

    Args:
        size: The curve with its recommendation.
        answer: The whole answer.
        results: The facts of finished runs by digest.
        suffix: The end of the file names, unique for each train size.
    """
    main, recommended = size.deciding_point, size["recommended"]
    seeds = len({point["seed"] for cell in size["cells"] for point in cell["points"]})
    explanation = None
    if recommended:
        explanation = explain_uncertainty(size, main, seeds, baseline=baseline(answer["metric"]))
    return {
        **size,
        "seeds": seeds,
        "best": size.cell(recommended["trainable"]) if recommended else None,
        "full": size.cell(size["reference"]),
        "explanation": explanation,
        "test_sentences": list(map(formatting.unbroken, sentences_on_test(size, answer["metric"])))
        if answer["tested"]
        else [],
        "tables": {
            **_tables(size, main, answer, suffix),
            **({"ways": ways} if (ways := ways_table(size, results, suffix=suffix)) else {}),
        },
        "audits": [
            (cell["trainable"], audit)
            for cell in size["cells"]
            if cell["points"] and is_checked(audit := results[cell["points"][0]["run"]]["audit"])
        ],
        "tuned": _tuned(results[recommended["run"]]["audit"]["by_place"]) if recommended else None,
    }


def _tables(
    size: SizeAnswer, main: Mapping[str, Any], answer: Mapping[str, Any], suffix: str
) -> dict[str, ReportTable]:
    metric = answer["metric"]
    return {
        "scores": scores_table(size, metric, tested=answer["tested"], suffix=suffix),
        "shares": shares_table(size, metric, suffix=suffix),
        "costs": costs_table(size, suffix=suffix),
        "failures": failures_table(size, suffix=suffix),
        "choices": choices_table(size, price=answer["price"], margin=_margin(size), suffix=suffix),
        "points": operating_points_table(size, main, suffix=suffix),
    }


def _margin(size: SizeAnswer) -> float:
    """The distance below full fine-tuning that counts as equally good."""
    return next(float(point["margin"]) for point in size["operating_points"] if point["margin"] is not None)


def _tuned(by_place: Mapping[str, Mapping[str, int]]) -> dict[str, Any]:
    """Whether the embeddings are trained, and the indices of the trained layers, for the drawing of the model."""
    places = [place for place, counts in by_place.items() if counts["trained"]]
    layers = [number for place in places if (number := layer_number(place)) is not None]
    return {"embeddings": EMBEDDINGS in places, "layers": layers}
