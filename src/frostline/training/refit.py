"""A refit: the recommended recipe, trained once more on all labelled rows except the test set, to be the saved model.

It has the settings, the seed and the epochs of the recommended run, and its whole schedule. No validation rows are left to choose
the best evaluation. A training that is cut off while the learning rate is high varies more over seeds (``docs/log.md``).
Its only evaluation is on rows that it was trained on. That shows whether it diverged, and is no score.
"""

from dataclasses import replace

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
