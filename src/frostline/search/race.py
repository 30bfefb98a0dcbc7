"""Decides which runs a search trains next: a pure function of the scores seen so far.

The race never touches a model, so tests feed it synthetic scores. A stopped search replays the recorded scores and continues
with the same steps, given the same number of workers.

Every k is compared with the reference by the same test as in the answer of a sweep (:mod:`frostline.statistics.inference.pair`),
paired by seed and row. Intervals are corrected for the number of interim analyses
(:func:`frostline.search.trials.interim_seeds`). Probes decide which k is trained first, never which k is recommended. If a probe
reaches the target even if the reference had the highest possible score, the race ends without training any layer.
"""

import math
from collections.abc import Callable, Generator, Sequence

import numpy as np

from frostline.data.wording import duration
from frostline.search.scoreboard import Scoreboard
from frostline.search.trials import (
    CLEAR_DROP,
    NOTHING_LEARNED,
    RaceSettings,
    Step,
    Trial,
    Verdict,
    interim_seeds,
    name_of,
    reference_failed,
)
from frostline.statistics.tune import Tune

Steps = Generator[Step, None, Verdict]
Train = Callable[[Sequence[Trial], str], Generator[Step, None, None]]

HEAD_IS_ENOUGH = "k = 0 reaches the target even if the reference had the highest possible score."
PROBE_IS_ENOUGH = (
    "A linear probe on frozen features reaches the target even if the reference had the highest possible score."
)


def race(board: Scoreboard) -> Steps:
    """Search for the smallest k that reaches the goal.

    Yields:
        The next step. The caller must train its trials and add their outcomes to the ``board``.

    Returns:
        The verdict.
    """
    settings = board.settings
    rate, seed = settings.middle_rate(), settings.seeds[0]

    def train(trials: Sequence[Trial], why: str) -> Generator[Step, None, None]:
        if missing := board.missing(trials):
            extra = _for_idle_workers(board, missing)
            board.steps.append((*missing, *extra))
            yield Step(board.steps[-1], f"{why} Idle workers train {_listed(extra)}." if extra else why)

    def try_lower_rates(tune: Tune) -> Generator[Step, None, None]:
        while (lower := _lower_rate(board, tune)) is not None and _lower_is_better(board, tune):
            if not board.fits_budget(trials := [Trial(tune, lower, seed)]):
                return
            yield from train(trials, f"Try a lower learning rate for {name_of(tune)}.")

    yield from train(settings.trials(0, rate, settings.seeds[:2]), "k = 0 first: it is the cheapest.")
    if board.needs_no_reference(0):
        return Verdict(0, HEAD_IS_ENOUGH)
    if settings.probe_score > (required := settings.goal.required_score(settings.highest_score)):
        if (mean := board.mean(0)) is not None and mean > required:
            yield from train(
                settings.trials(0, rate, settings.seeds), "k = 0 is as good as the best probe: train more seeds."
            )
            if board.needs_no_reference(0):
                return Verdict(0, HEAD_IS_ENOUGH)
        return Verdict(None, PROBE_IS_ENOUGH, by_probe=True)

    first = settings.learning_rate_k
    highest = [Trial(first, one, seed) for one in settings.learning_rates[-2:]]
    yield from train(highest, f"Compare learning rates at {name_of(first)}, where a run is cheap.")
    yield from try_lower_rates(first)
    rate = board.best_learning_rate(first) or rate
    no_reference = yield from _train_reference(board, train, try_lower_rates, rate)
    if no_reference is not None:
        return no_reference
    nothing_learned = yield from _try_to_learn(board, train)
    if nothing_learned is not None:
        return nothing_learned

    while not isinstance(following := _next(board, rate), Verdict):
        yield from train(following.trials, following.why)
    return following


def _train_reference(
    board: Scoreboard, train: Train, try_lower_rates: Callable[[Tune], Generator[Step, None, None]], rate: float
) -> Generator[Step, None, Verdict | None]:
    """Train two seeds of the reference at the learning rate ``rate`` or a lower one; returns a verdict if that fails."""
    settings, reference = board.settings, board.settings.reference
    usual = rate if settings.learning_rate_k == reference else min(rate, settings.middle_rate())
    two = [Trial(reference, usual, one) for one in settings.seeds[:2]]
    if settings.budget is not None and board.best_learning_rate(reference) is None and not board.fits_budget(two[:1]):
        return Verdict(None, _over_budget(board, two[0]), no_reference=True)
    lower = "" if usual == rate else " at a lower learning rate, which it often needs"
    yield from train(two if board.fits_budget(two) else two[:1], f"Train {name_of(reference)}{lower}.")
    if board.best_learning_rate(reference) is None:
        yield from try_lower_rates(reference)
    if board.best_learning_rate(reference) is None:
        return Verdict(None, reference_failed(reference), no_reference=True)
    return None


def _try_to_learn(board: Scoreboard, train: Train) -> Generator[Step, None, Verdict | None]:
    """Train the reference at other learning rates until some run is above the baseline with 95 % confidence.

    Returns a verdict if no learning rate helps.
    """
    settings, reference, first = board.settings, board.settings.reference, board.settings.learning_rate_k
    trained: list[Tune] = [reference, first, 0]
    likely = board.best_learning_rate(first)
    for one in sorted(settings.learning_rates, key=lambda one: (one != likely, -one)):
        if any(map(board.above_baseline, trained)):
            break
        both = [Trial(reference, one, seed) for seed in settings.seeds[:2]]
        if trials := next((some for some in (both, both[:1]) if board.fits_budget(some)), None):
            yield from train(
                trials, "No run is above the baseline with 95 % confidence yet: try another learning rate."
            )
    if not any(map(board.above_baseline, trained)):
        tried = {trial.learning_rate for trial in board.outcomes if trial.tune == reference}
        left = ", ".join(f"{one:g}" for one in settings.learning_rates if one not in tried)
        untried = f" The budget did not allow {name_of(reference)} at a learning rate of {left}." if left else ""
        return Verdict(None, f"{NOTHING_LEARNED}{untried}", nothing_learned=True)
    return None


def _next(board: Scoreboard, rate: float) -> Step | Verdict:
    """The next step once the reference has a score. A k without a trial is trained at the learning rate ``rate``."""
    settings, reference = board.settings, board.settings.reference
    smallest = board.smallest_reaching_goal()
    other = _other_reference_rate(board)
    if untried := board.untried_ks():
        trials = [Trial(k, rate, board.pairing_seed) for k in untried[:2]]
        both = _deeper_misses_goal(board, untried[0]) or _is_cheap(settings, trials[-1].tune)
        if not (both and board.fits_budget(trials)):
            trials = trials[:1]
        why = f"Next larger k: does {' or '.join(name_of(trial.tune) for trial in trials)} reach the target?"
    elif again := [Trial(k, lower, board.pairing_seed) for k in board.failed_ks() if (lower := _lower_rate(board, k))]:
        trials, why = again[:1], f"{name_of(again[0].tune, capital=True)} failed: try a lower learning rate."
    elif other is not None and board.fits_budget(more := [Trial(reference, other, one) for one in settings.seeds[:2]]):
        trials, why = more, f"Try another learning rate for {name_of(reference)}."
    else:
        decided = _decide_uncertain(board, smallest)
        if isinstance(decided, Verdict):
            return decided
        trials, why = list(decided.trials), decided.why
    second = _second_seed(board, smallest)
    left = [trial for trial in second if trial not in (*trials, *_for_idle_workers(board, board.missing(trials)))]
    if left and board.fits_budget(second) and not board.fits_budget(trials, left):
        names = " and ".join(name_of(k) for k in dict.fromkeys(trial.tune for trial in second))
        trials, why = second, f"Train a second seed of {names} while the budget allows it: one seed has no interval."
    if not board.fits_budget(trials):
        return Verdict(smallest, f"The rest of the budget is too small for the next step.{untried_sentence(board)}")
    return Step(tuple(trials), why)


def _decide_uncertain(board: Scoreboard, smallest: Tune) -> Step | Verdict:
    """Train more seeds of every uncertain k; returns a verdict if there is none, or if more seeds cannot help."""
    settings, reference = board.settings, board.settings.reference
    uncertain = [k for k in board.candidates() if board.certain(k) is None and board.best_learning_rate(k) is not None]
    if not uncertain:
        failed = board.failed_ks()
        but = f", except {' and '.join(map(name_of, failed))}, of which every run failed" if failed else ""
        name = name_of(smallest, capital=True)
        return Verdict(smallest, f"{name} reaches the target and every smaller k misses it, with 95 % confidence{but}.")
    if all(map(board.limited_by_validation_rows, uncertain)):
        return Verdict(
            smallest, "The remaining uncertainty comes from the validation examples: more seeds would hardly reduce it."
        )
    trials = _more_seeds(board, uncertain)
    if not trials:
        count = len(settings.seeds)
        seeds = f"All {count} seeds of every uncertain k are" if count > 1 else "The only seed of every uncertain k is"
        return Verdict(smallest, f"{seeds} trained.")
    if not board.fits_budget(trials) and (fewer := _more_seeds(board, uncertain[-1:])):
        uncertain, trials = uncertain[-1:], fewer
    names = " and ".join(map(name_of, uncertain))
    return Step(tuple(trials), f"Uncertain: {names}. Train more seeds, also of {name_of(reference)}.")


def _for_idle_workers(board: Scoreboard, trials: Sequence[Trial]) -> list[Trial]:
    """Trials for workers that would be idle during a step: the next k, and second seeds. They must not make it longer."""
    settings, extra = board.settings, list[Trial]()
    if not board.predicted_seconds(trials):  # no run has been timed yet
        return []
    rate = board.best_learning_rate(settings.learning_rate_k) or settings.middle_rate()
    next_ones = [Trial(k, rate, board.pairing_seed) for k in board.untried_ks()]
    for one in [*next_ones, *_second_seed(board, board.smallest_reaching_goal())]:
        more = [*trials, *extra, one]
        if one not in trials and board.predicted_seconds(more) <= board.predicted_seconds(more[:-1]):
            extra.append(one)
    return extra


def _listed(trials: Sequence[Trial]) -> str:
    """The names of the k of these trials, each once, as a phrase."""
    *names, last = dict.fromkeys(name_of(trial.tune) for trial in trials)
    return f"{', '.join(names)} and {last}" if names else last


def _over_budget(board: Scoreboard, trial: Trial) -> str:
    """The message for a reference that cannot be trained within the budget."""
    needed, left = (duration(one) for one in (board.run_seconds(trial.tune), max(0.0, board.budget - board.spent)))
    return (
        f"One run of {name_of(trial.tune)} takes about {needed}, but only {left} of the budget are left. Without it there is "
        "nothing to compare with. Raise --budget, or set --max-k to compare with fewer layers instead."
    )


def untried_sentence(board: Scoreboard) -> str:
    """A sentence that names the k for which the budget was too small; empty if there is none."""
    untried = board.untried_ks()
    if not untried:
        return ""
    last = f" to {name_of(untried[-1])}" if len(untried) > 1 else ""
    return f" It did not allow {name_of(untried[0])}{last}."


def _second_seed(board: Scoreboard, smallest: Tune) -> list[Trial]:
    """A second seed for the k that would be recommended and for the reference, if they have only one."""
    rates = {k: board.best_learning_rate(k) for k in (smallest, board.settings.reference)}
    seeds = board.settings.seeds[:2]
    return [
        trial
        for k, rate in rates.items()
        if rate is not None
        for trial in board.missing(board.settings.trials(k, rate, seeds))
    ]


def _lower_rate(board: Scoreboard, tune: Tune) -> float | None:
    """A lower learning rate for a k, if the lowest one so far is its best. None for k = 0: there, all are tried at once."""
    if tune == 0:
        return None
    lowest = min((trial.learning_rate for trial in board.outcomes if trial.tune == tune), default=None)
    if lowest is None or board.best_learning_rate(tune) not in (lowest, None):
        return None
    return board.settings.next_lower(lowest)


def _lower_is_better(board: Scoreboard, tune: Tune) -> bool:
    """Whether the lowest learning rate of a k is clearly better than the second lowest, or one of the two has no score."""
    lowest, *higher = sorted({trial.learning_rate for trial in board.outcomes if trial.tune == tune})
    known = [list(board.scores(tune, rate).values()) for rate in (lowest, *higher[:1])]
    if len(known) < 2 or not all(known):
        return True
    low, high = map(float, map(np.mean, known))
    return low - high > CLEAR_DROP * abs(low - board.settings.chance)


def _other_reference_rate(board: Scoreboard) -> float | None:
    """A learning rate at which the reference may score better.

    It is the best one of the k at which learning rates were compared, unless the reference failed at or below it. Else it is
    a lower one, if the lowest one so far is the best of the reference.
    """
    settings = board.settings
    tried = {trial.learning_rate for trial in board.outcomes if trial.tune == settings.reference}
    failed = [rate for rate in tried if not board.scores(settings.reference, rate)]
    best = board.best_learning_rate(settings.learning_rate_k)
    if best is not None and best not in tried and best < min(failed, default=math.inf):
        return best
    return _lower_rate(board, settings.reference)


def _deeper_misses_goal(board: Scoreboard, k: int) -> bool:
    """Whether a larger k misses the goal. Then this k probably misses it too, so the next k can be in the same step."""
    return any(board.reaches_goal(deeper) is False for deeper in board.settings.ks if deeper > k)


def _is_cheap(settings: RaceSettings, tune: Tune) -> bool:
    """Whether this k is smaller than the one at which learning rates are compared first."""
    first = settings.learning_rate_k
    return isinstance(tune, int) and isinstance(first, int) and tune < first


def _more_seeds(board: Scoreboard, uncertain: Sequence[Tune]) -> list[Trial]:
    """The missing trials of these k and of the reference up to the next interim analysis."""
    settings = board.settings
    rates = {k: board.best_learning_rate(k) for k in (*uncertain, settings.reference)}
    known = {k: (rate, len(board.seeds_tried(k, rate))) for k, rate in rates.items() if rate is not None}
    fewest = min(count for _, count in known.values())
    seeds = next((n for n in interim_seeds(len(settings.seeds)) if n > fewest), 0)
    return [
        trial
        for k, (rate, _) in known.items()
        for trial in board.missing(settings.trials(k, rate, settings.seeds[:seeds]))
    ]
