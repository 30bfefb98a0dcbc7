"""Check that the cut model computes the same logits and gradients as the uncut model.

The reference is the uncut model with padded batches. :mod:`frostline.frozen.check.cut_comparison` says what is compared. That the
uncut model is the one which transformers loads is checked by :func:`difference_from_transformers`.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn
from transformers import AutoModel, AutoTokenizer, PreTrainedModel

from frostline import FrostlineError
from frostline.frozen.check.batches import check_lengths, last_example_alone
from frostline.frozen.check.cut_comparison import Check, CutComparison
from frostline.frozen.check.differences import TOLERANCE, relative_difference, restored
from frostline.model.anatomy import find_layers, probe_batch
from frostline.model.model_files import quiet_loading, runs_own_code
from frostline.model.pretrained import Pretrained
from frostline.model.tokens import encode
from frostline.model.trace import Batch
from frostline.model.trainable import Trainable
from frostline.model.vocabulary import TYPES, suited
from frostline.statistics.recipe import FULL, NAMED, Recipe

TEXTS = ("The first of these texts is the longest one, in 2024!", "A second text", "third")


def check(
    model: nn.Module,
    *,
    tuned_layers: Sequence[int | str] | None = None,
    tune_modules: Sequence[str] | None = None,
    max_uncut_layers: int | None = None,
    lengths: Sequence[int] | None = None,
    batch: Batch | None = None,
) -> list[Check]:
    """Compare the cut model with the uncut model, with cached hidden states and with packed batches.

    Args:
        model: Any sequence or token classification model of transformers, in float32. It is not changed.
        tuned_layers: The values of k to check; by default 0 .. L and ``full`` (full fine-tuning).
        tune_modules: Module paths of named parts to check, too. The ``tuned_layers`` of their result is the number of layers
            that must run for them.
        max_uncut_layers: For ``all``, compare only the gradients of this many last layers. None compares the gradients of all
            parameters, which needs twice the memory of the model.
        lengths: Tokens of each example in the batch that the check makes.
        batch: A right-padded batch to use instead, for a model type that needs more inputs than tokens.

    Returns:
        One result for each k. A model type that cannot be cut at all has a single result without k.

    Raises:
        FrostlineError: The model is not a model of transformers.
    """
    if not isinstance(model, PreTrainedModel):
        raise FrostlineError(f"{type(model).__name__} is not a model of transformers: check a PreTrainedModel.")
    batch = probe_batch(model, lengths or check_lengths(model)) if batch is None else batch
    with restored(model):
        try:
            anatomy = find_layers(model, batch)
            _require_repeatable(model, batch)
            comparison = CutComparison(model, anatomy, batch)
            checks = []
            for recipe in map(Recipe, [*range(anatomy.count + 1), FULL] if tuned_layers is None else tuned_layers):
                trained = Recipe(max_uncut_layers) if recipe == FULL and max_uncut_layers is not None else recipe
                checks.append(comparison.check(recipe, Trainable(trained).parameters(anatomy)))
            if tune_modules:
                names = Trainable(NAMED, tuple(tune_modules)).parameters(anatomy)
                depth = anatomy.depth(names)
                checks.append(comparison.check(FULL if depth is None else Recipe(depth), names))
            return checks
        except FrostlineError as error:
            return [Check(None, None, None, None, str(error))]


def difference_from_transformers(pretrained: Pretrained) -> float:
    """The largest relative difference of the hidden states of a few texts from those of transformers.

    There the folder is loaded with ``from_pretrained`` alone, and each text is read by itself.
    """
    folder, longest = pretrained.folder, pretrained.max_length
    trusted = {"trust_remote_code": runs_own_code(pretrained.model) or runs_own_code(pretrained.tokenizer)}
    plain = AutoTokenizer.from_pretrained(folder, **trusted)
    with quiet_loading():
        reference = AutoModel.from_pretrained(folder, dtype=torch.float32, use_safetensors=True, **trusted).eval()
    tokens = encode(pretrained.tokenizer, TEXTS, None, longest)
    tokens = suited(tokens, pretrained.model, pretrained.tokenizer)
    differences = []
    with restored(pretrained.model):
        for n, text in enumerate(TEXTS):
            given = plain(text, truncation=True, max_length=longest, return_tensors="pt")
            if tokens.zeroed_types:  # transformers alone cannot read them
                del given[TYPES]
            ours = _hidden_states(pretrained.model.base_model, tokens.batch(np.array([n])))
            expected = _hidden_states(reference, given)
            differences += [relative_difference(*both) for both in zip(ours, expected, strict=True)]
    return float(torch.tensor(differences).max())  # NaN if one is


def _hidden_states(base: nn.Module, inputs: Batch) -> tuple[Tensor, ...]:
    """The hidden states before and after every layer, and the output."""
    torch.manual_seed(0)  # some model types draw random numbers even in eval mode
    with torch.no_grad():
        out = base(**inputs, output_hidden_states=True)
    return *(getattr(out, "hidden_states", None) or ()), out[0]


def _require_repeatable(model: PreTrainedModel, batch: Batch) -> None:
    """Refuse a model whose output depends on more than its input.

    Raises:
        FrostlineError: The same batch gives other logits after a shorter batch.
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
