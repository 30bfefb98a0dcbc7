"""The steps with which a search begins. Scores decide only whether they are all trained, and at which learning rates."""

from collections.abc import Iterator

from frostline.search.trials import RaceSettings, Step, Trial, in_words
from frostline.statistics.recipe import HEAD_ONLY


def opening(settings: RaceSettings) -> Iterator[Step]:
    """The first steps, as far as no score decides otherwise, without trials that an earlier step has."""
    trained: set[Trial] = set()
    for step in (
        classifier_head(settings),
        learning_rates(settings),
        reference(settings, settings.middle_rate()),
    ):
        trials = tuple(trial for trial in step.trials if trial not in trained)
        trained |= {*trials}
        if trials:
            yield Step(trials, step.why)


def classifier_head(settings: RaceSettings) -> Step:
    """k = 0 with two seeds, at all of its learning rates."""
    trials = settings.trials(HEAD_ONLY, settings.middle_rate(), settings.seeds[:2])
    return Step(tuple(trials), "k = 0 first: it is the cheapest.")


def learning_rates(settings: RaceSettings) -> Step:
    """A small k at the two highest learning rates."""
    first, seed = settings.learning_rate_k, settings.seeds[0]
    trials = tuple(Trial(first, one, seed) for one in settings.learning_rates[-2:])
    return Step(trials, f"Compare learning rates at {in_words(first)}, where a run is cheap.")


def reference(settings: RaceSettings, rate: float) -> Step:
    """The reference at a usual learning rate and, if there is one, at another one.

    Args:
        settings: The settings of the race.
        rate: The best learning rate of a small k. The reference often needs a lower one.
    """
    tune, seeds = settings.reference, settings.seeds
    usual = rate if settings.learning_rate_k == tune else min(rate, settings.middle_rate())
    other = rate if rate != usual else settings.next_lower(usual)
    trials = [Trial(tune, usual, seeds[0])]
    if other is not None:
        trials.append(Trial(tune, other, seeds[0]))
    elif settings.workers > 1:
        trials.extend(Trial(tune, usual, seed) for seed in seeds[1:2])
    return Step(tuple(trials), f"Train {in_words(tune)}.")
