"""The trials that a search may train next, each with its expected gain and the price of its time.

The gain of more seeds, or of a k that was not tried, follows from the posterior (``statistics/next_step.py``). A learning rate
that was not tried at a k may be better or worse than the best one so far; neighbours differ by about ``RATE_SPREAD``.

Time is priced by the budget: to spend all of it costs as much score as full fine-tuning costs in the decision rule.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import norm

from frostline.search.outlook import Outlook
from frostline.search.scoreboard import Scoreboard
from frostline.search.trials import Trial, in_words
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
