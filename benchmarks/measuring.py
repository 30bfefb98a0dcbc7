"""What the benchmarks share: timed processes, a journal of measurements, their spread, and tables."""

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

Facts = dict[str, Any]


class Failed(Exception):
    """A process ended in an error. The message has its last lines of output."""


def timed(command: Sequence[str], log: Path, **environment: str) -> float:
    """Run a process and write its output into ``log``; returns the seconds from its start to its exit.

    Raises:
        Failed: Its exit code is not 0.
    """
    start = perf_counter()
    with log.open("wb") as output:
        done = subprocess.run(command, env={**os.environ, **environment}, stdout=output, stderr=subprocess.STDOUT)
    seconds = perf_counter() - start
    if done.returncode:
        last = log.read_text(errors="replace").strip().splitlines()[-3:]
        raise Failed(f"exit code {done.returncode}: {' | '.join(last)}")
    return seconds


def printed_by(command: Sequence[str], **environment: str) -> Facts:
    """Run a process, and return the JSON in the last line that it prints."""
    done = subprocess.run(command, env={**os.environ, **environment}, stdout=subprocess.PIPE, text=True, check=True)
    facts: Facts = json.loads(done.stdout.splitlines()[-1])
    return facts


def warm_up(*modules: str) -> None:
    """Import modules once in another process, so that the first side does not pay for reading them from the disk."""
    subprocess.run([sys.executable, "-c", f"import {', '.join(modules)}"], capture_output=True, check=True)


class Journal:
    """A file of JSON lines, one for each measurement. The first line has the settings."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def begin(self, settings: Mapping[str, Any]) -> None:
        """Start a journal, or continue one with the same settings. Failed measurements are removed, so they are repeated."""
        first = {"kind": "settings", **json.loads(json.dumps(settings))}
        there = self.lines()
        if there and there[0] != first:
            other = [name for name in {*first, *there[0]} if first.get(name) != there[0].get(name)]
            raise SystemExit(
                f"{self.path} has measurements with other settings ({', '.join(sorted(other))}): give another file."
            )
        good = [line for line in there if "failed" not in line] or [first]
        # Writing all lines again also removes the incomplete last line of a killed process.
        aside = self.path.with_name(f"{self.path.name}.new")  # a process that is killed here must not lose the others
        aside.write_text("".join(f"{json.dumps(line)}\n" for line in good))
        aside.replace(self.path)

    def lines(self) -> list[Facts]:
        if not self.path.exists():
            return []
        return [line for text in self.path.read_text().splitlines() if (line := _line(text)) is not None]

    def add(self, *lines: Mapping[str, Any]) -> None:
        """Append lines and sync the file. A killed process hardly ever writes only some of them."""
        with self.path.open("a") as file:
            file.write("".join(f"{json.dumps(line)}\n" for line in lines))
            file.flush()
            os.fsync(file.fileno())


def _line(text: str) -> Facts | None:
    try:
        facts: Facts = json.loads(text)
    except ValueError:
        return None
    return facts


def alternating(sides: Sequence[str], repeats: int) -> Iterable[tuple[int, str]]:
    """Pairs of repeat and side. Each repeat starts with another side, so that no side is always first."""
    for repeat in range(repeats):
        turn = repeat % len(sides)
        yield from ((repeat, side) for side in (*sides[turn:], *sides[:turn]))


@dataclass(frozen=True)
class Spread:
    """The median, the smallest and the largest of ``n`` measurements."""

    median: float
    low: float
    high: float
    n: int

    @classmethod
    def of(cls, values: Iterable[float]) -> "Spread | None":
        known = [float(value) for value in values]
        return cls(float(np.median(known)), min(known), max(known), len(known)) if known else None

    def text(self, form: str = ".2f") -> str:
        """``2.41 [2.30 to 2.55]``, or only ``2.41`` for a single measurement."""
        middle = format(self.median, form)
        return middle if self.n == 1 else f"{middle} [{self.low:{form}} to {self.high:{form}}]"


def spread_text(spread: Mapping[str, Any] | Spread | None, form: str = ".2f") -> str:
    """A spread, or its JSON, as text for a table; a dash if nothing was measured."""
    if spread is None:
        return "-"
    return (spread if isinstance(spread, Spread) else Spread(**spread)).text(form)


def as_json(spread: Spread | None) -> Facts | None:
    """A spread as a dictionary for JSON."""
    return None if spread is None else dict(vars(spread))


def quality(lines: Iterable[Facts]) -> Facts:
    """The mean and standard deviation of scores over seeds, at the best learning rate. Repeats of a seed count once."""
    by_rate: dict[float, dict[int, float]] = {}
    for line in lines:
        if line["score"] is not None:
            by_rate.setdefault(line["rate"], {}).setdefault(line["seed"], line["score"])
    if not by_rate:
        return {"mean": None, "std": None, "seeds": 0, "rate": None}
    rate = max(by_rate, key=lambda one: float(np.mean(list(by_rate[one].values()))))
    scores = list(by_rate[rate].values())
    spread = float(np.std(scores, ddof=1)) if len(scores) > 1 else None
    return {"mean": float(np.mean(scores)), "std": spread, "seeds": len(scores), "rate": rate}


def score_text(side: Facts) -> str:
    """The mean and standard deviation of :func:`quality` as text."""
    if side["mean"] is None:
        return "-"
    return f"{side['mean']:.3f}" + ("" if side["std"] is None else f" ± {side['std']:.3f}")


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table, padded so that it is readable in a terminal."""
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]

    def line(cells: Sequence[str]) -> str:
        return f"| {' | '.join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True))} |"

    rule = f"|{'|'.join('-' * (width + 2) for width in widths)}|"
    return "\n".join([line(header), rule, *map(line, rows)])


def machine() -> Facts:
    """The machine of the measurements, and its load at the start."""
    from frostline.model.device import this_machine

    here = this_machine()
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {**here.facts(), "precision": here.precision, "cores": cores, "load": round(os.getloadavg()[0], 2)}


def write_result(path: Path, question: str, tables: Sequence[Facts], raw: Any) -> None:
    """Write a result file for the documentation, and print its tables. ``docs/benchmark_tables.py`` makes pages from it.

    Args:
        path: A file in ``benchmarks/results``.
        question: What the benchmark asks, in one sentence.
        tables: Each with ``caption``, ``header`` and ``rows`` of text.
        raw: The measurements behind the tables.
    """
    script = Path(sys.argv[0])
    command = " ".join(["python", f"benchmarks/{script.name}", *map(shlex.quote, sys.argv[1:])])
    result = {
        "question": question,
        "command": command,
        "date": f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
        "machine": machine(),
        "tables": list(tables),
        "raw": raw,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    for table in tables:
        print(table["caption"], markdown(table["header"], table["rows"]), sep="\n\n", end="\n\n")


def chosen(names: str, known: Iterable[str], what: str) -> list[str]:
    """The names in a flag, with commas between them. One that is not known ends the script."""
    wanted, known = names.split(","), list(known)
    if unknown := sorted({*wanted} - {*known}):
        raise SystemExit(f"there is no {what} {', '.join(unknown)}: {what}s are {', '.join(known)}")
    return wanted


def settings_of(flags: Sequence[str]) -> dict[str, str]:
    """``--name value`` pairs as settings of a sweep, which checks them later."""
    if len(flags) % 2 or not all(flag.startswith("--") for flag in flags[::2]):
        raise SystemExit(f"settings of a sweep are pairs of --name and value, not {' '.join(flags)}")
    return {flag[2:].replace("-", "_"): value for flag, value in zip(flags[::2], flags[1::2], strict=True)}


def flags_of(settings: Mapping[str, str]) -> list[str]:
    """Settings of a sweep as flags, the inverse of :func:`settings_of`."""
    return [word for name, value in settings.items() for word in (f"--{name.replace('_', '-')}", str(value))]
