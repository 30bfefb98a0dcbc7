"""The race: what to train next, given the scores seen so far, and when to stop. Imports no torch.

The race never touches a model. It is a generator: it yields steps (some trainings and the reason), finds their outcomes on its
board when it continues, and ends with a verdict. The same outcomes give the same steps. A stopped search replays the recorded
outcomes and continues with the same steps.

Cheap trainings come first. Full is trained as often as the comparison needs. k grows from the shallow end, so little that is
deeper than the answer is trained.

Decisions rest on the intervals of the answer (:mod:`frostline.statistics.inference.pair`): runs are paired by seed and row. Each
interim analysis spends its part of the 5 % error (:func:`frostline.search.course.rungs`). Cheap estimates decide where the race
begins, never which k is recommended. Only a probe that no k could beat by much ends the race at once.
"""

import math
from collections.abc import Callable, Generator, Sequence

import numpy as np

from frostline.data.wording import duration
from frostline.model.tune import Tune
from frostline.search.board import Board
from frostline.search.course import (
    CLEARLY,
    NOTHING_LEARNED,
    Course,
    Step,
    Trial,
    Verdict,
    failed_throughout,
    rungs,
    said,
)

Steps = Generator[Step, None, Verdict]
Run = Callable[[Sequence[Trial], str], Generator[Step, None, None]]


def race(board: Board) -> Steps:
    """Look for the smallest k that is enough; whoever carries a step out writes its outcomes on the ``board``."""
    course = board.course
    rate, reference, seed = course.middle(), course.reference, course.seeds[0]

    def run(trials: Sequence[Trial], why: str) -> Generator[Step, None, None]:
        if wanted := board.missing(trials):
            company = _company(board, wanted)
            board.steps.append((*wanted, *company))
            yield Step(board.steps[-1], f"{why} No core rests meanwhile: {_listed(company)}." if company else why)

    def lower_rates(tune: Tune) -> Generator[Step, None, None]:
        while (lower := _lower(board, tune)) is not None and _falls(board, tune):
            if not board.affords(trials := [Trial(tune, lower, seed)]):
                return
            yield from run(trials, f"Does a lower rate do {said(tune)} good?")

    yield from run(course.trials(0, rate, course.seeds[:2]), "The head alone costs next to nothing.")
    if board.enough_by_itself(0):
        return Verdict(0, "The head alone is so good that no other k can be much better.")
    if course.frozen > (line := course.goal.required_score(course.best)):
        if (reached := board.mean(0)) is not None and reached > line:
            yield from run(
                course.trials(0, rate, course.seeds), "A head that is as good as a probe is more use: more seeds."
            )
            if board.enough_by_itself(0):
                return Verdict(0, "The head alone is so good that no other k can be much better.")
        return Verdict(None, "A probe on frozen features is so good that no k can be much better.", by_probe=True)

    asked = course.asked
    highest = [Trial(asked, one, seed) for one in course.rates[-2:]]
    yield from run(highest, f"Which learning rate: asked of {said(asked)}, where it is cheap.")
    yield from lower_rates(asked)
    rate = board.rate(asked) or rate
    often = rate if asked == reference else min(rate, course.middle())
    two = [Trial(reference, often, one) for one in course.seeds[:2]]
    if course.budget is not None and board.rate(reference) is None and not board.affords(two[:1]):
        return Verdict(None, _too_dear(board, two[0]), alone=True)
    why = f"What {said(reference)} reaches" + ("." if often == rate else ", at a lower rate: it often wants less.")
    yield from run(two if board.affords(two) else two[:1], why)
    if board.rate(reference) is None:
        yield from lower_rates(reference)
    if board.rate(reference) is None:
        return Verdict(None, failed_throughout(reference), alone=True)
    nothing_learned = yield from _try_to_learn(board, run)
    if nothing_learned is not None:
        return nothing_learned

    while not isinstance(following := _next(board, rate), Verdict):
        yield from run(following.trials, following.why)
    return following


def _try_to_learn(board: Board, run: Run) -> Generator[Step, None, Verdict | None]:
    """Train full at other learning rates while nothing is above chance with 95 % confidence; a verdict if that does not help."""
    course, reference, asked = board.course, board.course.reference, board.course.asked
    first_of_all: list[Tune] = [reference, asked, 0]
    likely = board.rate(asked)
    for one in sorted(course.rates, key=lambda one: (one != likely, -one)):
        if any(map(board.learned, first_of_all)):
            break
        both = [Trial(reference, one, other) for other in course.seeds[:2]]
        if trials := next((some for some in (both, both[:1]) if board.affords(some)), None):
            yield from run(trials, "Nothing is surely above guessing yet: another learning rate.")
    if not any(map(board.learned, first_of_all)):
        tried = {trial.rate for trial in board.outcomes if trial.tune == reference}
        left = ", ".join(f"{one:g}" for one in course.rates if one not in tried)
        untried = f" {said(reference, begins=True)} at {left} could not be tried." if left else ""
        return Verdict(None, f"{NOTHING_LEARNED}{untried}", unlearned=True)
    return None


def _next(board: Board, rate: float) -> Step | Verdict:
    """What is trained next, once the reference is known; the others at this ``rate``."""
    course, reference = board.course, board.course.reference
    found = board.found()
    other = _other_rate(board)
    if unknown := board.untried():
        trials = [Trial(k, rate, board.seed) for k in unknown[:2]]
        if not (board.affords(trials) and (_hardly(board, unknown[0]) or _is_cheap(course, trials[-1].tune))):
            trials = trials[:1]
        why = f"Climbing: is {' enough, or '.join(said(trial.tune) for trial in trials)} enough?"
    elif again := [Trial(k, lower, board.seed) for k in board.failed() if (lower := _lower(board, k)) is not None]:
        trials, why = again[:1], f"{said(again[0].tune, begins=True)} failed: does it with a lower rate?"
    elif other is not None and board.affords(asking := [Trial(reference, other, one) for one in course.seeds[:2]]):
        trials, why = asking, f"Does another rate do {said(reference)} good?"
    else:
        doubtful = [k for k in board.candidates() if board.surely(k) is None and board.rate(k) is not None]
        if not doubtful:
            failed = board.failed()
            but = f", but for {' and '.join(map(said, failed))}, of which every run failed" if failed else ""
            return Verdict(found, f"{said(found, begins=True)} is surely enough, and what is smaller surely not{but}.")
        if all(map(board.rows_decide, doubtful)):
            return Verdict(
                found, "The doubt that is left is that of the validation rows: more seeds would hardly help."
            )
        trials = _more_seeds(board, doubtful)
        if not trials:
            count = len(course.seeds)
            of_them = (
                f"All {count} seeds of what is not sure are" if count > 1 else "The one seed of what is not sure is"
            )
            return Verdict(found, f"{of_them} trained.")
        if not board.affords(trials) and (fewer := _more_seeds(board, doubtful[-1:])):
            doubtful, trials = doubtful[-1:], fewer
        why = f"It is not sure of {' and '.join(map(said, doubtful))}: more seeds, and of {said(reference)}."
    second = _second_seed(board, found)
    left = [trial for trial in second if trial not in (*trials, *_company(board, board.missing(trials)))]
    if left and board.affords(second) and not board.affords(trials, left):
        of = " and ".join(said(k) for k in dict.fromkeys(trial.tune for trial in second))
        trials, why = second, f"Before the budget ends, a second seed of {of}: of one nothing is known for sure."
    if not board.affords(trials):
        return Verdict(found, f"What is left of the budget does not allow the next step.{_untried(board)}")
    return Step(tuple(trials), why)


def _company(board: Board, trials: Sequence[Trial]) -> list[Trial]:
    """What is trained beside these while cores would rest: of the next k, and second seeds of those that are known, whatever
    makes it take no longer."""
    course, company = board.course, list[Trial]()
    if not board.takes(trials):  # nobody knows how long
        return []
    rate = board.rate(course.asked) or course.middle()
    next_ones = [Trial(k, rate, board.seed) for k in board.untried()]
    for one in [*next_ones, *_second_seed(board, board.found())]:
        more = [*trials, *company, one]
        if one not in trials and board.takes(more) <= board.takes(more[:-1]):
            company.append(one)
    return company


def _listed(trials: Sequence[Trial]) -> str:
    """In words, each k once."""
    *names, last = dict.fromkeys(said(trial.tune) for trial in trials)
    return f"{', '.join(names)} and {last}" if names else last


def _too_dear(board: Board, trial: Trial) -> str:
    """That the reference cannot be trained within the budget, in words."""
    needed, left = (duration(one) for one in (board.price(trial.tune), max(0.0, board.budget - board.spent)))
    return (
        f"One training of {said(trial.tune)} takes about {needed}, and {left} of the budget are left: without it "
        "there is nothing to compare with. Give more (--budget), or let fewer layers stand for full (--max-k)."
    )


def _untried(board: Board) -> str:
    """What the budget left out, in words."""
    untried = board.untried()
    if not untried:
        return ""
    between = f" to {said(untried[-1])}" if len(untried) > 1 else ""
    return f" {said(untried[0], begins=True)}{between} could not be tried."


def _second_seed(board: Board, found: Tune) -> list[Trial]:
    """Of the k that would be named and of the reference, where they have but one."""
    rates = {k: board.rate(k) for k in (found, board.course.reference)}
    seeds = board.course.seeds[:2]
    return [
        trial
        for k, rate in rates.items()
        if rate is not None
        for trial in board.missing(board.course.trials(k, rate, seeds))
    ]


def _lower(board: Board, tune: Tune) -> float | None:
    """A lower rate for a k, as long as the lowest that was tried is its best; for the head alone all were tried."""
    if tune == 0:
        return None
    lowest = min((trial.rate for trial in board.outcomes if trial.tune == tune), default=None)
    if lowest is None or board.rate(tune) not in (lowest, None):
        return None
    return board.course.below(lowest)


def _falls(board: Board, tune: Tune) -> bool:
    """Whether a k does clearly worse at the second of the rates that were tried than at the lowest, or one of them failed."""
    lowest, *higher = sorted({trial.rate for trial in board.outcomes if trial.tune == tune})
    known = [list(board.scores(tune, rate).values()) for rate in (lowest, *higher[:1])]
    if len(known) < 2 or not all(known):
        return True
    low, high = map(float, map(np.mean, known))
    return low - high > CLEARLY * abs(low - board.course.chance)


def _other_rate(board: Board) -> float | None:
    """A rate that the reference may want more than its best: that of the k that was asked, where none so low has failed, and
    lower ones than were tried, as long as the lowest is its best."""
    course = board.course
    tried = {trial.rate for trial in board.outcomes if trial.tune == course.reference}
    failed = [rate for rate in tried if not board.scores(course.reference, rate)]
    asked = board.rate(course.asked)
    if asked is not None and asked not in tried and asked < min(failed, default=math.inf):
        return asked
    return _lower(board, course.reference)


def _hardly(board: Board, k: int) -> bool:
    """Whether a deeper k is not enough, so that the next one may be trained beside this one."""
    return any(board.enough(deeper) is False for deeper in board.course.ks if deeper > k)


def _is_cheap(course: Course, tune: Tune) -> bool:
    """Whether it is shallower than what the rate is asked of."""
    return isinstance(tune, int) and isinstance(course.asked, int) and tune < course.asked


def _more_seeds(board: Board, doubtful: Sequence[Tune]) -> list[Trial]:
    """So many seeds of these and of the reference as the next look is at."""
    course = board.course
    rates = {k: board.rate(k) for k in (*doubtful, course.reference)}
    known = {k: (rate, len(board.tried(k, rate))) for k, rate in rates.items() if rate is not None}
    fewest = min(count for _, count in known.values())
    rung = next((n for n in rungs(len(course.seeds)) if n > fewest), 0)
    return [
        trial for k, (rate, _) in known.items() for trial in board.missing(course.trials(k, rate, course.seeds[:rung]))
    ]
