"""The gradients of a training step, of a whole batch or of one micro-batch after the other.

Shapes: K runs, B examples of a batch, b of a micro-batch, C outputs.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from frostline.frozen.forward_pass import Rows
from frostline.training.problem import Forward, Problem


def backward(
    forward: Forward,
    rows: Rows,
    counted: Sequence[int],
    problem: Problem,
    *,
    micro_batch: int | None = None,
    scales: Tensor | None = None,
    prefetch: Callable[[Rows], None] | None = None,
) -> tuple[Tensor, Tensor]:
    """Compute the gradients of one batch ``[K, B]``.

    The parts of a divided batch add up to the mean loss of the whole batch. Sums of floats are then rounded in another order. The
    gradients therefore equal those of the undivided batch within rounding only.

    Args:
        forward: A function from rows to logits.
        rows: The batch.
        counted: The runs whose losses count.
        problem: Has the loss.
        micro_batch: Divide the batch into parts of this many examples of each run; None: do not divide it.
        scales: ``[K]``, what the loss of each run is multiplied by before its gradients are computed; None: nothing.
        prefetch: Called with each part but the first, before the part before it has been computed on the device.

    Returns:
        Logits ``[K, B, C]`` to score, and the losses of the counted runs, ``[len(counted)]``, on the device.
    """
    size = micro_batch or rows.shape[1]
    parts = [rows[:, start : start + size] for start in range(0, rows.shape[1], size)]
    if len(parts) == 1:
        logits = forward(rows)
        of_runs = _losses(problem, logits, rows, counted)
        _scaled(of_runs, counted, scales).sum().backward()  # type: ignore[no-untyped-call]
        return problem.predictions(logits.detach(), rows), of_runs.detach()  # frees the graph
    whole = {n: problem.weight(rows[n]) for n in counted}
    predictions: list[Tensor] = []
    sums: dict[int, Tensor] = {}
    for part, following in zip(parts, [*parts[1:], None], strict=True):
        logits = forward(part)
        shares = {n: problem.weight(part[n]) / whole[n] if whole[n] else 1.0 for n in counted}
        with_loss = [n for n in counted if shares[n]]  # a part without labelled words has no loss
        of_part = _losses(problem, logits, part, with_loss).unbind() if with_loss else ()
        losses = [loss * shares[n] for n, loss in zip(with_loss, of_part, strict=True)]
        if losses:
            _scaled(torch.stack(losses), with_loss, scales).sum().backward()  # type: ignore[no-untyped-call]
        for n, loss in zip(with_loss, losses, strict=True):
            sums[n] = sums[n] + loss.detach() if n in sums else loss.detach()
        predictions.append(problem.predictions(logits.detach(), part))
        if prefetch and following is not None:
            prefetch(following)
    return torch.cat(predictions, 1), torch.stack([sums[n] for n in counted])


def _losses(problem: Problem, logits: Tensor, rows: Rows, runs: Sequence[int]) -> Tensor:
    """The losses of these runs, ``[len(runs)]``."""
    if len(runs) == len(rows):
        return problem.losses(logits, rows)
    return torch.stack([problem.loss(logits[n], rows[n]) for n in runs])


def _scaled(losses: Tensor, runs: Sequence[int], scales: Tensor | None) -> Tensor:
    """The losses of these runs, with the scale of each run."""
    return losses if scales is None else losses * (scales if len(runs) == len(scales) else scales[list(runs)])
