"""k = 0 (classifier head only): frostline compared with a frozen sentence encoder and a classifier on its embeddings.

    pip install sentence-transformers setfit
    python benchmarks/versus_probe.py --model FOLDER --train FILE --validation FILE --train-size 1000 --seeds 3

Each side runs in a new process on the same rows:

- ``frostline``: the complete ``frostline sweep --tune 0`` over seeds and learning rates of the head, with its check, report and
  model. It trains the head of the model: for BERT, pooler and classifier on the first token, with dropout.
- ``sentence-transformers``: ``encode`` once, then scikit-learn's LogisticRegression for each seed and four values of C, on the
  output of the encoder (mean of the tokens, normalised if the model does so).
- ``setfit``: SetFit's differentiable head on the frozen body. SetFit runs every batch through the body in every epoch. It trains
  one head for each seed, with as many epochs as frostline and its default learning rate. Texts are padded to the longest one.

The other two run in fp32, their default, and read a file with only the rows that they need. Other flags go to the sweep.
"""

import argparse
import json
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

from frostline_side import cell, sweep
from measuring import (
    Facts,
    Failed,
    Journal,
    Spread,
    alternating,
    as_json,
    chosen,
    machine,
    markdown,
    quality,
    score_text,
    settings_of,
    spread_text,
    timed,
    warm_up,
)
from same_rows import write_task

OURS = "frostline"
SIDES = (OURS, "sentence-transformers", "setfit")
GRID = {
    **{"tune": "0", "train_size": "1000", "seeds": "3", "num_train_epochs": "10", "test": "none"},
    **{"head_learning_rate": "same", "learning_rate": "3e-4,1e-3,3e-3"},
}


def measure(sides: list[str], repeats: int, settings: dict[str, str]) -> Facts:
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        journal = Journal(work / "journal.jsonl")
        journal.begin(settings)
        write_task(settings, work)
        warm_up("torch", "transformers", "sklearn", "pandas", "sentence_transformers")
        facts = machine()
        for repeat, side in alternating(sides, repeats):
            print(f"repeat {repeat + 1} of {repeats}: {side}", file=sys.stderr, flush=True)
            where = {"side": side, "repeat": repeat}
            try:
                _run(where, settings, work, journal)
            except Failed as error:
                journal.add({"kind": "whole", **where, "failed": str(error)})
        return {"machine": facts, "settings": settings, "lines": journal.lines()}


def _run(where: Facts, settings: dict[str, str], work: Path, journal: Journal) -> None:
    if where["side"] == OURS:
        seconds, runs = sweep(settings, work)
        cells = [{"kind": "cell", **where, **cell(run)} for run in runs]
        cells = [{**line, "training": line["training"] + line["evaluation"]} for line in cells]
        journal.add(*cells, {"kind": "pass", **where, "seconds": sum(line["cache"] for line in cells)})
    else:
        command = [sys.executable, str(Path(__file__).with_name("probe_sides.py")), str(work), str(journal.path)]
        command += [where["side"], str(where["repeat"]), settings["num_train_epochs"]]
        seconds = timed(command, work / f"{where['side']}.log")
    journal.add({"kind": "whole", **where, "seconds": seconds})


def summarise(lines: list[Facts]) -> dict[str, Facts]:
    """For each side: wall-clock time, the forward pass over all texts, the seconds of one head, the score."""
    summary = {}
    good = [line for line in lines if "failed" not in line]
    walls = {(line["side"], line["repeat"]): line["seconds"] for line in good if line["kind"] == "whole"}
    for side in dict.fromkeys(side for side, _ in walls):
        own = [line for line in good if line.get("side") == side]
        cells = [line for line in own if line["kind"] == "cell"]
        ratios = [wall / walls[OURS, n] for (one, n), wall in walls.items() if one == side and (OURS, n) in walls]
        summary[side] = {
            "wall": as_json(Spread.of(wall for (one, _), wall in walls.items() if one == side)),
            "wall_ratio": as_json(Spread.of(ratios)),
            "pass": as_json(Spread.of(line["seconds"] for line in own if line["kind"] == "pass")),
            "head": as_json(Spread.of(line["training"] for line in cells)),
            "heads": len(cells) // sum(one == side for one, _ in walls),
            **quality(cells),
        }
    return summary


def table(summary: dict[str, Facts]) -> str:
    header = ("side", "whole, s", "relative to frostline", "forward pass, s", "heads", "one head, s", "score")
    rows = [
        (
            *(side, spread_text(one["wall"], ".1f"), spread_text(one["wall_ratio"]), spread_text(one["pass"])),
            *(str(one["heads"]), spread_text(one["head"], ".3f"), score_text(one)),
        )
        for side, one in summary.items()
    ]
    return markdown(header, rows)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--sides", default=",".join(SIDES), help="sides to run, separated by commas")
    parser.add_argument("--repeats", type=int, default=3, help="measurements of every side")
    parser.add_argument("--json", type=Path, metavar="FILE", help="where to write all measurements")
    options, rest = parser.parse_known_args()
    sides = chosen(options.sides, SIDES, "side")
    for side in sides:
        if find_spec(side.replace("-", "_")) is None:
            sys.exit(f"{side} is not installed: pip install {side}, or leave it out of --sides")
    measured = measure(sides, options.repeats, {**GRID, **settings_of(rest)})
    summary = summarise(measured["lines"])
    failed = [line for line in measured["lines"] if "failed" in line]
    if options.json:
        options.json.write_text(json.dumps({**measured, "summary": summary}, indent=1) + "\n")
    print(json.dumps(measured["machine"]))
    if summary:
        print(table(summary))
    for line in failed:
        print(f"FAILED: {line['side']}, repeat {line['repeat']}: {line['failed']}")
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
