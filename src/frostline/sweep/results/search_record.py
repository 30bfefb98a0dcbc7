"""What a search for an answer did and decided, kept beside its runs."""

import json
from collections.abc import Iterable, Mapping, Sequence, Set
from pathlib import Path
from typing import Any

from frostline.data.files import write_json

FILE = "search.json"
# The keys that are read elsewhere.
READ = {
    *("train_size", "named", "looks", "by_probe", "lacks", "awaits", "over"),
    *("skipped", "operations", "chosen_rates", "asked", "given_up", "steps", "probes"),
}
PROBE = "probe"  # folder of the probe that a search ended with


def write_search(out: Path, facts: Mapping[str, Any]) -> None:
    """Write down every step so far, and the verdict (None while it goes on)."""
    write_json(out / FILE, facts)


def request_again(out: Path, runs: Set[str]) -> None:
    """Runs that a search has given up are asked for by somebody else."""
    search = read_search(out)
    if search and runs & set(search["given_up"]):
        write_search(out, {**search, "given_up": sorted(set(search["given_up"]) - runs)})


def chosen_rates(search: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """The rate at which a search compared each k, of those of which nobody has tried others since."""

    def by_k(runs: Iterable[Mapping[str, Any]]) -> dict[str, set[float]]:
        rates: dict[str, set[float]] = {}
        for run in runs:
            rates.setdefault(run["trainable"], set()).add(run["learning_rate"])
        return rates

    tried = by_k(run for step in search["steps"] for run in step["runs"])
    known = by_k(row for row in rows if row["status"] == "done")
    return {k: rate for k, rate in search["chosen_rates"].items() if known.get(k, set()) <= tried.get(k, set())}


def has_probe(out: Path) -> bool:
    """Whether the folder of a search holds a probe that ``frostline predict`` takes."""
    return (out / PROBE / "probe.json").is_file()


def read_search(out: Path) -> dict[str, Any] | None:
    """What was written down; None where the folder is a plain sweep's, or the file is damaged or lacks something."""
    try:
        facts = json.loads((out / FILE).read_bytes())
    except (OSError, ValueError):
        return None
    return facts if isinstance(facts, dict) and facts.keys() >= READ else None
