"""``frostline.predict``: label new texts with a saved model, a saved probe, or any classifier of transformers."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from frostline import FrostlineError
from frostline.data.examples import Texts
from frostline.data.load import read_unlabelled
from frostline.data.specification import REGRESSION
from frostline.frozen.bundle.folder import FACTS as BUNDLE_FACTS
from frostline.frozen.bundle.folder import is_bundle
from frostline.model.classifier import load_classifier, logits_of
from frostline.training.probes.saved import FACTS as PROBE_FACTS
from frostline.training.probes.saved import saved_probe
from frostline.training.probes.words import FACTS as WORDS_FACTS
from frostline.training.probes.words import load_words

if TYPE_CHECKING:
    import pandas as pd


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

    @classmethod
    def of_logits(cls, texts: Texts, logits: Tensor, config: Any, truncated: int) -> "Predictions":
        """The predictions of a classifier with this configuration, from its logits ``[N, C]``."""
        labels = _labels(config.id2label, config.problem_type, logits.shape[1])
        return cls(texts, labels, (logits.softmax(1) if labels else logits).numpy(), truncated)

    def rows(self) -> Iterator[dict[str, Any]]:
        """One dictionary per text: ``row``, ``text``, ``label`` and a probability ``p(LABEL)`` for each label.

        Pairs also have ``text_pair``. For regression, ``prediction`` replaces label and probabilities.
        """
        yield from ({**text_cells(self.texts, n), **self.cells(n)} for n in range(len(self.texts)))

    def columns(self) -> list[str]:
        """The keys of :meth:`rows`."""
        return [*text_columns(self.texts), *self.cell_columns()]

    def cells(self, n: int) -> dict[str, Any]:
        """What is predicted for text ``n``: the keys of :meth:`rows` without row number and text."""
        if not self.labels:
            return {"prediction": float(self.values[n, 0])}
        probabilities = zip(self.labels, self.values[n], strict=True)
        return {
            "label": self.labels[int(self.values[n].argmax())],
            **{f"p({label})": round(float(p), 6) for label, p in probabilities},
        }

    def cell_columns(self) -> list[str]:
        """The keys of :meth:`cells`."""
        return ["label", *(f"p({label})" for label in self.labels)] if self.labels else ["prediction"]


def text_cells(texts: Texts, n: int) -> dict[str, Any]:
    """Row number and text of text ``n``, and the second text of a pair."""
    pair = {} if texts.pairs is None else {"text_pair": texts.pairs[n]}
    return {"row": int(texts.rows[n]), "text": texts.texts[n], **pair}


def text_columns(texts: Texts) -> list[str]:
    """The keys of :func:`text_cells`."""
    return ["row", "text", *([] if texts.pairs is None else ["text_pair"])]


def require_model(folder: str | Path) -> None:
    """Raise a FrostlineError if the folder contains no model, no probe, no model of words and no bundle."""
    if not any((Path(folder) / name).is_file() for name in ("config.json", PROBE_FACTS, WORDS_FACTS, BUNDLE_FACTS)):
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
    if is_bundle(folder):
        raise FrostlineError(f"{folder} is a bundle of several tasks: use frostline.load_bundle(folder)(texts).")
    texts = as_texts(texts, text_column, text_pair_column, trained_columns(folder))
    require_shape(Path(folder), texts)
    if probe := saved_probe(folder):
        values, truncated = probe.values(texts, trust_remote_code=trust_remote_code)
        return Predictions(texts, tuple(probe.about["labels"]), values, truncated)
    if words := load_words(folder):
        model_of_words, about = words
        return Predictions(texts, tuple(about["labels"]), model_of_words.predictions(texts).astype(np.float32), 0)
    classifier = load_classifier(Path(folder), trust_remote_code=trust_remote_code)
    tokens = classifier.encode(texts)
    (logits,) = logits_of(tokens, lambda batch: [classifier.model(**batch).logits])
    return Predictions.of_logits(texts, logits, classifier.model.config, int((tokens.dropped > 0).sum()))


def as_texts(
    source: Any, text_column: str | None, text_pair_column: str | None, trained: Mapping[str, str | None] | None
) -> Texts:
    """The texts of a table or a list, for a model that was ``trained`` on these columns."""
    if isinstance(source, Texts):
        return source
    if isinstance(source, list | tuple):
        wrong = [one for one in source if not isinstance(one, str)]
        if wrong or not source:
            found = f"contains {wrong[0]!r}" if wrong else "is empty"
            raise FrostlineError(f"The list of texts {found}: give strings, or a DataFrame for pairs of texts.")
        return Texts(texts=tuple(source), pairs=None, rows=np.arange(1, len(source) + 1), name="the list of texts")
    texts, _ = read_unlabelled(source, text_column=text_column, text_pair_column=text_pair_column, trained=trained)
    return texts


def require_shape(folder: Path, texts: Texts) -> None:
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
