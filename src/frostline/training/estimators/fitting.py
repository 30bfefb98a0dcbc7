"""A run of an estimator, from its specification to its result."""

from dataclasses import replace
from time import perf_counter
from typing import Any

from frostline.model.anatomy import count_parameters
from frostline.model.memory import peak_memory
from frostline.model.places import HEAD
from frostline.training.audit import parameters_by_place
from frostline.training.context import RunContext
from frostline.training.estimators.estimator import Estimator, Fitted
from frostline.training.learner import Evaluation, TrainingRecord
from frostline.training.result import Measured, Result, make_result
from frostline.training.rows import train_rows, validation_rows
from frostline.training.specification import RunSpec


def fit_run(spec: RunSpec, context: RunContext, estimator: Estimator) -> Result:
    """Fit and score one run."""
    begun = perf_counter()
    with peak_memory(context.machine) as peak:
        fitted = estimator.fit(spec, context)
        trained = perf_counter()
        record = _record(spec, context, fitted)
        scored = {
            split: fitted.logits(rows, split)
            for split, rows in context.splits.items()
            if split not in ("train", "validation") and record.outcome != "diverged"
        }
    ended = perf_counter()
    record = replace(record, train_seconds=trained - begun, evaluation_seconds=ended - trained)
    measured = Measured(_facts(spec, context, fitted), peak.bytes, ended - begun, 1, continued_after=())
    return replace(make_result(spec, context, record, scored, measured), learned=fitted.learned)


def _record(spec: RunSpec, context: RunContext, fitted: Fitted) -> TrainingRecord:
    """The scores as a training with a single evaluation, after the last step."""
    problem, rows = context.problem, validation_rows(context, spec)
    logits = fitted.logits(rows, "validation")
    record = TrainingRecord(steps=fitted.steps)
    if not problem.is_finite(logits, rows):
        return replace(record, outcome="diverged", reason="its logits of the validation rows are not finite")
    some = train_rows(context, spec)[: spec.train_score_rows]
    record.train_last = problem.scores(fitted.logits(some, "train"), some)
    record.evaluations = [Evaluation(fitted.epochs, fitted.steps, problem.scores(logits, rows), {}, logits)]
    if problem.is_degenerate(logits, rows):
        record.outcome, record.reason = "degenerate", "it predicts the same for every validation row"
    return record


def _facts(spec: RunSpec, context: RunContext, fitted: Fitted) -> dict[str, Any]:
    """The audit of a run: what was trained of the model, and the share of its layers that ran in training."""
    anatomy = context.pretrained.anatomy
    names = spec.to_train.parameters(anatomy)
    depth, below_head = anatomy.depth(names), {name for name in names if anatomy.places[name] != HEAD}
    return {
        "parameters": count_parameters(context.pretrained.model),
        "trainable_parameters": fitted.parameters,
        "tuned_share": 1.0 if depth is None else depth / anatomy.count,
        "by_place": parameters_by_place(context.pretrained, below_head),
    }
