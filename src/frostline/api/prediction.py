"""Labels and probabilities of new texts, by a model that a sweep saved, a probe, or any classifier of transformers."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import AutoModelForSequenceClassification

from frostline import FrostlineError
from frostline.data.examples import Texts
from frostline.model.loading import LONGEST, load_tokenizer, most_tokens
from frostline.model.model_files import quiet_loading, readable, require_files
from frostline.model.tokens import encode
from frostline.training.probes.saved import saved_probe

BATCH = 64


@dataclass(frozen=True)
class Predictions:
    """``values``: probabilities ``[N, labels]``, or for regression numbers ``[N, 1]``; ``labels`` is empty then."""

    labels: tuple[str, ...]
    values: NDArray[np.float32]
    truncated: int  # texts that were cut at the model's length limit

    def rows(self, texts: Texts) -> Iterator[dict[str, Any]]:
        """One row a text: its row number, the text, the label, and the probability of each label; for regression the number."""
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
        """The names in :meth:`rows`, also when there is no text."""
        pair = [] if texts.pairs is None else ["text_pair"]
        values = ["label", *(f"p({label})" for label in self.labels)] if self.labels else ["prediction"]
        return ["row", "text", *pair, *values]


def require_model(folder: str | Path) -> None:
    """Raise a FrostlineError where there is neither a model nor a probe."""
    if not any((Path(folder) / name).is_file() for name in ("config.json", "probe.json")):
        raise FrostlineError(f"{folder} holds no model (no config.json): give DIR/model of a sweep's --out.")


def trained_columns(folder: str | Path) -> Mapping[str, str | None] | None:
    """The columns that a sweep's model or a probe was trained on; None for another classifier, which does not say."""
    for name in ("frostline.json", "probe.json"):
        try:
            columns = json.loads((Path(folder) / name).read_bytes())["columns"]
        except (OSError, ValueError, KeyError):
            continue
        if isinstance(columns, dict) and "text" in columns:
            return columns
    return None


def predict(folder: str | Path, texts: Texts, *, trust_remote_code: bool = False) -> Predictions:
    """Run the model, or the probe, in ``folder`` over ``texts``, as :func:`frostline.data.read_unlabelled` reads them; with
    ``trust_remote_code`` code that comes with the model is run.

    Raises:
        FrostlineError: the folder holds no model, or none that transformers can classify with.
    """
    require_model(folder)
    if probe := saved_probe(folder):
        _demand_shape(Path(folder), texts)
        values, cut = probe.values(texts, trust_remote_code=trust_remote_code)
        return Predictions(tuple(probe.about["labels"]), values, cut)
    _demand_shape(Path(folder), texts)
    require_files(str(folder), Path(folder))
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
            f"The model in {folder} is no trained classifier (its weights lack {min(info['missing_keys'])}): give "
            "DIR/model of a sweep's --out."
        )
    if model.config.problem_type == "multi_label_classification":
        raise FrostlineError(
            f"The model in {folder} gives a text any number of labels at once: frostline is for one label a text, or a number."
        )
    model.eval()
    tokenizer = load_tokenizer(str(folder), Path(folder), trust_remote_code=trust_remote_code)
    text = model.config.get_text_config()
    if getattr(text, "pad_token_id", None) is None:  # some look for the last token that is no padding
        text.pad_token_id = tokenizer.pad_token_id
    limit = min(tokenizer.model_max_length, most_tokens(model) or LONGEST)
    tokens = encode(tokenizer, texts.texts, texts.pairs, limit)
    order = np.argsort(tokens.lengths, kind="stable")
    parts = []
    with torch.no_grad():
        for start in range(0, len(order), BATCH):
            parts.append(model(**tokens.batch(order[start : start + BATCH])).logits.float())
    logits = torch.cat(parts)[torch.from_numpy(np.argsort(order))]
    labels = _labels(model.config.id2label, model.config.problem_type, logits.shape[1])
    values = logits.softmax(1) if labels else logits
    return Predictions(labels, values.numpy(), int((tokens.dropped > 0).sum()))


def _demand_shape(folder: Path, texts: Texts) -> None:
    """A model that learned from pairs is not asked about single texts, nor the other way round."""
    columns = trained_columns(folder)
    if columns and (columns.get("text_pair") is None) != (texts.pairs is None):
        learned, given = ("single texts", "pairs") if texts.pairs is not None else ("pairs of texts", "single texts")
        raise FrostlineError(
            f"{texts.name} has {given}, and the model in {folder} learned from {learned}: name the columns with "
            "--text-column and --text-pair-column."
        )


def _labels(names: Mapping[int, str], problem_type: str | None, outputs: int) -> tuple[str, ...]:
    return () if problem_type == "regression" or outputs == 1 else tuple(names[n] for n in range(outputs))
