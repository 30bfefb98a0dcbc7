"""The learning problem of multi-label classification: any number of labels for a text.

Shapes: N rows of the pool, B rows of a batch, K runs, C labels.
"""

from dataclasses import dataclass

import numpy as np
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from frostline.data.specification import MULTI_LABEL
from frostline.frozen.batches import Rows
from frostline.model.device import to_device
from frostline.training.problem import Problem


@dataclass(frozen=True)
class MultiLabelProblem(Problem):
    """Targets are bool ``[N, C]``. Every label is predicted on its own, by the sigmoid of its logit.

    A class weight multiplies the loss of the texts that have the label.
    """

    @classmethod
    def of(
        cls, targets: NDArray[np.bool_], lengths: NDArray[np.int64], class_weights: Tensor | None, metric: str
    ) -> "MultiLabelProblem":
        """The problem of these targets ``[N, C]``."""
        return cls(MULTI_LABEL, targets, lengths, class_weights, metric)

    def weight(self, rows: Rows) -> float:
        return float(len(rows))

    def _mean(self, logits: Tensor, targets: Tensor) -> Tensor:
        return self._binary_cross_entropies(logits, targets).mean()

    def _by_run(self, logits: Tensor, targets: Tensor) -> Tensor:  # [K, B, C], [K, B, C] -> [K]
        return self._binary_cross_entropies(logits, targets).mean((1, 2))

    def _binary_cross_entropies(self, logits: Tensor, targets: Tensor) -> Tensor:
        """The loss of each label of each text."""
        weights = None if self.class_weights is None else to_device(self.class_weights, logits.device)
        return F.binary_cross_entropy_with_logits(logits.float(), targets.float(), pos_weight=weights, reduction="none")
