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
from frostline.api.tags import TagPredictions, as_sentences, predict_tags
from frostline.data.examples import Texts
from frostline.data.load import read_unlabelled
from frostline.frozen.bundle.folder import FACTS as BUNDLE_FACTS
from frostline.frozen.bundle.folder import is_bundle
from frostline.model.classifier import is_tagger, load_classifier, logits_of
from frostline.model.output_keys import TEMPERATURE, THRESHOLD, THRESHOLD_LABEL
from frostline.training.estimators.saved_encoder import saved_encoder
from frostline.training.probes.saved import FACTS as PROBE_FACTS
from frostline.training.probes.saved import saved_probe
from frostline.training.probes.words import FACTS as WORDS_FACTS
from frostline.training.probes.words import load_words

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Threshold:
    """A label is predicted from this probability on, else the other one of two labels."""

    label: str
    probability: float


@dataclass(frozen=True)
class Predictions:
    """Predictions for N texts.

    Attributes:
        texts: The texts, with their row numbers in the source.
        labels: The C classes; empty for regression.
        values: Probabilities ``[N, C]``, or for regression predicted numbers ``[N, 1]``.
        truncated: The number of texts that were truncated to the model's length limit.
        temperature: What the logits were divided by, from the model's config.json; 1 if it has none.
        threshold: The threshold for one of two labels; None: the label with the highest probability is predicted.
    """

    texts: Texts
    labels: tuple[str, ...]
    values: NDArray[np.float32]
    truncated: int
    temperature: float = 1.0
    threshold: Threshold | None = None

    @classmethod
    def of_logits(
        cls, texts: Texts, logits: Tensor, config: Any, truncated: int, threshold: float | None = None
    ) -> "Predictions":
        """The predictions of a classifier with this configuration, from its logits ``[N, C]``.

        Temperature and threshold are those of the configuration; a given threshold replaces the latter.
        """
        labels, temperature, decision = _outputs(config, threshold)
        values = (logits / temperature).softmax(1) if labels else logits
        return cls(texts, labels, values.numpy(), truncated, temperature, decision)

    @property
    def predicted(self) -> list[str]:
        """The predicted label of each text; empty for regression."""
        return [self._label(n) for n in range(len(self.values))] if self.labels else []

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
            "label": self._label(n),
            **{f"p({label})": round(float(p), 6) for label, p in probabilities},
        }

    def _label(self, n: int) -> str:
        """The predicted label of text ``n``."""
        if self.threshold is None:
            return self.labels[int(self.values[n].argmax())]
        place = self.labels.index(self.threshold.label)
        enough = self.values[n, place] >= self.threshold.probability
        return self.labels[place if enough else 1 - place]

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
    """Raise a FrostlineError if the folder contains no model, no probe, no TF-IDF model and no bundle."""
    if not any((Path(folder) / name).is_file() for name in ("config.json", PROBE_FACTS, WORDS_FACTS, BUNDLE_FACTS)):
        inside = Path(folder) / "model"
        remedy = f"give {inside}" if inside.is_dir() else "give the folder OUT/model of a sweep"
        raise FrostlineError(f"{folder} contains no model (no config.json): {remedy}.")


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
    texts: "str | Path | pd.DataFrame | Sequence[str] | Sequence[Sequence[str]] | Texts",
    *,
    text_column: str | None = None,
    text_pair_column: str | None = None,
    threshold: float | None = None,
    trust_remote_code: bool = False,
) -> Predictions | TagPredictions:
    """Predict the labels of texts, or the tags of the words of sentences.

    Args:
        folder: The folder of a model, or of a probe.
        texts: The path of a table, a pandas ``DataFrame``, a list of texts, or what
            :func:`frostline.data.load.read_unlabelled` has read. Labels in a table are ignored. For a model that predicts tags,
            a text is a list of words.
        text_column: The column of the texts in a table. By default it is that of the training data, or found by its name.
        text_pair_column: The column of the second texts of pairs, likewise.
        threshold: The probability of the second of two labels (or of the label that config.json names) from which it is
            predicted. By default it is ``decision_threshold`` of the model's config.json, else 0.5.
        trust_remote_code: Whether to run code that comes with the model.

    Raises:
        FrostlineError: The table cannot be read, the folder contains no model, transformers cannot classify with it, or a
            threshold is given for a model that has not two labels.
    """
    require_model(folder)
    if is_bundle(folder):
        raise FrostlineError(f"{folder} is a bundle of several tasks: use frostline.load_bundle(folder)(texts).")
    if is_tagger(Path(folder)):
        if threshold is not None or text_pair_column is not None:
            raise FrostlineError(
                f"The model in {folder} predicts tags of words: leave --threshold and --text-pair-column out."
            )
        sentences = as_sentences(texts, text_column, trained_columns(folder))
        return predict_tags(Path(folder), sentences, trust_remote_code=trust_remote_code)
    texts = as_texts(texts, text_column, text_pair_column, trained_columns(folder))
    require_shape(Path(folder), texts)
    if probe := saved_probe(folder):
        labels = tuple(probe.about["labels"])
        decision = _threshold({}, labels, threshold)
        values, truncated = probe.values(texts, trust_remote_code=trust_remote_code)
        return Predictions(texts, labels, values, truncated, threshold=decision)
    if words := load_words(folder):
        model_of_words, about = words
        labels = tuple(about["labels"])
        values = model_of_words.predictions(texts).astype(np.float32)
        return Predictions(texts, labels, values, 0, threshold=_threshold({}, labels, threshold))
    if encoder := saved_encoder(folder):
        labels = tuple(encoder.about["labels"])
        decision = _threshold({}, labels, threshold)
        values, truncated = encoder.values(texts, trust_remote_code=trust_remote_code)
        return Predictions(texts, labels, values, truncated, threshold=decision)
    classifier = load_classifier(Path(folder), trust_remote_code=trust_remote_code)
    config = classifier.model.config
    _outputs(config, threshold)  # an unusable threshold is refused before anything is computed
    tokens = classifier.encode(texts)
    (logits,) = logits_of(tokens, lambda batch: [classifier.model(**batch).logits])
    return Predictions.of_logits(texts, logits, config, int((tokens.dropped > 0).sum()), threshold)


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
    return () if problem_type == "regression" or outputs == 1 else tuple(names[n] for n in range(outputs))


def _outputs(config: Any, threshold: float | None) -> tuple[tuple[str, ...], float, Threshold | None]:
    """The labels of a classifier with this configuration, its temperature and its threshold."""
    labels, keys = _labels(config.id2label, config.problem_type, config.num_labels), config.to_dict()
    return labels, _number(keys, TEMPERATURE, 1.0), _threshold(keys, labels, threshold)


def _threshold(config: Mapping[str, Any], labels: Sequence[str], given: float | None) -> Threshold | None:
    """The given threshold, else that of config.json; None if there is neither."""
    if given is None and THRESHOLD not in config:
        return None
    if len(labels) != 2:
        found = f"{len(labels)} labels" if labels else "no labels"
        raise FrostlineError(f"A threshold is for two labels, but this model has {found}: leave --threshold out.")
    probability = _number(config, THRESHOLD, 0.5) if given is None else given
    if not 0 < probability < 1:
        raise FrostlineError(f"The threshold cannot be {probability:g}: give a probability between 0 and 1.")
    label = config.get(THRESHOLD_LABEL, labels[1])
    if label not in labels:
        raise FrostlineError(f"{THRESHOLD_LABEL} in config.json is {label!r}: name one of {', '.join(labels)}.")
    return Threshold(label, probability)


def _number(config: Mapping[str, Any], key: str, default: float) -> float:
    """A number above 0 in config.json."""
    value = config.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < np.inf:
        raise FrostlineError(f"{key} in config.json is {value!r}: give a number above 0, or remove the key.")
    return float(value)
