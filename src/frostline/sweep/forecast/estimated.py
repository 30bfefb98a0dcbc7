"""The forecast of runs of estimators, from their operations alone: they are not timed."""

from collections.abc import Iterator, Sequence

import numpy as np

from frostline.sweep.results.forecast_record import Cell
from frostline.sweep.work.memory import COPY_BYTES, STEP_BYTES
from frostline.sweep.work.workload import Workload
from frostline.training.specification import RunSpec


def estimated_cells(
    workload: Workload, runs: Sequence[RunSpec], speed: float, idle: float, *, plain: bool
) -> Iterator[Cell]:
    """The forecast of each estimator and training-set size.

    Args:
        workload: The workload of the sweep.
        runs: The runs without a result, all of estimators.
        speed: Operations per second of all workers together.
        idle: Bytes in use before training.
        plain: Whether the same seconds count for plain transformers, which runs estimators, too.
    """
    cells: dict[tuple[str, int], list[RunSpec]] = {}
    for run in runs:
        cells.setdefault((run.trainable, run.train_size), []).append(run)
    for (trainable, size), in_cell in cells.items():
        spec = in_cell[0]
        seconds = float(np.mean([workload.operations(run) for run in in_cell])) / speed
        trained = workload.matrices.trained_parameters(workload.names(spec))
        yield Cell(
            trainable=trainable,
            train_size=size,
            runs=len(in_cell),
            training_seconds=seconds,
            evaluation_seconds=0.0,
            seconds=seconds,
            memory_bytes=idle + (STEP_BYTES + COPY_BYTES) * trained,
            trainer_seconds=seconds if plain else None,
            timed=False,
            stack=1,
        )
