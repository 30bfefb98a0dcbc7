"""What a run says: a row of results.csv, or of a table of results from elsewhere. And the models that train no layer."""

from dataclasses import dataclass
from typing import Final, Protocol

from frostline.statistics.recipe import Recipe


class Scored(Protocol):
    """What a comparison reads of a run, or of a model that trains no layer."""

    @property
    def run(self) -> str: ...

    @property
    def seed(self) -> int | str: ...

    @property
    def validation_best(self) -> float | None: ...


@dataclass(frozen=True, kw_only=True)
class RunResult:
    """What a run says. A value is None where it is unknown, or where the run has not ended.

    Attributes:
        recipe: What is trained: ``last 2``, ``lora-2``.
        seed: A number; tables of others may have names.
        run: The digest of the run, or the row of a table.
        tuned_layers: The number of the layers from the lowest trained one up.
        tuned_share: The share of the layers that run in training.
        status: ``done``, ``failed`` or ``pending``.
        reason: Why the run failed or stopped early; empty if there is nothing to say.
        outcome: ``ok`` or the kind of failure; see :mod:`frostline.statistics.cells`.
        above_baseline: Whether the score is above the constant baseline.
        validation_best, validation_last, train_last, test: Scores in the metric, after the best epoch or the last one.
        cache_seconds: The run's share of the forward pass over the frozen layers.
        concurrent_runs: How many runs were trained at the same time.
    """

    model: str = ""
    task: str = ""
    train_size: int | None = None
    recipe: Recipe
    tuned_layers: int | None = None
    tune_embeddings: bool | None = None
    tuned_share: float | None = None
    seed: int | str
    learning_rate: float | None = None
    num_train_epochs: float | None = None
    status: str = "done"
    reason: str = ""
    outcome: str | None = None
    above_baseline: bool | None = None
    metric: str | None = None
    validation_best: float | None = None
    validation_last: float | None = None
    train_last: float | None = None
    test: float | None = None
    best_epoch: float | None = None
    trainable_parameters: int | None = None
    train_seconds: float | None = None
    cache_seconds: float | None = None
    concurrent_runs: int | None = None
    peak_memory_bytes: float | None = None
    run: str

    @property
    def score(self) -> float:
        """The validation score of a run that has one."""
        assert self.validation_best is not None
        return self.validation_best

    @property
    def unfitted(self) -> bool:
        """Whether it has not fitted the examples that it was trained on."""
        return is_unfitted(self.train_last, self.validation_last)


NEARLY_PERFECT = 0.95  # a score on training examples that leaves little to learn
UNFITTED = 2 / 3  # the error on training examples as a share of that on validation, from which more epochs help


def is_unfitted(on_train: float | None, on_validation: float | None) -> bool:
    """Whether the error on training examples (1 - score) is not much smaller than on validation; False if one is unknown.

    ``docs/log.md`` has the tasks behind the limit.
    """
    if on_train is None or on_validation is None:
        return False
    return on_train < NEARLY_PERFECT and 1 - on_train >= UNFITTED * (1 - on_validation)


PROBE: Final = Recipe("probe")  # a linear probe on frozen features
WORDS: Final = Recipe("words")  # a TF-IDF model and word pairs, without a pretrained model
ALTERNATIVES = (PROBE, WORDS)


@dataclass(frozen=True)
class Alternative:
    """The only fit of such a model, for the evidence, which knows its predictions by name."""

    run: str
    validation_best: None = None

    @property
    def seed(self) -> str:
        """It shares no seed with a run."""
        return self.run
