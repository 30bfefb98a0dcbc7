"""Prints the answer of a sweep or a search, on one screen of a terminal: 25 lines of 80 characters."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import typer

from frostline.cli.choices_table import CHOSEN, DOMINATED, Line, choices_table, why_points_differ
from frostline.cli.printing import wrapped
from frostline.cli.program import FAILED_RUNS, runs_saved
from frostline.data.wording import harmless, unchecked

LINES, MIN_ROWS = 25, 4


@runs_saved()
def run_and_print(sweep: Any, **options: Any) -> None:
    """Run a sweep with these options and print its answer."""
    print_answer(sweep.run(**options), sweep.out)


def print_answer(answer: dict[str, Any], out: Path) -> None:
    """Print the answer, the choices, and what to do next. Exits with code 1 if a run ended in an error."""
    for line in answer_lines(answer, out):
        styled = {CHOSEN: {"bold": True}, DOMINATED: {"dim": True}}.get(line.kind, {})
        text = harmless(line.text)
        # echo removes colours for a file or pipe
        typer.echo(typer.style(text, **styled) if styled else text, file=unchecked(sys.stdout))
    if answer["runs"]["failed"]:
        sys.exit(FAILED_RUNS)


def answer_lines(answer: Mapping[str, Any], out: Path) -> list[Line]:
    """The printed lines of an answer. Only the table of choices is shortened, so that all fit on a screen.

    Args:
        answer: The answer.
        out: The folder of the sweep.
    """
    before = [*_sentences(answer), "", *wrapped(_about(answer))]
    after = ["", *_next_steps(answer, out), *_failures(answer, out)]
    rows = max(MIN_ROWS, LINES - len(before) - len(after) - 1)
    return [*map(Line, before), *choices_table(answer["sizes"][0], rows), *map(Line, after)]


def _sentences(answer: Mapping[str, Any]) -> list[str]:
    """The answer, why a search ended, the scores on test, and what a saved temperature and threshold change."""
    from frostline.report.answer.output_sentences import is_saved, output_sentences
    from frostline.report.answer.scores_on_test import sentences_on_test
    from frostline.report.next_steps import sentence_without_command

    first, text = answer["sizes"][0], sentence_without_command(answer)
    why = answer["search"] and answer["search"]["why"]
    on_test = sentences_on_test(first, answer["metric"])[:2] if answer["tested"] else []
    outputs = " ".join(output_sentences(answer)) if is_saved(answer) else ""
    parts = [text, why if why and why not in text else "", " ".join(on_test), outputs]
    return [line for part in parts if part for line in wrapped(part)]


def _about(answer: Mapping[str, Any]) -> str:
    """What the table is about."""
    from frostline.report import names

    size, baseline = answer["sizes"][0], names.baseline(answer["metric"])
    folds = f"; each seed is scored on one of {size['folds']} folds" if size.get("folds") else ""
    about = (
        f"{answer['task']}, {size['train_size']:,} examples, {names.metric(answer['metric'])} on "
        f"{answer['validation_rows']:,} validation examples{folds} ({baseline} {answer['baseline']:.3f})"
    )
    remark = why_points_differ(size)
    return f"{about}. {remark}" if remark else about


def _next_steps(answer: Mapping[str, Any], out: Path) -> list[str]:
    """The command that would make the answer surer, the files, and how to load the model. They are never wrapped."""
    from frostline.report.next_steps import loading, next_command, training_time

    command, time, lines = next_command(answer), training_time(answer), loading(answer, out / "model")
    steps = {
        "To be surer": [command, *([f"({time})"] if time else [])] if command else [],
        "Report": [str(out / "report.html")],
        "Model": [f"{out / 'model'}{_doubt(answer)}"] if lines else [],
        "Load": lines.splitlines() if lines else [],
    }
    return [f"{name if n == 0 else '':<13}{line}" for name, some in steps.items() for n, line in enumerate(some)]


def _doubt(answer: Mapping[str, Any]) -> str:
    """What to know before the saved model is used; empty if nothing speaks against it."""
    from frostline.report import names

    unsure = answer["decision"] and answer["decision"]["above_baseline"] is False
    return f" (not shown to be above the {names.baseline(answer['metric'])})" if unsure else ""


def _failures(answer: Mapping[str, Any], out: Path) -> list[str]:
    """The numbers of runs that failed, ended in an error or are missing; empty if every run succeeded."""
    from frostline.report.pages.sentences import trouble

    text = trouble(answer["runs"], answer["unusable_runs"])
    if answer["runs"]["failed"]:
        text = f"{text} `frostline status {out}` gives the reason; the same command tries again."
    return wrapped(text) if text else []
