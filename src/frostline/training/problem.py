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
from frostline.model.device import to_device
from frostline.statistics.metrics import is_constant, score

READ_TOGETHER = 32  # batches whose logits are read from a device at once
Forward = Callable[[Rows], Tensor]  # rows of the pool [..., B] -> logits [..., B, C]


@dataclass(frozen=True)
class Problem:
    """Targets and lengths of all rows of the pool, with loss and scores.

    Attributes:
        task_type: ``CLASSIFICATION`` or ``REGRESSION``; other types have a class of their own.
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

    @property
    def predictions_per_row(self) -> tuple[int, ...]:
        """The shape of the predictions of a row, before their C logits: () for one prediction, (W,) for tags of words."""
        return ()

    def by_row(self, logits: Tensor, rows: Rows) -> Tensor:
        """The logits ``[K, B, C]`` of rows ``[K, B]``, from those of the model, ``[K * B, C]``."""
        return logits.view(*rows.shape, -1)

    def predictions(self, logits: Tensor, rows: Rows) -> Tensor:
        """The logits that are scored, of those that :meth:`by_row` returns."""
        return logits

    def loss(self, logits: Tensor, rows: Rows) -> Tensor:
        """The mean loss of a batch in float32: cross entropy for classification, squared error for regression.

        It is 0, with gradients of 0, if the rows have no weight.
        """
        if not self.weight(rows):
            return logits.flatten()[:0].float().sum()
        return self._weighted_mean(logits, rows)

    def _weighted_mean(self, logits: Tensor, rows: Rows) -> Tensor:
        return self._mean(logits, self._targets(rows, logits.device))

    def _mean(self, logits: Tensor, targets: Tensor) -> Tensor:
        if self.task_type == REGRESSION:
            return F.mse_loss(logits[:, 0].float(), targets)
        return self._cross_entropy(logits, targets)

    def losses(self, logits: Tensor, rows: Rows) -> Tensor:
        """The losses of K runs, ``[K]``, from logits ``[K, B, C]`` of rows ``[K, B]``.

        Devices other than CPUs compute all of them together, because they take longer to start an operation than to run it.
        """
        if logits.device.type == "cpu" or self.class_weights is not None:
            return torch.stack([self.loss(own, some) for own, some in zip(logits, rows, strict=True)])
        return self._by_run(logits, self._targets(rows, logits.device))

    def _targets(self, rows: Rows, device: torch.device) -> Tensor:
        """The targets of these rows on a device. Numbers are float32 there, because MPS has no float64."""
        targets = torch.from_numpy(self.targets[rows])
        return to_device(targets.float() if targets.is_floating_point() else targets, device)

    def _by_run(self, logits: Tensor, targets: Tensor) -> Tensor:  # [K, B, C], [K, B] -> [K]
        if self.task_type == REGRESSION:
            return F.mse_loss(logits[..., 0].float(), targets, reduction="none").mean(1)
        by_class = logits.float().transpose(1, 2)  # [K, C, B], which cross_entropy takes as K batches
        return F.cross_entropy(by_class, targets, reduction="none").mean(1)

    def _cross_entropy(self, logits: Tensor, targets: Tensor) -> Tensor:
        weights = None if self.class_weights is None else to_device(self.class_weights, logits.device)
        return F.cross_entropy(logits.float(), targets, weight=weights)

    def weight(self, rows: Rows) -> float:
        """The weight of these rows in the mean loss of a batch that contains them."""
        if self.class_weights is None or self.task_type == REGRESSION:
            return float(len(rows))
        return float(self.class_weights.cpu()[torch.from_numpy(self.targets[rows])].sum())

    def scores(self, logits: NDArray[np.float32], rows: Rows) -> dict[str, float]:
        """The loss, and every metric of this type of task."""
        loss = float(self._weighted_mean(torch.from_numpy(logits), rows))
        return {**score(self.targets[rows], logits, self.task_type), "loss": loss}

    def is_finite(self, logits: NDArray[np.float32], rows: Rows) -> bool:
        """Whether all logits of these rows are finite."""
        return bool(np.isfinite(logits).all())

    def is_degenerate(self, logits: NDArray[np.float32], rows: Rows) -> bool:
        """Whether the model predicts the same for all of these rows, and their targets differ."""
        targets = self.targets[rows]
        return is_constant(logits, self.task_type) and bool((targets != targets[0]).any())

    def logits(self, forward: Forward, rows: Rows, batch: int) -> NDArray[np.float32]:
        """Logits ``[..., n, C]`` of rows ``[..., n]``, without gradients, in batches of examples of similar length."""
        order = np.argsort(self.lengths[rows], axis=-1, kind="stable")
        by_length = np.take_along_axis(rows, order, -1)
        parts = [by_length[..., n : n + batch] for n in range(0, rows.shape[-1], batch)]
        axis, read = rows.ndim - 1, []
        with torch.no_grad():
            for n in range(0, len(parts), READ_TOGETHER):
                several = [self.predictions(forward(part), part).float() for part in parts[n : n + READ_TOGETHER]]
                read.append(torch.cat(several, axis).cpu())
        logits = torch.cat(read, axis).numpy()
        restore = np.argsort(order, axis=-1)
        return np.take_along_axis(logits, restore.reshape(*restore.shape, *[1] * (logits.ndim - rows.ndim)), axis)
