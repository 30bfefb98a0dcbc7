"""How long do the commands of frostline take to start, compared with a Python process that does nothing?

python benchmarks/start_up.py
"""

import argparse
import json
import resource
import subprocess
import sys
from pathlib import Path
from time import perf_counter

from measuring import Facts, Spread, alternating, as_json, markdown, spread_text

COMMANDS = {  # arguments of python, and the limit in seconds
    "python": (["-c", "pass"], None),
    "import frostline": (["-c", "import frostline"], 0.3),
    "frostline --help": (["-m", "frostline", "--help"], 0.5),
    "frostline sweep --help": (["-m", "frostline", "sweep", "--help"], 0.5),
}
HEAVY = ("torch", "transformers", "datasets", "matplotlib", "pandas", "numpy")


def seconds(arguments: list[str]) -> tuple[float, float]:
    """Wall-clock seconds, and processor seconds, which other processes affect less."""
    start, before = perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *arguments], stdout=subprocess.DEVNULL, check=True)
    clock, after = perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    return clock, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def loaded(arguments: list[str]) -> list[str]:
    """The heavy libraries that a command imports, as reported by Python."""
    words = subprocess.run([sys.executable, "-X", "importtime", *arguments], capture_output=True, text=True, check=True)
    imported = {line.rpartition("|")[2].strip() for line in words.stderr.splitlines()}
    return sorted(imported.intersection(HEAVY))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=7, help="measurements of every command")
    parser.add_argument("--json", type=Path, metavar="FILE", help="where to write all measurements")
    options = parser.parse_args()
    for arguments, _ in COMMANDS.values():
        seconds(arguments)  # a warm-up reads the files from the disk and compiles them
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in COMMANDS}
    for _, name in alternating(list(COMMANDS), options.repeats):
        taken[name].append(seconds(COMMANDS[name][0]))
    facts: list[Facts] = [
        {
            "command": name,
            "seconds": as_json(Spread.of(clock for clock, _ in taken[name])),
            "processor": as_json(Spread.of(processor for _, processor in taken[name])),
            "limit": limit,
            "loads": loaded(arguments),
        }
        for name, (arguments, limit) in COMMANDS.items()
    ]
    rows = [_row(fact) for fact in facts]
    print(markdown(("command", "seconds", "processor seconds", "limit", "met", "heavy libraries loaded"), rows))
    if options.json:
        options.json.write_text(json.dumps(facts, indent=1) + "\n")
    sys.exit(any("NO" in row or row[-1] != "none" for row in rows))


def _row(fact: Facts) -> tuple[str, ...]:
    limit = fact["limit"]
    met = "" if limit is None else "yes" if fact["seconds"]["median"] <= limit else "NO"
    loads = ", ".join(fact["loads"]) or "none"
    taken = [spread_text(fact[name], ".3f") for name in ("seconds", "processor")]
    return fact["command"], *taken, "" if limit is None else f"{limit:g}", met, loads


if __name__ == "__main__":
    main()
