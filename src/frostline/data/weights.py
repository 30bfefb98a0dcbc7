"""Weights of classes in the loss."""

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from frostline import FrostlineError
from frostline.data.wording import listed, nearest, quoted

WEIGHTS = ("none", "balanced")


def class_weights(
    targets: npt.NDArray[np.int64], spec: str | Mapping[str, float], labels: Sequence[str]
) -> npt.NDArray[np.float64]:
    """One weight a label, ``[len(labels)]``.

    "none" is 1 for each; "balanced" is scikit-learn's rows / (classes x rows of the class), over the classes that
    ``targets`` shows (1 for a label without rows); a mapping gives the weight of every label.
    """
    weights = np.ones(len(labels))
    if not isinstance(spec, str):
        _check(spec, labels)
        weights[:] = [spec[label] for label in labels]
    elif spec == "balanced":
        from sklearn.utils.class_weight import compute_class_weight

        present = np.unique(targets)
        weights[present] = compute_class_weight("balanced", classes=present, y=targets)
    elif spec != "none":
        raise FrostlineError(
            f"Class weights {quoted(spec)} are not known{nearest(spec, WEIGHTS)}; pass none, balanced or a weight for "
            "each label."
        )
    return weights


def _check(spec: Mapping[str, float], labels: Sequence[str]) -> None:
    unknown, missing = [one for one in spec if one not in labels], [one for one in labels if one not in spec]
    if unknown:
        hint = nearest(str(unknown[0]), labels)
        raise FrostlineError(
            f"Class weights are given for {listed(unknown)}{hint}; the labels are {listed(labels)}: name these."
        )
    if missing:
        raise FrostlineError(f"Class weights leave out {listed(missing)}; give a weight for each label.")
    wrong = [one for one, weight in spec.items() if not (np.isfinite(weight) and weight >= 0)]
    if wrong or not any(spec.values()):
        one = wrong[0] if wrong else next(iter(spec))
        raise FrostlineError(
            f"The class weight of {quoted(one)} is {spec[one]}; give numbers from 0 up, not all of them 0."
        )
