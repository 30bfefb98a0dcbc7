"""Summarises the measurements of versus_trainer.py: wall-clock times, a table with a row for each k, a figure."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from measuring import Facts, Spread, as_json, markdown, quality, score_text, spread_text
from scipy import stats

from frostline.report.figures.drawing import INK, QUIET, STYLE, TRAIN, VALIDATION, figure_of, svg

OURS, USERS, BEST = SIDES = ("frostline", "trainer", "trainer-best")
NAMES = {OURS: "frostline", USERS: "Trainer as users run it", BEST: "Trainer at its best"}
DASHED = "the same without a run's share of the forward pass over the frozen layers"
WHOLE = ("full", "all")  # full fine-tuning, in results of now and of before
RATIOS = ("ratio", "ratio_with_cache")
COLOURS = {USERS: VALIDATION, BEST: TRAIN}


def summarise(lines: Sequence[Facts], cells: Sequence[Facts]) -> Facts:
    """Summarise the lines of a journal for JSON. ``cells`` are the runs of the grid."""
    measured = [line for line in lines if line["kind"] == "cell"]
    good = [{**line, "seconds": line["training"] + line["evaluation"]} for line in measured if "failed" not in line]
    sides = [side for side in SIDES if any(line["side"] == side for line in good)]
    walls = {side: _walls(side, lines, cells) for side in sides}
    return {
        "wall": {side: as_json(Spread.of(wall.values())) for side, wall in walls.items()},
        "wall_ratio": {
            side: as_json(Spread.of(walls[side][n] / walls[OURS][n] for n in walls[side] if n in walls[OURS]))
            for side in sides
            if side != OURS and OURS in sides
        },
        "start_up": {side: as_json(_of(lines, side, "start-up")) for side in sides},
        "sampled": {side: _sampled(side, lines, cells) for side in sides},
        "k": [_row(k, sides, good) for k in dict.fromkeys(cell["k"] for cell in cells)],
        "failed": [line for line in lines if "failed" in line and "side" in line],
    }


def _walls(side: str, lines: Sequence[Facts], cells: Sequence[Facts]) -> dict[int, float]:
    """Seconds of a whole side by repeat.

    If a side was interrupted, or measured only a sample of the cells, its time is estimated: the start-up once, and for each k
    the mean of its cells times their number in the grid.
    """
    walls = {}
    for line in lines:
        if line["kind"] != "whole" or line["side"] != side or "failed" in line:
            continue
        walls[line["repeat"]] = line["seconds"]
        if line["in_one"]:
            continue
        own = [one for one in lines if one.get("side") == side and one.get("repeat") == line["repeat"]]
        by_k: dict[str, list[float]] = {}
        for one in own:
            if one["kind"] == "cell" and "failed" not in one:
                by_k.setdefault(one["k"], []).append(one["whole"])
        start = np.mean([one["seconds"] for one in own if one["kind"] == "start-up"])
        parts = [np.mean(by_k[cell["k"]]) for cell in cells if cell["k"] in by_k]
        walls[line["repeat"]] = float(start + np.sum(parts))
    return walls


def _of(lines: Iterable[Facts], side: str, kind: str) -> Spread | None:
    return Spread.of(line["seconds"] for line in lines if line["kind"] == kind and line["side"] == side)


def _sampled(side: str, lines: Iterable[Facts], cells: Sequence[Facts]) -> str:
    """How the wall-clock time of a side was estimated; empty if it was measured in one piece."""
    whole = [line for line in lines if line["kind"] == "whole" and line["side"] == side and "failed" not in line]
    if all(line["in_one"] for line in whole):
        return ""
    of = min(line["cells"] for line in whole)
    if of == len(cells):
        return "estimated from its cells, because it was interrupted"
    return f"estimated from {of} of {len(cells)} cells, evenly over k"


def _row(k: str, sides: Sequence[str], good: Sequence[Facts]) -> Facts:
    """The row of one k: seconds of a run, ratios for the same cell in the same repeat, scores."""
    mine = {side: {_key(line): line for line in good if line["side"] == side and line["k"] == k} for side in sides}
    row: Facts = {"k": k}
    for side, lines in mine.items():
        row[side] = {
            "seconds": as_json(Spread.of(line["seconds"] for line in lines.values())),
            "evaluation": as_json(Spread.of(line["evaluation"] for line in lines.values())),
            "with_cache": as_json(Spread.of(line["seconds"] + line.get("cache", 0) for line in lines.values())),
            **quality(lines.values()),
        }
        if side != OURS and OURS in mine:
            both = [(line, mine[OURS][key]) for key, line in lines.items() if key in mine[OURS]]
            row[side] |= {
                "ratio": as_json(Spread.of(t["seconds"] / f["seconds"] for t, f in both)),
                "ratio_with_cache": as_json(Spread.of(t["seconds"] / (f["seconds"] + f["cache"]) for t, f in both)),
                **_against(row[OURS], row[side]),
            }
    return row


def _key(line: Facts) -> tuple[Any, ...]:
    return line["repeat"], line["seed"], line["rate"]


def _against(ours: Facts, theirs: Facts) -> Facts:
    """Our mean score minus theirs, and the largest difference that seeds explain (Welch, 95 %)."""
    if ours["mean"] is None or theirs["mean"] is None:
        return {"difference": None, "noise": None}
    noise = None
    if ours["std"] is not None and theirs["std"] is not None and ours["std"] + theirs["std"] > 0:
        parts = [(side["std"] ** 2 / side["seeds"], side["seeds"] - 1) for side in (ours, theirs)]
        error = sum(part for part, _ in parts)
        freedom = error**2 / sum(part**2 / own for part, own in parts)
        noise = float(stats.t.ppf(0.975, freedom) * error**0.5)
    return {"difference": ours["mean"] - theirs["mean"], "noise": noise}


def sentences(summary: Facts, machine: Facts, task: Facts) -> list[str]:
    """Sentences about the machine, the grid, wall-clock times, the comparison of scores, and failures."""
    m = machine
    words = [
        f"On {m['cores']} cores ({m['threads']} threads, {m['instructions']}, {m['precision']}, load {m['load']} at the "
        f"start), {m['device_name']}, torch {m['torch']}, transformers {m['transformers']}.",
        f"{task['cells']} runs on {task['train_size']:,} examples, epochs: {task['num_train_epochs']:g}, batches of "
        f"{task['per_device_train_batch_size']}; scores are the best {task['metric']} of a run on "
        f"{task['validation_rows']:,} validation rows, mean and standard deviation over seeds.",
    ]
    for side, wall in summary["wall"].items():
        ratio = summary["wall_ratio"].get(side)
        how = summary["sampled"][side]
        words.append(
            f"{NAMES[side]}: {spread_text(wall, '.1f')} s in all"
            + (f", {spread_text(ratio)} times as long as frostline" if ratio else "")
            + (f" ({how})" if how else "")
            + "."
        )
    words += _score_differences(summary)
    for line in summary["failed"]:
        cell = f", k = {line['k']}, seed {line['seed']}" if line["kind"] == "cell" else ""
        words.append(f"FAILED: {NAMES[line['side']]}, repeat {line['repeat']}{cell}: {line['failed']}")
    return words


def table(summary: Facts) -> str:
    """A row for each k: seconds of a run, the ratio to frostline (also with its share of the forward pass), scores."""
    sides = list(summary["wall"])
    header = ["k"]
    for side in sides:
        header += [f"{NAMES[side]}, s"]
        header += (
            ["with its share of the forward pass, s"]
            if side == OURS
            else ["relative to frostline", "with the forward pass"]
        )
    header += [f"score, {side}" for side in sides]
    rows = []
    for row in summary["k"]:
        cells = [row["k"]]
        for side in sides:
            one = row[side]
            cells.append(spread_text(one["seconds"]))
            cells += (
                [spread_text(one["with_cache"])]
                if side == OURS
                else [spread_text(one.get(name), ".1f") for name in RATIOS]
            )
        rows.append([*cells, *(score_text(row[side]) for side in sides)])
    rows.append(["whole grid", *(text for side in sides for text in _whole(summary, side)), *[""] * len(sides)])
    return markdown(header, rows)


def _whole(summary: Facts, side: str) -> list[str]:
    """The cells of the last row: wall-clock time from start-up to end."""
    wall = spread_text(summary["wall"][side], ".1f")
    return [wall, ""] if side == OURS else [wall, "", spread_text(summary["wall_ratio"].get(side), ".1f")]


def _score_differences(summary: Facts) -> list[str]:
    """Sentences that name the k whose scores differ by more than seeds explain."""
    words = []
    for side in summary["wall_ratio"]:
        rows = [(row["k"], row[side]) for row in summary["k"] if row[side].get("noise") is not None]
        beyond = [f"k = {k}: {one['difference']:+.3f}, noise {one['noise']:.3f}" for k, one in rows if _beyond(one)]
        if beyond:
            words.append(f"Mean scores differ from {NAMES[side]} by MORE than seeds explain at {'; '.join(beyond)}.")
        elif rows:
            words.append(
                f"Mean scores differ from {NAMES[side]} by no more than seeds explain (Welch, 95 %), at every k."
            )
    return words


def _beyond(side: Facts) -> bool:
    return bool(abs(side["difference"]) > side["noise"])


def draw(summary: Facts) -> Figure:
    """The speed-up of a run by k; solid with its share of the forward pass, dashed without."""
    rows = [row for row in summary["k"] if OURS in row]
    places = _places([row["k"] for row in rows])
    with matplotlib.rc_context(STYLE):
        figure, axes = figure_of(600, 380)
        axes.set_yscale("log")
        axes.axhline(1, color=QUIET, linewidth=1, linestyle=(0, (4, 4)))
        for side in summary["wall_ratio"]:
            _line(axes, rows, side, _label(side, summary))
        axes.plot([], [], color=INK, alpha=0.5, marker="o", markersize=3, linestyle=(0, (2, 2)), label=DASHED)
        axes.set_xticks(places, [row["k"] for row in rows])
        axes.set_xlabel("tuned last layers")
        axes.set_title("seconds of a run with Trainer, divided by those with frostline", pad=10)
        top = axes.get_ylim()[1]
        ticks = [tick for tick in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000) if tick < 1.2 * top]
        axes.set_yticks(ticks, [f"{tick}x" for tick in ticks])
        axes.minorticks_off()
        axes.grid(axis="y", color=QUIET, alpha=0.18, linewidth=0.8)
        axes.spines["left"].set_visible(False)
        figure.legend(loc="outside lower left", ncols=1)
        figure.set_label(
            "Speed-up over Trainer by tuned layers. " + " ".join(_label_of(rows, side) for side in COLOURS)
        )
    return figure


def _label(side: str, summary: Facts) -> str:
    return f"{NAMES[side]} (whole grid with start-up: {summary['wall_ratio'][side]['median']:.1f}x)"


def _line(axes: Axes, rows: Sequence[Facts], side: str, label: str) -> None:
    """Draw medians with their spread. Full is not connected to the other k."""
    places = _places([row["k"] for row in rows])
    for full in (False, True):
        known = [(x, row[side]) for x, row in zip(places, rows, strict=True) if (row["k"] in WHOLE) == full]
        known = [(x, one) for x, one in known if one.get("ratio")]
        xs = [x for x, _ in known]
        medians = {name: [one[name]["median"] for _, one in known] for name in RATIOS}
        axes.plot(xs, medians["ratio"], color=COLOURS[side], alpha=0.5, marker="o", markersize=3, linestyle=(0, (2, 2)))
        axes.plot(
            xs, medians["ratio_with_cache"], color=COLOURS[side], marker="o", markersize=6, label="" if full else label
        )
        for x, one in known:
            ends = [one["ratio_with_cache"][end] for end in ("low", "high")]
            axes.plot([x, x], ends, color=COLOURS[side], linewidth=8, alpha=0.22, solid_capstyle="butt")


def _places(names: Sequence[str]) -> list[float]:
    """The position of each k on the axis. Full has a distance of 1.5 from the largest k."""
    last = max((int(name) for name in names if name not in WHOLE), default=0)
    return [last + 1.5 if name in WHOLE else float(name) for name in names]


def _label_of(rows: Sequence[Facts], side: str) -> str:
    known = [(row["k"], row[side]["ratio_with_cache"]) for row in rows if side in row]
    return f"{NAMES[side]}: " + ", ".join(f"k {k} {ratio['median']:.1f}" for k, ratio in known if ratio) + "."


def save(figure: Figure, path: Path) -> None:
    """Save the figure as SVG for pages, and as PNG for programs that cannot show SVG."""
    path.with_suffix(".svg").write_text(svg(figure) + "\n")
    figure.savefig(path.with_suffix(".png"), dpi=200, transparent=True, metadata={"Software": None})
