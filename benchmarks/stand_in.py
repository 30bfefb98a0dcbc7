"""A stand-in for training: it waits for a moment and draws predictions at random, always the same for the same run.

All else is real: the check of the cut, hidden states, leases, results, tables, answer and report.
"""

import hashlib
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import frostline.sweeps.execution.stacks as execute_module
from frostline.report.tables.sweep_tables import CHECKS
from frostline.training.audit import parameters_by_place
from frostline.training.experiment import Experiment
from frostline.training.forward import validation_rows
from frostline.training.learner import Evaluation, TrainingRecord
from frostline.training.result import AuditRecord, Result, make_result
from frostline.training.run import Checkpoints, Run

STEPS = 5


def stand_in(seconds: float, *, equal: bool = False) -> Callable[..., Result]:
    """A function in place of :func:`frostline.training.train.run`, which takes this long: on average, or always if ``equal``."""

    def run(
        spec: Run, experiment: Experiment, *, on_step: Callable[[int, int], None], checkpoints: Checkpoints
    ) -> Result:
        rng = np.random.default_rng(int(hashlib.sha256(spec.digest.encode()).hexdigest(), 16))
        pause = (seconds if equal else rng.uniform(0, 2 * seconds)) / STEPS
        for step in range(STEPS):
            time.sleep(pause)
            on_step(step + 1, STEPS)
        rows = validation_rows(experiment, spec)
        logits, test = (_logits(rng, experiment, part) for part in (rows, experiment.splits.get("test", rows)))
        scores = experiment.problem.scores(logits, rows)
        record = TrainingRecord(
            evaluations=[Evaluation(3.0, STEPS, scores, scores, logits)], train_last=scores, steps=STEPS
        )
        return make_result(
            *(
                spec,
                experiment,
                record,
                {"test": test} if "test" in experiment.splits else {},
                _audit(spec, experiment),
            ),
            learned={},
            peak_memory_bytes=2**20,
            run_seconds=pause * STEPS,
        )

    return run


def install(seconds: float, *, equal: bool = False) -> None:
    """Let every run of this process, and of its forks, be a stand-in. Use it with ``--stack 1``."""
    setattr(execute_module, "run", stand_in(seconds, equal=equal))  # noqa: B010  mypy refuses an assignment


def _logits(rng: np.random.Generator, experiment: Experiment, rows: Any) -> Any:
    """Logits that are better than chance, ``[rows, C]``."""
    right = np.eye(2)[experiment.problem.targets[rows]]
    return (right + rng.normal(size=right.shape)).astype(np.float32)


def _audit(spec: Run, experiment: Experiment) -> AuditRecord:
    pretrained = experiment.pretrained
    names, depth = spec.parameters(pretrained.anatomy), spec.depth(pretrained.anatomy)
    by_place = parameters_by_place(pretrained, names)
    return AuditRecord(
        parameters=sum(counts.trained + counts.frozen for counts in by_place.values()),
        trainable_parameters=sum(counts.trained for counts in by_place.values()),
        tuned_share=1.0 if depth is None else depth / pretrained.anatomy.count,
        by_place=by_place,
        checks=dict.fromkeys(CHECKS, True),
        clipped_parameters=len(names),
        moved=[place for place, counts in by_place.items() if counts.trained],
    )
