"""frostline's side of every comparison: the real ``frostline sweep`` in a process of its own, with an empty cache."""

import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from measuring import Facts, flags_of, timed

from frostline.statistics.recipe import Recipe
from frostline.sweeps.results.folder import Folder


def sweep(settings: Mapping[str, str], work: Path) -> tuple[float, list[Facts]]:
    """Run a sweep; returns the seconds of the whole command and the result of every run.

    Raises:
        measuring.Failed: The sweep or one of its runs ended in an error.
    """
    with tempfile.TemporaryDirectory(dir=work) as folder:
        out = Path(folder) / "out"
        command = [sys.executable, "-m", "frostline", "sweep", *flags_of(settings), "--out", str(out)]
        seconds = timed(command, work / "frostline.log", HF_ASSETS_CACHE=str(Path(folder) / "cache"))
        swept = Folder(out)
        shares = {row.run: row.cache_seconds for row in swept.rows}
        return seconds, [
            {**run.model_dump(mode="json"), "cache_seconds": shares[digest]}
            for digest, run in swept.store.results().items()
        ]


def cell(run: Facts) -> Facts:
    """A result as a line of the journal. With several workers, its seconds are its share of the wall-clock time."""
    spec, cost = run["spec"], run["cost"]
    return {
        **{"k": Recipe(spec["recipe"]).short, "seed": spec["seed"], "rate": spec["learning_rate"]},
        **{"score": run["validation_best"], "last": run["validation_last"], "outcome": run["outcome"]},
        **{"training": cost["train_seconds"], "evaluation": cost["evaluation_seconds"], "cache": run["cache_seconds"]},
        "workers": run["provenance"]["workers"],
    }
