"""Training throughput for several numbers of stacked runs (the setting ``stack`` of a sweep)."""

import sys
from collections.abc import Sequence
from pathlib import Path

from frostline_side import sweep
from measuring import Facts, Failed, Journal, markdown

TUNE = "2"


def measure_stacks(stacks: Sequence[int], settings: dict[str, str], work: Path, journal: Journal) -> None:
    """Measure the same runs with each number. They have one k and as many seeds as the largest stack."""
    done = {line["stack"] for line in journal.lines() if line["kind"] == "stack"}
    rates = settings.get("learning_rate", "5e-5").split(",")
    grid = {**settings, "tune": TUNE, "seeds": str(max(stacks)), "learning_rate": rates[0]}
    for stack in stacks:
        if stack in done:
            continue
        print(f"stack {stack}", file=sys.stderr, flush=True)
        try:
            wall, runs = sweep({**grid, "stack": str(stack)}, work)
        except Failed as error:
            journal.add({"kind": "stack", "stack": stack, "failed": str(error)})
            continue
        texts = sum(run["spec"]["train_size"] * run["spec"]["num_train_epochs"] for run in runs)
        training = sum(run["cost"]["train_seconds"] for run in runs)
        journal.add(
            {"kind": "stack", "stack": stack, "runs": len(runs), "texts": texts, "training": training, "wall": wall}
        )


def stack_table(lines: Sequence[Facts]) -> str:
    """A Markdown table; empty if nothing was measured."""
    stacks = [line for line in lines if line["kind"] == "stack"]
    good = [line for line in stacks if "failed" not in line]
    words = [f"FAILED: stack {line['stack']}: {line['failed']}" for line in stacks if "failed" in line]
    if good:
        header = ("stacked runs", "examples per second", "relative to the first", "whole sweep, s")
        rates = [line["texts"] / line["training"] for line in good]
        rows = [
            (str(line["stack"]), f"{rate:,.0f}", f"{rate / rates[0]:.2f}", f"{line['wall']:.1f}")
            for line, rate in zip(good, rates, strict=True)
        ]
        title = f"k = {TUNE}, {good[0]['runs']} runs; throughput from the training time of the runs:"
        words += [title, "", markdown(header, rows)]
    return "\n".join(words)
