"""The table that opens an analysis: what to tune, with tasks down and models across."""

from collections.abc import Mapping
from typing import Any

from frostline.report import formatting, names
from frostline.report.answer.across_groups import GroupAnalysis
from frostline.report.answer.analysis import Analysis
from frostline.report.tables.table import Column, ReportTable, Row, Values
from frostline.statistics.alternatives import ALTERNATIVES
from frostline.statistics.tune import FULL, is_way, k_of, name_of

UNDECIDED, NO_ANSWER = "undecided", "no answer"
FACTS = ("choice", "layers", "below_full", "probability")  # of :func:`recommendation`
Facts = Mapping[str, Any]


def recommendations_table(analysis: Analysis, *, short: bool = False) -> ReportTable:
    """What is recommended for every task (rows) and model (columns), as ``last 5 of 12 (0.3 below, 98 % sure)``.

    Args:
        analysis: The analysis. Of several train sizes, the largest one with an answer is shown.
        short: Whether an entry is ``5 (−0.3, 98 %)``, for a narrow terminal.
    """
    by_mean = analysis["settings"]["by_mean"]
    tasks = dict.fromkeys(group["task"] for group in analysis["groups"])
    rows: dict[str, dict[str, Any]] = {task: {"task": task} for task in tasks}
    for group in analysis["groups"]:
        facts = recommendation(group, by_mean=by_mean)
        rows[group["task"]] |= {f"{group['model']} {name}": value for name, value in facts.items()}
    models = [model["model"] for model in analysis["models"]]
    columns = (Column("task", "task", number=False), *(column for model in models for column in _columns(model, short)))
    name = "recommendations"
    return ReportTable(
        name, "What to tune", _caption(analysis, short), columns, tuple(Row(row) for row in rows.values())
    )


def recommendation(group: GroupAnalysis, *, by_mean: bool) -> dict[str, Any]:
    """What is recommended for a model and task: ``choice``, ``layers``, ``below_full`` and ``probability``.

    The choice is ``undecided`` or ``no answer`` if nothing is recommended; ``below_full`` is in points. Both numbers are
    None for full fine-tuning, and the probability if the decision is ``by_mean``.
    """
    size = group["sizes"][0]
    found = {"choice": NO_ANSWER, "layers": group["layers"], "below_full": None, "probability": None}
    recommended, decision = size["recommended"], size["decision"]
    if recommended is None and decision is None:
        return found
    if "Undecided: " in group["sentence"]:
        return {**found, "choice": UNDECIDED}
    name = decision["choice"] if recommended is None else recommended["trainable"]
    found["choice"] = name
    choice = next((choice for choice in size["choices"] if choice["choice"] == name), None)
    if name == size["reference"] or choice is None:
        return found
    if by_mean:
        cell = size.cell(name)
        assert cell is not None
        return {**found, "below_full": -100 * cell["difference"]["estimate"]}
    return {**found, "below_full": choice["below_full"], "probability": choice["probability"]}


def _columns(model: str, short: bool) -> tuple[Column, ...]:
    """The printed column of a model, and the columns that only the CSV has."""
    keys = [f"{model} {name}" for name in ("choice", "layers", "below_full", "probability")]

    def facts(row: Values) -> Facts | None:
        known = [row.get(key) for key in keys]
        return (
            None
            if known[0] is None
            else dict(zip(("choice", "layers", "below_full", "probability"), known, strict=True))
        )

    def place(row: Values) -> int | None:
        found = facts(row)
        return None if found is None or found["choice"] in (UNDECIDED, NO_ANSWER) else _layers(found)

    def text(row: Values) -> str:
        found = facts(row)
        return formatting.UNKNOWN if found is None else _text(found, short)

    def beside(row: Values) -> list[str]:
        found = facts(row)
        return [] if found is None or found["below_full"] is None else [_beside(found, short)]

    shown = Column(keys[0], model, whole=text, small=beside, number=False, rank=place, strong=True, user_text="title")
    return shown, *(Column(key) for key in keys[1:])


def _layers(facts: Facts) -> int | None:
    """The number of tuned layers, for sorting. Full fine-tuning is larger than every k, an alternative smaller."""
    if facts["choice"] == FULL:
        return (facts["layers"] or 0) + 1
    return -1 if facts["choice"] in ALTERNATIVES else k_of(facts["choice"])


def _text(facts: Facts, short: bool) -> str:
    """``last 5 of 12``, or ``5`` if it is ``short``."""
    name, layers = facts["choice"], facts["layers"]
    if name in (FULL, UNDECIDED, NO_ANSWER) or (is_way(name) and name not in ALTERNATIVES):
        return str(name)
    if name in ALTERNATIVES:
        return names.trainable(name)
    if short:
        return names.depth(name)
    return "head only" if name == name_of(0) else f"{name} of {layers}" if layers else str(name)


def _beside(facts: Facts, short: bool) -> str:
    """``0.3 below, 98 % sure``, or ``−0.3, 98 %`` if it is ``short``."""
    below, probability = facts["below_full"], facts["probability"]
    sure = "" if probability is None else formatting.unbroken(f", {formatting.short_probability(probability)}")
    if short:
        return f"{formatting.points(-below)}{sure}"
    return f"{formatting.points(abs(below))} {'below' if below >= 0 else 'above'}{sure}{' sure' if sure else ''}"


def _caption(analysis: Analysis, short: bool) -> str:
    settings = analysis["settings"]
    of_gain = {group["sizes"][0]["deciding_point"]["corrected"] for group in analysis["groups"]}
    whole = "gain over the baseline" if True in of_gain else "score"
    if len(of_gain) > 1:
        whole += " (of its score where the baseline is unknown)"
    target = f"{formatting.target(settings['target'])} of full fine-tuning’s {whole}"
    sides = "above (below: −)" if short else "below or above"
    if settings["by_mean"]:
        begin = f"The smallest number of last layers whose mean reaches {target}"
        return f"{begin}. Beside it: the points {sides} full fine-tuning."
    begin = "How many of the last layers to tune. Beside it: the expected points"
    return f"{begin} {sides} full fine-tuning, and how sure it is to reach {target}."
