"""A run as several trainings, one after the other. Each starts from the best state of the one before."""

from frostline.model.anatomy import Anatomy
from frostline.statistics.tune import FULL
from frostline.training.specification import RunSpec


def phases_of(spec: RunSpec, anatomy: Anatomy) -> list[RunSpec]:
    """The trainings of a run, which are one except for gradual thawing.

    Gradual thawing (ULMFiT: Howard and Ruder 2018, arXiv:1801.06146) trains the head, then the head and the last layer, and so
    on. Its phases have equal parts of the epochs, and learning-rate schedules of their own.
    """
    if spec.way.order != "gradual":
        return [spec]
    deepest = anatomy.count if spec.way.tune == FULL else int(spec.way.tune)
    thawed = [*range(deepest + 1), *[FULL] * (spec.way.tune == FULL)]
    epochs = spec.num_train_epochs / len(thawed)
    return [
        spec.model_copy(
            update={
                "way": spec.way.model_copy(update={"tune": tune, "order": "at-once"}),
                "num_train_epochs": epochs,
                "phase": number,
            }
        )
        for number, tune in enumerate(thawed, 1)
    ]
