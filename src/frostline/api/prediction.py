"""Predict labels of new texts with a model that a sweep saved, a probe, or any classifier of transformers."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import AutoModelForSequenceClassification, PreTrainedModel

from frostline import FrostlineError
from frostline.data.examples import Texts
from frostline.model.loading import LONGEST, load_tokenizer, most_tokens
from frostline.model.model_files import quiet_loading, readable, require_files
from frostline.model.tokens import Tokens, encode
from frostline.training.probes.saved import saved_probe

BATCH = 64


@dataclass(frozen=True)
class Predictions:
    """Predictions for N texts.

    Attributes:
        labels: The classes; empty for regression.
        values: Probabilities ``[N, labels]``, or for regression numbers ``[N, 1]``.
        truncated: The number of texts that were truncated to the model's length limit.
    """

    labels: tuple[str, ...]
    values: NDArray[np.float32]
    truncated: int

    def rows(self, texts: Texts) -> Iterator[dict[str, Any]]:
        """One row per text: row number, text, label and the probability of each label, or for regression the number."""
        for n, text in enumerate(texts.texts):
            row: dict[str, Any] = {"row": int(texts.rows[n]), "text": text}
            if texts.pairs is not None:
                row["text_pair"] = texts.pairs[n]
            if not self.labels:
                yield {**row, "prediction": float(self.values[n, 0])}
                continue
            row["label"] = self.labels[int(self.values[n].argmax())]
            yield {
                **row,
                **{f"p({label})": round(float(p), 6) for label, p in zip(self.labels, self.values[n], strict=True)},
            }

    def columns(self, texts: Texts) -> list[str]:
        """The keys of :meth:`rows`, also if there are no texts."""
        pair = [] if texts.pairs is None else ["text_pair"]
        values = ["label", *(f"p({label})" for label in self.labels)] if self.labels else ["prediction"]
        return ["row", "text", *pair, *values]


def require_model(folder: str | Path) -> None:
    """Raise a FrostlineError if the folder contains neither a model nor a probe."""
    if not any((Path(folder) / name).is_file() for name in ("config.json", "probe.json")):
        raise FrostlineError(f"{folder} contains no model (no config.json): give the folder OUT/model of a sweep.")


def trained_columns(folder: str | Path) -> Mapping[str, str | None] | None:
    """The columns that a model or probe of frostline was trained on; None for any other classifier."""
    for name in ("frostline.json", "probe.json"):
        try:
            columns = json.loads((Path(folder) / name).read_bytes())["columns"]
        except (OSError, ValueError, KeyError):
            continue
        if isinstance(columns, dict) and "text" in columns:
            return columns
    return None


def predict(folder: str | Path, texts: Texts, *, trust_remote_code: bool = False) -> Predictions:
    """Predict the labels of texts.

    Args:
        folder: The folder of a model or of a probe.
        texts: The texts, as :func:`frostline.data.read_unlabelled` reads them.
        trust_remote_code: Whether to run code that comes with the model.

    Raises:
        FrostlineError: The folder contains no model, or transformers cannot classify with it.
    """
    require_model(folder)
    _check_shape(Path(folder), texts)
    if probe := saved_probe(folder):
        values, truncated = probe.values(texts, trust_remote_code=trust_remote_code)
        return Predictions(tuple(probe.about["labels"]), values, truncated)
    model = _load_classifier(Path(folder), trust_remote_code=trust_remote_code)
    tokenizer = load_tokenizer(str(folder), Path(folder), trust_remote_code=trust_remote_code)
    text_config = model.config.get_text_config()
    if getattr(text_config, "pad_token_id", None) is None:  # some models read the last token that is not padding
        text_config.pad_token_id = tokenizer.pad_token_id
    limit = min(tokenizer.model_max_length, most_tokens(model) or LONGEST)
    tokens = encode(tokenizer, texts.texts, texts.pairs, limit)
    logits = _logits(model, tokens)
    labels = _labels(model.config.id2label, model.config.problem_type, logits.shape[1])
    values = logits.softmax(1) if labels else logits
    return Predictions(labels, values.numpy(), int((tokens.dropped > 0).sum()))


def _load_classifier(folder: Path, *, trust_remote_code: bool) -> PreTrainedModel:
    """The classifier in a folder, in eval mode."""
    require_files(str(folder), folder)
    with quiet_loading():
        model, info = readable(
            lambda: AutoModelForSequenceClassification.from_pretrained(
                folder, use_safetensors=True, output_loading_info=True, trust_remote_code=trust_remote_code
            ),
            str(folder),
            "transformers cannot load it for classification",
        )
    if info["missing_keys"]:
        raise FrostlineError(
            f"The model in {folder} is not a trained classifier (its weights lack {min(info['missing_keys'])}): give the "
            "folder OUT/model of a sweep."
        )
    if model.config.problem_type == "multi_label_classification":
        raise FrostlineError(
            f"The model in {folder} is a multi-label classifier: give one that predicts a single label or a number."
        )
    return model.eval()


def _logits(model: PreTrainedModel, tokens: Tokens) -> torch.Tensor:
    """The logits of all texts in their order, computed in batches of similar length."""
    order = np.argsort(tokens.lengths, kind="stable")
    with torch.no_grad():
        starts = range(0, len(order), BATCH)
        parts = [model(**tokens.batch(order[start : start + BATCH])).logits.float() for start in starts]
    return torch.cat(parts)[torch.from_numpy(np.argsort(order))]


def _check_shape(folder: Path, texts: Texts) -> None:
    """Refuse single texts for a model that was trained on pairs, and pairs for one that was trained on single texts."""
    columns = trained_columns(folder)
    if columns and (columns.get("text_pair") is None) != (texts.pairs is None):
        trained, given = ("single texts", "pairs") if texts.pairs is not None else ("pairs of texts", "single texts")
        raise FrostlineError(
            f"{texts.name} has {given}, but the model in {folder} was trained on {trained}: name the columns with "
            "--text-column and --text-pair-column."
        )


def _labels(names: Mapping[int, str], problem_type: str | None, outputs: int) -> tuple[str, ...]:
    return () if problem_type == "regression" or outputs == 1 else tuple(names[n] for n in range(outputs))
