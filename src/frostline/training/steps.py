"""How many steps a training has, and after which of them it is evaluated."""

import math
from dataclasses import dataclass
from typing import Self

from frostline.training.specification import Settings


@dataclass(frozen=True)
class StepPlan:
    """The steps of one training."""

    per_epoch: int
    total: int
    warmup: int  # the first steps, in which the learning rate rises
    evaluate_after: frozenset[int]  # steps, counted from 1

    @classmethod
    def of(cls, settings: Settings, examples: int) -> Self:
        """The steps of a training on so many ``examples``."""
        per_epoch = math.ceil(examples / settings.per_device_train_batch_size)
        total = max(1, math.ceil(settings.num_train_epochs * per_epoch))
        warmup = settings.warmup_steps if settings.warmup_steps >= 1 else settings.warmup_steps * total
        evaluations = evaluation_steps(total, per_epoch, settings.evaluations_per_epoch)
        return cls(per_epoch, total, math.ceil(warmup), frozenset(evaluations))


def evaluation_steps(total: int, per_epoch: int, times: int) -> list[int]:
    """The steps to evaluate after: ``times`` in each epoch, and the last."""
    if not times:
        return [total]
    points = {min(total, math.ceil(n * per_epoch / times)) for n in range(1, math.ceil(total / per_epoch * times) + 1)}
    return sorted(points | {total})
