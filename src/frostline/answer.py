"""The answer: how many of the last layers to tune, how good that is against full, what it costs, how sure it is.

Everything here is chosen on validation. Test scores join at the end, for what was chosen.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from frostline.comparison.cells import FULL, NAMED
from frostline.comparison.choices import Choices
from frostline.comparison.curve import compare, main_point
from frostline.comparison.evidence import Evidence, Labelled, Logits, Predictions, Run
from frostline.comparison.many import adjust
from frostline.comparison.outcomes import ANSWERS
from frostline.statistics import ratio

SCHEMA_VERSION = 2


def make_answer(
    runs: Sequence[Run], validation: Labelled, logits: Logits, *, target: float, layers: int, named: str | None = None
) -> dict[str, Any]:
    """The answer for every train size, in plain values for JSON; the largest size speaks first.

    ``runs`` are rows of the results table; ``logits`` gives a run's predictions on the validation rows. ``named`` is the
    k that a search has ended with: it is recommended, and how sure that is is said.
    """
    evidence, choices = Predictions(validation, logits), Choices(target=target)
    sizes = sorted({run["train_size"] for run in runs}, reverse=True)
    answers = [
        answer_one([run for run in runs if run["train_size"] == size], evidence, choices, layers, named)
        for size in sizes
    ]
    adjust(answers)
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


def answer_one(
    runs: Sequence[Run], evidence: Evidence, choices: Choices, layers: int | None, named: str | None = None
) -> dict[str, Any]:
    """The answer for one train size: what :func:`frostline.comparison.curve.compare` found, a recommendation, a sentence."""
    choices = replace(choices, corrected=choices.corrected and evidence.chance is not None)
    answer = compare(runs, evidence, choices)
    main = main_point(answer)
    steps = [cell for cell in answer["cells"] if cell["trainable"] != NAMED]
    if named not in [cell["trainable"] for cell in answer["cells"] if any(run["in_mean"] for run in cell["points"])]:
        named = None  # all its runs failed
    name = named or _smallest_sure(steps, main) or _best_cell(answer["cells"])
    answer["recommended"] = _recommended(answer["cells"], name) if name else None
    answer["sentence"] = _sentence(answer, main, evidence, choices, layers, searched=named is not None)
    pending = sum(run["status"] == "pending" for run in runs)
    if 0 < pending < len(runs):
        answer["sentence"] += f" So far {len(runs) - pending} of {len(runs)} runs have ended."
    return answer


def add_test(answer: dict[str, Any], runs: Sequence[Run], test: Labelled, logits: Logits) -> dict[str, Any]:
    """The answer with what test says of it: a summary for each cell, and the recommended one against full."""
    evidence, by_name = Predictions(test, logits), {run["run"]: run for run in runs}
    for size in answer["sizes"]:
        tested = {
            cell["trainable"]: [
                by_name[point["run"]] for point in cell["points"] if point["in_mean"] and point["run"] in by_name
            ]
            for cell in size["cells"]
        }
        for cell in size["cells"]:
            cell["test"] = evidence.summary(tested[cell["trainable"]])
        recommended, full = size["recommended"], size["reference"]
        if recommended and full:
            both = evidence.pair(tested[recommended["trainable"]], tested[full])
            recommended["test"] = next((run["test"] for run in runs if run["run"] == recommended["run"]), None)
            recommended["test_share"] = vars(ratio(both)) if both else None
            recommended["test_share_corrected"] = vars(ratio(both, test.chance)) if both else None
    return answer


def _smallest_sure(cells: Sequence[Mapping[str, Any]], point: Mapping[str, Any]) -> str | None:
    """The smallest k that surely reaches the target; with one seed, the smallest by its score; else the best."""
    name = point["estimate"] if point["sure"] is None or _one_seed(cells) else point["sure"]
    return name or _best_cell(cells)


def _recommended(cells: Sequence[Mapping[str, Any]], name: str) -> dict[str, Any]:
    """A k, and the best of its runs."""
    cell = next(cell for cell in cells if cell["trainable"] == name)
    in_mean = [run for run in cell["points"] if run["in_mean"]]
    answers = [run for run in in_mean if run["outcome"] in ANSWERS]
    best = max(answers or in_mean, key=lambda run: run["validation_best"])  # of equal ones the first seed
    return {
        **{key: cell[key] for key in ("trainable", "tuned_layers", "tune_embeddings", "learning_rate")},
        **{key: best[key] for key in ("run", "seed", "validation_best")},
    }


def _one_seed(cells: Sequence[Mapping[str, Any]]) -> bool:
    return all(cell["validation"]["n"] < 2 for cell in cells)


def _best_cell(cells: Sequence[Mapping[str, Any]]) -> str | None:
    scored = [cell for cell in cells if any(run["in_mean"] and run["outcome"] in ANSWERS for run in cell["points"])]
    return max(scored, key=lambda cell: cell["validation"]["mean"])["trainable"] if scored else None


def _sentence(
    answer: Mapping[str, Any],
    point: Mapping[str, Any],
    evidence: Evidence,
    choices: Choices,
    layers: int | None,
    *,
    searched: bool,
) -> str:
    recommended, seeds = answer["recommended"], answer["seeds"]
    if recommended is None:
        done = sum(cell["runs"] for cell in answer["cells"])
        why = f"all {done} finished runs diverged or predict a constant" if done else "no run has finished"
        return f"There is no answer: {why}."
    named = next((cell for cell in answer["cells"] if cell["trainable"] == NAMED), None)
    if answer["reference"] is None:
        assert named is not None
        return _named_alone(named, evidence, compared=len(answer["cells"]) > 1)
    beside = _named_beside(named, answer, evidence, choices)
    cells = {cell["trainable"]: cell for cell in answer["cells"] if cell is not named}
    cell, full = cells[recommended["trainable"]], cells[answer["reference"]]
    full_name = _tuning(full)
    against = f"{full_name} reaches {evidence.metric} {_number(full['validation']['mean'])}"
    if len(cells) == 1 and evidence.rows is None:
        return f"Nothing was compared: {against}, and no other k is in the table."
    if choices.by_mean:
        enough = cells.get(point["estimate"])
        return (
            f"By the means {_tuning(enough)} is enough: {_compared(enough, full, evidence, choices)}."
            if enough and enough is not full
            else f"By the means nothing smaller than {full_name} is enough: {against.partition('reaches ')[2]}."
        )
    if evidence.chance is not None:
        guessing = f"guessing ({_number(evidence.chance)})"
        if seeds > 1 and not answer["learned"]:
            return f"Cannot tell: {against}, which {_good(full, seeds)} not show to be above {guessing}."
        kept = _share(cell, evidence, choices)
        if kept is None:
            return f"Cannot tell: no seed succeeded both in {_tuning(cell)} and in {full_name}."
        if kept["estimate"] is None:
            return f"Cannot tell: {against}, which is not above {guessing}."
    likely = cells.get(point["estimate"], full)
    seen = _seen(answer["cells"], evidence)
    unsure = seeds > 1 and point["verdict"] == "cannot tell"
    if cell is full and unsure and likely is not full:
        return (
            f"With {seen} it cannot be told whether {_tuning(likely)} is enough: it reaches "
            f"{_compared(likely, full, evidence, choices)}. Enough is an interval above {100 * point['target']:g} %; until "
            f"then {_what(recommended, layers, 'tune')}.{beside}{_advice(cells, evidence)}"
        )
    if cell is full:
        sentence = f"{_what(recommended, layers)}: {evidence.metric} {_number(cell['validation']['mean'])}"
        if len(cells) > 1:
            sentence += f"; nothing smaller reaches {100 * point['target']:g} % of {_whole(evidence, choices)}"
            sentence += " by the means" if unsure or seeds == 1 else ""
    else:
        sentence = f"{_what(recommended, layers)}: {_compared(cell, full, evidence, choices)}"
        if cell["times_cheaper"] and cell["times_cheaper"] >= 1.05:
            sentence += f", {_times(cell['times_cheaper'])} times cheaper to train"
            if searched and cell["peak_memory_bytes"] and full["peak_memory_bytes"]:
                sentence += f", with {_percent(cell['peak_memory_bytes'] / full['peak_memory_bytes'])} % of the memory"
    if searched:
        sentence += f". {_certainty(answer, point)}"
    elif seeds == 1:
        sentence += ". One seed has no spread, so this is an estimate: run it with --seeds 5"
    elif unsure:
        sentence += f". With {seen} it cannot be told whether {_tuning(cells[point['possible']])} is enough"
    return f"{sentence}.{beside}{_advice(cells, evidence)}"


def _certainty(answer: Mapping[str, Any], point: Mapping[str, Any]) -> str:
    """How sure it is that a search has named the right k."""
    name, possible = answer["recommended"]["trainable"], point["possible"]
    seeds = f": about {answer['seeds_to_tell']} seeds would tell" if answer["seeds_to_tell"] else ""
    if name == point["sure"] == possible:
        return (
            "That is sure" if name == answer["reference"] else "That is sure, and so is that nothing smaller is enough"
        )
    if name == point["sure"] and possible:
        return f"Whether {tuning(possible)} is enough cannot be told{seeds}"
    target = f"{100 * point['target']:g} %"
    return f"That is likely, not sure: the interval reaches below {target}{seeds if possible == name else ''}"


def _named_alone(named: Mapping[str, Any], evidence: Evidence, *, compared: bool) -> str:
    """The answer where named parts are all that gave a score."""
    scores = named["validation"]
    seeds = "one seed" if scores["n"] == 1 else f"{scores['n']} seeds"
    between = "" if scores["low"] is None else f", 95 % interval {_number(scores['low'])} to {_number(scores['high'])}"
    guessing = "" if evidence.chance is None else f"; guessing {_number(evidence.chance)}"
    why = "no other run has succeeded so far" if compared else "add numbers of layers and all to --tune to compare"
    return (
        f"The named parts reach {evidence.metric} {_number(scores['mean'])} ({seeds}{between}{guessing}). "
        f"Nothing was compared: {why}."
    )


def _named_beside(
    named: Mapping[str, Any] | None, answer: Mapping[str, Any], evidence: Evidence, choices: Choices
) -> str:
    """What named parts reach, beside the answer about the last layers."""
    if named is None:
        return ""
    kept = _share(named, evidence, choices)
    if kept is None or kept["estimate"] is None:
        return " The named parts cannot be compared: none of their seeds succeeded together with those of the others."
    full = next(cell for cell in answer["cells"] if cell["trainable"] == answer["reference"])
    return f" The named parts reach {_compared(named, full, evidence, choices)}."


def _seen(cells: Sequence[Mapping[str, Any]], evidence: Evidence) -> str:
    """What the answer rests on."""
    runs = sorted({cell["runs"] for cell in cells if cell["runs"]})
    seeds = f"{runs[0]} to {runs[-1]} seeds" if len(runs) > 1 else f"{runs[0]} seeds"
    return seeds if evidence.rows is None else f"{seeds} and {evidence.rows:,} validation rows"


def _of_gain(evidence: Evidence, choices: Choices) -> bool:
    return choices.corrected and evidence.chance is not None


def _whole(evidence: Evidence, choices: Choices) -> str:
    return "its gain over guessing" if _of_gain(evidence, choices) else "its score"


def _share(cell: Mapping[str, Any], evidence: Evidence, choices: Choices) -> Mapping[str, Any] | None:
    """The share of full that the sentence speaks of."""
    share: Mapping[str, Any] | None = cell["share_corrected" if _of_gain(evidence, choices) else "share"]
    return share


def _compared(cell: Mapping[str, Any], full: Mapping[str, Any], evidence: Evidence, choices: Choices) -> str:
    kept = _share(cell, evidence, choices)
    assert kept is not None
    between = "" if kept["low"] is None else f" (95 % interval {_percent(kept['low'])} to {_percent(kept['high'])})"
    ours, theirs = map(_number, cell["difference"]["means"])  # of the runs that the share is of
    whole = (
        f"what {_tuning(full)} gains over guessing" if _of_gain(evidence, choices) else f"the score of {_tuning(full)}"
    )
    return f"{_percent(kept['estimate'])} % of {whole}{between}, {evidence.metric} {ours} against {theirs}"


def _advice(cells: Mapping[str, Mapping[str, Any]], evidence: Evidence) -> str:
    if len(cells) < 2 or any(cell["tune_embeddings"] for cell in cells.values()):
        return ""
    return " Full fine-tuning was not run" + (": add all to --tune." if evidence.rows is not None else " here.")


def _good(cell: Mapping[str, Any], seeds: int) -> str:
    """The seeds that a cell's mean rests on, and the verb."""
    good = cell["validation"]["n"]
    if good == seeds:
        return f"{seeds} seeds do"
    others = "failed" if cell["runs"] == seeds else "failed or have not run"
    return f"{good} of {seeds} seeds (the others {others}) {'does' if good == 1 else 'do'}"


def _tuning(cell: Mapping[str, Any]) -> str:
    """What a cell does, within a sentence."""
    return tuning(cell["trainable"])


def tuning(trainable: str) -> str:
    """A k by its printed name, within a sentence."""
    if trainable == FULL:
        return "full fine-tuning"
    k = int(trainable.removeprefix("last "))
    part = "the head only" if k == 0 else "the last layer" if k == 1 else f"the last {k} layers"
    return f"tuning {part}"


def _what(recommended: Mapping[str, Any], layers: int | None, tune: str = "Tune") -> str:
    if recommended["tune_embeddings"]:
        return f"{tune} all layers and the embeddings"
    k = recommended["tuned_layers"]
    if k == 0:
        return f"{tune} the head only" + (f", none of {layers} layers" if layers else "")
    if layers is None:
        return f"{tune} the last {'layer' if k == 1 else f'{k} layers'}"
    return f"{tune} the last {'layer' if k == 1 else k} of {layers}{' layers' if k > 1 else ''}"


def _times(factor: float) -> str:
    return f"{factor:.0f}" if factor >= 9.95 else f"{factor:.1f}"


def _number(value: float) -> str:
    return f"{value:.3f}"


def _percent(share: float | None) -> str:
    return "?" if share is None else f"{100 * share:.1f}"
