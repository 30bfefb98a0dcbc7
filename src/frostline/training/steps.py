"""The number of steps of a training, and the steps after which it is evaluated."""

import math
from dataclasses import dataclass
from typing import Self

from frostline.training.settings import TrainingSettings

ROUNDING = 1e-6  # steps: a number of epochs that stands for whole steps may be rounded up


@dataclass(frozen=True)
class StepPlan:
    """The steps of one training."""

    per_epoch: int
    total: int
    warmup: int  # the first steps, in which the learning rate rises
    evaluate_after: frozenset[int]  # steps, counted from 1

    @classmethod
    def of(cls, settings: TrainingSettings, examples: int) -> Self:
        """The steps of a training on this number of ``examples``."""
        per_epoch = math.ceil(examples / settings.batch_size)
        total = max(1, math.ceil(settings.num_train_epochs * per_epoch - ROUNDING))
        warmup = settings.warmup_steps if settings.warmup_steps >= 1 else settings.warmup_steps * total
        evaluations = evaluation_steps(total, per_epoch, settings.evaluations_per_epoch)
        return cls(per_epoch, total, math.ceil(warmup), frozenset(evaluations))


def evaluation_steps(total: int, per_epoch: int, times: int) -> list[int]:
    """The steps after which to evaluate: ``times`` in each epoch, and after the last step."""
    if not times:
        return [total]
    points = {min(total, math.ceil(n * per_epoch / times)) for n in range(1, math.ceil(total / per_epoch * times) + 1)}
    return sorted(points | {total})
