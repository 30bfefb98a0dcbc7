"""The result of a run: a record of everything but predictions, which is ``result.json``, and the predictions themselves."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, NonNegativeInt, PositiveInt

from frostline.data.kinds import TASK_TYPES
from frostline.training.run import Run

if TYPE_CHECKING:  # they import torch, which reading a result does not need
    from torch import Tensor

    from frostline.training.experiment import Experiment
    from frostline.training.learner import TrainingRecord

SCHEMA_VERSION = 3

Logits = dict[str, NDArray[Any]]  # by split, [rows, C]
Number = FiniteFloat | None  # None: undefined, or never measured
Seconds = Annotated[float, Field(ge=0, le=1e12)]
Count = Annotated[int, Field(ge=0)]


class Record(BaseModel):
    """A part of what a run says. It is bounded, because a folder may come from others."""

    model_config = ConfigDict(strict=True, frozen=True)


class Score(Record):
    """A score of one split at one evaluation."""

    split: str
    epoch: Number
    metric: str
    value: Number


class Cost(Record):
    """The costs of a run. Seconds are wall-clock seconds, divided by the number of runs that are trained at the same time.

    Attributes:
        forward_pass_seconds: The forward pass over the frozen layers, for all runs together; 0 for a run that does not use it.
        peak_memory_bytes: Of all runs of the stack together.
        run_seconds: The whole run; of one that was continued, the last part.
        steps: Optimizer steps.
    """

    train_seconds: Seconds
    evaluation_seconds: Seconds
    forward_pass_seconds: Seconds
    peak_memory_bytes: Annotated[int, Field(ge=0, le=10**18)]
    run_seconds: Seconds
    steps: Count


class Parameters(Record):
    """How many parameters of one place in the model were trained."""

    trained: Count
    frozen: Count


class PhaseAudit(Record):
    """The steps of one of several phases, and the places that it changed."""

    steps: Count
    moved: list[str]


class AuditRecord(Record):
    """What was trained, as found on the model itself.

    Attributes:
        tuned_share: The share of the model's layers that run in each training step.
        checks: What was checked, and whether it holds; empty for an estimator, which has no training loop of ours.
        clipped_parameters: The number of tensors whose gradients were clipped.
        moved: The places that ended with other values than they started with.
        merged: Matrices whose low-rank updates were trained and added to them.
        phases: Of a run in several phases, each of them.
    """

    parameters: Count
    trainable_parameters: Count
    tuned_share: FiniteFloat
    by_place: dict[str, Parameters]
    checks: dict[str, bool] = {}
    clipped_parameters: Count = 0
    moved: list[str] = []
    merged: list[str] = []
    phases: list[PhaseAudit] = []

    @property
    def trained_places(self) -> list[str]:
        return [place for place, counts in self.by_place.items() if counts.trained]


class Provenance(Record):
    """Where and how a run was trained.

    Attributes:
        cut: The number of frozen layers below the cached hidden states that it starts from; None if it runs the whole model.
        from_cache: Whether it, one of its phases or the fit of its head starts from cached hidden states.
        stacked: The number of runs that were trained with it as one model.
        micro_batch: How many examples were computed together.
        continued_after: The numbers of steps after which an interrupted training was continued.
        workers: How many runs were trained at the same time.
    """

    device: str
    device_name: str
    threads: Count
    instructions: str
    python: str
    frostline: str
    torch: str
    transformers: str
    numpy: str
    packed: bool
    head_token: bool
    cut: Count | None
    from_cache: bool
    stacked: Count
    micro_batch: Count
    continued_after: list[Count]
    workers: Annotated[int, Field(ge=1, le=10**6)]


class RunRecord(Record):
    """``result.json``: everything that a run with a result says, except its predictions and what it says of the test set.

    Attributes:
        outcome: ``ok``, ``degenerate`` or ``diverged``.
        reason: Why the outcome is not ``ok``.
        files: The checksum of each other file of the result.
    """

    schema_version: int = SCHEMA_VERSION
    digest: str
    spec: Run
    outcome: str
    reason: str
    metric: str
    best_epoch: Number
    validation_best: Number
    validation_last: Number
    train_last: Number
    scores: list[Score]
    cost: Cost
    audit: AuditRecord
    provenance: Provenance
    files: dict[str, str] = {}


class TestRecord(Record):
    """``test.json``: the scores of a run on the test set."""

    digest: str
    scores: dict[str, Number]


class Failure(Record):
    """Why a run ended in an error."""

    digest: str
    spec: Run
    reason: str
    traceback: str


@dataclass
class Result:
    """What a run leaves. Test scores and logits are stored separately, so that no code that selects runs can read them.

    Attributes:
        record: Everything but predictions.
        logits: Logits ``[rows, C]`` of ``validation_best`` and ``validation_last`` (at the best and the last evaluation), and of
            further splits.
        test: The scores on test; None without a test set.
        test_logits: The logits on test, ``[rows, C]``.
        learned: The trained parameters by name. The next run overwrites their values.
    """

    record: RunRecord
    logits: Logits
    test: TestRecord | None = None
    test_logits: NDArray[np.float32] | None = None
    learned: "Mapping[str, Tensor]" = field(default_factory=dict)


def make_result(
    spec: Run,
    experiment: "Experiment",
    training: "TrainingRecord",
    scored: Logits,
    audit: AuditRecord,
    *,
    learned: "Mapping[str, Tensor]",
    peak_memory_bytes: int,
    run_seconds: float,
    stacked: int = 1,
    continued_after: Iterable[int] = (),
) -> Result:
    """The result of a run.

    Args:
        spec: The run.
        experiment: What the runs share.
        training: The course of its training.
        scored: The logits of all splits except train and validation.
        audit: What was trained.
        learned: The trained parameters by name.
        peak_memory_bytes: Peak memory of all runs of the stack together.
        run_seconds: Wall-clock seconds of the stack, divided by its number of runs.
        stacked: The number of runs in the stack.
        continued_after: The numbers of steps after which an interrupted training was continued.
    """
    from frostline.statistics.metrics import defined
    from frostline.training.run import trainings_of

    metric, evaluations, others = experiment.problem.metric, training.evaluations, dict(scored)
    test = others.pop("test", None)
    best, last = (evaluations[training.best], evaluations[-1]) if evaluations else (None, None)
    from_cache = any(experiment.cut(one) is not None for one in trainings_of(spec, experiment.pretrained.anatomy))
    record = RunRecord(
        digest=spec.digest,
        spec=spec,
        outcome=training.outcome,
        reason=training.reason,
        metric=metric,
        best_epoch=best.epoch if best else None,
        validation_best=defined(best.validation[metric]) if best else None,
        validation_last=defined(last.validation[metric]) if last else None,
        train_last=defined(training.train_last[metric]) if training.train_last else None,
        scores=_scores_of(experiment, training, others),
        cost=Cost(
            train_seconds=training.train_seconds / experiment.worker.at_a_time,
            evaluation_seconds=training.evaluation_seconds / experiment.worker.at_a_time,
            forward_pass_seconds=experiment.states.seconds if experiment.states and from_cache else 0.0,
            peak_memory_bytes=peak_memory_bytes,
            run_seconds=run_seconds / experiment.worker.at_a_time,
            steps=training.steps,
        ),
        audit=audit,
        provenance=Provenance.model_validate(
            {
                **experiment.machine.facts(),
                "packed": experiment.packed,
                "head_token": experiment.head_token is not None,
                "cut": experiment.cut(spec),
                "from_cache": from_cache,
                "stacked": stacked,
                "micro_batch": experiment.micro_batch(spec),
                "continued_after": list(continued_after),
                "workers": experiment.worker.at_a_time,
            }
        ),
    )
    validation = {"validation_best": best.logits, "validation_last": last.logits} if best and last else {}
    result = Result(record, {**validation, **others}, learned=learned)
    if test is not None:
        on_test = experiment.problem.scores(test, experiment.splits["test"])
        result.test_logits = test
        result.test = TestRecord(digest=spec.digest, scores={name: defined(value) for name, value in on_test.items()})
    return result


def _scores_of(experiment: "Experiment", training: "TrainingRecord", others: Logits) -> list[Score]:
    """The scores of every evaluation, of training rows at the end, and of ``others``, further splits, at the best epoch."""
    from frostline.statistics.metrics import defined

    def rows_of(split: str, epoch: float | None, scores: Mapping[str, float]) -> list[Score]:
        return [Score(split=split, epoch=epoch, metric=name, value=defined(value)) for name, value in scores.items()]

    evaluations = training.evaluations
    found = [
        row
        for point in evaluations
        for split, values in (("validation", point.validation), ("train_running", point.train))
        for row in rows_of(split, point.epoch, values)
    ]
    found += rows_of("train", evaluations[-1].epoch if evaluations else None, training.train_last)
    best = evaluations[training.best].epoch if evaluations else None
    for split, logits in others.items():
        found += rows_of(split, best, experiment.problem.scores(logits, experiment.splits[split]))
    return found


Layer = Annotated[int, Field(ge=0, le=10_000)]


class ProbeInput(BaseModel):
    """Which vector of each text or word a probe reads, after which layers; layer 0 are the embeddings."""

    model_config = ConfigDict(frozen=True)

    layers: Annotated[tuple[Layer, ...], Field(min_length=1)]
    vector: Annotated[str, Field(pattern="^(first|mean|last|word|apart)$")]


class TaskFacts(BaseModel):
    """What a saved estimator and a report on probes say about the task. Both may come from others.

    Attributes:
        task: The name of the task.
        task_type: One of :data:`frostline.data.kinds.TASK_TYPES`.
        labels: The names of the classes; empty for regression.
        columns: The columns of the training table.
        max_length: The most tokens of an example. Longer ones are truncated.
        sentence: What was found, in words.
    """

    model_config = ConfigDict(frozen=True)

    task: str
    task_type: Annotated[str, Field(pattern=f"^({'|'.join(TASK_TYPES)})$")]
    labels: tuple[str, ...]
    columns: dict[str, Any]
    max_length: PositiveInt
    sentence: str


class ReportedProbe(ProbeInput):
    """A probe with its scores on held-out training rows and on validation, None if undefined, and its penalty per row."""

    held_out: FiniteFloat | None
    validation: FiniteFloat | None
    penalty: FiniteFloat


class ProbeReport(TaskFacts):
    """What is reported of the probes, as in probes.json.

    Attributes:
        model: The hub name or folder of the model.
        revision: The commit of a hub model.
        kind: ``ridge`` or ``logistic``.
        metric: The metric of all scores.
        layers: The number of layers of the model.
        train_rows: The number of training examples.
        validation_rows: The number of validation examples.
        chance: The score of the constant baseline.
        tfidf_score: The score of a TF-IDF model; None if there is none.
        probes: All probes.
        best: The best one on held-out training rows.
        low, high: The 95 % interval of its validation score; None if undefined.
        notes: What was noticed about the data.
    """

    model: str
    revision: str | None
    kind: str
    metric: str
    layers: Layer
    train_rows: NonNegativeInt
    validation_rows: NonNegativeInt
    chance: FiniteFloat
    tfidf_score: FiniteFloat | None
    probes: Annotated[tuple[ReportedProbe, ...], Field(min_length=1)]
    best: ReportedProbe
    low: FiniteFloat | None
    high: FiniteFloat | None
    notes: tuple[str, ...]
