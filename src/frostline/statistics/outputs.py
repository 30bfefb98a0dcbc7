"""What the values of a model say: probabilities of classes, probabilities of labels, or numbers."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

from frostline.data.kinds import CLASSIFICATION, MULTI_LABEL, REGRESSION, TOKENS

Array = NDArray[Any]


def softmax(values: Array) -> Array:
    """Probabilities of the classes, or of the tags of a word, ``[n, C]``."""
    return np.asarray(special.softmax(values, axis=1))


OUTPUTS: Mapping[str, Callable[[Array], Array]] = {  # by task type, from logits or numbers [n, C]
    CLASSIFICATION: softmax,
    TOKENS: softmax,
    MULTI_LABEL: lambda values: np.asarray(special.expit(values)),
    REGRESSION: lambda values: values,
}
