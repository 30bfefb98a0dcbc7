"""What a search for an answer did and decided, kept beside its runs."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from frostline.sweep.store import write_facts

FILE = "search.json"
PROBE = "probe"  # folder of the probe that a search ended with


def write_search(out: Path, facts: Mapping[str, Any]) -> None:
    """Write down every step so far, and the verdict (None while it goes on)."""
    write_facts(out / FILE, facts)


def read_search(out: Path) -> dict[str, Any] | None:
    """What was written down; None where the folder is a plain sweep's, or the file is damaged."""
    try:
        facts = json.loads((out / FILE).read_bytes())
    except (OSError, ValueError):
        return None
    return facts if isinstance(facts, dict) and "chosen_rates" in facts else None
