"""The rows of the pool that a run trains on, their order, and the rows that it is scored on."""

import math
from collections.abc import Hashable, Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from frostline.data.splits import subset_indices
from frostline.frozen.forward_pass import Rows
from frostline.training.experiment import Experiment
from frostline.training.seeds import generator_seed
from frostline.training.specification import RunSpec


def train_rows(context: Experiment, spec: RunSpec) -> Rows:
    """The run's training rows: a nested, stratified subset that is the same for every k."""
    pool = context.splits["train"]
    return pool[subset_rows(spec, context.problem.targets[pool], context.folds)]


def subset_rows(spec: RunSpec, targets: NDArray[Any], folds: Rows | None) -> Rows:
    """The training rows of a run, as positions in the training split.

    Args:
        spec: The run.
        targets: The target of each row of the training split, ``[n]``.
        folds: The fold of each row, ``[n]``; None without folds.
    """
    pool = np.arange(len(targets)) if folds is None or spec.fold is None else np.flatnonzero(folds != spec.fold)
    seed = generator_seed(spec.data_seed if spec.subset == "fixed" else spec.seed, f"subset-{spec.subset}")
    return pool[subset_indices(targets[pool], spec.train_size, seed)]


def subset_key(spec: RunSpec, targets: NDArray[Any], folds: Rows | None) -> Hashable:
    """A key of the training rows of a run: runs with the same key train on the same rows.

    The arguments are those of :func:`subset_rows`.
    """
    pool = len(targets) if folds is None or spec.fold is None else int((folds != spec.fold).sum())
    seed = spec.data_seed if spec.subset == "fixed" else spec.seed
    return spec.fold, spec.train_size, seed if spec.train_size < pool else None


def validation_rows(context: Experiment, spec: RunSpec) -> Rows:
    """The rows that the run is scored on: all validation rows, or the rows of its fold."""
    rows = context.splits["validation"]
    return rows if context.folds is None or spec.fold is None else rows[context.folds == spec.fold]


def order_generator(spec: RunSpec) -> torch.Generator:
    """The generator that shuffles the run's training rows in every epoch."""
    return torch.Generator().manual_seed(spec.seed_for("order"))


def shuffled(rows: Rows, order: torch.Generator) -> Rows:
    """The rows in a random order, for one epoch."""
    mixed: Rows = rows[torch.randperm(len(rows), generator=order).numpy()]
    return mixed


def training_batches(context: Experiment, spec: RunSpec) -> Iterator[Rows]:
    """The rows that the run computes at a time while it trains, ``[B]`` each, in the order in which it draws them.

    The last epoch is whole, also if the run ends within it.
    """
    rows, order, size = train_rows(context, spec), order_generator(spec), spec.per_device_train_batch_size
    for _ in range(math.ceil(spec.num_train_epochs)):
        mixed = shuffled(rows, order)
        yield from (mixed[n : n + size] for n in range(0, len(mixed), size))
