"""The errors of what is recommended on validation: the confusion matrix, and the examples with the largest loss."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray
from scipy.special import log_softmax

from frostline.data.examples import Examples
from frostline.data.kinds import MULTI_LABEL, TOKENS
from frostline.data.tags import OUTSIDE, are_entities, entity_type, entity_types, words_of
from frostline.data.wording import counted
from frostline.report import formatting, names
from frostline.report.answer.recommended_classes import held_out_logits
from frostline.report.figures.drawing import svg
from frostline.report.figures.score_figures import predictions_over_targets
from frostline.report.tables.table import Column, ReportTable, Row
from frostline.statistics.answer import Answer
from frostline.statistics.class_outputs import OUTPUTS
from frostline.statistics.metrics import is_scored, predict, scored_rows
from frostline.sweeps.results.folder import Folder

MAX_CLASSES = 12  # in a confusion matrix
MAX_CHARACTERS = 600  # of a printed text
MAX_EXAMPLES = 10
SHOWN_LABELS = 12  # of the labels that a text has, and of the wrong ones
Logits = NDArray[np.float32]
Part = tuple[str, str, str]


@dataclass(frozen=True)
class WrongExample:
    """A validation example with a wrong prediction, and how large the error is, in words.

    ``parts`` are its labels, each with what is printed before and after it.
    """

    row: int
    text: str
    pair: str | None
    parts: Sequence[Part]
    size: str


@dataclass(frozen=True)
class Errors:
    """The errors of predictions: a sentence that counts them, and the worst examples with their title."""

    summary: str
    title: str
    worst: Sequence[WrongExample]
    confusion: ReportTable | None = None
    scatter: Markup | None = None  # predictions of numbers


def errors_of_recommended(folder: Folder, answer: Answer) -> Errors | None:
    """The errors of what is recommended on the validation examples that it was not trained on; None if no run is recommended.

    With folds, each example counts once, with the prediction of a run that held it out. Probabilities are those of the saved
    model, with its temperature.
    """
    recommended, examples = answer.sizes[0].recommended, folder.split("validation")
    if recommended is None or examples is None:
        return None
    logits, runs = held_out_logits(answer.sizes[0], recommended, folder.predictions)
    if answer.calibration and answer.calibration.saved:
        logits = logits / np.float32(answer.calibration.temperature)
    scored = np.flatnonzero(scored_rows(logits))
    whose = f"seed {recommended.seed}" if runs == 1 else f"{runs} runs, each on examples that it was not trained on"
    made_by = f"{names.tuning(recommended.recipe)}, {whose}{', at the threshold 0.5' if answer.threshold else ''}"
    return errors_of(examples.take(scored), logits[scored], folder.identity.labels, made_by)


def errors_of(examples: Examples, logits: Logits, labels: Sequence[str], made_by: str) -> Errors:
    """The errors of logits ``[n, C]``, of words ``[n, W, C]``, of the runs ``made_by``. Without labels, targets are numbers."""
    if examples.of_words:
        return _of_words(examples, logits, labels, made_by)
    if examples.has_label_sets:
        return _of_label_sets(examples, logits, labels, made_by)
    return _of_classes(examples, logits, labels, made_by) if labels else _of_numbers(examples, logits)


def _of_classes(examples: Examples, logits: Logits, labels: Sequence[str], made_by: str) -> Errors:
    log_p, predicted = log_softmax(logits.astype(np.float64), axis=1), logits.argmax(1)
    targets = examples.targets
    losses = -log_p[np.arange(len(targets)), targets]

    def parts(n: int) -> list[Part]:
        shown = (("label", targets[n]), ("predicted", predicted[n]))
        return [(word, labels[c], f" ({formatting.percent(float(np.exp(log_p[n, c])))})") for word, c in shown]

    wrong = targets != predicted
    return Errors(
        f"{wrong.sum():,} of {len(targets):,} validation examples are misclassified ({made_by}).",
        "Misclassified examples with the largest loss",
        _worst(examples, losses, wrong, parts),
        confusion_table(targets, predicted, labels),
    )


def _of_numbers(examples: Examples, logits: Logits) -> Errors:
    targets, predicted = examples.targets, logits[:, 0]

    def parts(n: int) -> list[Part]:
        return [("label", f"{targets[n]:.4g}", ""), ("predicted", f"{predicted[n]:.4g}", "")]

    worst = _worst(examples, (predicted - targets) ** 2, np.ones(len(targets), np.bool_), parts)
    scatter = Markup(svg(predictions_over_targets(targets, predicted)))
    return Errors("", "Largest residuals", worst, scatter=scatter)


def _of_label_sets(examples: Examples, logits: Logits, labels: Sequence[str], made_by: str) -> Errors:
    """A label is predicted from probability 0.5 on."""
    targets, predicted = examples.targets.astype(np.bool_), predict(logits, MULTI_LABEL)
    probability = OUTPUTS[MULTI_LABEL](logits.astype(np.float64))
    losses = np.logaddexp(0.0, np.where(targets, -logits, logits).astype(np.float64))  # [n, C]
    wrong = targets != predicted

    def parts(n: int) -> list[Part]:
        own = [("label", label, "") for label, has in zip(labels, targets[n], strict=True) if has]
        order = [c for c in np.argsort(-losses[n], kind="stable").tolist() if wrong[n, c]]
        return [
            *(own[:SHOWN_LABELS] or [("no", "label", "")]),
            *(
                (kind(n, c), labels[c], f" ({formatting.percent(float(probability[n, c]))})")
                for c in order[:SHOWN_LABELS]
            ),
        ]

    def kind(n: int, c: int) -> str:
        return "missed" if targets[n, c] else "wrongly predicted"

    missed, extra = int((targets & ~predicted).sum()), int((~targets & predicted).sum())
    return Errors(
        f"{wrong.any(1).sum():,} of {len(examples):,} validation examples have a wrong label ({made_by}): "
        f"{counted(missed, 'label is', 'labels are')} missed and {extra:,} predicted wrongly, where a label is predicted from "
        "probability 0.5 on.",
        "Examples with wrong labels and the largest loss",
        _worst(examples, losses.mean(1), wrong.any(1), parts),
    )


def _of_words(examples: Examples, logits: Logits, labels: Sequence[str], made_by: str) -> Errors:
    """The confusion matrix of words is by type of entity, ``O`` first; of plain tags by tag."""
    targets, predicted = examples.targets, predict(logits, TOKENS)
    scored = is_scored(targets, predicted)
    wrong = scored & (targets != predicted)
    of_entities = are_entities(labels)
    kinds = [OUTSIDE, *entity_types(labels)] if of_entities else list(labels)
    place = np.array([kinds.index((entity_type(tag) or OUTSIDE) if of_entities else tag) for tag in labels])

    def parts(n: int) -> list[Part]:
        words = words_of(examples.texts[n])
        pairs = [
            ((f"{words[w]}:", labels[targets[n, w]], ""), ("predicted", labels[predicted[n, w]], ""))
            for w in np.flatnonzero(wrong[n]).tolist()
        ]
        return [part for pair in pairs for part in pair]

    def size(n: int) -> str:
        return f"{wrong[n].sum()} of {len(words_of(examples.texts[n]))} words are wrong"

    return Errors(
        f"{wrong.sum():,} of {scored.sum():,} words of {len(examples):,} validation examples are misclassified ({made_by}).",
        "Sentences with the most wrong words",
        _worst(examples, wrong.sum(1), wrong.any(1), parts, size),
        confusion_table(place[targets[scored]], place[predicted[scored]], kinds, of_words=True),
    )


def _worst(
    examples: Examples,
    losses: NDArray[Any],
    wrong: NDArray[np.bool_],
    parts: Callable[[int], list[Part]],
    size: Callable[[int], str] | None = None,
) -> list[WrongExample]:
    """The wrong examples with the largest loss, at most :data:`MAX_EXAMPLES`."""

    def shown(text: str) -> str:
        words = " ".join(words_of(text)) if examples.of_words else text
        return words if len(words) <= MAX_CHARACTERS else f"{words[:MAX_CHARACTERS]} … ({len(words):,} characters)"

    return [
        WrongExample(
            row=int(examples.rows[n]),
            text=shown(examples.texts[n]),
            pair=None if examples.pairs is None else shown(examples.pairs[n]),
            parts=parts(n),
            size=size(n) if size else f"loss {losses[n]:.2f}",
        )
        for n in [n for n in np.argsort(-losses, kind="stable").tolist() if wrong[n]][:MAX_EXAMPLES]
    ]


def confusion_table(
    targets: NDArray[Any], predicted: NDArray[Any], labels: Sequence[str], *, of_words: bool = False
) -> ReportTable:
    """Counts by true class (rows) and predicted class (columns); the tint of a count is its share of the true class.

    Of many classes it has the most confused ones, and the sum of the others. With ``of_words``, words are counted by type of
    entity, or by plain tag.
    """
    counts = np.zeros((len(labels), len(labels)), np.int64)  # [C, C]
    np.add.at(counts, (targets, predicted), 1)
    label = "type" if of_words else "class"
    caption = f"A row for each true {label}, a column for each predicted {label}."
    if of_words:
        caption += " The first word of an entity and the words after it count alike."
    alone = len(labels)  # classes with a row of their own
    if alone > MAX_CLASSES:
        wrong = counts - np.diag(np.diag(counts))
        order = np.argsort(-(wrong.sum(0) + wrong.sum(1)), kind="stable")
        shown, others = np.sort(order[: MAX_CLASSES - 2]), order[MAX_CLASSES - 2 :]
        groups: list[list[int]] = [*([n] for n in shown.tolist()), others.tolist()]
        alone = len(shown)
        counts = np.array([[counts[np.ix_(one, two)].sum() for two in groups] for one in groups])
        labels = [*(labels[n] for n in shown), f"{len(others)} others"]
        caption += (
            f" Only the most confused classes are shown; the {len(others)} others are summed, errors among them too."
        )

    def column(m: int) -> Column:
        def shade(n: int) -> tuple[str, float]:
            total = int(counts[n].sum())
            return "right" if n == m < alone else "", float(counts[n, m] / total) if total else 0.0

        count: dict[str, Any] = {"show": formatting.count, "of": lambda n: int(counts[n, m]), "shade": shade}
        return Column(f"predicted {labels[m]}", labels[m], user_text="title", **count)

    columns = (
        Column("true", "true", of=lambda n: labels[n], number=False, user_text="value"),
        *map(column, range(len(labels))),
    )
    rows = tuple(map(Row, range(len(labels))))
    return ReportTable("confusion", "Confusion matrix", caption, columns, rows, sortable=False, style="confusion")
