"""Prints the answer of a sweep or a search."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from frostline.cli.printing import print_table, size_of
from frostline.cli.program import FAILED_RUNS


def run_and_print(sweep: Any) -> None:
    """Run a sweep and print its answer."""
    print_answer(sweep.run(), sweep.out)


def print_answer(answer: dict[str, Any], out: Path) -> None:
    """Print the table, the answer and the paths of the files. Exits with code 1 if a run ended in an error."""
    largest = answer["sizes"][0]
    print(
        f"{answer['task']}, {largest['train_size']:,} examples, {answer['metric']} on {answer['validation_rows']:,} "
        f"validation examples (constant baseline {answer['chance']:.3f})"
    )
    full = "full" if largest["reference_is_full"] or not largest["reference"] else largest["reference"]
    rows = [_answer_row(cell, full) for cell in largest["cells"]]
    print_table(rows, tuple(rows[0]))
    print(f"\n{answer['sentence']}")
    why = answer["search"] and answer["search"]["why"]
    if why and why not in answer["sentence"]:
        print(why)
    if answer["tested"] and largest["recommended"]:
        from frostline.report.answer.scores_on_test import sentences_on_test

        print(" ".join(sentences_on_test(largest, answer["metric"])))
    _print_files(answer, out)
    if failed := answer["runs"]["failed"]:
        print(
            f"{failed} {'run' if failed == 1 else 'runs'} ended in an error; `frostline status {out}` gives the reason, and "
            "the same command tries again."
        )
        sys.exit(FAILED_RUNS)


def _print_files(answer: Mapping[str, Any], out: Path) -> None:
    """Print the paths of the report and of the saved model."""
    print(f"\n{out / 'report.html'}")
    if answer["decision"]:
        print(out / "model")


def _answer_row(cell: Mapping[str, Any], full: str) -> dict[str, Any]:
    """A cell of the curve as a row of the table."""
    return {
        "tune": cell["trainable"],
        "learning rate": f"{cell['learning_rate']:g}",
        "runs": cell["runs"],
        **{name: cell["validation"][name] for name in ("mean", "median", "std", "min", "max")},
        f"% of {full}": _share(cell["share"]),
        "% of gain": _share(cell["share_corrected"]),
        "parameters": cell["trainable_parameters"],
        "seconds": None if cell["seconds"] is None else f"{cell['seconds']:.2g}",
        "+ shared": None if cell["seconds"] is None else f"{cell['shared_seconds']:.2g}",
        "memory": cell["peak_memory_bytes"] and size_of(cell["peak_memory_bytes"]),
        "failed": cell["failures"]["failed"] + cell["errors"],
    }


def _share(share: Mapping[str, float | None] | None) -> str:
    """A share of full in percent with its interval; a dash if it is undefined."""
    if share is None or share["estimate"] is None:
        return "-"
    low, high = share["low"], share["high"]
    interval = "" if low is None or high is None else f" ({100 * low:.0f} to {100 * high:.0f})"
    return f"{100 * share['estimate']:.1f}{interval}"
