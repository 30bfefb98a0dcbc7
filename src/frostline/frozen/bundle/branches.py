"""Run several classifiers on the same batches. The layers that they share run once.

The trunk runs as a whole. Each other classifier starts from the hidden states of the trunk at its own cut. It gets the very
tensor that its own layers would have computed, padded positions included, so its logits are bitwise identical to those
of the whole classifier.

Shapes: B examples in a batch, S padded length, C outputs, D width.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

from torch import Tensor
from transformers import PreTrainedModel

from frostline.frozen.bundle.sharing import Sharing
from frostline.frozen.cut import cut_at
from frostline.model.anatomy import Anatomy
from frostline.model.trace import Batch


@contextmanager
def branches(
    models: Sequence[PreTrainedModel], anatomy: Anatomy, sharing: Sharing
) -> Iterator[Callable[[Batch], list[Tensor]]]:
    """A function from a padded batch to the logits ``[B, C]`` of each model. On exit, the models are restored.

    Args:
        models: The classifiers in eval mode.
        anatomy: Their layers.
        sharing: Which layers they share.
    """
    states: dict[int, Tensor] = {}  # by cut: the trunk's hidden states, [B, S, D]
    others = [n for n in range(len(models)) if n != sharing.trunk]
    wanted = {sharing.cuts[n] for n in others}

    def tap(number: int, hidden: Tensor) -> None:
        if number in wanted:
            states[number] = hidden

    with ExitStack() as opened:
        whole = opened.enter_context(cut_at(models[sharing.trunk], anatomy, None, tap=tap))
        upper = {n: opened.enter_context(cut_at(models[n], anatomy, sharing.cuts[n])) for n in others}

        def run(batch: Batch) -> list[Tensor]:
            logits = {sharing.trunk: whole(batch)}
            logits |= {n: upper[n](batch, states[sharing.cuts[n]]) for n in others}
            states.clear()
            return [logits[n] for n in range(len(models))]

        yield run
