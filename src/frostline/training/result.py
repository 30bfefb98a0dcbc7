"""The result of a run: facts for JSON, and logits."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from frostline.statistics.metrics import defined
from frostline.training.experiment import Experiment
from frostline.training.learner import TrainingRecord
from frostline.training.run import RunSpec, trainings_of

SCHEMA_VERSION = 1

Logits = dict[str, NDArray[Any]]  # by split, [rows, C]


@dataclass
class Result:
    """The result of a run. Test scores and logits are stored separately, so that no code that selects runs can read them.

    Attributes:
        facts: Specification, scores, cost, audit and provenance.
        logits: Logits ``[rows, C]`` of ``validation_best`` and ``validation_last`` (at the best and the last evaluation), and of
            further splits.
        test_facts: The scores on test; None without a test set.
        test_logits: The logits on test, ``[rows, C]``.
        learned: The trained parameters by name. The next run overwrites their values.
    """

    facts: dict[str, Any]
    logits: Logits
    test_facts: dict[str, Any] | None = None
    test_logits: NDArray[np.float32] | None = None
    learned: Mapping[str, Tensor] = field(default_factory=dict)


@dataclass(frozen=True)
class Measured:
    """Audit, time and memory of a run.

    Attributes:
        audit: Which parameters were frozen and which were trained.
        peak_memory_bytes: Peak memory of all runs of the stack together.
        run_seconds: Wall-clock seconds of the stack, divided by its number of runs.
        stacked: The number of runs in the stack.
        continued_after: The numbers of steps after which an interrupted training was continued.
    """

    audit: dict[str, Any]
    peak_memory_bytes: int
    run_seconds: float
    stacked: int
    continued_after: Sequence[int]


def make_result(
    spec: RunSpec, context: Experiment, record: TrainingRecord, scored: Logits, measured: Measured
) -> Result:
    """The result of a run, without its parameters. ``scored`` are the logits of all splits except train and validation."""
    test = scored.get("test")
    others = {split: logits for split, logits in scored.items() if split != "test"}
    facts = _facts(spec, context, record, measured)
    facts["scores"] += [
        score
        for split, logits in others.items()
        for score in _rows_of(split, facts["best_epoch"], context.problem.scores(logits, context.splits[split]))
    ]
    result = Result(facts, {**_validation_logits(record), **others})
    if test is not None:
        result.test_logits = test
        scores = context.problem.scores(test, context.splits["test"])
        result.test_facts = {"schema_version": SCHEMA_VERSION, "digest": spec.digest, "scores": _with_nulls(scores)}
    return result


def _facts(spec: RunSpec, context: Experiment, record: TrainingRecord, measured: Measured) -> dict[str, Any]:
    best = record.evaluations[record.best] if record.evaluations else None
    last = record.evaluations[-1] if record.evaluations else None
    metric = context.problem.metric
    return {
        "schema_version": SCHEMA_VERSION,
        "digest": spec.digest,
        "spec": spec.model_dump(mode="json"),
        "status": "done",
        "outcome": record.outcome,
        "reason": record.reason,
        "metric": metric,
        "best_epoch": best.epoch if best else None,
        "validation_best": defined(best.validation[metric]) if best else None,
        "validation_last": defined(last.validation[metric]) if last else None,
        "train_last": _with_nulls(record.train_last).get(metric),
        "scores": _scores(record),
        "cost": _cost(spec, context, record, measured),
        "audit": measured.audit,
        "provenance": {
            **context.machine.facts(),
            "packed": context.packed,
            "head_token": context.head_token is not None,
            "cut": context.cut(spec),
            "from_cache": _from_cache(spec, context),
            "stacked": measured.stacked,
            "micro_batch": context.micro_batch(spec),
            "continued_after": list(measured.continued_after),
            "workers": context.worker.at_a_time,
        },
    }


def _from_cache(spec: RunSpec, context: Experiment) -> bool:
    """Whether the run, one of its phases or the fit of its head starts from cached hidden states."""
    return any(context.cut(one) is not None for one in trainings_of(spec, context.pretrained.anatomy))


def _scores(record: TrainingRecord) -> list[dict[str, Any]]:
    """A row for each split, evaluation and metric."""
    scores = [
        row
        for point in record.evaluations
        for split, values in (("validation", point.validation), ("train_running", point.train))
        for row in _rows_of(split, point.epoch, values)
    ]
    last_epoch = record.evaluations[-1].epoch if record.evaluations else None
    return [*scores, *_rows_of("train", last_epoch, record.train_last)]


def _rows_of(split: str, epoch: float | None, scores: Mapping[str, float]) -> list[dict[str, Any]]:
    return [
        {"split": split, "epoch": epoch, "metric": name, "value": value} for name, value in _with_nulls(scores).items()
    ]


def _cost(spec: RunSpec, context: Experiment, record: TrainingRecord, measured: Measured) -> dict[str, Any]:
    """The costs of a run. Wall-clock seconds are divided by the number of workers, which train runs at the same time."""
    states = context.states
    return {
        "train_seconds": record.train_seconds / context.worker.at_a_time,
        "evaluation_seconds": record.evaluation_seconds / context.worker.at_a_time,
        # for all runs together
        "forward_pass_seconds": states.seconds if states and _from_cache(spec, context) else 0.0,
        "peak_memory_bytes": measured.peak_memory_bytes,
        "run_seconds": measured.run_seconds / context.worker.at_a_time,
        "steps": record.steps,
    }


def _validation_logits(record: TrainingRecord) -> Logits:
    if not record.evaluations:
        return {}
    return {
        "validation_best": record.evaluations[record.best].logits,
        "validation_last": record.evaluations[-1].logits,
    }


def _with_nulls(scores: Mapping[str, float]) -> dict[str, float | None]:
    """Scores for JSON, with null for undefined scores."""
    return {name: defined(value) for name, value in scores.items()}
