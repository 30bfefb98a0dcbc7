"""A refit: the recommended recipe, trained once more on all labelled rows except the test set, to be the saved model.

It has the settings and the seed of the recommended run. How long it trains is what validation chose: its schedule is that of the
run over the new rows, and it ends at the median of the best epochs of the choice's runs. Its only evaluation is on rows that it
was trained on. That shows whether it diverged, and is no score.
"""

from collections.abc import Sequence
from dataclasses import replace
from statistics import median

import numpy as np

from frostline.training.experiment import Experiment
from frostline.training.run import Run


def refit_of(spec: Run, experiment: Experiment) -> tuple[Run, Experiment]:
    """The run that is a refit of ``spec``, and the experiment that it trains in.

    Args:
        spec: The recommended run.
        experiment: Of its sweep. All rows of training and validation are encoded.
    """
    validation, examples = experiment.splits["validation"], experiment.examples["validation"]
    rows = validation  # with folds these are all rows
    if experiment.folds is None:
        rows = np.concatenate([experiment.splits["train"], validation])
        examples = experiment.examples["train"].with_more(examples)
    whole = {"folds": 0, "train_size": len(rows), "evaluations_per_epoch": 0, "load_best_model_at_end": False}
    refit, micro_batches = spec.model_copy(update=whole), experiment.worker.micro_batches
    if spec.stack_key in micro_batches:  # memory ran out with more
        micro_batches[refit.stack_key] = micro_batches[spec.stack_key]
    splits = {"train": rows, "validation": validation}
    return refit, replace(experiment, splits=splits, examples={**experiment.examples, "train": examples}, folds=None)


def epochs_of_refit(spec: Run, best_epochs: Sequence[float]) -> float | None:
    """After how many epochs a refit of ``spec`` ends; None: after all.

    Args:
        spec: The recommended run.
        best_epochs: The epoch of the best evaluation of each run of the choice.
    """
    # phases have lengths of their own, so gradual unfreezing is not cut short
    of_best = spec.load_best_model_at_end and spec.way.in_loop and spec.way.order != "gradual"
    return median(best_epochs) if of_best and best_epochs else None
