"""What the values of a model say: probabilities of classes, probabilities of labels, or numbers."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

from frostline.data.specification import CLASSIFICATION, MULTI_LABEL, REGRESSION

Array = NDArray[Any]

OUTPUTS: Mapping[str, Callable[[Array], Array]] = {  # by task type, from logits or numbers [n, C]
    CLASSIFICATION: lambda values: np.asarray(special.softmax(values, axis=1)),
    MULTI_LABEL: lambda values: np.asarray(special.expit(values)),
    REGRESSION: lambda values: values,
}
