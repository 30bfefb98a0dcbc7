"""A trained classifier in a folder: load it, encode texts, and compute their logits.

Shapes: N texts, B examples in a batch, S padded length, C outputs.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from frostline import FrostlineError
from frostline.data.examples import Texts
from frostline.data.kinds import CLASSIFICATION, TOKENS
from frostline.model.anatomy import Anatomy, find_layers, position_limit
from frostline.model.checkpoint import Streams, never_streams, saved_checkpoint
from frostline.model.loading import LONGEST, MODEL_CLASSES, UNLOADABLE, load_tokenizer, settle_padding
from frostline.model.model_files import json_object, require_files
from frostline.model.pooled_folder import is_pooled, read_pooled
from frostline.model.recurrent_folder import is_recurrent, is_recurrent_tagger, read_recurrent
from frostline.model.shards import is_unread
from frostline.model.streaming import aligned, stream_of
from frostline.model.tokens import Tokens, encode
from frostline.model.vocabulary import suited, vocabulary_tables

BATCH = 64


@dataclass(frozen=True)
class Classifier:
    """A classifier that is ready to label texts, as :func:`load_classifier` or :func:`prepared` returns it.

    Attributes:
        model: The model in eval mode.
        tokenizer: Its tokenizer.
        max_length: The most tokens of a text. Longer texts are truncated.
        of_words: Whether it predicts a tag for each word of a sentence.
        anatomy: Its layers, if they are streamed; None if the whole model is in memory.
    """

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    max_length: int
    of_words: bool = False
    anatomy: Anatomy | None = None

    def encode(self, texts: Texts) -> Tokens:
        """The tokens of all texts.

        Raises:
            FrostlineError: The model does not know a token.
        """
        tokens = encode(self.tokenizer, texts.texts, texts.pairs, self.max_length, of_words=self.of_words)
        return suited(tokens, self.model, self.tokenizer)


def is_tagger(folder: Path) -> bool:
    """Whether the folder has a model that predicts a tag for each word."""
    kinds = json_object(folder / "config.json").get("architectures")
    kind = kinds[0] if isinstance(kinds, list) and kinds else ""
    return str(kind).endswith("ForTokenClassification") or is_recurrent_tagger(folder)


def load_classifier(
    folder: Path, *, of_words: bool = False, trust_remote_code: bool = False, streams: Streams = never_streams
) -> Classifier:
    """Load the classifier in a folder. With ``of_words`` it predicts a tag for each word.

    ``streams`` decides whether its layers are streamed (:mod:`frostline.model.streaming`).

    Raises:
        FrostlineError: The folder has no classifier that transformers can load, or not one for texts, or its layers cannot
            be streamed.
    """
    require_files(str(folder), folder)
    if is_tagger(folder) and not of_words:
        raise FrostlineError(
            f"The model in {folder} predicts tags of words: give one that predicts labels or a number for a text."
        )
    if is_pooled(folder):
        model = read_pooled(folder, trust_remote_code=trust_remote_code, streams=streams)
    elif is_recurrent(folder):
        model = read_recurrent(folder, trust_remote_code=trust_remote_code, streams=streams)
    else:
        model = _read_classifier(folder, of_words=of_words, trust_remote_code=trust_remote_code, streams=streams)
    tokenizer = load_tokenizer(str(folder), folder, of_words=of_words, trust_remote_code=trust_remote_code)
    return replace(prepared(model, tokenizer), of_words=of_words)


def _read_classifier(folder: Path, *, of_words: bool, trust_remote_code: bool, streams: Streams) -> PreTrainedModel:
    """The classifier with the head of its model type.

    Raises:
        FrostlineError: transformers cannot load it, or it has no trained head.
    """
    kind = MODEL_CLASSES[TOKENS if of_words else CLASSIFICATION]
    model, info = saved_checkpoint(folder, kind, UNLOADABLE, trust_remote_code=trust_remote_code).load(streams)
    if info["missing_keys"]:
        raise FrostlineError(
            f"The model in {folder} is not a trained classifier (its weights lack {min(info['missing_keys'])}): give the "
            "folder OUT/model of a sweep."
        )
    return model


def prepared(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> Classifier:
    """The classifier of a loaded model and its tokenizer."""
    settle_padding(model, tokenizer)
    _align_weights(model)
    anatomy, stream = None, stream_of(model)
    if stream:
        stream.align = True
        anatomy = find_layers(model)
        stream.settle(anatomy)
    limit = min(tokenizer.model_max_length, position_limit(model) or LONGEST)
    return Classifier(model.eval(), tokenizer, int(limit), anatomy=anatomy)


def logits_of(
    tokens: Tokens,
    forward: Callable[[Sequence[NDArray[np.int64]]], Iterable[Sequence[Tensor]]],
    *,
    lengths: NDArray[np.int64] | None = None,
) -> list[Tensor]:
    """The logits of all texts in their order, computed in batches of similar length.

    Args:
        tokens: The N encoded texts.
        forward: From the positions of the texts of each batch to the logits ``[B, C]`` of each of several tasks, batch by
            batch. C can differ between tasks.
        lengths: How many rows of logits each text has, ``[N]``; None: one.

    Returns:
        For each task ``[N, C]`` in float32; with ``lengths``, ``[T, C]``.
    """
    order = np.argsort(tokens.lengths, kind="stable")
    batches = [order[start : start + BATCH] for start in range(0, len(order), BATCH)]
    with torch.no_grad():
        logits = [[x.float() for x in of_batch] for of_batch in forward(batches)]
    restore = torch.from_numpy(
        np.argsort(order if lengths is None else np.repeat(order, lengths[order]), kind="stable")
    )
    return [torch.cat(of_task)[restore] for of_task in zip(*logits, strict=True)]


def _align_weights(model: PreTrainedModel) -> None:
    """Copy weights whose address is not aligned, so that logits do not depend on where a file stores the weights.

    The table of the vocabulary is not copied, because it is only looked up.
    """
    tables = vocabulary_tables(model).values()
    for module in model.modules():
        if module in tables:
            continue
        for parameter in module.parameters(recurse=False):
            if not is_unread(parameter):
                parameter.data = aligned(parameter.data)
