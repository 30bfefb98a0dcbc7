"""The answer: how many of the last layers to fine-tune, what share of full fine-tuning that reaches, its cost and certainty.

Every choice is made on validation. Test scores are added afterwards, for what was chosen (``scores_on_test.py``).
"""

from collections.abc import Sequence
from dataclasses import replace

from frostline.report.answer.sentence import Comparison, reference_missing, sentence
from frostline.statistics.analysis_settings import AnalysisSettings
from frostline.statistics.answer import Answer, Cell, Counts, Recommended, SizeAnswer, TaskAnswer
from frostline.statistics.cells import ANSWERS, by_depth, failures_by_rate, outcomes_at_each_size
from frostline.statistics.curve import adjust, compare
from frostline.statistics.predictions import Evidence, RunPredictions
from frostline.statistics.recipe import Recipe
from frostline.statistics.run_group import NO_SEARCH, RunGroup, SearchOutcome
from frostline.statistics.run_result import Alternative, RunResult, Scored
from frostline.statistics.train_sizes import over_sizes

SCHEMA_VERSION = 12
MIN_EXAMPLES = 10  # with fewer validation examples the answer contains a warning


def make_answer(group: RunGroup, settings: AnalysisSettings) -> Answer:
    """The answer about the runs of a sweep, whose predictions are known."""
    evidence, runs, found = group.evidence, group.runs, answer_task(group, settings)
    assert isinstance(evidence, RunPredictions)
    adjust(found.sizes)
    counts = {status: sum(run.status == status for run in runs) for status in ("done", "failed", "pending")}
    return Answer(
        **vars(found),
        schema_version=SCHEMA_VERSION,
        task_type=evidence.split.task_type,
        target=None if settings.by_margin else settings.target,
        margin=settings.margin if settings.by_margin else None,
        price=settings.price,
        sure=settings.sure,
        interim_analyses=group.search.interim_analyses,
        runs=Counts(**counts),
        unusable_runs=sum(rate.failures.failed for rate in found.rates),
    )


def answer_task(group: RunGroup, settings: AnalysisSettings) -> TaskAnswer:
    """The answer for every train size, the largest first, and the comparison of the sizes."""
    runs, evidence = group.runs, group.evidence
    sizes = [
        answer_one(
            [run for run in runs if run.train_size == size],
            evidence,
            settings,
            group.layers,
            group.search if group.search.train_size in (None, size) else NO_SEARCH,
        )
        for size in sorted({run.train_size for run in runs}, key=lambda size: size or 0, reverse=True)
    ]
    return TaskAnswer(
        model=group.model,
        task=group.task,
        metric=evidence.metric,
        layers=group.layers,
        chance=evidence.chance,
        validation_rows=evidence.rows,
        sentence=sizes[0].sentence,
        sizes=sizes,
        rates=failures_by_rate(outcomes_at_each_size(runs, sizes, evidence.chance), settings),
        over_sizes=over_sizes(sizes) if len(sizes) > 1 else [],
        same_runs=group.same_runs,
    )


def answer_one(
    runs: Sequence[RunResult],
    evidence: Evidence,
    settings: AnalysisSettings,
    layers: int | None,
    search: SearchOutcome,
) -> SizeAnswer:
    """The answer for one train size: the curve of :func:`frostline.statistics.curve.compare`, a recommendation, a sentence."""
    corrected = settings.corrected and evidence.chance is not None
    settings = replace(settings, corrected=corrected)
    answer = compare(runs, evidence, settings, search)
    if reference := _missing_reference(runs, search):
        best = answer.decision.choice if answer.decision else None
        mean = evidence.summary(_runs_of(answer, best)).mean if best else None  # of all rows: it stands alone
        answer.sentence = reference_missing(reference, best, mean, evidence.metric) + _progress(runs)
        if search is NO_SEARCH or answer.decision is None:
            answer.decision, answer.choices = None, []
        else:
            answer.decision.above_baseline = _learned(answer, evidence)
            answer.recommended = recommend(answer, by_mean=settings.by_mean)
        return answer
    answer.recommended = recommend(answer, by_mean=settings.by_mean)
    learned = _learned(answer, evidence)
    if search.instead and not learned:
        answer.decision, answer.choices, answer.recommended, answer.sentence = None, [], None, search.instead
        return answer
    if answer.decision is not None:
        answer.decision.above_baseline = learned
    text = sentence(Comparison(answer, evidence, settings), layers, search)
    text = f"{text} {search.instead}" if search.instead else text
    answer.sentence = f"{text}{_too_few_examples(evidence)}{_progress(runs)}"
    return answer


def _learned(answer: SizeAnswer, evidence: Evidence) -> bool | None:
    """Whether the recommended choice is significantly above the baseline; None if that cannot be tested."""
    if answer.decision is None:
        return False
    found = evidence.learned(_runs_of(answer, answer.decision.choice), sum(one.runs for one in answer.cells) or 1)
    # the reference is what all are compared with, whatever its scores are, and not the best of several
    return answer.learned if found is not None and answer.decision.choice == answer.reference else found


def _runs_of(answer: SizeAnswer, choice: Recipe) -> Sequence[Scored]:
    """The runs in the mean of a choice; of a model that trains no layer, its only fit."""
    cell = answer.cell(choice)
    return cell.in_mean if cell else [Alternative(choice)]


def _missing_reference(runs: Sequence[RunResult], search: SearchOutcome) -> Recipe | None:
    """The reference (by default the largest k) if none of its runs has ended, but others have or it is awaited; else None.

    A search that is over has its reference, so a larger k of which no run has ended yet does not take its answer away.
    """
    if search.over:
        return None
    ended, awaited = {run.recipe for run in runs if run.status != "pending"}, search.awaited
    reference = awaited or next((k for k in reversed(by_depth(runs)) if k.is_k), None)
    return reference if reference not in ended and (ended or awaited) else None


def _progress(runs: Sequence[RunResult]) -> str:
    """A sentence on how many runs have ended; empty if none or all have."""
    pending = sum(run.status == "pending" for run in runs)
    return f" So far {len(runs) - pending} of {len(runs)} runs have ended." if 0 < pending < len(runs) else ""


def _too_few_examples(evidence: Evidence) -> str:
    """A warning if there are too few validation examples for any conclusion."""
    rows = evidence.rows
    if rows is None or rows >= MIN_EXAMPLES:
        return ""
    examples = "example is" if rows == 1 else "examples are"
    return f" {rows} validation {examples} too few for any conclusion: label more."


def recommend(curve: SizeAnswer, *, by_mean: bool) -> Recommended | None:
    """The recommended k or way with its best run; None if no run has a usable score, or if no run trained what is recommended.

    Args:
        curve: Of one train size, with its decision.
        by_mean: Whether the smallest k whose mean reaches the target is recommended, whatever the decision.
    """
    decided = (by_mean and curve.deciding_point.estimate) or (curve.decision and curve.decision.choice)
    if decided:
        cell = curve.cell(decided)
    else:  # the best mean of a k of which at least one run neither diverged nor is degenerate
        usable = [cell for cell in curve.cells if any(run.outcome in ANSWERS for run in cell.in_mean)]
        cell = max(usable, key=lambda one: one.comparable or 0.0, default=None)
    return best_run(cell) if cell else None


def best_run(cell: Cell) -> Recommended:
    """A recipe with its best run on validation."""
    usable = [run for run in cell.in_mean if run.outcome in ANSWERS]
    best = max(usable or cell.in_mean, key=lambda run: run.validation_best or 0.0)  # the first of equally good ones
    assert best.validation_best is not None
    return Recommended(recipe=cell.recipe, run=best.run, seed=best.seed, validation_best=best.validation_best)
