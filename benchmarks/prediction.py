"""How accurate is the forecast of a plan? Predicted and measured seconds, by k and in total, over several repetitions.

    python benchmarks/prediction.py --repetitions 3 --json FILE --model FOLDER --train FILE --validation FILE --tune 0,2,full

Each repetition is a new process that makes a plan and then runs the sweep. Its cache is empty, so the forward pass over the
frozen layers is measured too. The settings are those of `frostline sweep` without --out. Do not use the machine for anything else
meanwhile. The goal is an error of at most 20 % for the total and 30 % for each k.
"""

import argparse
import json
import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

from measuring import printed_by, settings_of

import frostline

WITHIN = {"total": 0.20, "cell": 0.30}


def once(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Make a plan and run the sweep; returns the predicted and the measured seconds of every part."""

    from frostline.sweeps.progress import Progress
    from frostline.sweeps.results.folder import Folder
    from frostline.sweeps.results.forecast_record import recorded

    with tempfile.TemporaryDirectory() as folder:
        sweep = dict(progress=Progress(), **settings, out=Path(folder) / "o")
        begun = perf_counter()
        forecast = frostline.plan(**sweep).forecast
        planned = perf_counter() - begun
        if forecast is None:
            raise SystemExit("No step could be timed, so nothing is predicted.")
        frostline.sweep(save_model=False, **sweep)
        (call,) = recorded(sweep["out"])
        runs, results = Folder(sweep["out"]).runs, Folder(sweep["out"]).store.results()
    parts: list[dict[str, Any]] = []
    for cell in call.cells:
        costs = [results[run.digest].cost for run in runs if run.kind == cell.kind]
        parts.append(
            {
                **{"part": cell.recipe, "train_size": cell.train_size, "kind": "cell"},
                **{"predicted": cell.seconds, "measured": statistics.mean(c.run_seconds for c in costs)},
                "predicted_bytes": cell.memory_bytes,
                "measured_bytes": max(c.peak_memory_bytes for c in costs),
            }
        )
    for kind, key in (("pass", "forward_pass_seconds"), ("total", "seconds")):
        both = {"predicted": getattr(call.predicted, key), "measured": getattr(call.measured, key)}
        parts.append({"part": kind, "train_size": None, "kind": kind, **both})
    return {"parts": parts, "plan_seconds": planned, "trainer": forecast.trainer_seconds}


def show(repetitions: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Print the ratio predicted / measured of every part in each repetition; returns the rows."""
    rows = []
    print(f"{'part':<9}{'examples':>9}{'predicted':>11}{'measured':>10}  predicted / measured (each repetition, worst)")
    for same in zip(*(one["parts"] for one in repetitions), strict=True):
        ratios = [part["predicted"] / part["measured"] if part["measured"] else None for part in same]
        known = [ratio for ratio in ratios if ratio]
        worst = max(known, key=lambda ratio: abs(ratio - 1), default=None)
        limit = WITHIN.get(same[0]["kind"])
        missed = limit is not None and worst is not None and abs(worst - 1) > limit
        predicted, measured = (statistics.median(part[name] for part in same) for name in ("predicted", "measured"))
        print(
            f"{same[0]['part']:<9}{same[0]['train_size'] or '':>9}{predicted:>11.2f}{measured:>10.2f}  "
            + " ".join("-" if ratio is None else f"{ratio:.2f}" for ratio in ratios)
            + (f"  {worst:.2f}{' MISSED' if missed else ''}" if worst else ""),
            flush=True,
        )
        rows.append({**same[0], "predicted": predicted, "measured": measured, "ratios": ratios, "missed": missed})
    print(f"seconds that the plan took: {', '.join(format(one['plan_seconds'], '.1f') for one in repetitions)}")
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--json", type=Path, help="where to write the measurements")
    parser.add_argument("--once", action="store_true", help=argparse.SUPPRESS)
    known, rest = parser.parse_known_args()
    if known.once:
        print(json.dumps(once(settings_of(rest))))
        return
    repetitions = []
    for _ in range(known.repetitions):
        with tempfile.TemporaryDirectory() as cache:
            repetitions.append(printed_by([sys.executable, __file__, "--once", *rest], HF_ASSETS_CACHE=cache))
    rows = show(repetitions)
    if known.json:
        known.json.write_text(
            json.dumps({"settings": settings_of(rest), "rows": rows, "repetitions": repetitions}, indent=1)
        )


if __name__ == "__main__":
    main()
