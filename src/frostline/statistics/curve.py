"""The curve of one task at one train size: each k compared with full fine-tuning, and the operating points."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import isclose
from typing import Any

from frostline.statistics.analysis_settings import AnalysisSettings, seeds_to_decide
from frostline.statistics.answer import (
    Cell,
    Choice,
    Decision,
    Difference,
    OperatingPoint,
    SizeAnswer,
)
from frostline.statistics.cells import (
    ANSWERS,
    CellRuns,
    by_depth,
    clear_distance,
    counted,
    done,
    runs_at_best_learning_rate,
    summarize_cell,
    with_outcomes,
)
from frostline.statistics.decision import JointEstimate, Lengths, Rule, decide
from frostline.statistics.inference import Ratio, holm
from frostline.statistics.predictions import Evidence
from frostline.statistics.recipe import Recipe
from frostline.statistics.run_group import NO_SEARCH, SearchOutcome
from frostline.statistics.run_result import Alternative, RunResult

DECIDED, UNDECIDED, UNDEFINED = "decided", "undecided", "undefined"  # verdicts


def _point(
    cells: Sequence[Cell],
    reference: Cell | None,
    intervals: Sequence[Ratio | Difference | None],
    threshold: float,
    *,
    by_mean: bool = False,
    **goal: Any,
) -> OperatingPoint:
    """The smallest k whose interval reaches a threshold; undefined if that of the reference is.

    Args:
        cells: In the order of k.
        reference: The cell that all are compared with.
        intervals: Of each cell: its share, or its difference from the reference.
        threshold: Of that.
        by_mean: Whether the verdict depends on the means only.
        goal: What the threshold stands for, as the point has it.
    """
    known = [(cell, one) for cell, one in zip(cells, intervals, strict=True) if one and one.estimate is not None]
    if not any(cell is reference for cell, _ in known):
        return OperatingPoint(**goal, verdict=UNDEFINED)
    estimate = confident = not_ruled_out = None
    for cell, interval in known:
        assert interval.estimate is not None
        if estimate is None and interval.estimate >= threshold:
            estimate = cell.recipe
        whole = interval.low is not None and interval.low >= threshold
        if confident is None and (cell is reference or whole):
            confident = cell.recipe
        if not_ruled_out is None and (interval.high is None or interval.high >= threshold):
            not_ruled_out = cell.recipe
        if cell is reference:
            break
    verdict = DECIDED if (estimate is not None if by_mean else confident == not_ruled_out) else UNDECIDED
    return OperatingPoint(**goal, estimate=estimate, confident=confident, not_ruled_out=not_ruled_out, verdict=verdict)


ITSELF = Ratio(1.0, 1.0, 1.0)  # the reference's share of itself
BEST_OF_EACH_K, BEST_OF_FULL = "best_of_each_k", "best_of_full"  # which learning rate represents a k


def compare(
    runs: Sequence[RunResult], evidence: Evidence, settings: AnalysisSettings, search: SearchOutcome = NO_SEARCH
) -> SizeAnswer:
    """Compare each k with full fine-tuning.

    Args:
        runs: Rows of the results table, finished or not, of one model, task and train size.
        evidence: Their scores and what is known about the uncertainty.
        settings: The settings of the analysis.
        search: The outcome of the search that trained the runs. The evidence knows the predictions of its alternatives by name.
    """
    clear = clear_distance(runs, evidence)
    every = by_depth(with_outcomes(runs, evidence.chance, clear))
    cells = _cells(every, evidence.chance, settings, search.learning_rates)
    with_k = [k for k in cells if k.is_k]
    reference = next((k for k in reversed(with_k) if any(run.outcome in ANSWERS for run in cells[k].good)), None)
    full = cells[reference].good if reference else ()
    pairs = {k: evidence.pair(cell.good, full) if reference else None for k, cell in cells.items()}
    learned = evidence.learned(full, len(done(every[reference]))) if reference else None
    described = [summarize_cell(cell, evidence, pairs[k], learned) for k, cell in cells.items()]
    of_reference = next((cell for cell in described if cell.recipe == reference), None)
    _relate(described, of_reference)
    steps = [cell for cell in described if cell.recipe in with_k]
    points = _points(steps, of_reference, settings)
    deciding = next(point for point in points if settings.decides(point))
    ways = [cell for cell in described if cell.recipe.is_way]
    others = [name for name in search.alternatives if name not in cells]
    lengths = Lengths.of(runs, search.longest)
    decision, choices = _decide([*steps, *ways], cells, evidence, settings, reference, others, lengths)
    comparable = {one.choice: one.comparable for one in choices}
    for cell in described:
        mean = cell.validation.mean
        found = comparable.get(cell.recipe, mean)
        cell.comparable = mean if mean is None or found is None or isclose(mean, found) else found
    undecided = deciding.not_ruled_out if deciding.verdict == UNDECIDED else None
    return SizeAnswer(
        train_size=runs[0].train_size,
        seeds=len({run.seed for run in runs}),
        learning_rate_rule=BEST_OF_FULL if settings.one_learning_rate else BEST_OF_EACH_K,
        reference=reference,
        reference_is_full=reference is not None and reference.is_full,
        learned=bool(learned),
        clear_distance=clear,
        cells=described,
        decision=decision,
        choices=choices,
        operating_points=points,
        deciding_point=deciding,
        seeds_to_decide=seeds_to_decide(pairs[undecided], settings.goal(evidence.chance)) if undecided else None,
    )


def _cells(
    every: Mapping[Recipe, Sequence[RunResult]],
    chance: float | None,
    settings: AnalysisSettings,
    selected: Mapping[Recipe, float],
) -> dict[Recipe, CellRuns]:
    """The runs of each k at the learning rate that represents it."""
    cells = {}
    for k, shown in runs_at_best_learning_rate(every, chance, settings, selected).items():
        ended = done(shown)
        rates = sorted({run.learning_rate for run in every[k]}, key=lambda rate: rate or 0.0)
        at_other_rates = [
            run
            for rate in rates
            if rate != shown[0].learning_rate
            for run in counted(done(one for one in every[k] if one.learning_rate == rate), settings)
        ]
        cells[k] = CellRuns(
            runs=shown,
            ended=ended,
            good=counted(ended, settings),
            learning_rates=rates,
            at_other_rates=at_other_rates,
        )
    return cells


def _decide(
    steps: Sequence[Cell],
    cells: Mapping[Recipe, CellRuns],
    evidence: Evidence,
    settings: AnalysisSettings,
    reference: Recipe | None,
    alternatives: Sequence[Recipe],
    lengths: Lengths,
) -> tuple[Decision | None, list[Choice]]:
    """The decision between the alternatives and all k and ways with a usable score, and what is known about each.

    See ``decision.py``.
    """

    def on_curve(step: Cell) -> bool:
        return step.recipe.is_k and lengths.is_shortest(step.recipe)

    some = [step for step in steps if any(run.outcome in ANSWERS for run in step.in_mean)]
    if known := [step.recipe.epochs for step in some if step.recipe.is_k and step.recipe.epochs]:
        lengths = replace(lengths, shortest=min(known))  # every run of a shorter training may have failed
    usable = sorted(some, key=lambda step: not on_curve(step))
    if reference is None:  # then only what is shown to have learned can be recommended
        alternatives = [one for one in alternatives if evidence.learned([Alternative(one)], len(alternatives))]
        if not alternatives:
            return None, []
    layers = max([1, *(step.tuned_layers or 0 for step in usable if step.recipe.is_k)])
    depth = {
        step.recipe: 1 + 1 / layers if step.tune_embeddings else (step.tuned_layers or 0) / layers
        for step in usable
        if on_curve(step)
    }
    # of the reference, as the costs of k are; a table of others may not know how many layers a way trains
    most = max((step.tuned_share or 0.0 for step in usable if step.recipe.is_k), default=0.0) or 1.0
    shares = [step.tuned_share for step in usable if not on_curve(step)]
    ways = [1.0 if share is None else min(1.0, share / most) for share in shares]
    if ways and depth:  # a way is expected to score as the k of the same cost, also if that k was not trained
        places, least = {*depth.values()}, min(depth.values())
        depth |= {Recipe(k): k / layers for k in range(layers) if k / layers > least and k / layers not in places}
        depth = dict(sorted(depth.items(), key=lambda one: one[1]))
    good: dict[Recipe, Sequence[RunResult]] = {one: cells[one].good if one in cells else [] for one in depth}
    good |= {step.recipe: cells[step.recipe].good for step in usable}
    others = [run for step in usable for run in cells[step.recipe].at_other_rates]
    choices = JointEstimate.of(good, [*depth.values()], alternatives, evidence, ways, lengths, others).choices
    base = evidence.chance if settings.corrected else None
    rule = Rule.of(settings, evidence.chance)
    full = next((choice for choice in choices if choice.name == reference), None)
    return decide(choices, full, rule, base=base, margin=settings.margin)


def _points(cells: Sequence[Cell], reference: Cell | None, settings: AnalysisSettings) -> list[OperatingPoint]:
    """Every operating point: shares of the score, shares of the gain, and the margin."""
    shares = {False: [cell.share for cell in cells], True: [cell.share_corrected for cell in cells]}
    points = [
        _point(cells, reference, some, share, by_mean=settings.by_mean, target=share, corrected=corrected)
        for corrected, some in shares.items()
        for share in settings.targets
    ]
    differences = [cell.difference for cell in cells]
    return [*points, _point(cells, reference, differences, -settings.margin, margin=settings.margin)]


def _relate(cells: Sequence[Cell], reference: Cell | None) -> None:
    """Add relative costs to the cells, and set the reference's comparison with itself to exact equality."""
    if reference is None:
        return
    for cell in cells:
        ours, theirs = (c.seconds and c.seconds + (c.shared_seconds or 0.0) for c in (cell, reference))
        if ours and theirs and cell.concurrent_runs == reference.concurrent_runs:
            cell.times_cheaper = theirs / ours
    if reference.share and reference.share.low is not None:
        reference.share = ITSELF
    if reference.share_corrected and reference.share_corrected.low is not None:
        reference.share_corrected = ITSELF
    if reference.difference and reference.difference.low is not None:
        reference.difference = replace(reference.difference, low=0.0, high=0.0, error=0.0, p=1.0)


def adjust(curves: Sequence[SizeAnswer]) -> int:
    """Add ``p_holm`` to the difference of every cell, adjusted over all curves; returns the number of comparisons."""
    tested = [cell.difference for curve in curves for cell in curve.cells if cell.recipe != curve.reference]
    known = [(difference, difference.p) for difference in tested if difference and difference.p is not None]
    for (difference, _), p in zip(known, holm([p for _, p in known]), strict=True):
        difference.p_holm = p
    return len(known)
