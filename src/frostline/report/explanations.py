"""Sentences beside the answer: what failed, what follows, and how to load the model."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from frostline.data.checks import DataReport
from frostline.data.kinds import CLASSIFICATION, MULTI_LABEL, TOKENS
from frostline.data.wording import counted, duration, quoted
from frostline.report import formatting
from frostline.report.answer.next_command import SAME_COMMAND, nothing_learned
from frostline.report.answer.recommended_classes import is_saved
from frostline.statistics.answer import Answer
from frostline.statistics.metrics import scored_rows
from frostline.statistics.predictions import Labelled
from frostline.training.result import Provenance


def headline(sentence: str) -> tuple[str, str]:
    """The first sentence, and the rest."""
    text = formatting.unbroken(sentence)
    head, stop, rest = text.partition(". ")
    return (f"{head}.", rest) if stop else (head, "")


def trouble(answer: Answer) -> str | None:
    """The numbers of runs that have no usable score, ended in an error, or have no result; None if every run succeeded."""
    counts, unusable, parts = answer.runs, answer.unusable_runs, []
    if unusable:
        parts.append(
            f"{unusable} of {counts.done} finished runs failed (diverged, collapsed, or predict the same for all examples)"
        )
    if undefined := sum(rate.failures.undefined for rate in answer.rates):
        have = counted(undefined, "run has", "runs have")
        parts.append(f"{have} no score: the metric is not defined on validation examples with equal numbers")
    if counts.failed:
        parts.append(f"{counted(counts.failed, 'run')} ended in an error")
    if counts.pending:
        parts.append(f"{counted(counts.pending, 'run')} not trained yet")
    return f"{'; '.join(parts)}." if parts else None


def machines(provenances: Sequence[Provenance]) -> dict[str, str]:
    """The machine and versions of the runs. If runs differ, each value has its number of runs."""
    found: dict[str, dict[str, int]] = {}
    for provenance in provenances:
        for name, value in provenance.model_dump().items():
            if name not in ("cut", "from_cache", "continued_after"):
                counts = found.setdefault(name, {})
                counts[str(value)] = counts.get(str(value), 0) + 1
    return {
        name.replace("_", " "): next(iter(counts))
        if len(counts) == 1
        else ", ".join(f"{value} ({count} runs)" for value, count in sorted(counts.items()))
        for name, counts in found.items()
    }


def next_command(answer: Answer) -> str | None:
    """The step that would make the answer surer; None if there is none, or while runs are pending."""
    return None if answer.runs.pending else answer.next_command


def next_title(answer: Answer) -> str:
    """What the step is called: where nothing was learned, no answer can become surer."""
    return "Next step" if nothing_learned(answer.sizes[0]) else "To be surer"


def training_time(answer: Answer) -> str | None:
    """How long that step trains; None if that is unknown."""
    return f"about {duration(answer.next_seconds)} of training" if answer.next_seconds else None


MANY_SHARED = 0.05  # of the validation texts
OFF_SCALE = 0.25  # R² that numbers lose by an offset of half a standard deviation of the labels
RARE = 1 / 3  # of an even share of the examples; accuracy hardly depends on a class that is rarer


def unbalanced(split: Labelled, *, weighted: bool) -> str:
    """A sentence on what accuracy hides if a class is rare; ``weighted``: whether the loss has class weights."""
    if split.metric != "accuracy" or split.task_type != CLASSIFICATION or not len(split.targets):
        return ""
    shares = np.bincount(split.targets, minlength=len(split.labels)) / len(split.targets)
    if shares.min() >= RARE / len(split.labels):
        return ""
    rare = (
        f"{100 * shares.min():.0f} % of the validation examples have the label {quoted(split.labels[shares.argmin()])}"
    )
    weights = "" if weighted else ", and --class-weights balanced trains so"
    hidden = f"accuracy {shares.max():.3f} needs none of them right"
    return f" Only {rare}: {hidden}. --metric f1_macro counts every class alike{weights}."


def off_scale(split: Labelled, numbers: NDArray[Any], *, standardized: bool) -> str:
    """A sentence if the predicted ``numbers``, ``[rows, 1]``, miss the scale of the labels; else empty.

    A correlation does not see it: a model that was trained for few steps has not reached it yet. ``standardized``: whether the
    head has learned numbers of one scale.
    """
    rows = np.flatnonzero(scored_rows(numbers))
    found, pearson = (replace(split, metric=name).score(numbers, rows) for name in ("r2", "pearson"))
    if not (possible := max(pearson, 0.0) ** 2) - found > OFF_SCALE:
        return ""
    remedy = "Train with more epochs or another learning rate" if standardized else "Leave --no-standardize-targets out"
    return (
        f" The predicted numbers miss the scale of the labels: R² is {formatting.score(found)} on validation, and would be "
        f"{formatting.score(possible)} with another offset and scale. {remedy}, "
        "or use only their order."
    )


def not_by_pipeline(answer: Answer) -> str:
    """A sentence if transformers' ``pipeline`` does not open a model such as the recommended one; else empty."""
    if answer.opened_by == "transformers" or (answer.sizes[0].recommended is None and answer.decision is None):
        return ""
    other = "" if answer.opened_by == "frostline" else f" or {answer.opened_by}"
    return f" The model opens with frostline{other}, not with transformers' `pipeline`."


def in_train(report: DataReport) -> str:
    """A sentence if many validation texts are also in train; else empty."""
    shared = report.shared.get("train/validation", 0)  # none with folds
    share = shared / report.splits["validation"].rows if shared else 0.0
    if share < MANY_SHARED:
        return ""
    return f" Of the validation texts, {100 * share:.0f} % are also in train, so all scores are too high."


def advice(answer: Answer) -> str:
    """The step as a sentence; empty if there is none."""
    step, time = next_command(answer), training_time(answer)
    shown = f"`{step}`" if step and not step.startswith(SAME_COMMAND) else step
    return f" {next_title(answer)}{f', with {time}' if time else ''}: {shown}." if step else ""


def sentence_without_command(answer: Answer) -> str:
    """The answer without its last advice, for a published card, and where the step stands on a line of its own."""
    return str(answer.sentence).replace(advice(answer), "")


def refit_sentence(answer: Answer) -> str:
    """What the saved model and the runs with scores were trained on, if it was trained once more; else empty."""
    if answer.refit_rows is None:
        return ""
    without = " except the test set" if "test" in answer.data["report"]["splits"] else ""
    own = "Scores, temperature and threshold" if is_saved(answer) else "Scores"
    trained = f"The saved model was trained once more, on all {answer.refit_rows:,} labelled rows{without}."
    return (
        f"{trained} {own} are those of the validated runs, which had {answer.sizes[0].train_size:,} training examples."
    )


def loading(answer: Answer, folder: Path) -> str | None:
    """Three lines of Python that load what is recommended and classify a text; None if nothing is recommended.

    A fine-tuned model with the head of its type is loaded by transformers. Everything else is loaded by frostline: another
    head, a model of an estimator, or a model with a temperature or a threshold, which transformers would ignore.

    Args:
        answer: The answer.
        folder: Of the saved model.
    """
    recommended, decision = answer.sizes[0].recommended, answer.decision
    if recommended is None and decision is None:
        return None
    name, pair = json.dumps(str(folder), ensure_ascii=False), bool((answer.columns or {}).get("text_pair"))
    if answer.opened_by == "transformers" and recommended and not is_saved(answer):
        if answer.task_type == TOKENS:
            return (
                "from transformers import pipeline\n"
                f'tag = pipeline("token-classification", {name}, aggregation_strategy="simple")\n'
                'print(tag("A sentence."))'
            )
        text = '{"text": "A text.", "text_pair": "Its pair."}' if pair else '"A text."'
        every = ', top_k=None, function_to_apply="sigmoid"' if answer.task_type == MULTI_LABEL else ""
        return (
            "from transformers import pipeline\n"
            f'classify = pipeline("text-classification", {name}{every})\n'
            f"print(classify({text}, truncation=True))"
        )
    texts = 'pandas.DataFrame({"text": ["A text."], "text_pair": ["Its pair."]})' if pair else '["A text."]'
    if answer.task_type == TOKENS:
        texts = '[["A", "sentence"]]'
    return f"import frostline{', pandas' if pair else ''}\nfound = frostline.predict({name}, {texts})\nprint(*found.rows())"
