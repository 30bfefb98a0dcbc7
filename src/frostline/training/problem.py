"""The learning problem of a run: targets, loss and scores. Rows refer to the pool, the concatenation of all splits."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from frostline.data.specification import REGRESSION
from frostline.frozen.batches import Rows
from frostline.statistics.metrics import score

Forward = Callable[[Rows], Tensor]  # rows of the pool [..., B] -> logits [..., B, C]


@dataclass(frozen=True)
class Problem:
    """Targets and lengths of all rows of the pool, with loss and scores.

    Attributes:
        task_type: ``CLASSIFICATION`` or ``REGRESSION``.
        targets: The class index or the number of each row, ``[N]``.
        lengths: Tokens of each row, ``[N]``.
        class_weights: Weights of the classes in the loss, ``[C]``; None weights all classes equally.
        metric: The metric that chooses the best epoch.
    """

    task_type: str
    targets: NDArray[Any]
    lengths: NDArray[np.int64]
    class_weights: Tensor | None
    metric: str

    def loss(self, logits: Tensor, rows: Rows) -> Tensor:
        """The mean loss of a batch in float32: cross entropy for classification, squared error for regression."""
        targets = torch.from_numpy(self.targets[rows]).to(logits.device)
        if self.task_type == REGRESSION:
            return F.mse_loss(logits[:, 0].float(), targets.float())
        weights = None if self.class_weights is None else self.class_weights.to(logits.device)
        return F.cross_entropy(logits.float(), targets, weight=weights)

    def scores(self, logits: NDArray[np.float32], rows: Rows) -> dict[str, float]:
        """The loss, and every metric of this type of task."""
        loss = float(self.loss(torch.from_numpy(logits), rows))
        return {**score(self.targets[rows], logits, self.task_type), "loss": loss}

    def logits(self, forward: Forward, rows: Rows, batch: int) -> NDArray[np.float32]:
        """Logits ``[..., n, C]`` of rows ``[..., n]``, without gradients, in batches of examples of similar length."""
        order = np.argsort(self.lengths[rows], axis=-1, kind="stable")
        by_length = np.take_along_axis(rows, order, -1)
        with torch.no_grad():
            batches = [forward(by_length[..., n : n + batch]).float() for n in range(0, rows.shape[-1], batch)]
        logits = torch.cat(batches, -2).cpu().numpy()
        return np.take_along_axis(logits, np.argsort(order, axis=-1)[..., None], -2)
