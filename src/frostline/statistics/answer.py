"""The answer about the runs of a sweep, in types. ``answer.json`` is its dump, and is read back into it.

The statistics make a :class:`SizeAnswer` of each train size. Reports add sentences, test scores and what belongs to the folder.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic_core import to_jsonable_python

from frostline.data.files import validated
from frostline.statistics.inference import Ratio, Summary
from frostline.statistics.recipe import Recipe


@dataclass(kw_only=True)
class Difference:
    """A cell's mean minus that of full fine-tuning; None where it cannot be known.

    Attributes:
        means: Both means, of the runs that are compared.
        p_holm: The p-value adjusted over all comparisons of an answer.
    """

    means: tuple[float, float]
    estimate: float
    low: float | None = None
    high: float | None = None
    p: float | None = None
    error: float | None = None
    degrees_of_freedom: float | None = None
    p_holm: float | None = None


@dataclass(frozen=True, kw_only=True)
class Failures:
    """How many runs failed, and how (see :mod:`frostline.statistics.cells`).

    Attributes:
        undefined: The number of runs on whose rows the metric is not defined. They have not failed.
        interval: Of the failure rate; None without runs.
        not_above_baseline: The number of runs that are not above the baseline, failed or not; None: unknown.
    """

    diverged: int
    degenerate: int
    at_chance: int
    collapsed: int
    failed: int
    undefined: int
    runs: int
    interval: tuple[float, float] | None
    not_above_baseline: int | None


@dataclass(frozen=True, kw_only=True)
class Point:
    """A finished run of a cell; ``in_mean``: whether the cell's means include it."""

    seed: int | str
    validation_best: float | None
    train_last: float | None
    outcome: str | None
    run: str
    in_mean: bool


@dataclass(kw_only=True)
class Cell:
    """The runs of one recipe at the learning rate that represents it.

    Attributes:
        validation_rows: The number of validation rows that at least one of the runs in the mean is scored on; None: unknown.
        runs: The number of finished runs.
        errors: The number of runs that ended in an error.
        validation, validation_last, train_last: Of the runs that the means include.
        share, share_corrected: Of full fine-tuning's score, and of its gain over the baseline.
        seconds, shared_seconds: The mean training time, and the mean share of the forward pass over the frozen layers.
        times_cheaper: How many times the reference takes as long.
        comparable: The mean without the effects of the folds.
        test: Scores on test, which are added after every choice.
    """

    recipe: Recipe
    tuned_layers: int | None
    tune_embeddings: bool | None
    tuned_share: float | None
    learning_rate: float | None
    num_train_epochs: float | None
    learning_rates_tried: list[float]
    validation_rows: int | None
    runs: int
    failures: Failures
    errors: int
    validation: Summary
    validation_last: Summary
    train_last: Summary
    points: list[Point]
    share: Ratio | None
    share_corrected: Ratio | None
    difference: Difference | None
    trainable_parameters: int | None
    seconds: float | None
    concurrent_runs: int | None
    shared_seconds: float | None
    peak_memory_bytes: float | None
    times_cheaper: float | None = None
    comparable: float | None = None
    test: Summary | None = None

    @property
    def in_mean(self) -> list[Point]:
        """The runs that the means include."""
        return [point for point in self.points if point.in_mean]


@dataclass(frozen=True, kw_only=True)
class BesideK:
    """A way beside the largest k that costs at most as much.

    Attributes:
        choice: That k.
        above, low, high: The points that the way is expected to score above it, with the 95 % interval.
        probability: That it scores above it.
    """

    choice: Recipe
    above: float
    low: float
    high: float
    probability: float


@dataclass(kw_only=True)
class Choice:
    """What is known about something that can be recommended.

    Attributes:
        choice: A recipe, or a model that trains no layer.
        score: Its mean, on the rows that its own runs are scored on.
        below_full, low, high: The points that it is expected to be below the reference, with the 95 % interval.
        probability: That it reaches the target.
        cost_of_full: The share of layers that it tunes.
        comparable: The mean without the effects of the folds.
        expected: The expected score.
        value: The expected score less the price of the cost.
        probabilities: Of the usual targets.
        better_than_previous: The probability that it is better than the next smaller k.
        dominated_by: A choice that is expected to score at least as high at no higher cost.
    """

    choice: Recipe
    score: float
    below_full: float
    low: float
    high: float
    probability: float
    cost_of_full: float
    comparable: float
    expected: float
    value: float
    probabilities: dict[str, float]
    better_than_previous: float | None
    dominated_by: Recipe | None
    beside_k: BesideK | None


@dataclass(kw_only=True)
class Decision(Choice):
    """The recommended choice.

    Attributes:
        reference: What it was compared with; None if no k has a usable score.
        above_baseline: Whether it is significantly above the baseline; None: not tested.
        test: The test score of a model that trains no layer.
    """

    reference: Recipe | None
    above_baseline: bool | None = None
    test: float | None = None


@dataclass(frozen=True, kw_only=True)
class OperatingPoint:
    """The smallest k that reaches a share of the reference, or comes within a margin of it.

    Attributes:
        target: The share; None for a margin.
        corrected: Whether the share is of the gain over the baseline.
        margin: In units of the metric; None for a share.
        estimate: The smallest k whose mean reaches the target.
        confident: The smallest k whose whole interval does (95 % confidence).
        not_ruled_out: The smallest k whose interval does in part.
        verdict: ``decided`` if the last two agree (by mean: if there is an estimate), ``undecided``, or ``undefined``.
    """

    target: float | None = None
    corrected: bool = False
    margin: float | None = None
    estimate: Recipe | None = None
    confident: Recipe | None = None
    not_ruled_out: Recipe | None = None
    verdict: str


@dataclass(kw_only=True)
class Recommended:
    """The recommended recipe (its cell has more), its best run on validation, and its comparison with the reference on test."""

    recipe: Recipe
    run: str
    seed: int | str
    validation_best: float
    test: float | None = None
    test_share: Ratio | None = None
    test_share_corrected: Ratio | None = None


@dataclass(kw_only=True)
class SizeAnswer:
    """The curve of one train size: each k compared with full fine-tuning, and what is recommended.

    Attributes:
        reference: The largest k with a usable score, which all are compared with.
        learned: Whether the reference is significantly above the baseline.
        clear_distance: See :func:`frostline.statistics.cells.clear_distance`.
        deciding_point: The operating point that an answer by targets is based on.
        seeds_to_decide: How many seeds would probably decide that point.
    """

    train_size: int | None
    seeds: int
    learning_rate_rule: str
    reference: Recipe | None
    reference_is_full: bool
    learned: bool
    clear_distance: float
    cells: list[Cell]
    decision: Decision | None
    choices: list[Choice]
    operating_points: list[OperatingPoint]
    deciding_point: OperatingPoint
    seeds_to_decide: int | None
    recommended: Recommended | None = None
    sentence: str = ""
    folds: int | None = None

    def cell(self, recipe: str | None) -> Cell | None:
        """The cell of a recipe; None if there is none."""
        return next((cell for cell in self.cells if cell.recipe == recipe), None)


@dataclass(frozen=True, kw_only=True)
class CalibrationError:
    """How well probabilities agree with the accuracy; see :func:`frostline.statistics.class_outputs.calibration`.

    Attributes:
        confidence, accuracy, examples, texts: Of each bin of examples with similar confidence: the mean confidence, the accuracy,
            the number of examples, and that of examples whose texts differ.
    """

    error: float
    by_chance: float
    by_chance_high: float
    log_loss: float
    confidence: list[float]
    accuracy: list[float]
    examples: list[int]
    texts: list[int]


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """The calibration of the recommended model, before and after the division by a temperature.

    Attributes:
        rows: The number of validation rows that count. With folds, a run of the recommended k was not trained on them.
        examples: Their number.
        counted: What counts as an example: ``examples``, ``pairs`` or ``words``.
        saved: Whether the temperature is saved with the model.
    """

    rows: int
    examples: int
    counted: str
    saved: bool
    temperature: float
    before: CalibrationError
    after: CalibrationError


@dataclass(frozen=True, kw_only=True)
class Threshold:
    """The threshold of the second class, or of each label.

    Attributes:
        rule: As it was given; ``metric`` is what it maximizes, or ``recall``, None for a number.
        not_chosen: The labels that keep 0.5.
        at_half, cross_fitted: Scores by name at 0.5, and with thresholds that were chosen without each fold.
        label, threshold: The second class and its threshold; ``by_label`` has the thresholds of several labels instead.
    """

    rule: str
    metric: str | None
    not_chosen: list[str]
    at_half: dict[str, float | None]
    cross_fitted: dict[str, float | None]
    label: str | None = None
    threshold: float | None = None
    by_label: dict[str, float] | None = None


@dataclass(frozen=True, kw_only=True)
class ClassScores:
    """The scores of a class, or of a type of entity, and how many examples have it.

    A score is from the summed counts of all runs, with the lowest and the highest of single runs; None: undefined.
    """

    label: str
    examples: int
    precision: Ratio
    recall: Ratio
    f1: Ratio


@dataclass(frozen=True, kw_only=True)
class Counts:
    """How many runs have each status."""

    done: int
    failed: int
    pending: int


@dataclass(frozen=True, kw_only=True)
class Rate:
    """The runs of one train size, recipe and learning rate that have ended.

    Attributes:
        failures: Those of the finished runs.
        errors: The number of runs that ended in an error.
        mean, mean_with_failures: The mean score of the runs that count, and of all runs with a score.
    """

    train_size: int | None
    recipe: Recipe
    learning_rate: float | None
    failures: Failures
    errors: int
    mean: float | None
    mean_with_failures: float | None


@dataclass(kw_only=True)
class KOverSizes:
    """A k compared with full fine-tuning over several train sizes; None for what the runs leave undefined.

    Attributes:
        full_better_from: The train size from which full fine-tuning is significantly better; None: from none.
        slope: How much ``k - full`` changes with ten times as many examples, with its 95 % interval.
        slope_p_holm: The p-value of no change, adjusted over all k.
    """

    recipe: Recipe
    full_better_from: int | None
    slope: float | None = None
    slope_low: float | None = None
    slope_high: float | None = None
    slope_p: float | None = None
    slope_p_holm: float | None = None


@dataclass(kw_only=True)
class TaskAnswer:
    """What the runs of one model on one task say.

    Attributes:
        layers: The number of layers of the model; None: unknown.
        chance: The score of the constant baseline on the validation rows; None: unknown.
        validation_rows: Their number. With folds, a run is scored on one fold of them. None: unknown.
        sizes: The curve of each train size, the largest first.
        rates: The failures at each learning rate.
        over_sizes: Each k over the train sizes; empty if there is one size.
        same_runs: Whether these are the runs of another answer, scored on a further evaluation set.
    """

    model: str
    task: str
    metric: str
    layers: int | None
    chance: float | None
    validation_rows: int | None
    sentence: str
    sizes: list[SizeAnswer]
    rates: list[Rate]
    over_sizes: list[KOverSizes]
    same_runs: bool = False


@dataclass(kw_only=True)
class Answer(TaskAnswer):
    """The answer of a sweep.

    Attributes:
        target, margin: What must be reached; one of them is None.
        price: The score that the training time of full fine-tuning is worth.
        sure: The wanted probability; None: score is weighed against cost.
        unusable_runs: The number of finished runs that failed.
        next_command, next_seconds: The one step that would make the answer surer, and how long it trains.
        search: The record of the search, if one trained the runs.
        refit_rows: The number of rows that the saved model was trained on, if it was trained once more on all labelled ones.
        made_from: A digest of the settings, the search and the results that the answer is about.
        depth: How many of the first layers of the model were kept; None: all of them.
        data: Further facts of the data: the report, and what is truncated at how many tokens.
        notes, columns: Remarks on the data, and how their columns were read.
    """

    schema_version: int
    task_type: str
    chance: float
    layers: int
    validation_rows: int
    target: float | None
    margin: float | None
    price: float
    sure: float | None
    interim_analyses: int
    runs: Counts
    unusable_runs: int
    next_command: str | None = None
    next_seconds: float | None = None
    search: dict[str, Any] | None = None
    classes: list[ClassScores] | None = None
    calibration: Calibration | None = None
    threshold: Threshold | None = None
    tested: bool = False
    opened_by: str = "frostline"
    refit_rows: int | None = None
    made_from: str | None = None
    depth: int | None = None
    data: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    columns: dict[str, Any] | None = None

    @property
    def decision(self) -> Decision | None:
        """What is recommended for the largest train size."""
        return self.sizes[0].decision

    def to_json(self) -> dict[str, Any]:
        """Plain facts, one key for each attribute. Numbers that are not finite are None."""
        facts: dict[str, Any] = to_jsonable_python(self, inf_nan_mode="null")
        return facts

    @classmethod
    def from_json(cls, facts: Mapping[str, Any]) -> "Answer":
        """The answer that :meth:`to_json` wrote.

        Raises:
            ValueError: A key is missing, or a value is of another type.
        """
        return validated(cls, facts)

    @classmethod
    def read(cls, path: Path) -> "Answer":
        """The answer in a file."""
        return cls.from_json(json.loads(path.read_bytes()))


@dataclass(kw_only=True)
class ModelAnswer:
    """What a search over several models says of one of them.

    Attributes:
        model: Its name, or that of its folder.
        folder: The folder of its own search, below that of all.
        parameters: How many it has.
        probe: The validation score of its best linear probe.
        choice: What is recommended with this model; None if its search could not recommend anything.
        expected: The expected score of that.
        above_baseline: Whether it is significantly above the baseline; None: not tested.
        rows: The number of validation rows that its runs are scored on.
        below, low, high: The points that it is expected to be below the recommended model, with the 95 % interval.
        value: The expected score less the price of training and of predictions.
        training_operations: Operations of training what is recommended once; 0 if no layer is trained.
        inference_operations: Operations of predicting one text of the validation table, on average.
        runs: How many runs were trained, in so many ``seconds``.
        why: Why no more runs were trained.
        enough: The seconds of a budget that allows the next ones; None if the budget did not end its search.
    """

    model: str
    folder: str
    layers: int
    parameters: int
    probe: float | None
    choice: Recipe | None
    expected: float | None
    above_baseline: bool | None
    rows: int | None
    below: float | None
    low: float | None
    high: float | None
    value: float | None
    training_operations: float | None
    inference_operations: float
    runs: int
    seconds: float
    why: str
    enough: float | None = None


@dataclass(kw_only=True)
class ModelsAnswer:
    """The answer of a search over several models. Each has an answer of its own in its folder.

    Attributes:
        recommended: The model with the highest value; None if no search could recommend anything.
        cheaper: The best of those whose predictions cost at most a third of its own; None if there is none.
        price: The score that the training time of full fine-tuning of the first model is worth.
        price_inference: The score that predictions with the first model are worth.
        seconds: Of training, with all models.
        made_from: Of each model with runs, what ``Answer.made_from`` is of its own answer.
    """

    schema_version: int
    sentence: str
    task: str
    metric: str
    train_size: int
    models: list[ModelAnswer]
    recommended: str | None
    cheaper: str | None
    price: float
    price_inference: float
    seconds: float
    made_from: dict[str, str | None] = field(default_factory=dict)

    def model(self, name: str | None) -> ModelAnswer | None:
        """What is known of a model; None without a name."""
        return next((one for one in self.models if one.model == name), None)

    @classmethod
    def read(cls, path: Path) -> "ModelsAnswer":
        """The answer in a file.

        Raises:
            ValueError: It holds something else.
        """
        return validated(cls, json.loads(path.read_bytes()))


def is_of_models(folder: Path) -> bool:
    """Whether the answer in a folder is about several models."""
    try:
        facts = json.loads((folder / "answer.json").read_bytes())
    except (OSError, ValueError):
        return False
    return isinstance(facts, dict) and "models" in facts
