"""Prints the answer of a sweep or a search, on one screen of a terminal: 25 lines of 80 characters.

The table of choices on the terminal: the recommended one, full fine-tuning, and what lies around them.
"""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import typer

from frostline.cli.program import FAILED_RUNS
from frostline.data.wording import harmless, unchecked
from frostline.report import formatting
from frostline.report.plain_text import aligned, wrapped

if TYPE_CHECKING:
    from frostline.statistics.answer import Answer, ModelsAnswer, SizeAnswer

CHOSEN, DOMINATED = "chosen", "dominated"


def choices_table(size: "SizeAnswer", rows: int) -> list[tuple[str, str]]:
    """A header and at most this many rows, each with its kind: ``chosen``, ``dominated`` or an empty string.

    They are at most 80 characters wide unless a name is long.

    If there are more choices than rows, the least interesting ones are left out, and the last row counts them.

    Args:
        size: One train size of an answer.
        rows: At least 4.
    """
    from frostline.report.names import mark_of_choice, whole

    choices: Sequence[Any] = size.choices
    if not choices:  # an answer without a decision: only scores are known
        unknown = dict.fromkeys(("below_full", "low", "high", "cost_of_full", "probability", "value", "dominated_by"))
        choices = [SimpleNamespace(choice=cell.recipe, expected=cell.validation.mean, **unknown) for cell in size.cells]
    decision, shown = size.decision, choices
    chosen = decision.choice if decision else None
    if len(choices) > rows:
        first = by_interest(choices, chosen, size.reference)[: rows - 1]
        shown = [choice for choice in choices if choice.choice in first]
    reference = "full" if size.reference_is_full else size.reference or "the best"
    of = whole(size)
    layers = "cost" if "epoch" in of else "layers" if of == "all layers" else f"of {reference}"
    score = "expected" if size.choices else "score"
    head = ("", "choice", score, "seeds", f"points below {reference}", layers, "sure", "")
    known = {str(cell.recipe): str(cell.validation.n) for cell in size.cells if cell.validation.n}
    known = known if len(set(known.values())) > 1 else {}
    kinds = [CHOSEN if one.choice == chosen else DOMINATED if one.dominated_by else "" for one in shown]
    marks = {CHOSEN: mark_of_choice(decision) if decision else "", DOMINATED: DOMINATED, "": ""}
    table = [(*_row(one, chosen, size.reference, known), marks[kind]) for one, kind in zip(shown, kinds, strict=True)]
    columns = [
        one for one in zip(head, *table, strict=True) if any(one[1:]) or one[0] == "choice"
    ]  # not those without cells
    lines = aligned([*zip(*columns, strict=True)], [name in ("", "choice") for name, *_ in columns])
    left_out = len(choices) - len(shown)
    more = [(f"  … {left_out} more in the report", "")] if left_out else []
    return [*zip(lines, ["", *kinds], strict=True), *more]


def by_interest(choices: Sequence[Any], chosen: str | None, reference: str | None) -> list[str]:
    """The names of all choices, the most interesting ones first.

    The recommended choice and full fine-tuning come first, then the second highest value, the best score, and the neighbours of
    the recommended choice. All others follow by their distance from it. Those that are dominated come last.
    """
    order = [choice.choice for choice in choices]
    centre = order.index(chosen) if chosen in order else len(order) - 1
    by_score = [one for one in choices if one.expected is not None]
    best = str(max(by_score, key=lambda one: one.expected).choice) if by_score else None
    by_value = [one for one in choices if one.value is not None and one.choice != chosen]
    runner_up = str(max(by_value, key=lambda one: one.value).choice) if by_value else None
    dominated = {choice.choice for choice in choices if choice.dominated_by}
    first = [
        name for name in (chosen, reference, runner_up, best, *order[max(0, centre - 1) : centre + 2]) if name in order
    ]
    others = sorted(order, key=lambda name: (name in dominated, abs(order.index(name) - centre)))
    return list(dict.fromkeys([*first, *others]))


def _row(choice: Any, chosen: str | None, reference: str | None, known: Mapping[str, str]) -> tuple[str, ...]:
    from frostline.report.names import printed

    name, cost, sure = choice.choice, choice.cost_of_full, choice.probability
    below, low, high = (
        ("", "", "")
        if choice.below_full is None
        else map(formatting.points, (choice.below_full, choice.low, choice.high))
    )
    return (
        ">" if name == chosen else "",
        printed(name),
        formatting.score(choice.expected),
        known.get(name, ""),
        "" if name == reference or not below else f"{below} ({low} to {high})",
        "" if cost is None else f"{100 * cost:.0f} %",
        "" if sure is None or name == reference else formatting.short_probability(sure),
    )


LINES, MIN_ROWS = 25, 4


def print_answer(answer: "Answer", out: Path) -> None:
    """Print the answer, the choices, and what to do next. Exits with code 1 if a run ended in an error."""
    for line, kind in answer_lines(answer, out):
        styled = {CHOSEN: {"bold": True}, DOMINATED: {"dim": True}}.get(kind, {})
        text = harmless(line)
        # echo removes colours for a file or pipe
        typer.echo(typer.style(text, **styled) if styled else text, file=unchecked(sys.stdout))
    if answer.runs.failed:
        sys.exit(FAILED_RUNS)


def answer_lines(answer: "Answer", out: Path) -> list[tuple[str, str]]:
    """The printed lines of an answer. Only the table of choices is shortened, so that all fit on a screen.

    Args:
        answer: The answer.
        out: The folder of the sweep.
    """
    from frostline.report.explanations import trouble

    before = [*_sentences(answer), "", *wrapped(_about(answer))]
    text = trouble(answer)
    if answer.runs.failed:
        text = f"{text} `frostline status {out}` gives the reason; the same command tries again."
    after = ["", *_next_steps(answer, out), *(wrapped(text) if text else [])]
    rows = max(MIN_ROWS, LINES - len(before) - len(after) - 1)
    return [*((line, "") for line in before), *choices_table(answer.sizes[0], rows), *((line, "") for line in after)]


def _sentences(answer: "Answer") -> list[str]:
    """The answer, why a search ended, the scores on test, and what a saved temperature and threshold change."""
    from frostline.report.answer.recommended_classes import is_saved, output_sentences
    from frostline.report.answer.scores_on_test import sentences_on_test
    from frostline.report.explanations import refit_sentence, sentence_without_command

    first, text = answer.sizes[0], sentence_without_command(answer)
    why = answer.search and answer.search["why"]
    on_test = sentences_on_test(first, answer.metric)[:2] if answer.tested else []
    outputs = " ".join(output_sentences(answer)) if is_saved(answer) else ""
    parts = [text, why if why and why not in text else "", " ".join(on_test), outputs, refit_sentence(answer)]
    return [line for part in parts if part for line in wrapped(part)]


def _about(answer: "Answer") -> str:
    """What the table is about."""
    from frostline.report import names

    size, baseline = answer.sizes[0], names.baseline(answer.metric)
    folds = f"; each seed is scored on one of {size.folds} folds" if size.folds else ""
    whole = names.whole(size)
    cost = f"; cost: layers times epochs, as a share of {whole}" if size.choices and "epoch" in whole else ""
    return (
        f"{answer.task}, {size.train_size:,} examples, {names.metric(answer.metric)} on "
        f"{answer.validation_rows:,} validation examples ({baseline} {formatting.score(answer.chance)}){folds}{cost}"
    )


def _next_steps(answer: "Answer", out: Path) -> list[str]:
    """The command that would make the answer surer, the files, and how to load the model. They are never wrapped."""
    from frostline.report import names
    from frostline.report.explanations import loading, next_command, next_title, training_time

    command, time, lines = next_command(answer), training_time(answer), loading(answer, out / "model")
    unsure = answer.decision and answer.decision.above_baseline is False
    doubt = f" (not shown to be above the {names.baseline(answer.metric)})" if unsure else ""
    steps = {
        next_title(answer): [command, *([f"({time})"] if time else [])] if command else [],
        "Report": [str(out / "report.html")],
        "Model": [f"{out / 'model'}{doubt}"] if lines else [],
        "Load": lines.splitlines() if lines else [],
    }
    return [f"{name if n == 0 else '':<13}{line}" for name, some in steps.items() for n, line in enumerate(some)]


def print_models(answer: "ModelsAnswer", out: Path) -> None:
    """Print the answer about several models, a line for each, and where the files are."""
    from frostline.report.answer.models_answer import by_value
    from frostline.report.names import baseline, printed

    table = [
        (
            ">" if one.model == answer.recommended else "",
            one.model,
            printed(one.choice) if one.choice else "left out",
            formatting.score(one.expected),
            "" if one.below is None else formatting.points(one.below),
            formatting.operations(one.inference_operations),
            str(one.runs),
        )
        for one in by_value(answer)
    ]
    head = ("", "model", "choice", "expected", "points below", "operations of a prediction", "runs")
    lines = [
        *wrapped(answer.sentence),
        "",
        *aligned([head, *table], [True, True, True, False, False, False, False]),
        "",
    ]
    lines.append(f"{'Report':<13}{out / 'report.html'}")
    if (best := answer.model(answer.recommended)) is not None and (out / "model").is_dir():
        doubt = f" (not shown to be above the {baseline(answer.metric)})" if best.above_baseline is False else ""
        lines.append(f"{'Model':<13}{out / 'model'}{doubt}")
    for line in lines:
        typer.echo(harmless(line), file=unchecked(sys.stdout))
