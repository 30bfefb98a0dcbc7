"""Test scores, added to an answer after every choice has been made on validation."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from frostline.data.wording import capitalized, counted
from frostline.report import formatting
from frostline.report.names import baseline, tuning
from frostline.report.names import metric as name_of_metric
from frostline.statistics.answer import Answer, Cell, Decision, SizeAnswer
from frostline.statistics.inference import ratio
from frostline.statistics.predictions import Labelled, LogitsOf, RunPredictions
from frostline.statistics.run_result import RunResult


def add_test_scores(
    answer: Answer,
    runs: Sequence[RunResult],
    test: Labelled,
    logits: LogitsOf,
    alternatives: Mapping[str, NDArray[Any]],
) -> None:
    """Add a test summary to each cell, and the test scores of what is recommended.

    A recommended k is also compared with full fine-tuning on test.

    Args:
        answer: What ``make_answer`` returned; it is changed in place.
        runs: Rows of the results table that have a test score.
        test: Targets and metric of the test set.
        logits: Returns a run's predictions for the test examples.
        alternatives: The predictions of models that train no layer for the test examples, by name.
    """
    evidence, by_name = RunPredictions(test, logits), {run.run: run for run in runs}
    for size in answer.sizes:
        tested: dict[str, list[RunResult]] = {
            cell.recipe: [by_name[point.run] for point in cell.in_mean if point.run in by_name] for cell in size.cells
        }
        for cell in size.cells:
            cell.test = evidence.summary(tested[cell.recipe])
        recommended, full = size.recommended, size.reference
        if recommended and full:
            pair = evidence.pair(tested[recommended.recipe], tested[full])
            recommended.test = next((run.test for run in runs if run.run == recommended.run), None)
            recommended.test_share = ratio(pair) if pair else None
            recommended.test_share_corrected = ratio(pair, test.chance) if pair else None
        elif recommended is None and size.decision:
            values = alternatives.get(size.decision.choice)
            size.decision.test = None if values is None else test.score(values, np.arange(len(test.targets)))


def sentences_on_test(size: SizeAnswer, metric: str) -> list[str]:
    """Sentences on the test scores of the recommended choice, for a train size that was tested."""
    recommended, full = size.recommended, size.cell(size.reference)
    if recommended is None:
        beside = [_reached(full, metric)] if full is not None and full.test and full.test.n else []
        return [*_of_alternative(size.decision, metric), *beside]
    cell = size.cell(recommended.recipe)
    assert cell is not None
    sentences = [_reached(cell, metric)]
    if full is not None and full.test and cell is not full:
        sentences.append(f"{capitalized(tuning(size.reference))} reaches {formatting.score(full.test.mean)}.")
        share = recommended.test_share_corrected
        if share and share.estimate is not None:
            interval = formatting.percent_interval(share.low, share.high)
            known = f" (95 % confidence interval {interval})" if interval != formatting.UNKNOWN else ""
            sentences.append(
                f"The share of its gain over the {baseline(metric)} is {formatting.percent(share.estimate)} on test{known}."
            )
    return sentences


def _of_alternative(decision: Decision | None, metric: str) -> list[str]:
    """The test score of a recommended model that trains no layer."""
    if decision is None:
        return []
    if decision.test is None:
        return [f"{capitalized(tuning(decision.choice))} was not scored on test."]
    mean = f"{name_of_metric(metric)} {formatting.score(decision.test)}"
    return [f"{capitalized(tuning(decision.choice))} reaches {mean} on test."]


def _reached(cell: Cell, metric: str) -> str:
    """The mean score of a cell on test."""
    test = cell.test
    assert test is not None
    seeds = counted(test.n, "seed")
    if test.low is not None:
        seeds += f", 95 % confidence interval {formatting.interval(test.low, test.high)}"
    mean = f"{name_of_metric(metric)} {formatting.score(test.mean)}"
    return f"{capitalized(tuning(cell.recipe))} reaches {mean} on test (mean of {seeds})."
