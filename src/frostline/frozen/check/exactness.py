"""Check on the model at hand that shared hidden states change nothing.

For every k, logits and gradients of the cut model are compared with those of the uncut, padded model;
:mod:`frostline.frozen.check.trial` says how. Differences are relative: the largest difference over the largest value.
"""

from collections.abc import Sequence

import torch
from torch import nn
from transformers import PreTrainedModel

from frostline import FrostlineError
from frostline.frozen.check.batches import check_lengths, last_example_alone
from frostline.frozen.check.comparison import TOLERANCE, relative_difference
from frostline.frozen.check.restoring import restored
from frostline.frozen.check.trial import Check, Trial
from frostline.model.anatomy import find_layers, probe_batch
from frostline.model.trace import Batch
from frostline.model.trainable import Trainable


def check(
    model: nn.Module,
    *,
    tuned_layers: Sequence[int | None] | None = None,
    tune_modules: Sequence[str] | None = None,
    uncut_trains: int | None = None,
    lengths: Sequence[int] | None = None,
    batch: Batch | None = None,
) -> list[Check]:
    """Compare the cut model with the uncut one, with cached hidden states and with packed batches.

    Args:
        model: Any sequence-classification model of transformers, in fp32; left as it was.
        tuned_layers: The values of k to check; by default 0 .. L and full (None).
        tune_modules: Module paths of parts to check as well. In their row, ``tuned_layers`` is the number of layers that must
            run.
        uncut_trains: Where nothing is cut, compare the gradients of this many of the last layers; None: all, which takes
            twice the memory of the model.
        lengths: Tokens of each example of the batch that the check makes.
        batch: A right-padded batch to use instead, for a type that needs more than tokens.

    Returns:
        One row for each k; a single refused row if the type cannot be cut at all.

    Raises:
        FrostlineError: The model is not one of transformers.
    """
    if not isinstance(model, PreTrainedModel):
        raise FrostlineError(f"{type(model).__name__} is no model of transformers: check a PreTrainedModel.")
    batch = probe_batch(model, lengths or check_lengths(model)) if batch is None else batch
    with restored(model):
        try:
            anatomy = find_layers(model, batch)
            _require_repeatable(model, batch)
            trial = Trial(model, anatomy, batch)
            ks = [*range(anatomy.count + 1), None] if tuned_layers is None else tuned_layers
            rows = [trial.check(k, Trainable.last(uncut_trains if k is None else k).parameters(anatomy)) for k in ks]
            if tune_modules:
                names = Trainable("named", tuple(tune_modules)).parameters(anatomy)
                rows.append(trial.check(anatomy.depth(names), names))
            return rows
        except FrostlineError as error:
            return [Check(None, None, None, None, str(error))]


def _require_repeatable(model: PreTrainedModel, batch: Batch) -> None:
    """Refuse a model whose output depends on more than its input.

    Raises:
        FrostlineError: The same batch gives other logits after a shorter one.
    """
    with torch.no_grad():
        before = model(**batch).logits
        model(**last_example_alone(batch))
        difference = relative_difference(model(**batch).logits, before)
    if not difference < TOLERANCE:
        raise FrostlineError(
            f"A model of type {model.config.model_type!r} cannot be cut: the same batch gives different logits "
            f"(by {difference:.1e}) when it is repeated after a shorter one. Choose another model."
        )
