"""The policy: what a search trains next, as a pure function of what it has observed.

It never touches a model, so tests feed it synthetic scores. A stopped search replays the recorded scores and continues with the
same batches, given the same number of workers.

The initial design is what is cheap: k = 0, then the learning rates of a small k, then full fine-tuning. Probes decide which k is
small. From then on each batch is what is expected to gain the most, less the price of its time. The search ends when no run
would gain more than it costs.

The gain of more seeds, or of a recipe that was not tried, follows from the posterior (``statistics/next_step.py``). A learning
rate that was not tried may be better or worse than the best one so far; neighbours differ by about ``RATE_SPREAD``. Time is
priced by the budget: to spend all of it costs as much score as full fine-tuning costs in the decision rule.
"""

import math
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.stats import norm

from frostline.data.wording import duration
from frostline.search.observations import Candidate, Observations, SearchSpace, in_words
from frostline.statistics.analysis_settings import POINT
from frostline.statistics.next_step import Surrogate
from frostline.statistics.recipe import Recipe

RATE_SPREAD = 0.01  # standard deviation of the score difference between neighbouring learning rates
ROUNDS = (1, 2, 3)  # numbers of seeds of the two best choices whose gain is compared
NEGLIGIBLE = 1e-5  # a score
CLEAR_DROP = 0.1  # a learning rate is clearly worse if it loses more than this share of the gain over the baseline
BRIEF = 10.0  # seconds of a run; a recipe whose run takes less is left out only if it cannot win
ENOUGH = "so high that no layer is worth tuning, whatever full fine-tuning would reach"
HEAD_IS_ENOUGH = f"k = 0 scores {ENOUGH}."
ALTERNATIVE_IS_ENOUGH = f"A model that trains no layer scores {ENOUGH}."
OTHER_IS_ENOUGH = f"Another model scores {ENOUGH}."
NOTHING_LEARNED = "No fine-tuned model scores above the baseline with 95 % confidence."


@dataclass(frozen=True)
class Batch:
    """Candidates to train next, together.

    Attributes:
        candidates: What is trained.
        why: The reason, as a sentence.
        gain: The expected gain, in score; infinite in the initial design, which is always trained.
        price: The price of its time, in score.
    """

    candidates: tuple[Candidate, ...]
    why: str
    gain: float = math.inf
    price: float = 0.0

    @property
    def net(self) -> float:
        """The expected gain less the price."""
        return self.gain - self.price


@dataclass(frozen=True)
class Stop:
    """Why a search ended.

    Attributes:
        why: The reason, as a sentence.
        nothing_learned: No fine-tuned model scores above the baseline with 95 % confidence.
        no_reference: The reference has no result, so no recipe can be compared with it.
        enough: The seconds of a budget that would allow the next step; None if the budget did not end the search.
    """

    why: str
    nothing_learned: bool = False
    no_reference: bool = False
    enough: float | None = None


Batches = Generator[Batch, None, None]


def head_first(space: SearchSpace) -> Batch:
    """k = 0 with two seeds, at all of its learning rates."""
    return Batch(
        tuple(space.candidates(space.head_only, space.middle_rate, space.seeds[:2])), "k = 0 first: it is the cheapest."
    )


def rates_at_first(space: SearchSpace) -> Batch:
    """A small k at the two highest learning rates, or at the only one."""
    some = tuple(Candidate(space.first, one, space.seeds[0]) for one in space.learning_rates[-2:])
    what = "Compare learning rates at" if some[1:] else "Train"
    return Batch(some, f"{what} {in_words(space.first)}, where a run is cheap.")


def reference_at(space: SearchSpace, rate: float, workers: int) -> Batch:
    """The reference at a usual learning rate and, if there is one, at another one.

    ``rate`` is the best learning rate of a small k. The reference often needs a lower one.
    """
    recipe, seeds = space.reference, space.seeds
    usual = rate if space.first == recipe else min(rate, space.middle_rate)
    higher = next((one for one in space.learning_rates if usual < one <= rate), None)
    other = space.next_lower(usual) if higher is None else higher
    candidates = [Candidate(recipe, usual, seeds[0])]
    if other is not None:
        candidates.append(Candidate(recipe, other, seeds[0]))
    elif workers > 1:
        candidates.extend(Candidate(recipe, usual, seed) for seed in seeds[1:2])
    return Batch(tuple(candidates), f"Train {in_words(recipe)}.")


def initial_design(space: SearchSpace, workers: int) -> Iterator[Batch]:
    """The first batches, as far as no score decides otherwise, without candidates that an earlier one has."""
    trained: set[Candidate] = set()
    for batch in (head_first(space), rates_at_first(space), reference_at(space, space.middle_rate, workers)):
        candidates = tuple(one for one in batch.candidates if one not in trained)
        trained |= {*candidates}
        if candidates:
            yield Batch(candidates, batch.why)


def policy(seen: Observations) -> Generator[Batch, None, Stop]:
    """Search for the choice to recommend.

    Yields:
        The next batch. The caller must train its candidates, and add them and what they turned out to be to ``seen``.

    Returns:
        Why the search ended.
    """
    space, first = seen.space, seen.space.first
    yield from _train(seen, head_first(space))
    if seen.is_sufficient(space.head_only):
        return Stop(HEAD_IS_ENOUGH)
    if seen.alternative_score > seen.sufficient_score:
        return Stop(ALTERNATIVE_IS_ENOUGH)

    rates = rates_at_first(space)
    if not seen.fits_budget(rates.candidates):
        once = f"Train {in_words(first)} once: how long a run takes is not known yet."
        yield from _train(seen, Batch(rates.candidates[:1], once))
    if seen.fits_budget(rates.candidates):
        yield from _train(seen, rates)
    yield from _try_lower_rates(seen, first)
    no_reference = yield from _train_reference(seen)
    if no_reference is not None:
        return no_reference
    nothing_learned = yield from _try_to_learn(seen)
    if nothing_learned is not None:
        return nothing_learned
    yield from _train_longer(seen)

    while not isinstance(following := _next(seen), Stop):
        yield from _train(seen, following)
    return following


def _train(seen: Observations, batch: Batch) -> Batches:
    """Train what is missing of a batch, in full stacks."""
    if missing := seen.in_full_stacks(batch.candidates):
        yield replace(batch, candidates=missing)


def _try_lower_rates(seen: Observations, recipe: Recipe) -> Batches:
    """Train a recipe at lower learning rates while its lowest one is its best, and clearly better than the next one."""
    while seen.best_learning_rate(recipe) in (lowest := min(_rates_tried(seen, recipe), default=None), None):
        lower = None if lowest is None else seen.space.next_lower(lowest)
        if lower is None:
            return
        known = [list(seen.scores(recipe, rate).values()) for rate in _rates_tried(seen, recipe)[:2]]
        if len(known) == 2 and all(known):  # else one of the two has no score
            low, high = map(float, map(np.mean, known))
            if not low - high > CLEAR_DROP * abs(low - seen.chance):
                return
        candidate = Candidate(recipe, lower, seen.space.seeds[0])
        if not seen.fits_budget([candidate]):
            return
        yield from _train(seen, Batch((candidate,), f"Try a lower learning rate for {in_words(recipe)}."))


def _rates_tried(seen: Observations, recipe: Recipe) -> list[float]:
    return sorted({one.learning_rate for one in seen.tried(recipe)})


def _train_reference(seen: Observations) -> Generator[Batch, None, Stop | None]:
    """Train the reference at a usual learning rate and at one more; the stop if that fails."""
    space, reference = seen.space, seen.space.reference
    rate = seen.best_learning_rate(space.first) or space.middle_rate
    both = reference_at(space, rate, seen.workers)
    one = Batch(both.candidates[:1], both.why)
    if (
        seen.budget_given is not None
        and seen.best_learning_rate(reference) is None
        and not seen.fits_budget(one.candidates)
    ):
        needed, left = duration(seen.run_seconds(reference)), duration(max(0.0, seen.seconds_left))
        why = (
            f"{in_words(reference, capital=True)} was not run: one run takes about {needed}, but only {left} of the budget are "
            "left. Without it, as with --tune 0,1,2, the largest k is the reference."
        )
        return Stop(why, no_reference=True, enough=seen.budget_for(one.candidates))
    yield from _train(seen, both if seen.fits_budget(both.candidates) else one)
    if seen.best_learning_rate(reference) is None:
        yield from _try_lower_rates(seen, reference)
    if seen.best_learning_rate(reference) is None:
        return Stop(reference_failed(reference), no_reference=True)
    return None


def reference_failed(reference: Recipe) -> str:
    """The sentence for a reference of which every run failed."""
    return f"Every run of {in_words(reference)} failed, at every learning rate that was tried. There is nothing to compare with."


def _try_to_learn(seen: Observations) -> Generator[Batch, None, Stop | None]:
    """Train the reference for longer at its best learning rate, then at other learning rates, then ways to tune, and then longer
    at other learning rates, until a run is above the baseline; the stop if nothing helps."""
    space, reference = seen.space, seen.space.reference
    longer, likely = space.longer(reference), seen.best_learning_rate(space.first)
    trained: list[Recipe] = [reference, *space.ways, *longer, space.first, space.head_only]
    rates = sorted(space.learning_rates, key=lambda one: (one != likely, -one))
    best = seen.best_learning_rate(reference)
    if any(map(seen.above_baseline, trained)):
        return None
    able = [recipe for recipe in (reference, *space.ways, *longer) if seen.may_win(recipe)]
    if not able:
        return Stop(ALTERNATIVE_IS_ENOUGH if seen.best_value >= seen.best_elsewhere else OTHER_IS_ENOUGH)
    every = [(recipe, rate) for recipe in able for rate in rates]
    enough: float | None = None  # the budget that allows the first run for which this one is too small
    for recipe, rate in (*((one, best) for one in longer if best and one in able), *every):
        if any(map(seen.above_baseline, trained)):
            break
        both, one = (seen.missing(space.candidates(recipe, rate, space.seeds[:count])) for count in (2, 1))
        if some := next((some for some in (both, one) if some and seen.fits_budget(some)), None):
            again = "one more seed" if rate in _rates_tried(seen, reference) else "another learning rate"
            other = again if recipe == reference else in_words(recipe)
            why = f"No fine-tuned model is above the baseline with 95 % confidence yet: try {other}."
            yield from _train(seen, Batch(some, why))
        elif one and enough is None:
            enough = seen.budget_for(one)
    if any(map(seen.above_baseline, trained)):
        return None
    tried = _rates_tried(seen, reference)
    left = ", ".join(f"{one:g}" for one in space.learning_rates if one not in tried)
    untried = f" The budget did not allow {in_words(reference)} at a learning rate of {left}." if left else ""
    return Stop(f"{NOTHING_LEARNED}{untried}", nothing_learned=True, enough=enough)


def _train_longer(seen: Observations) -> Batches:
    """Train the reference longer as long as it has not fitted its examples: how much that gains is not known before."""
    shorter = seen.space.reference
    for recipe in seen.space.longer(shorter):
        rate = seen.best_learning_rate(shorter)
        if rate is None or not seen.is_unfitted(shorter) or not seen.may_win(recipe):
            return
        candidates = (Candidate(recipe, rate, seen.space.seeds[0]),)
        if seen.fits_budget(candidates):
            why = f"{in_words(shorter, capital=True)} has not fitted its examples: train {in_words(recipe)}."
            yield from _train(seen, Batch(candidates, why))
        shorter = recipe


def _next(seen: Observations) -> Batch | Stop:
    """The next batch once the reference has a score."""
    ranked = acquisitions(seen)
    if not ranked:
        return Stop("Every run that the search may train is trained.")
    best = next((one for one in ranked if seen.fits_budget(one.candidates)), None)
    if best is not None and best.net > NEGLIGIBLE:
        found = seen.missing(best.candidates)
        for other in ranked:  # for idle workers: candidates of other batches that do not make it longer
            more = seen.missing([*found, *other.candidates])
            longer = seen.predicted_seconds(more) > seen.predicted_seconds(found)
            if other.gain > NEGLIGIBLE and not longer and seen.predicted_seconds(found):
                found = more
        return replace(best, candidates=found)
    # one run of each recipe that was not tried and may win, as far as the budget allows
    brief: tuple[Candidate, ...] = ()
    for recipe in seen.space.recipes:
        with_one = (*brief, *next_seed(seen, recipe))
        able = not seen.tried(recipe) and seen.may_win(recipe)
        if able and seen.run_seconds(recipe) <= BRIEF and seen.fits_budget(with_one):
            brief = with_one
    if brief:
        return Batch(brief, "Try every candidate that may win and whose run takes seconds.", gain=0.0)
    if ranked[0].net > NEGLIGIBLE:
        wanted = ranked[0]
        needed, left = seen.predicted_seconds(wanted.candidates), max(0.0, seen.seconds_left)
        return Stop(
            f"The budget ended before the next step: {wanted.why} It takes about {duration(needed)}, and only {duration(left)} "
            "is left.",
            enough=seen.budget_for(wanted.candidates),
        )
    most = max(ranked, key=lambda one: one.gain)
    return Stop(
        f"More runs would hardly change the choice: they are expected to gain at most {most.gain / POINT:.2f} points for "
        f"{duration(seen.predicted_seconds(most.candidates))} of training, less than the time is worth."
    )


def acquisitions(seen: Observations) -> list[Batch]:
    """All that may be trained next, the best first. The reference has a score."""
    surrogate = seen.surrogate()
    assert surrogate is not None
    found = [*_single(seen, surrogate), *_rounds(seen, surrogate), *_other_rates(seen, surrogate)]
    return sorted(found, key=lambda one: -one.net)


def price_of(seen: Observations, seconds: float) -> float:
    """What so many seconds of training cost, in score."""
    of_budget = seen.rule.exchange if seen.price_of_budget is None else seen.price_of_budget
    return of_budget * seconds / max(seen.budget, 1e-9)


def _price(seen: Observations, candidates: Sequence[Candidate]) -> float:
    """What the time of a batch costs, in score."""
    return price_of(seen, seen.predicted_seconds(candidates))


def _gain(seen: Observations, surrogate: Surrogate, candidates: Sequence[Candidate]) -> float:
    """The expected gain of a batch above the value of the best choice elsewhere, in score."""
    added: dict[Recipe, set[str]] = {}
    for one in seen.in_full_stacks(candidates):
        added.setdefault(one.recipe, set()).add(str(one.seed))
    return surrogate.gain(added, seen.best_elsewhere)


def next_seed(seen: Observations, recipe: Recipe, already: int = 0) -> tuple[Candidate, ...]:
    """A recipe with its next seed, at its best learning rate; empty if there is none. ``already`` seeds are planned."""
    rate = _rate_of(seen, recipe)
    if rate is None:
        return ()
    tried = {one.seed for one in seen.tried(recipe) if one.learning_rate == rate}
    left = [seed for seed in seen.space.seeds if seed not in tried]
    return seen.missing(seen.space.candidates(recipe, rate, left[already : already + 1]))


def _rate_of(seen: Observations, recipe: Recipe) -> float | None:
    """The learning rate for the next run of a recipe: the best so far, or a lower one if all failed; None if there is none."""
    space = seen.space
    if (best := seen.best_learning_rate(recipe)) is not None:
        return best
    if tried := _rates_tried(seen, recipe):
        return None if space.trains_head_only(recipe) else space.next_lower(tried[0])
    if (shorter := space.next_shorter(recipe)) is not None and seen.best_learning_rate(shorter) is not None:
        return seen.best_learning_rate(shorter)
    half = (space.start_k + space.layers) / 2
    nearer = space.reference if recipe == space.reference or space.share(recipe) * space.layers > half else space.first
    return seen.best_learning_rate(nearer) or seen.best_learning_rate(space.first) or space.middle_rate


def _single(seen: Observations, surrogate: Surrogate) -> Iterator[Batch]:
    """One more seed of one recipe."""
    for recipe in seen.space.recipes:
        if candidates := next_seed(seen, recipe):
            tried, name = seen.tried(recipe), in_words(recipe, capital=True)
            more = "one more seed" if seen.stacked == 1 else "more seeds"
            why = f"Train {more} of {in_words(recipe)}." if tried else f"{name} was not tried yet."
            if tried and seen.best_learning_rate(recipe) is None:
                why = f"{name} failed: try a lower learning rate."
            yield Batch(candidates, why, _gain(seen, surrogate, candidates), _price(seen, candidates))


def _rounds(seen: Observations, surrogate: Surrogate) -> Iterator[Batch]:
    """The next seed of both best choices, judged by the gain of several such seeds: a single one may not be enough to decide."""
    ranked = sorted(seen.space.recipes, key=surrogate.value, reverse=True)
    for seeds in ROUNDS:
        rounds = [[one for recipe in ranked[:2] for one in next_seed(seen, recipe, n)] for n in range(seeds)]
        every = tuple(one for some in rounds for one in some)
        if not rounds[0] or (seeds > 1 and not rounds[-1]):
            return
        first, *others = dict.fromkeys(one.recipe for one in rounds[0])
        names = " and ".join([in_words(first, capital=True), *map(in_words, others)])
        share = 1 / seeds
        yield Batch(
            tuple(rounds[0]),
            f"{names} may be the best: train {'one more seed' if seen.stacked == 1 else 'more seeds'}.",
            share * _gain(seen, surrogate, every),
            share * _price(seen, every),
        )


def possible_gain(mean: float, spread: float, most: float) -> float:
    """The expected value of a normal x that is cut off at 0 and at ``most``; 0 if ``most`` is negative."""

    def positive_part(mean: float) -> float:
        return float(mean * norm.cdf(mean / spread) + spread * norm.pdf(mean / spread))

    return max(0.0, positive_part(mean) - positive_part(mean - most))


def _other_rates(seen: Observations, surrogate: Surrogate) -> Iterator[Batch]:
    """Neighbours of the best learning rate of each recipe, unless a run failed at this or at a lower one.

    A wanted certainty is not about the best score, so then there are none.
    """
    if seen.rule.sure is not None:
        return
    best = max(seen.best_elsewhere, seen.best_value)
    for recipe in seen.space.recipes:
        rate = seen.best_learning_rate(recipe)
        if seen.space.trains_head_only(recipe) or rate is None:
            continue
        tried, scored = _rates_tried(seen, recipe), seen.scores(recipe, rate)
        failed = min((one for one in tried if not seen.scores(recipe, one)), default=np.inf)
        first = next(seed for seed in seen.space.seeds if seed in scored)
        for other in seen.space.neighbours(rate):
            if other in tried or other > failed:
                continue
            candidates = (Candidate(recipe, other, first),)
            mean = surrogate.value(recipe) - best - RATE_SPREAD / 2
            most = seen.rule.highest_value(seen.space.cost(recipe)) - best
            gain = possible_gain(mean, RATE_SPREAD, most)
            why = f"Try another learning rate for {in_words(recipe)}."
            yield Batch(candidates, why, gain, _price(seen, candidates))
