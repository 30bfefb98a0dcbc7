"""Class weights of the loss."""

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from frostline import FrostlineError
from frostline.data.examples import Targets
from frostline.data.wording import did_you_mean, listed, quoted

NAMED_WEIGHTS = ("none", "balanced")


def class_weights(targets: Targets, spec: str | Mapping[str, float], labels: Sequence[str]) -> npt.NDArray[np.float64]:
    """The weight of each label, ``[len(labels)]``.

    Args:
        targets: Class indices of the training rows, ``[N]``, or whether each has each label, bool ``[N, C]``.
        spec: "none": every weight is 1. "balanced": rows / (classes x rows of the class), as in scikit-learn, counting only the
            classes in ``targets``; a label without rows gets 1. For label sets, it is rows without the label / rows with it.
            Both then have the same weight in the loss. Or a weight for every label.
        labels: The names of the classes in the order of their indices.

    Raises:
        FrostlineError: ``spec`` is unknown, does not match the labels, or has a negative or infinite weight.
    """
    weights = np.ones(len(labels))
    if not isinstance(spec, str):
        _check(spec, labels)
        weights[:] = [spec[label] for label in labels]
    elif spec == "balanced" and targets.dtype == np.bool_:
        rows = targets.sum(0)
        np.divide(len(targets) - rows, rows, out=weights, where=(rows > 0) & (rows < len(targets)))
    elif spec == "balanced":
        from sklearn.utils.class_weight import compute_class_weight

        present = np.unique(targets)
        weights[present] = compute_class_weight("balanced", classes=present, y=targets)
    elif spec != "none":
        raise FrostlineError(
            f"Class weights {quoted(spec)} are not known{did_you_mean(spec, NAMED_WEIGHTS)}; pass none, balanced or a weight "
            "for each label."
        )
    return weights


def _check(spec: Mapping[str, float], labels: Sequence[str]) -> None:
    unknown, missing = [one for one in spec if one not in labels], [one for one in labels if one not in spec]
    if unknown:
        hint = did_you_mean(str(unknown[0]), labels)
        raise FrostlineError(
            f"Class weights are given for {listed(unknown)}{hint}; the labels are {listed(labels)}: name these."
        )
    if missing:
        raise FrostlineError(f"Class weights do not include {listed(missing)}; give a weight for each label.")
    wrong = [one for one, weight in spec.items() if not (np.isfinite(weight) and weight >= 0)]
    if wrong or not any(spec.values()):
        one = wrong[0] if wrong else next(iter(spec))
        raise FrostlineError(
            f"The class weight of {quoted(one)} is {spec[one]}; give numbers of at least 0, not all of them 0."
        )
