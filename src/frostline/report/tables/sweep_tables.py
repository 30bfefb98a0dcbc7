"""The tables of a whole sweep: its search, failed runs, audit, data, and the classes of the recommended model."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from frostline.data.kinds import MULTI_LABEL, TOKENS
from frostline.data.wording import capitalized, counted, quoted, ranges
from frostline.model.terms import EMBEDDINGS, layer_number
from frostline.report import formatting, names
from frostline.report.tables.curve_tables import LEARNING_RATE, TUNED, Read, train_size_column
from frostline.report.tables.table import Column, Ends, ReportTable, Row
from frostline.statistics.answer import ClassScores, Threshold
from frostline.statistics.cells import FAILURES, UNDEFINED
from frostline.statistics.class_outputs import FOLDS, SCORES
from frostline.statistics.run_result import RunResult
from frostline.sweeps.results.folder import DataRecord
from frostline.sweeps.results.search_record import SearchRecord, Step
from frostline.training.result import AuditRecord

CHECKS = {
    "optimizer_holds_exactly_the_trained": "optimizer holds\nonly trainable",
    "each_parameter_in_one_place": "each parameter\ncounted once",
    "frozen_bytes_unchanged": "frozen weights\nunchanged",
    "frozen_gradients_none": "no gradient\nif frozen",
    "frozen_in_eval_mode": "frozen in\neval mode",
}
COUNTED = {TOKENS: ("type", "entities"), MULTI_LABEL: ("label", "examples")}  # all others: examples of classes


def search_table(found: SearchRecord) -> ReportTable:
    """The steps of a search with their reasons."""

    def scores(step: Step) -> list[float]:
        return [run.score for run in step.runs if run.score is not None]

    def each(show: Callable[[Any], str], key: str) -> Callable[[Any], str]:
        return lambda step: ", ".join(dict.fromkeys(show(getattr(run, key)) for run in step.runs))

    columns = (
        Column("step", "step", of=lambda step: found.steps.index(step) + 1),
        Column("why", "reason", number=False),
        Column("tuned", "tuned", of=each(names.printed, "recipe"), number=False),
        Column("rates", "learning\nrate", of=each(formatting.learning_rate, "learning_rate"), number=False),
        Column("runs", "runs", formatting.count, of=lambda step: len(step.runs)),
        Column("low", "lowest\nscore", formatting.score, of=lambda step: min(scores(step), default=None)),
        Column("high", "highest\nscore", formatting.score, of=lambda step: max(scores(step), default=None)),
        Column("seconds", "time", formatting.seconds),
    )
    budget, skipped = found.budget_seconds, ", ".join(map(names.printed, found.skipped))
    spent = f"{formatting.seconds(found.spent_seconds)} of training"
    if budget is not None:
        spent += f"; the budget was {formatting.seconds(budget)}"
    left = f"Not trained: {skipped}." if skipped else "Every candidate was trained."
    caption = f"Every step with its reason. {spent}. {found.why or 'It has not ended.'} {left}"
    return ReportTable("search", "Search", caption, columns, tuple(map(Row, found.steps)), sortable=False)


def failed_runs_table(runs: Sequence[RunResult]) -> ReportTable:
    """Every run of the grid without a usable score: it failed, ended in an error, or has no result yet."""

    def order(run: RunResult) -> tuple[Any, ...]:
        return -(run.train_size or 0), run.recipe.order, run.learning_rate or 0.0, run.seed

    def what(run: RunResult) -> str:
        return {"failed": "error", "pending": "not trained yet"}.get(run.status) or str(run.outcome)

    failed = [run for run in runs if run.outcome in (*FAILURES, UNDEFINED) or run.status != "done"]
    columns = (
        *(TUNED, train_size_column(run.train_size for run in runs), Column("seed", "seed"), LEARNING_RATE),
        Column("validation_best", "score", formatting.score),
        Column("failure", "failure", of=what, number=False),
        Column("reason", "reason", number=False),
    )
    caption = "Each run without a usable score. The same command trains those that are not trained yet."
    return ReportTable(
        "failed_runs", "Failed and missing runs", caption, columns, tuple(map(Row, sorted(failed, key=order)))
    )


class _Audit(NamedTuple):
    """The audit of a run of one k."""

    tuned: str
    record: AuditRecord


def audit_table(audits: Mapping[str, AuditRecord]) -> ReportTable:
    """The audit of one run of each k: frozen parameters stay frozen. ``audits`` are by name of k."""

    def trained(of: _Audit) -> str:
        return _parts(of.record.trained_places)

    def small(of: _Audit) -> list[str]:
        """Merged matrices, and what each of several phases changed."""
        merged, phases = len(of.record.merged), of.record.phases
        lines = [f"{counted(merged, 'matrix', 'matrices')} merged"] if merged else []
        return lines + [f"phase {n}, {phase.steps:,} steps: {_parts(phase.moved)}" for n, phase in enumerate(phases, 1)]

    def holds(key: str) -> Read:
        return lambda of: of.record.checks[key]

    def failed(key: str) -> Callable[[Any], bool]:
        return lambda of: not of.record.checks[key]

    def share(of: _Audit) -> list[str]:
        return [formatting.percent(of.record.trainable_parameters / of.record.parameters)]

    rows = (Row(_Audit(str(name), record)) for name, record in audits.items())
    count = formatting.count
    columns = (
        Column("tuned", "tuned", names.printed, number=False, rank="place"),
        Column("trained", "trained", of=trained, number=False, small=small),
        Column("merged", of=lambda of: len(of.record.merged)),
        Column("trainable_parameters", "parameters", count, of="record.trainable_parameters", small=share),
        Column("parameters", of="record.parameters"),
        *(
            Column(key, title, lambda value: "yes" if value else "no", of=holds(key), bad=failed(key))
            for key, title in CHECKS.items()
        ),
        Column("clipped_parameters", "tensors\nclipped", count, of="record.clipped_parameters"),
    )
    caption = (
        "One run of each k. The optimizer holds, and gradient clipping counts, the trainable parameters and no others."
    )
    if any(audit.merged for audit in audits.values()):
        caption += " Of merged matrices, low-rank updates were trained and added to the weights."
    if any(audit.phases for audit in audits.values()):
        caption += " Of each phase: what has other values at its end than at its start."
    return ReportTable("audit", "Audit", caption, columns, tuple(rows))


def _parts(places: Iterable[str]) -> str:
    """Places of the model as text, such as ``layers 4 to 6, head``."""
    parts, layers = list[str](), list[int]()
    for place in places:
        number = layer_number(place)
        if number is None:
            parts.append(place)
        else:
            layers.append(number)
    if layers:
        spans = [f"{first + 1} to {last + 1}" if last > first else str(first + 1) for first, last in ranges(layers)]
        text = f"layer{'s' if len(layers) > 1 else ''} {' and '.join(spans)}"
        parts.insert(1 if parts[:1] == [EMBEDDINGS] else 0, text)
    return ", ".join(parts)


def splits_table(data: DataRecord) -> ReportTable:
    """Examples by split, with what the data checks counted."""
    report, splits = data.report, data.report.splits

    count = formatting.count
    columns = (
        Column("split", "split", of=str, number=False),
        Column("rows", "examples", count, of=lambda name: splits[name].rows),
        Column("characters_median", "characters,\nmedian", count, of=lambda name: splits[name].characters.median),
        Column(
            "characters_percentile_95",
            "characters,\n95th percentile",
            count,
            of=lambda name: splits[name].characters.percentile_95,
        ),
        Column("truncated", "truncated", formatting.percent, of=data.truncated.get),
        Column("repeated", "duplicates in\nthe split", count, of=lambda name: report.repeated.get(name, 0)),
        Column("in_train", "also in\ntrain", count, of=lambda name: report.shared.get(f"train/{name}")),
        Column("empty_texts", "empty\ntexts", count, of=lambda name: splits[name].empty_texts),
    )
    caption = f"An example is truncated if it has more than {data.max_length} tokens."
    return ReportTable("splits", "Examples by split", caption, columns, tuple(map(Row, splits)))


def classes_table(data: DataRecord, labels: Sequence[str], task_type: str) -> ReportTable:
    """Examples by class or label in each split, or words by tag."""
    splits = data.report.splits
    units, label = {TOKENS: ("words", "tag"), MULTI_LABEL: ("examples", "label")}.get(task_type, ("examples", "class"))

    def column(split: str) -> Column:
        counts = splits[split].label_counts
        whole = splits[split].rows if task_type == MULTI_LABEL else sum(counts.values())

        def share(name: str) -> list[str]:
            return [formatting.percent(counts.get(name, 0) / whole)] if whole else []

        return Column(f"rows_{split}", split, formatting.count, of=lambda name: counts.get(name, 0), small=share)

    columns = (
        Column("class", label, of=str, number=False, rank="place", user_text="value"),
        *map(column, splits),
        Column("truncated", "truncated in train", formatting.percent, of=data.truncated_by_class.get),
    )
    caption = f"The number of {units}, with its share of the split."
    title = f"{capitalized(units)} by {label}"
    return ReportTable("classes", title, caption, columns, tuple(map(Row, labels)), style="classes")


def class_scores_table(
    classes: Sequence[ClassScores],
    runs: int,
    task_type: str,
    mark: str,
    threshold: Threshold | None = None,
) -> ReportTable:
    """Precision, recall and F1 of each class over the ``runs`` of the chosen k; ``classes`` is that of answer.json.

    ``mark`` is what the page calls this k.

    For token classification, these are types of entities, or plain tags. If a text can have any number of labels, each of them
    may have a saved threshold.
    """
    label, unit = COUNTED.get(task_type, ("class", "examples"))

    def spread(name: str) -> Callable[[Any], Ends]:
        return lambda one: (getattr(one, name).low, getattr(one, name).high) if runs > 1 else (None, None)

    own = []
    if threshold and (limits := threshold.by_label):
        own = [Column("threshold", "saved\nthreshold", formatting.threshold, of=lambda one: limits.get(one.label))]
    columns = (
        Column("class", label, of=lambda one: str(one.label), number=False, rank="place", user_text="value"),
        Column("examples", f"validation\n{unit}", formatting.count),
        *(
            Column(name, names.metric(name), formatting.score, of=f"{name}.estimate", ends=spread(name))
            for name in SCORES
        ),
        *own,
    )
    caption = f"Of the model that is {mark}, from the predictions of its only run."
    if runs > 1:
        caption = f"Of the k that is {mark}, from the predictions of its {runs} runs together; below: lowest to highest of a run."
    if threshold:
        caption += " These scores are at the threshold 0.5."
    caption += f" A {label} that is never predicted has no precision ({formatting.UNKNOWN})."
    rows = tuple(map(Row, classes))
    return ReportTable("class_scores", f"Scores by {label}", caption, columns, rows, style="classes")


def threshold_table(threshold: Threshold) -> ReportTable:
    """The scores at the threshold 0.5 and at the saved one, or those of all labels; ``threshold`` is that of answer.json."""
    by_label = threshold.by_label is not None
    saved = "saved" if threshold.threshold is None else formatting.threshold(threshold.threshold)
    titles = {"balanced_accuracy": "balanced\naccuracy", "matthews_correlation": "Matthews\ncorrelation"}

    def read(name: str) -> Read:
        return lambda of: of[1][name]

    columns = (
        Column("threshold", "threshold", of=lambda of: str(of[0]), number=False),
        *(
            Column(name, titles.get(name, names.metric(name)), formatting.score, of=read(name))
            for name in threshold.at_half
        ),
    )
    caption = "Of the saved run."
    if not by_label:
        caption = f"Precision, recall and F1 are those of the class {quoted(threshold.label)}."
    if threshold.metric:
        caption += (
            f" The second row is cross-fitted: in each of {FOLDS} parts of the validation examples, the threshold is chosen "
            "on the other parts."
        )
    rows = (Row(("0.5", threshold.at_half)), Row((saved, threshold.cross_fitted), chosen=True))
    return ReportTable("threshold", "Scores at the threshold", caption, columns, rows, sortable=False)
