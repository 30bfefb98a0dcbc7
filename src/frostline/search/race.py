"""Decides which runs a search trains next: a pure function of the scores seen so far.

The race never touches a model, so tests feed it synthetic scores. A stopped search replays the recorded scores and continues
with the same steps, given the same number of workers.

It begins with what is cheap: k = 0, then the learning rates of a small k, then full fine-tuning. From then on each step trains
what is expected to gain the most, less the price of its time. The race ends when no run would gain more than
it costs. Probes decide which k is trained first, and they compete with every k at the end.

The trials that a search may train next, each with its expected gain and the price of its time.

The gain of more seeds, or of a k that was not tried, follows from the posterior (``statistics/next_step.py``). A learning rate
that was not tried at a k may be better or worse than the best one so far; neighbours differ by about ``RATE_SPREAD``.

Time is priced by the budget: to spend all of it costs as much score as full fine-tuning costs in the decision rule.
"""

from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import norm

from frostline.data.wording import duration, duration_at_least
from frostline.search import opening
from frostline.search.outlook import Outlook
from frostline.search.scoreboard import Scoreboard
from frostline.search.trials import NOTHING_LEARNED, Step, Trial, Verdict, in_words, reference_failed
from frostline.statistics.analysis_settings import POINT
from frostline.statistics.tune import Tune

RATE_SPREAD = 0.01  # standard deviation of the score difference between neighbouring learning rates
ROUNDS = (1, 2, 3)  # numbers of seeds of the two best choices whose gain is compared
NEGLIGIBLE = 1e-5  # a score


@dataclass(frozen=True)
class Candidate:
    """Trials that a search may train next.

    Attributes:
        trials: The trials.
        gain: The expected gain, in score.
        price: What their time costs, in score.
        why: The reason, as a sentence.
    """

    trials: tuple[Trial, ...]
    gain: float
    price: float
    why: str

    @property
    def net(self) -> float:
        """The expected gain less the price."""
        return self.gain - self.price


def candidates(board: Scoreboard, outlook: Outlook) -> list[Candidate]:
    """All that may be trained next, the best first."""
    found = [*_single(board, outlook), *_rounds(board, outlook), *_other_rates(board, outlook)]
    return sorted(found, key=lambda one: -one.net)


def price(board: Scoreboard, trials: Sequence[Trial]) -> float:
    """What the time of a step costs, in score."""
    return board.settings.rule.exchange * board.predicted_seconds(trials) / max(board.budget, 1e-9)


def next_seed(board: Scoreboard, tune: Tune, already: int = 0) -> tuple[Trial, ...]:
    """The trials of a k with its next seed, at its best learning rate; empty if there is none.

    Args:
        board: The scoreboard.
        tune: The k.
        already: The number of seeds to skip, because they are planned.
    """
    rate = rate_of(board, tune)
    if rate is None:
        return ()
    tried = board.seeds_tried(tune, rate)
    left = [seed for seed in board.settings.seeds if seed not in tried]
    return tuple(board.missing(board.settings.trials(tune, rate, left[already : already + 1])))


def rate_of(board: Scoreboard, tune: Tune) -> float | None:
    """The learning rate for the next run of a k; None if every one failed.

    It is the best so far. A k without runs takes that of the nearer one of the reference and the k at which learning rates were
    compared. A k of which every run failed takes a lower one.
    """
    settings = board.settings
    if (best := board.best_learning_rate(tune)) is not None:
        return best
    tried = [trial.learning_rate for trial in board.outcomes if trial.tune == tune]
    if tried:
        return settings.next_lower(min(tried)) if tune else None
    first, reference = settings.learning_rate_k, settings.reference
    half = (settings.start_k + settings.layers) / 2
    nearer = reference if tune == reference or (isinstance(tune, int) and tune > half) else first
    return board.best_learning_rate(nearer) or board.best_learning_rate(first) or settings.middle_rate()


def _single(board: Scoreboard, outlook: Outlook) -> Iterator[Candidate]:
    """One more seed of one k."""
    for tune in board.settings.choices:
        if trials := next_seed(board, tune):
            tried = any(trial.tune == tune for trial in board.outcomes)
            failed = tried and board.best_learning_rate(tune) is None
            name = in_words(tune, capital=True)
            why = f"{name} was not tried yet." if not tried else f"Train {_more_seeds(board)} of {in_words(tune)}."
            why = f"{name} failed: try a lower learning rate." if failed else why
            yield Candidate(trials, outlook.gain(board.in_full_stacks(trials)), price(board, trials), why)


def _rounds(board: Scoreboard, outlook: Outlook) -> Iterator[Candidate]:
    """The next seed of both best choices, judged by the gain of several such seeds: a single one may not be enough to decide."""
    ranked = sorted(board.settings.choices, key=outlook.value, reverse=True)
    for seeds in ROUNDS:
        rounds = [[t for tune in ranked[:2] for t in next_seed(board, tune, already=n)] for n in range(seeds)]
        every = tuple(trial for some in rounds for trial in some)
        if not rounds[0] or (seeds > 1 and not rounds[-1]):
            return
        first, *others = dict.fromkeys(trial.tune for trial in rounds[0])
        names = " and ".join([in_words(first, capital=True), *map(in_words, others)])
        share = 1 / seeds
        yield Candidate(
            tuple(rounds[0]),
            share * outlook.gain(board.in_full_stacks(every)),
            share * price(board, every),
            f"{names} may be the best: train {_more_seeds(board)}.",
        )


def _other_rates(board: Scoreboard, outlook: Outlook) -> Iterator[Candidate]:
    """Neighbours of the best learning rate of each k, unless a run failed at this or at a lower one.

    A wanted certainty is not about the best score, so then there are none.
    """
    if board.settings.rule.sure is not None:
        return
    best = max(outlook.rule.value(choice) for choice in outlook.estimate.choices)
    for tune in board.settings.choices:
        rate = board.best_learning_rate(tune)
        if not tune or rate is None:
            continue
        tried = {trial.learning_rate for trial in board.outcomes if trial.tune == tune}
        failed = min((one for one in tried if not board.scores(tune, one)), default=np.inf)
        for other in board.settings.neighbours(rate):
            if other in tried or other > failed:
                continue
            trials = (Trial(tune, other, board.first_seed(tune)),)
            gain = _expected_excess(outlook.value(tune) - best - RATE_SPREAD / 2, RATE_SPREAD)
            yield Candidate(trials, gain, price(board, trials), f"Try another learning rate for {in_words(tune)}.")


def _more_seeds(board: Scoreboard) -> str:
    """How many seeds a step adds to a k, in words."""
    return "one more seed" if board.settings.stacked == 1 else "more seeds"


def _expected_excess(mean: float, spread: float) -> float:
    """The expected value of ``max(0, x)`` for a normal ``x``."""
    return float(mean * norm.cdf(mean / spread) + spread * norm.pdf(mean / spread))


Steps = Generator[Step, None, Verdict]
Train = Callable[[Sequence[Trial], str], Generator[Step, None, None]]

CLEAR_DROP = 0.1  # a learning rate is clearly worse if it loses more than this share of the gain over the baseline
BRIEF = 10.0  # seconds of a run; a k whose run takes less is never left out
ENOUGH = "so high that no layer is worth tuning, whatever full fine-tuning would reach"
HEAD_IS_ENOUGH = f"k = 0 scores {ENOUGH}."
ALTERNATIVE_IS_ENOUGH = f"A model that trains no layer scores {ENOUGH}."


def race(board: Scoreboard) -> Steps:
    """Search for the choice to recommend.

    Yields:
        The next step. The caller must train its trials and add their outcomes to the ``board``.

    Returns:
        The verdict.
    """
    settings = board.settings
    rate, seed = settings.middle_rate(), settings.seeds[0]

    def train(trials: Sequence[Trial], why: str) -> Generator[Step, None, None]:
        if missing := board.in_full_stacks(trials):
            board.steps.append(missing)
            yield Step(missing, why)

    def try_lower_rates(tune: Tune) -> Generator[Step, None, None]:
        while (lower := _lower_rate(board, tune)) is not None and _lower_is_better(board, tune):
            if not board.fits_budget(trials := [Trial(tune, lower, seed)]):
                return
            yield from train(trials, f"Try a lower learning rate for {in_words(tune)}.")

    head, rates = opening.classifier_head(settings), opening.learning_rates(settings)
    yield from train(head.trials, head.why)
    if board.is_sufficient(0):
        return Verdict(HEAD_IS_ENOUGH)
    if settings.alternative_score > settings.sufficient_score:
        return Verdict(ALTERNATIVE_IS_ENOUGH)

    first = settings.learning_rate_k
    if not board.fits_budget(rates.trials):
        once = f"Train {in_words(first)} once: how long a run takes is not known yet."
        yield from train(rates.trials[:1], once)
    if board.fits_budget(rates.trials):
        yield from train(rates.trials, rates.why)
    yield from try_lower_rates(first)
    rate = board.best_learning_rate(first) or rate
    no_reference = yield from _train_reference(board, train, try_lower_rates, rate)
    if no_reference is not None:
        return no_reference
    nothing_learned = yield from _try_to_learn(board, train)
    if nothing_learned is not None:
        return nothing_learned

    while not isinstance(following := _next(board), Verdict):
        yield from train(following.trials, following.why)
    return following


def _train_reference(
    board: Scoreboard, train: Train, try_lower_rates: Callable[[Tune], Generator[Step, None, None]], rate: float
) -> Generator[Step, None, Verdict | None]:
    """Train the reference at a usual learning rate and at one more; returns a verdict if that fails.

    Args:
        board: The scoreboard.
        train: Trains trials.
        try_lower_rates: Tries lower learning rates of a k.
        rate: The best learning rate of a small k.
    """
    settings, reference = board.settings, board.settings.reference
    step = opening.reference(settings, rate)
    both = step.trials
    if settings.budget is not None and board.best_learning_rate(reference) is None and not board.fits_budget(both[:1]):
        return Verdict(_over_budget(board, both[0]), no_reference=True)
    yield from train(both if board.fits_budget(both) else both[:1], step.why)
    if board.best_learning_rate(reference) is None:
        yield from try_lower_rates(reference)
    if board.best_learning_rate(reference) is None:
        return Verdict(reference_failed(reference), no_reference=True)
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
        both = board.missing([Trial(reference, one, seed) for seed in settings.seeds[:2]])
        if trials := next((some for some in (both, both[:1]) if some and board.fits_budget(some)), None):
            yield from train(
                trials, "No run is above the baseline with 95 % confidence yet: try another learning rate."
            )
    if not any(map(board.above_baseline, trained)):
        tried = {trial.learning_rate for trial in board.outcomes if trial.tune == reference}
        left = ", ".join(f"{one:g}" for one in settings.learning_rates if one not in tried)
        untried = f" The budget did not allow {in_words(reference)} at a learning rate of {left}." if left else ""
        return Verdict(f"{NOTHING_LEARNED}{untried}", nothing_learned=True)
    return None


def _next(board: Scoreboard) -> Step | Verdict:
    """The next step once the reference has a score."""
    outlook = board.outlook()
    assert outlook is not None
    ranked = candidates(board, outlook)
    if not ranked:
        return Verdict("Every run that the search may train is trained.")
    best = next((one for one in ranked if board.fits_budget(one.trials)), None)
    if best is not None and best.net > NEGLIGIBLE:
        return Step(_with_idle_workers(board, best, ranked), best.why)
    if brief := _brief(board):
        return Step(brief, "Try every k whose run takes seconds.")
    if ranked[0].net > NEGLIGIBLE:
        needed, left = board.predicted_seconds(ranked[0].trials), max(0.0, board.budget - board.spent)
        tried = {trial.tune for trial in board.outcomes}
        return Verdict(
            f"The next step takes about {duration(needed)}, but only {duration(left)} of the budget is left. "
            f"With --budget {duration_at_least(board.spent + needed)}, it would be: {ranked[0].why}",
            untried=next((trial.tune for trial in ranked[0].trials if trial.tune not in tried), None),
        )
    most = max(ranked, key=lambda one: one.gain)
    return Verdict(
        f"More runs would hardly change the choice: they are expected to gain at most {most.gain / POINT:.2f} points for "
        f"{duration(board.predicted_seconds(most.trials))} of training, less than the time is worth."
    )


def _with_idle_workers(board: Scoreboard, best: Candidate, ranked: Sequence[Candidate]) -> tuple[Trial, ...]:
    """The trials of a step, and those of other candidates that do not make it longer."""
    trials = board.missing(best.trials)
    for other in ranked:
        more = board.missing([*trials, *other.trials])
        longer = board.predicted_seconds(more) > board.predicted_seconds(trials)
        if other.gain > NEGLIGIBLE and not longer and board.predicted_seconds(trials):
            trials = more
    return trials


def _brief(board: Scoreboard) -> tuple[Trial, ...]:
    """One run of every k without a trial whose run takes seconds, as far as the budget allows."""
    tried = {trial.tune for trial in board.outcomes}
    found: tuple[Trial, ...] = ()
    for tune in board.settings.choices:
        more = (*found, *next_seed(board, tune))
        if tune not in tried and board.run_seconds(tune) <= BRIEF and board.fits_budget(more):
            found = more
    return found


def _over_budget(board: Scoreboard, trial: Trial) -> str:
    """The message for a reference that cannot be trained within the budget."""
    needed, left = (duration(one) for one in (board.run_seconds(trial.tune), max(0.0, board.budget - board.spent)))
    enough = duration_at_least(board.spent + board.predicted_seconds((trial,)))
    return (
        f"{in_words(trial.tune, capital=True)} was not run: one run takes about {needed}, but only {left} of the budget are "
        f"left. Give about --budget {enough} or more, or set --max-k to compare with fewer layers instead."
    )


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
