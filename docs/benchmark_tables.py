"""Write docs/benchmarks/tables/NAME.md from every benchmarks/results/NAME.json.

    python docs/benchmark_tables.py

A result file holds the question, the command, the date (UTC), the machine, the finished tables and the raw figures behind
them; ``benchmarks/measuring.py`` writes it. Pages include the generated files, so no figure is typed by hand.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parent
RESULTS = DOCS.parent / "benchmarks" / "results"
TABLES = DOCS / "benchmarks" / "tables"


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(escaped(cell) for cell in line)} |" for line in lines)


def escaped(cell: object) -> str:
    return str(cell).replace("|", "\\|")


def section(result: dict[str, Any]) -> str:
    """Tables first, then what was run, on what and when."""
    parts = [f"{table['caption']}\n\n{markdown(table['header'], table['rows'])}" for table in result["tables"]]
    machine = ", ".join(f"{name} {value}" for name, value in result["machine"].items())
    parts.append(f"*Measured {result['date']} on: {machine}.*\n\n```console\n$ {result['command']}\n```")
    return "\n\n".join(parts) + "\n"


def main() -> None:
    TABLES.mkdir(parents=True, exist_ok=True)
    for path in sorted(RESULTS.glob("*.json")):
        result = json.loads(path.read_text(encoding="utf-8"))
        (TABLES / f"{path.stem}.md").write_text(section(result), encoding="utf-8")


if __name__ == "__main__":
    main()
