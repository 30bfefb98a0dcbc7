"""The answer: how many of the last layers to tune, how good that is against full, what it costs, how sure it is.

Everything here is chosen on validation. Test scores join at the end, for what was chosen.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from frostline.report.answer.sentence import NO_SEARCH, Searched, Terms, sentence, unfinished
from frostline.statistics.adjustment import adjust
from frostline.statistics.cells import NAMED, by_depth
from frostline.statistics.choices import Choices
from frostline.statistics.curve import compare, main_point
from frostline.statistics.evidence import Evidence, Labelled, Logits, Predictions, Run
from frostline.statistics.intervals import ratio
from frostline.statistics.outcomes import ANSWERS, done, scored

SCHEMA_VERSION = 3
LEAST_ROWS = 10  # of validation; with fewer the answer says that they are too few


def make_answer(
    runs: Sequence[Run],
    validation: Labelled,
    logits: Logits,
    choices: Choices,
    *,
    layers: int,
    searched: Searched = NO_SEARCH,
) -> dict[str, Any]:
    """The answer for every train size, in plain values for JSON; the largest size speaks first.

    ``runs`` are rows of the results table; what was ``searched``, and the rates that were chosen there, is of one size;
    ``logits`` gives a run's predictions on the validation rows.
    """
    evidence = Predictions(validation, logits, searched.looks)
    sizes = sorted({run["train_size"] for run in runs}, reverse=True)
    answers = []
    for size in sizes:
        some = [run for run in runs if run["train_size"] == size]
        if searched.train_size in (None, size):
            answers.append(answer_one(some, evidence, choices, layers, searched))
        else:
            answers.append(answer_one(some, evidence, replace(choices, rates={}), layers))
    adjust(answers)
    return {
        "schema_version": SCHEMA_VERSION,
        "model": runs[0]["model"],
        "task": runs[0]["task"],
        "metric": validation.metric,
        "problem_type": validation.problem_type,
        "layers": layers,
        "target": None if choices.by_margin else choices.target,
        "margin": choices.margin if choices.by_margin else None,
        "looks": searched.looks,
        "chance": validation.chance,
        "validation_rows": evidence.rows_of(run["run"] for run in scored(done(runs))) or len(validation.targets),
        "sentence": answers[0]["sentence"],
        "runs": {status: sum(run["status"] == status for run in runs) for status in ("done", "failed", "pending")},
        "sizes": answers,
    }


def answer_one(
    runs: Sequence[Run],
    evidence: Evidence,
    choices: Choices,
    layers: int | None,
    searched: Searched = NO_SEARCH,
) -> dict[str, Any]:
    """The answer for one train size: what :func:`frostline.statistics.curve.compare` found, a recommendation, a sentence."""
    choices = replace(choices, corrected=choices.corrected and evidence.chance is not None)
    answer = compare(runs, evidence, choices)
    main = main_point(answer)
    if searched.instead:
        return {**answer, "recommended": None, "sentence": searched.instead}
    pending = sum(run["status"] == "pending" for run in runs)
    so_far = f" So far {len(runs) - pending} of {len(runs)} runs have ended." if 0 < pending < len(runs) else ""
    named = searched.named
    if named is None and (awaited := _awaited(runs, searched.awaits)):
        return {
            **answer,
            "recommended": None,
            "sentence": unfinished(answer, awaited, evidence.metric) + so_far,
        }
    steps = [cell for cell in answer["cells"] if cell["trainable"] != NAMED]
    there = [cell["trainable"] for cell in answer["cells"] if any(run["in_mean"] for run in cell["points"])]
    if named not in there or answer["reference"] is None:
        named = None  # all its runs failed
    name = named or _smallest_sure(steps, main) or _best_cell(answer["cells"])
    answer["recommended"] = _recommended(answer["cells"], name) if name else None
    terms = Terms(evidence, choices)
    said = sentence(answer, main, terms, layers, replace(searched, named=named))
    answer["sentence"] = f"{said}{_too_few(evidence)}{so_far}"
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


def _too_few(evidence: Evidence) -> str:
    """That there are too few validation rows to tell anything, where that is so."""
    rows = evidence.rows
    if rows is None or rows >= LEAST_ROWS:
        return ""
    return f" {rows} validation {'row is' if rows == 1 else 'rows are'} too few to tell anything: label more."


def _awaited(runs: Sequence[Run], reference: str | None) -> str | None:
    """The k with which everything is to be compared, by default the deepest, where none of its runs has ended, but others
    have."""
    ended = {run["trainable"] for run in runs if run["status"] != "pending"}
    awaited = reference or next((k for k in reversed(by_depth(runs)) if k != NAMED), None)
    return awaited if ended and awaited not in ended else None


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
