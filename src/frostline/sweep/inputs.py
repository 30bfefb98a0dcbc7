"""The data of a sweep: read, checked and tokenized."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from frostline import FrostlineError
from frostline.data.examples import Examples
from frostline.data.kinds import MULTI_LABEL, TOKENS
from frostline.data.load import Data, load_data
from frostline.data.splits import least_size
from frostline.frozen.forward_pass import Rows
from frostline.model.anatomy import position_limit
from frostline.model.pretrained import Pretrained
from frostline.model.tokens import Tokens, encode, suited
from frostline.statistics.metrics import DEFAULT
from frostline.statistics.threshold_rule import BEST, MAXIMIZED, OF_LABEL_SETS
from frostline.sweep.settings import Settings

SPLITS = ("train", "validation", "test")


def read_data(spec: Settings, sources: Mapping[str, Any]) -> Data:
    """Read the examples that a specification names.

    Args:
        spec: The sweep.
        sources: Tables given in Python, which replace the paths of ``train``, ``validation`` and ``test``.

    Raises:
        FrostlineError: A table cannot be read or is not usable.
    """
    return load_data(spec, sources, folds=spec.folds, data_seed=spec.data_seed)


def splits_of(data: Data) -> dict[str, Examples]:
    """The examples of every split, training first."""
    return {name: part for name in SPLITS if (part := getattr(data, name)) is not None} | dict(data.other_splits)


def length_limit(spec: Settings, pretrained: Pretrained) -> int:
    """The most tokens per example.

    Raises:
        FrostlineError: The requested limit does not suit the model.
    """
    if spec.max_length is None:
        return pretrained.max_length
    positions = position_limit(pretrained.model)
    least = pretrained.tokenizer.num_special_tokens_to_add(pair=False) + 1
    if spec.max_length < least or (positions and spec.max_length > positions):
        raise FrostlineError(
            f"max_length = {spec.max_length} does not suit {pretrained.name}: "
            f"give a number from {least} to {positions or 'what memory allows'}."
        )
    return spec.max_length


def encode_splits(
    spec: Settings,
    splits: Mapping[str, Examples],
    max_length: int,
    pretrained: Pretrained,
    trained: Rows | None = None,
) -> dict[str, Tokens]:
    """Tokens of every split, at most ``max_length`` per example; of the training split only the rows ``trained``.

    Raises:
        FrostlineError: More examples would be truncated than the specification allows, or the model does not know a token.
    """
    model, tokenizer = pretrained.model, pretrained.tokenizer
    encoded = {}
    for name, s in splits.items():
        rows = trained if name == "train" else None
        tokens = encode(tokenizer, s.texts, s.pairs, max_length, rows, of_words=s.of_words)
        encoded[name] = suited(tokens, model, tokenizer)
    truncated = {name: tokens.truncated() for name, tokens in encoded.items()}
    split = max(truncated, key=lambda name: truncated[name])
    if truncated[split] <= spec.max_truncated:
        return encoded
    tokens = encoded[split]
    lost = tokens.dropped.sum() / (tokens.dropped.sum() + tokens.offsets[-1])
    longest = int((tokens.lengths + tokens.dropped).max())
    most = position_limit(model)
    longer = "The model takes no more tokens: allow" if most and max_length >= most else "Raise --max-length, or allow"
    raise FrostlineError(
        f"{100 * truncated[split]:.1f} % of the {split} examples in use have more than {max_length} tokens and would be "
        f"truncated. {100 * lost:.1f} % of all tokens would be lost; the longest example has {longest}. {longer} "
        f"truncation with --max-truncated {min(1.0, np.ceil(truncated[split] * 100) / 100):g}."
    )


def require_suitable_options(spec: Settings, data: Data) -> None:
    """Refuse options and training-set sizes that the data do not allow."""
    if data.task.task_type != TOKENS and spec.label_all_tokens:
        raise FrostlineError(f"{data.task.name}: --label-all-tokens is for tags of words: leave it out.")
    if data.task.task_type == TOKENS and spec.threshold is not None:
        raise FrostlineError(
            f"{data.task.name}: --threshold is for labels of texts, but words have tags: leave it out."
        )
    if not data.task.labels and spec.class_weights != "none":
        raise FrostlineError(
            f"{data.task.name}: class_weights are for classes, but this is a regression: leave them out."
        )
    if not data.task.labels and spec.calibrate:
        raise FrostlineError(
            f"{data.task.name}: --calibrate is for probabilities, but this is a regression: leave it out."
        )
    if spec.threshold is not None:
        _require_threshold(spec, data)
    classes = least_size(data.train.targets)
    for size in spec.values_of("train_size"):
        if size > data.train_rows:
            raise FrostlineError(
                f"train_size = {size:,} is more than the {data.train_rows:,} training rows (without those held out for "
                "validation and test): give a smaller --train-size, or leave it out to use all."
            )
        if size < classes:
            raise FrostlineError(
                f"train_size = {size} is too small for one example of each of the {classes} classes: give at least "
                f"--train-size {classes}."
            )


def _require_threshold(spec: Settings, data: Data) -> None:
    """Refuse a threshold that the task does not have."""
    name, several = str(spec.threshold), data.task.task_type == MULTI_LABEL
    if several and name in (BEST, *MAXIMIZED, *OF_LABEL_SETS):
        chosen = (spec.metric or DEFAULT[MULTI_LABEL][0]) if name == BEST else name
        if chosen not in OF_LABEL_SETS:
            raise FrostlineError(
                f"{data.task.name}: --threshold {name} cannot maximize {chosen} over sets of labels: give a number, recall=0.9, "
                f"or {' or '.join(OF_LABEL_SETS)}."
            )
    elif not several and len(data.task.labels) != 2:
        found = f"{len(data.task.labels)} classes" if data.task.labels else "numbers to predict"
        raise FrostlineError(f"{data.task.name}: --threshold is for two classes, but there are {found}: leave it out.")
    elif not several and name == "f1_micro":
        raise FrostlineError(f"{data.task.name}: --threshold f1_micro is for several labels of a text: give f1.")
