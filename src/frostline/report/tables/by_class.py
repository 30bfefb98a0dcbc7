"""The tables of the recommended model by class: scores of each class, calibration, and the threshold for two classes."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from frostline.data.kinds import MULTI_LABEL, TOKENS
from frostline.data.wording import quoted
from frostline.report import formatting
from frostline.report.names import metric
from frostline.report.tables.table import Column, ReportTable, Row, Values
from frostline.statistics.by_class import SCORES
from frostline.statistics.calibration import FOLDS
from frostline.statistics.threshold import SCORES as THRESHOLD_SCORES

COUNTED = {TOKENS: ("type", "entities"), MULTI_LABEL: ("label", "examples")}  # all others: examples of classes
CALIBRATED = {"pairs": "pairs of validation text and label", "words": "words of validation sentences"}
PLURALS = {TOKENS: "types", MULTI_LABEL: "labels"}  # all others: classes
TITLES = {"f1": "F1", "balanced_accuracy": "balanced\naccuracy", "matthews_correlation": "Matthews\ncorrelation"}


def class_scores_table(
    classes: Sequence[Mapping[str, Any]], runs: int, task_type: str, thresholds: Mapping[str, float] | None = None
) -> ReportTable:
    """Precision, recall and F1 of each class over the ``runs`` of the recommended k; ``classes`` is that of answer.json.

    For token classification, these are types of entities, or plain tags. If a text can have any number of labels, each of them
    may have a saved threshold.
    """
    label, counted = COUNTED.get(task_type, ("class", "examples"))

    def spread(name: str) -> Callable[[Values], Iterable[str]]:
        return lambda row: [formatting.score_interval(row[f"{name}_lowest"], row[f"{name}_highest"])] * (runs > 1)

    rows = [
        Row(
            {
                "class": one["label"],
                "place": n,
                "examples": one["examples"],
                "threshold": (thresholds or {}).get(one["label"]),
                **{name: one[name]["estimate"] for name in SCORES},
                **{f"{name}_{end}": one[name][end] for name in SCORES for end in ("lowest", "highest")},
            }
        )
        for n, one in enumerate(classes)
    ]
    columns = (
        Column("class", label, number=False, rank=lambda row: row["place"], user_text="value"),
        Column("examples", f"validation\n{counted}", formatting.count),
        *(Column(name, TITLES.get(name, name), formatting.score, small=spread(name)) for name in SCORES),
        *([Column("threshold", "saved\nthreshold", formatting.score)] if thresholds else []),
        *(Column(f"{name}_{end}") for name in SCORES for end in ("lowest", "highest")),
    )
    caption = "Of the recommended model, from the predictions of its only run."
    if runs > 1:
        caption = f"Of the recommended k, from the predictions of its {runs} runs together; below: lowest to highest of a run."
    if thresholds:
        caption += " These scores are at the threshold 0.5."
    caption += f" A {label} that is never predicted has no precision ({formatting.UNKNOWN})."
    return ReportTable("class_scores", f"Scores by {label}", caption, columns, tuple(rows), style="classes")


def calibration_table(calibration: Mapping[str, Any]) -> ReportTable:
    """Calibration before and after temperature scaling; ``calibration`` is that of answer.json."""
    names = {"before": "as trained", "after": f"divided by the temperature {calibration['temperature']:.2f}"}
    keys = ("error", "by_chance", "by_chance_high", "log_loss")
    rows = [
        Row(
            {"logits": words, **{key: calibration[name][key] for key in keys}},
            chosen=name == "after" and calibration["saved"],
        )
        for name, words in names.items()
    ]
    columns = (
        Column("logits", "logits", number=False),
        Column("error", "expected\ncalibration error", formatting.score),
        Column("by_chance", "error of exact\nprobabilities", formatting.score, small=_up_to),
        Column("by_chance_high"),
        Column("log_loss", "log loss", formatting.score),
    )
    bins = len(calibration["before"]["bins"])
    counted = CALIBRATED.get(calibration["counted"], "validation examples")
    caption = (
        f"On {calibration['examples']:,} {counted}, in {bins} {'bin' if bins == 1 else 'bins'} with equally many "
        "examples. Exact probabilities have an error, too, by chance: its mean and 95 % quantile. The second row is "
        f"cross-fitted: in each of {FOLDS} parts, the temperature is fitted on the other parts."
    )
    return ReportTable("calibration", "Calibration", caption, columns, tuple(rows), sortable=False)


def _up_to(row: Values) -> list[str]:
    return [f"up to {formatting.score(row['by_chance_high'])}"]


def threshold_table(threshold: Mapping[str, Any]) -> ReportTable:
    """The scores at the threshold 0.5 and at the saved one, or those of all labels; ``threshold`` is that of answer.json."""
    by_label = bool(threshold.get("by_label"))
    saved = "saved" if by_label else formatting.score(threshold["threshold"])
    words = {"at_half": "0.5", "cross_fitted": saved}
    rows = [Row({"threshold": text, **threshold[name]}, chosen=name == "cross_fitted") for name, text in words.items()]
    names = threshold["at_half"] if by_label else THRESHOLD_SCORES
    columns = (
        Column("threshold", "threshold", number=False),
        *(Column(name, TITLES.get(name, metric(name)), formatting.score) for name in names),
    )
    caption = (
        "Of the saved run."
        if by_label
        else f"Precision, recall and F1 are those of the class {quoted(threshold['label'])}."
    )
    if threshold["metric"]:
        caption += (
            f" The second row is cross-fitted: in each of {FOLDS} parts of the validation examples, the threshold is chosen "
            "on the other parts."
        )
    return ReportTable("threshold", "Scores at the threshold", caption, columns, tuple(rows), sortable=False)
