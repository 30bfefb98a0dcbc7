"""Make scores of different folds comparable.

With cross-validation, a run is scored on the rows of one fold, and some folds are easier than others, for all choices alike. A
choice whose only run had an easy fold would look too good. Scores are therefore modelled as choice + fold + rest, and the effect
of the fold is subtracted.

The effects are random effects with mean zero, estimated by best linear unbiased prediction (Henderson 1975; Robinson 1991). They
are linear in the scores, so the jackknife over rows (``inference/jackknife.py``) also covers the error of the effects.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from frostline.statistics.inference import Array

RATIO = 1.0  # the variance of the rest, relative to that of the effects of folds


@dataclass(frozen=True)
class FoldEffects:
    """What is subtracted from scores.

    Attributes:
        values: The effect of the fold of each score, in the shape of the scores.
        parameters: The effective number of parameters that they take: how many degrees of freedom the rest loses.
    """

    values: Array
    parameters: float

    @classmethod
    def of(cls, scores: Array, choices: Sequence[Hashable], folds: Sequence[Hashable]) -> "FoldEffects":
        """The effects in scores ``[runs, n]``, in each column by itself.

        Args:
            scores: For each run its score, and the same without some rows.
            choices: What each run trains.
            folds: The fold that each run is scored on.
        """
        of_choices, of_folds = _indicators(choices), _indicators(folds)
        design = np.concatenate([of_choices, of_folds], 1)
        penalty = np.diag([0.0] * of_choices.shape[1] + [RATIO] * of_folds.shape[1])
        solution = np.linalg.solve(design.T @ design + penalty, design.T)
        effects = of_folds @ solution[of_choices.shape[1] :]  # [runs, runs]
        return cls(effects @ scores, float(np.trace(design @ solution)) - of_choices.shape[1])


def _indicators(names: Sequence[Hashable]) -> Array:
    """A column for each name, with ones in the rows that have it."""
    order = {name: n for n, name in enumerate(dict.fromkeys(names))}
    return np.eye(len(order))[[order[name] for name in names]]
