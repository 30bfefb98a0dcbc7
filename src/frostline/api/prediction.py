"""``frostline.predict``: label new texts with a saved model, a saved probe, or any classifier of transformers."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import AutoModelForSequenceClassification, PreTrainedModel

from frostline import FrostlineError
from frostline.data.examples import Texts
from frostline.data.load import read_unlabelled
from frostline.data.specification import REGRESSION
from frostline.model.anatomy import position_limit
from frostline.model.loading import LONGEST, load_tokenizer
from frostline.model.model_files import quiet_loading, readable, require_files
from frostline.model.tokens import Tokens, encode
from frostline.training.probes.saved import FACTS as PROBE_FACTS
from frostline.training.probes.saved import saved_probe
from frostline.training.probes.words import FACTS as WORDS_FACTS
from frostline.training.probes.words import load_words

if TYPE_CHECKING:
    import pandas as pd

BATCH = 64


@dataclass(frozen=True)
class Predictions:
    """Predictions for N texts.

    Attributes:
        texts: The texts, with their row numbers in the source.
        labels: The C classes; empty for regression.
        values: Probabilities ``[N, C]``, or for regression predicted numbers ``[N, 1]``.
        truncated: The number of texts that were truncated to the model's length limit.
    """

    texts: Texts
    labels: tuple[str, ...]
    values: NDArray[np.float32]
    truncated: int

    def rows(self) -> Iterator[dict[str, Any]]:
        """One dictionary per text: ``row``, ``text``, ``label`` and a probability ``p(LABEL)`` for each label.

        Pairs also have ``text_pair``. For regression, ``prediction`` replaces label and probabilities.
        """
        for n, text in enumerate(self.texts.texts):
            row: dict[str, Any] = {"row": int(self.texts.rows[n]), "text": text}
            if self.texts.pairs is not None:
                row["text_pair"] = self.texts.pairs[n]
            if not self.labels:
                yield {**row, "prediction": float(self.values[n, 0])}
                continue
            row["label"] = self.labels[int(self.values[n].argmax())]
            yield {
                **row,
                **{f"p({label})": round(float(p), 6) for label, p in zip(self.labels, self.values[n], strict=True)},
            }

    def columns(self) -> list[str]:
        """The keys of :meth:`rows`."""
        pair = [] if self.texts.pairs is None else ["text_pair"]
        values = ["label", *(f"p({label})" for label in self.labels)] if self.labels else ["prediction"]
        return ["row", "text", *pair, *values]


def require_model(folder: str | Path) -> None:
    """Raise a FrostlineError if the folder contains no model, no probe and no model of words."""
    if not any((Path(folder) / name).is_file() for name in ("config.json", PROBE_FACTS, WORDS_FACTS)):
        raise FrostlineError(f"{folder} contains no model (no config.json): give the folder OUT/model of a sweep.")


def trained_columns(folder: str | Path) -> Mapping[str, str | None] | None:
    """The columns that a model or probe was trained on; None if frostline did not train it."""
    for name in ("frostline.json", PROBE_FACTS, WORDS_FACTS):
        try:
            columns = json.loads((Path(folder) / name).read_bytes())["columns"]
        except (OSError, ValueError, KeyError):
            continue
        if isinstance(columns, dict) and "text" in columns:
            return columns
    return None


def predict(
    folder: str | Path,
    texts: "str | Path | pd.DataFrame | Sequence[str] | Texts",
    *,
    text_column: str | None = None,
    text_pair_column: str | None = None,
    trust_remote_code: bool = False,
) -> Predictions:
    """Predict the labels of texts.

    Args:
        folder: The folder of a model, or of a probe.
        texts: The path of a table, a pandas ``DataFrame``, a list of texts, or what
            :func:`frostline.data.load.read_unlabelled` has read. Labels in a table are ignored.
        text_column: The column of the texts in a table. By default it is that of the training data, or found by its name.
        text_pair_column: The column of the second texts of pairs, likewise.
        trust_remote_code: Whether to run code that comes with the model.

    Raises:
        FrostlineError: The table cannot be read, the folder contains no model, or transformers cannot classify with it.
    """
    require_model(folder)
    if not isinstance(texts, Texts):
        texts = _read(texts, text_column, text_pair_column, trained_columns(folder))
    _check_shape(Path(folder), texts)
    if probe := saved_probe(folder):
        values, truncated = probe.values(texts, trust_remote_code=trust_remote_code)
        return Predictions(texts, tuple(probe.about["labels"]), values, truncated)
    if words := load_words(folder):
        model_of_words, about = words
        return Predictions(texts, tuple(about["labels"]), model_of_words.predictions(texts).astype(np.float32), 0)
    model = _load_classifier(Path(folder), trust_remote_code=trust_remote_code)
    tokenizer = load_tokenizer(str(folder), Path(folder), trust_remote_code=trust_remote_code)
    text_config = model.config.get_text_config()
    if getattr(text_config, "pad_token_id", None) is None:  # some models classify by the last token before the padding
        text_config.pad_token_id = tokenizer.pad_token_id
    limit = min(tokenizer.model_max_length, position_limit(model) or LONGEST)
    tokens = encode(tokenizer, texts.texts, texts.pairs, limit)
    logits = _logits(model, tokens)
    labels = _labels(model.config.id2label, model.config.problem_type, logits.shape[1])
    values = logits.softmax(1) if labels else logits
    return Predictions(texts, labels, values.numpy(), int((tokens.dropped > 0).sum()))


def _read(
    source: Any, text_column: str | None, text_pair_column: str | None, trained: Mapping[str, str | None] | None
) -> Texts:
    """The texts of a table or a list."""
    if isinstance(source, list | tuple):
        wrong = [one for one in source if not isinstance(one, str)]
        if wrong or not source:
            found = f"contains {wrong[0]!r}" if wrong else "is empty"
            raise FrostlineError(f"The list of texts {found}: give strings, or a DataFrame for pairs of texts.")
        return Texts(texts=tuple(source), pairs=None, rows=np.arange(1, len(source) + 1), name="the list of texts")
    texts, _ = read_unlabelled(source, text_column=text_column, text_pair_column=text_pair_column, trained=trained)
    return texts


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
    """The logits ``[N, C]`` of all texts in their order, computed in batches of similar length."""
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
    return () if problem_type == REGRESSION or outputs == 1 else tuple(names[n] for n in range(outputs))
