"""The answer: how many of the last layers to tune, how good that is against full, what it costs, how sure it is.

Everything here is chosen on validation. Test scores join at the end, for what was chosen.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from frostline.metrics import CLASSIFICATION, chance, lowest, metrics_for, predict
from frostline.statistics import (
    Pair,
    Ratio,
    failure_interval,
    mean_interval,
    pair,
    ratio,
    row_groups,
    summarize,
    surely_above,
)

SCHEMA_VERSION = 1
TARGETS = (0.90, 0.95, 0.99)
FULL, NAMED = "all", "named"  # as the results table calls them

Run = Mapping[str, Any]  # a row of results.csv
Logits = Callable[[str], NDArray[Any]]  # run -> [rows, C]


@dataclass(frozen=True)
class Labelled:
    """A split that was predicted: its targets, and what the metric is."""

    targets: NDArray[Any]
    problem_type: str
    labels: tuple[str, ...]
    metric: str

    def score(self, logits: NDArray[Any], rows: NDArray[np.int64]) -> float:
        """The metric on these rows."""
        metric = metrics_for(self.problem_type, logits.shape[1])[self.metric]
        return metric(self.targets[rows], predict(logits[rows], self.problem_type))

    @property
    def chance(self) -> float:
        """What the best constant prediction scores."""
        return chance(self.targets, self.metric, len(self.labels))


class _Scores:
    """Scores of runs, and the same with a group of rows left out, each computed once."""

    def __init__(self, split: Labelled, logits: Logits) -> None:
        self.split, self.logits = split, logits
        self.groups = row_groups(len(split.targets))
        self.one_row = (1 - lowest(split.metric)) / len(split.targets)
        self.known: dict[str, NDArray[np.float64]] = {}

    def __getitem__(self, run: str) -> NDArray[np.float64]:  # [1 + groups], the score on all rows first
        if run not in self.known:
            logits = self.logits(run)
            rows = [np.arange(len(self.split.targets)), *self.groups]
            self.known[run] = np.array([self.split.score(logits, some) for some in rows])
        return self.known[run]

    def pair(self, cell: Sequence[Run], full: Sequence[Run]) -> Pair | None:
        """Cell against full over the seeds that succeeded in both; None where there is none."""
        ours, theirs = ({run["seed"]: run["run"] for run in runs if run["outcome"] == "ok"} for runs in (cell, full))
        seeds = sorted(ours.keys() & theirs.keys())
        if not seeds:
            return None
        both = np.array([[self[ours[seed]], self[theirs[seed]]] for seed in seeds])  # [seeds, 2, 1 + groups]
        return pair(both[:, :, 0], both[:, :, 1:].transpose(2, 0, 1), self.one_row)

    def summary(self, runs: Sequence[Run]) -> dict[str, Any]:
        """The scores of these runs, with the interval of their mean (None for fewer than two runs)."""
        scores = np.array([self[run["run"]] for run in runs]).reshape(len(runs), 1 + len(self.groups))
        low = high = None
        if len(runs) > 1:
            low, high = mean_interval(scores[:, 0], scores[:, 1:].T, self.one_row)
            low, high = max(low, lowest(self.split.metric)), min(high, 1.0)
        return {**asdict(summarize(scores[:, 0])), "low": low, "high": high}


def make_answer(
    runs: Sequence[Run], validation: Labelled, logits: Logits, *, target: float, layers: int
) -> dict[str, Any]:
    """The answer for every train size, in plain values for JSON; the largest size speaks first.

    ``runs`` are rows of the results table; ``logits`` gives a run's predictions on the validation rows.
    """
    sizes = sorted({run["train_size"] for run in runs}, reverse=True)
    scores = _Scores(validation, logits)
    answers = [
        _answer_one([run for run in runs if run["train_size"] == size], validation, scores, target, layers)
        for size in sizes
    ]
    return {
        "schema_version": SCHEMA_VERSION,
        "model": runs[0]["model"],
        "task": runs[0]["task"],
        "metric": validation.metric,
        "problem_type": validation.problem_type,
        "layers": layers,
        "target": target,
        "chance": validation.chance,
        "validation_rows": len(validation.targets),
        "sentence": answers[0]["sentence"],
        "runs": {status: sum(run["status"] == status for run in runs) for status in ("done", "failed", "pending")},
        "sizes": answers,
    }


def add_test(answer: dict[str, Any], runs: Sequence[Run], test: Labelled, logits: Logits) -> dict[str, Any]:
    """The answer with what test says of it: a summary for each cell, and the recommended one against full."""
    scores = _Scores(test, logits)
    for size in answer["sizes"]:
        cells = {cell["trainable"]: _runs_of(runs, size["train_size"], cell) for cell in size["cells"]}
        for cell in size["cells"]:
            cell["test"] = scores.summary([run for run in cells[cell["trainable"]] if run["outcome"] == "ok"])
        recommended, full = size["recommended"], size["reference"]
        if recommended and full:
            both = scores.pair(cells[recommended["trainable"]], cells[full])
            recommended["test"] = next((run["test"] for run in runs if run["run"] == recommended["run"]), None)
            recommended["test_share"] = _plain(ratio(both)) if both else None
            recommended["test_share_corrected"] = _plain(ratio(both, test.chance)) if both else None
    return answer


def _runs_of(runs: Sequence[Run], size: int, cell: Mapping[str, Any]) -> list[Run]:
    return [
        run
        for run in runs
        if (run["train_size"], run["trainable"], run["learning_rate"])
        == (size, cell["trainable"], cell["learning_rate"])
    ]


def _answer_one(
    runs: Sequence[Run], validation: Labelled, scores: _Scores, target: float, layers: int
) -> dict[str, Any]:
    by_k: dict[str, list[Run]] = {}
    for run in sorted(runs, key=_rank):
        by_k.setdefault(run["trainable"], []).append(run)
    chosen = {k: _best_learning_rate(by_k[k], validation.chance) for k in by_k}
    ladder = [k for k in chosen if k != NAMED]
    reference = next((k for k in reversed(ladder) if any(run["outcome"] == "ok" for run in chosen[k])), None)
    pairs = {k: scores.pair(chosen[k], chosen[reference]) if reference else None for k in chosen}
    learns = pairs[reference] if reference else None
    cells = [_cell(chosen[k], by_k[k], pairs[k], scores) for k in chosen]
    reference_cell = next((cell for cell in cells if cell["trainable"] == reference), None)
    for cell in cells:
        ours, theirs = (c and c["seconds"] and c["seconds"] + c["shared_seconds"] for c in (cell, reference_cell))
        cell["times_cheaper"] = theirs / ours if ours and theirs else None
    if reference_cell:
        for name in ("share", "share_corrected"):
            if reference_cell[name] and reference_cell[name]["low"] is not None:
                reference_cell[name] = {"estimate": 1.0, "low": 1.0, "high": 1.0}  # of itself
    steps = [cell for cell in cells if cell["trainable"] in ladder]
    points = [
        _operating_point(steps, reference_cell, share, corrected)
        for corrected in (False, True)
        for share in sorted({*TARGETS, target})
    ]
    main = next(point for point in points if point["corrected"] and point["target"] == target)
    recommended = _recommend(steps, main, chosen) or _recommend(cells, main, chosen)
    answer = {
        "train_size": runs[0]["train_size"],
        "reference": reference,
        "reference_is_full": reference == FULL,
        "learned": bool(learns and learns.runs > 1 and surely_above(learns, validation.chance)),
        "cells": cells,
        "operating_points": points,
        "recommended": recommended,
        "missing": [
            {name: run[name] for name in ("trainable", "seed", "learning_rate", "status", "reason")}
            for run in runs
            if run["status"] != "done"
        ],
    }
    answer["sentence"] = _sentence(answer, main, validation, layers, len({run["seed"] for run in runs}))
    pending = sum(run["status"] == "pending" for run in runs)
    if 0 < pending < len(runs):
        answer["sentence"] += f" So far {len(runs) - pending} of {len(runs)} runs have ended."
    return answer


def _best_learning_rate(runs: Sequence[Run], guessing: float) -> list[Run]:
    """The runs of the learning rate with the best mean on validation; a run that diverged counts as guessing."""

    def mean(rate: float) -> float:
        done = [run for run in runs if run["learning_rate"] == rate and run["status"] == "done"]
        values = [guessing if run["validation_best"] is None else run["validation_best"] for run in done]
        return float(np.mean(values)) if values else -np.inf

    best = max(sorted({run["learning_rate"] for run in runs}), key=mean)
    return [run for run in runs if run["learning_rate"] == best]


def _rank(run: Run) -> tuple[bool, int, bool]:
    """From the head alone to full, and named parts after them: they are no step on the way."""
    return run["trainable"] == NAMED, run["tuned_layers"] or 0, run["trainable"] == FULL


def _cell(runs: Sequence[Run], all_rates: Sequence[Run], both: Pair | None, scores: _Scores) -> dict[str, Any]:
    done = [run for run in runs if run["status"] == "done"]
    good = [run for run in done if run["outcome"] == "ok"]
    bad = {name: sum(run["outcome"] == name for run in done) for name in ("diverged", "degenerate")}
    failed = sum(bad.values())
    interval = list(failure_interval(failed, len(done))) if done else None

    def mean(name: str) -> float | None:
        values = [run[name] for run in good if run[name] is not None]
        return float(np.mean(values)) if values else None

    def summary(name: str, some: Sequence[Run]) -> dict[str, Any]:
        return asdict(summarize(np.array([run[name] for run in some if run[name] is not None], dtype=float)))

    return {
        "trainable": runs[0]["trainable"],
        **{name: next((run[name] for run in [*done, *runs]), None) for name in ("tuned_layers", "tune_embeddings")},
        "learning_rate": runs[0]["learning_rate"],
        "learning_rates_tried": sorted({run["learning_rate"] for run in all_rates}),
        "runs": len(done),
        "failed": {**bad, "runs": failed, "interval": interval},
        "errors": sum(run["status"] == "failed" for run in runs),
        "validation": scores.summary(good),
        "validation_with_failures": summary("validation_best", done),
        "validation_last": summary("validation_last", good),
        "train_last": summary("train_last", good),
        "points": [
            {name: run[name] for name in ("seed", "validation_best", "train_last", "outcome", "run")} for run in done
        ],
        "share": _plain(ratio(both)) if both else None,
        "share_corrected": _plain(ratio(both, scores.split.chance)) if both else None,
        "trainable_parameters": next((run["trainable_parameters"] for run in done), None),
        "seconds": mean("train_seconds"),
        "shared_seconds": mean("cache_seconds"),
        "peak_memory_bytes": mean("peak_memory_bytes"),
    }


def _plain(share: Ratio) -> dict[str, float | None]:
    return asdict(share)


def _operating_point(
    cells: Sequence[Mapping[str, Any]], reference: Mapping[str, Any] | None, target: float, corrected: bool
) -> dict[str, Any]:
    """The smallest k that reaches ``target`` of the reference: by the means, surely, and possibly."""
    name = "share_corrected" if corrected else "share"
    estimate = sure = possible = None
    defined = bool(reference and reference[name] and reference[name]["estimate"] is not None)
    for cell in cells if defined else ():
        share = cell[name]
        if cell is reference:
            share = {"estimate": 1.0, "low": 1.0, "high": 1.0}
        if share is None or share["estimate"] is None:
            continue
        if estimate is None and share["estimate"] >= target:
            estimate = cell["trainable"]
        if sure is None and share["low"] is not None and share["low"] >= target:
            sure = cell["trainable"]
        if possible is None and (share["high"] is None or share["high"] >= target):
            possible = cell["trainable"]
        if cell is reference:
            break
    verdict = "undefined" if not defined else "holds" if sure == possible else "cannot tell"
    return {
        "target": target,
        "corrected": corrected,
        "estimate": estimate,
        "sure": sure,
        "possible": possible,
        "verdict": verdict,
    }


def _recommend(
    cells: Sequence[Mapping[str, Any]], point: Mapping[str, Any], chosen: Mapping[str, Sequence[Run]]
) -> dict[str, Any] | None:
    """The smallest k that surely reaches the target; with one seed, the smallest by its score."""
    name = point["estimate"] if point["sure"] is None or _one_seed(cells) else point["sure"]
    if name is None:
        name = _best_cell(cells)
    if name is None:
        return None
    cell = next(cell for cell in cells if cell["trainable"] == name)
    good = [run for run in chosen[name] if run["outcome"] == "ok"]
    best = max(good, key=lambda run: (run["validation_best"], -run["seed"]))
    return {
        "trainable": name,
        "tuned_layers": cell["tuned_layers"],
        "tune_embeddings": cell["tune_embeddings"],
        "learning_rate": cell["learning_rate"],
        "run": best["run"],
        "seed": best["seed"],
        "validation_best": best["validation_best"],
    }


def _one_seed(cells: Sequence[Mapping[str, Any]]) -> bool:
    return all(cell["validation"]["n"] < 2 for cell in cells)


def _best_cell(cells: Sequence[Mapping[str, Any]]) -> str | None:
    scored = [cell for cell in cells if cell["validation"]["mean"] is not None]
    return max(scored, key=lambda cell: cell["validation"]["mean"])["trainable"] if scored else None


def _sentence(
    answer: Mapping[str, Any], point: Mapping[str, Any], validation: Labelled, layers: int, seeds: int
) -> str:
    recommended = answer["recommended"]
    if recommended is None:
        done = sum(cell["runs"] for cell in answer["cells"])
        why = f"all {done} finished runs diverged or predict a constant" if done else "no run has finished"
        return f"There is no answer: {why}."
    named = next((cell for cell in answer["cells"] if cell["trainable"] == NAMED), None)
    if answer["reference"] is None:
        assert named is not None
        return _named_alone(named, validation, compared=len(answer["cells"]) > 1)
    beside = _named_beside(named, answer, validation)
    cells = {cell["trainable"]: cell for cell in answer["cells"] if cell is not named}
    cell, full = cells[recommended["trainable"]], cells[answer["reference"]]
    full_name = _tuning(full)
    against = f"{full_name} reaches {validation.metric} {_number(full['validation']['mean'])}"
    guessing = f"guessing ({_number(validation.chance)})"
    if seeds > 1 and not answer["learned"]:
        return f"Cannot tell: {against}, which {_good(full, seeds)} not show to be above {guessing}."
    kept = _share(cell, validation)
    if kept is None:
        return f"Cannot tell: no seed succeeded both in {_tuning(cell)} and in {full_name}."
    if kept["estimate"] is None:
        return f"Cannot tell: {against}, which is not above {guessing}."
    likely = cells.get(point["estimate"], full)
    seen = f"{seeds} seeds and {len(validation.targets):,} validation rows"
    unsure = seeds > 1 and point["verdict"] == "cannot tell"
    if cell is full and unsure and likely is not full:
        return (
            f"With {seen} it cannot be told whether {_tuning(likely)} is enough: it reaches "
            f"{_compared(likely, full, validation)}. Enough is an interval above {100 * point['target']:g} %; until then "
            f"{_what(recommended, layers, 'tune')}.{beside}{_advice(cells)}"
        )
    target = f"{100 * point['target']:g} % of its gain over guessing"
    if cell is full:
        sentence = f"{_what(recommended, layers)}: {validation.metric} {_number(cell['validation']['mean'])}"
        if len(cells) > 1:
            sentence += f"; nothing smaller reaches {target}" + (" by the means" if unsure or seeds == 1 else "")
    else:
        sentence = f"{_what(recommended, layers)}: {_compared(cell, full, validation)}"
        if cell["times_cheaper"] and cell["times_cheaper"] >= 1.05:
            sentence += f", {_times(cell['times_cheaper'])} times cheaper to train"
    if seeds == 1:
        sentence += ". One seed has no spread, so this is an estimate: run it with --seeds 5"
    elif unsure:
        sentence += f". With {seen} it cannot be told whether {_tuning(cells[point['possible']])} is enough"
    return f"{sentence}.{beside}{_advice(cells)}"


def _named_alone(named: Mapping[str, Any], validation: Labelled, *, compared: bool) -> str:
    """The answer where named parts are all that gave a score."""
    scores = named["validation"]
    seeds = "one seed" if scores["n"] == 1 else f"{scores['n']} seeds"
    between = "" if scores["low"] is None else f", 95 % interval {_number(scores['low'])} to {_number(scores['high'])}"
    why = "no other run has succeeded so far" if compared else "add numbers of layers and all to --tune to compare"
    return (
        f"The named parts reach {validation.metric} {_number(scores['mean'])} ({seeds}{between}; guessing "
        f"{_number(validation.chance)}). Nothing was compared: {why}."
    )


def _named_beside(named: Mapping[str, Any] | None, answer: Mapping[str, Any], validation: Labelled) -> str:
    """What named parts reach, beside the answer about the last layers."""
    if named is None:
        return ""
    kept = _share(named, validation)
    if kept is None or kept["estimate"] is None:
        return " The named parts cannot be compared: none of their seeds succeeded together with those of the others."
    full = next(cell for cell in answer["cells"] if cell["trainable"] == answer["reference"])
    return f" The named parts reach {_compared(named, full, validation)}."


def _share(cell: Mapping[str, Any], validation: Labelled) -> Mapping[str, Any] | None:
    """The share of full that the sentence speaks of."""
    share: Mapping[str, Any] | None = cell["share_corrected"] if validation.metric in CLASSIFICATION else cell["share"]
    return share


def _compared(cell: Mapping[str, Any], full: Mapping[str, Any], validation: Labelled) -> str:
    kept = _share(cell, validation)
    assert kept is not None
    between = "" if kept["low"] is None else f" (95 % interval {_percent(kept['low'])} to {_percent(kept['high'])})"
    ours, theirs = (_number(one["validation"]["mean"]) for one in (cell, full))
    return (
        f"{_percent(kept['estimate'])} % of what {_tuning(full)} gains over guessing{between}, "
        f"{validation.metric} {ours} against {theirs}"
    )


def _advice(cells: Mapping[str, Mapping[str, Any]]) -> str:
    if len(cells) < 2 or any(cell["tune_embeddings"] for cell in cells.values()):
        return ""
    return " Full fine-tuning was not run: add all to --tune."


def _good(cell: Mapping[str, Any], seeds: int) -> str:
    """The seeds that a cell's mean rests on, and the verb."""
    good = cell["validation"]["n"]
    if good == seeds:
        return f"{seeds} seeds do"
    others = "failed" if cell["runs"] == seeds else "failed or have not run"
    return f"{good} of {seeds} seeds (the others {others}) {'does' if good == 1 else 'do'}"


def _tuning(cell: Mapping[str, Any]) -> str:
    """What a cell does, within a sentence."""
    if cell["tune_embeddings"]:
        return "full fine-tuning"
    k = cell["tuned_layers"]
    part = "the head only" if k == 0 else "the last layer" if k == 1 else f"the last {k} layers"
    return f"tuning {part}"


def _what(recommended: Mapping[str, Any], layers: int, tune: str = "Tune") -> str:
    if recommended["tune_embeddings"]:
        return f"{tune} all layers and the embeddings"
    k = recommended["tuned_layers"]
    if k == 0:
        return f"{tune} the head only, none of {layers} layers"
    return f"{tune} the last {'layer' if k == 1 else k} of {layers}{' layers' if k > 1 else ''}"


def _times(factor: float) -> str:
    return f"{factor:.0f}" if factor >= 9.95 else f"{factor:.1f}"


def _number(value: float) -> str:
    return f"{value:.3f}"


def _percent(share: float | None) -> str:
    return "?" if share is None else f"{100 * share:.1f}"
