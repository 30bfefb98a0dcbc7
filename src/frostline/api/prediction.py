"""``frostline.predict``: labels of texts, and tags of the words of sentences."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from frostline import FrostlineError
from frostline.data.examples import Texts
from frostline.data.files import read_record
from frostline.data.kinds import CLASSIFICATION, FORMAT_OF, MULTI_LABEL, REGRESSION, TOKENS
from frostline.data.load import read_unlabelled
from frostline.data.tags import sentence, words_of
from frostline.data.wording import quoted
from frostline.frozen.logits import logits_of_texts
from frostline.frozen.trunk import FACTS as BUNDLE_FACTS
from frostline.frozen.trunk import is_bundle
from frostline.model.classifier import is_tagger, load_classifier
from frostline.model.device import CPU
from frostline.model.loading import PROBLEM_TYPES
from frostline.model.model_files import RECORD
from frostline.model.terms import TEMPERATURE, THRESHOLD, THRESHOLD_LABEL, THRESHOLDS
from frostline.model.tokens import Tokens
from frostline.statistics.class_outputs import OUTPUTS
from frostline.sweep.streaming import whether_to_stream
from frostline.training.estimators import saved_encoder
from frostline.training.linear_models import WORDS_FACTS, load_words
from frostline.training.probes import PROBE_FACTS, saved_probe

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

    @property
    def predicted(self) -> Sequence[Any]:
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
        return {"label": self._label(n), **self._probabilities(n)}

    def cell_columns(self) -> list[str]:
        """The keys of :meth:`cells`."""
        return ["label", *(f"p({label})" for label in self.labels)] if self.labels else ["prediction"]

    def _probabilities(self, n: int) -> dict[str, float]:
        probabilities = zip(self.labels, self.values[n], strict=True)
        return {f"p({label})": round(float(p), 6) for label, p in probabilities}

    def _label(self, n: int) -> str:
        """The predicted label of text ``n``."""
        if self.threshold is None:
            return self.labels[int(self.values[n].argmax())]
        place = self.labels.index(self.threshold.label)
        enough = self.values[n, place] >= self.threshold.probability
        return self.labels[place if enough else 1 - place]


@dataclass(frozen=True)
class LabelSetPredictions(Predictions):
    """Predictions of any number of labels for N texts. Each of the C labels has a probability of its own.

    Attributes:
        thresholds: The probability of each label from which it is predicted, ``[C]``.
    """

    thresholds: tuple[float, ...] = ()

    @property
    def predicted(self) -> Sequence[list[str]]:
        """The predicted labels of each text, in their order; an empty list for none."""
        return [self._labels(n) for n in range(len(self.values))]

    def cells(self, n: int) -> dict[str, Any]:
        """What is predicted for text ``n``: a list of ``labels``, and a probability ``p(LABEL)`` for each label."""
        return {"labels": self._labels(n), **self._probabilities(n)}

    def cell_columns(self) -> list[str]:
        return ["labels", *(f"p({label})" for label in self.labels)]

    def _labels(self, n: int) -> list[str]:
        both = zip(self.labels, self.values[n], self.thresholds, strict=True)
        return [label for label, probability, least in both if probability >= least]


@dataclass(frozen=True)
class Outputs:
    """How the outputs of a model are read.

    Attributes:
        task_type: The type of its task.
        labels: Its labels; empty for regression.
        temperature: What its logits are divided by.
        threshold: The threshold for one of two classes.
        thresholds: The threshold of each label, if a text can have any number of labels.
    """

    task_type: str
    labels: tuple[str, ...]
    temperature: float = 1.0
    threshold: Threshold | None = None
    thresholds: tuple[float, ...] = ()

    @classmethod
    def of_config(cls, config: Any, threshold: float | None = None) -> "Outputs":
        """Those of a classifier with this configuration of transformers; a given threshold replaces that in it.

        Raises:
            FrostlineError: The threshold is unusable.
        """
        keys, count = config.to_dict(), config.num_labels
        task_type = CLASSIFICATION
        if config.problem_type == PROBLEM_TYPES[MULTI_LABEL]:
            task_type = MULTI_LABEL
        elif config.problem_type == PROBLEM_TYPES[REGRESSION] or count == 1:
            task_type = REGRESSION
        labels = () if task_type == REGRESSION else tuple(config.id2label[n] for n in range(count))
        return cls.of_task(task_type, labels, threshold, keys)

    @classmethod
    def of_task(
        cls, task_type: str, labels: Sequence[str], threshold: float | None, keys: Mapping[str, Any] | None = None
    ) -> "Outputs":
        """Those of a model for a task, with the ``keys`` of its config.json if it has one."""
        keys = keys or {}
        if task_type == MULTI_LABEL:
            thresholds = _thresholds(keys, labels, threshold)
            return cls(task_type, tuple(labels), _number(keys, TEMPERATURE, 1.0), thresholds=thresholds)
        decision = None
        if threshold is not None or THRESHOLD in keys:
            if len(labels) != 2:
                found = f"{len(labels)} labels" if labels else "no labels"
                raise FrostlineError(
                    f"A threshold is for two labels, but this model has {found}: leave --threshold out."
                )
            probability = _probability(_number(keys, THRESHOLD, 0.5) if threshold is None else threshold)
            label = keys.get(THRESHOLD_LABEL, labels[1])
            if label not in labels:
                raise FrostlineError(f"{THRESHOLD_LABEL} in config.json is {label!r}: name one of {', '.join(labels)}.")
            decision = Threshold(label, probability)
        return cls(task_type, tuple(labels), _number(keys, TEMPERATURE, 1.0), decision)

    def of_logits(self, texts: Texts, logits: Tensor, truncated: int) -> Predictions:
        """The predictions from logits ``[N, C]``."""
        scaled = logits / self.temperature if self.labels else logits
        return self.of_values(texts, OUTPUTS[self.task_type](scaled.numpy()), truncated)

    def of_values(self, texts: Texts, values: NDArray[np.float32], truncated: int) -> Predictions:
        """The predictions from probabilities ``[N, C]`` or numbers ``[N, 1]``."""
        if self.task_type == MULTI_LABEL:
            return LabelSetPredictions(
                texts, self.labels, values, truncated, self.temperature, thresholds=self.thresholds
            )
        return Predictions(texts, self.labels, values, truncated, self.temperature, self.threshold)


def text_cells(texts: Texts, n: int) -> dict[str, Any]:
    """Row number and text of text ``n``, and the second text of a pair."""
    pair = {} if texts.pairs is None else {"text_pair": texts.pairs[n]}
    return {"row": int(texts.rows[n]), "text": texts.texts[n], **pair}


def text_columns(texts: Texts) -> list[str]:
    """The keys of :func:`text_cells`."""
    return ["row", "text", *([] if texts.pairs is None else ["text_pair"])]


def _thresholds(config: Mapping[str, Any], labels: Sequence[str], given: float | None) -> tuple[float, ...]:
    """The given threshold for all labels, else those of config.json, else 0.5."""
    saved = config.get(THRESHOLDS, {})
    if given is not None:
        return (_probability(given),) * len(labels)
    if not isinstance(saved, Mapping) or any(label not in labels for label in saved):
        raise FrostlineError(
            f"{THRESHOLDS} in config.json must give a probability for labels among {', '.join(labels)}."
        )
    return tuple(_probability(_number(saved, label, 0.5)) for label in labels)


def _probability(threshold: float) -> float:
    if not 0 < threshold < 1:
        raise FrostlineError(f"The threshold cannot be {threshold:g}: give a probability between 0 and 1.")
    return threshold


def _number(config: Mapping[str, Any], key: str, default: float) -> float:
    """A number above 0 in config.json."""
    value = config.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < np.inf:
        raise FrostlineError(f"{key} in config.json is {value!r}: give a number above 0, or remove the key.")
    return float(value)


@dataclass(frozen=True)
class TagPredictions:
    """The tags of the words of N sentences.

    Attributes:
        texts: The sentences (:mod:`frostline.data.tags`), with their row numbers in the source.
        labels: The C tags.
        tags: For each sentence the tag of each word; None for a word after the model's length limit.
        probabilities: The probability of each of these tags.
        truncated: The number of sentences that were truncated to the model's length limit.
        temperature: What the logits were divided by, from the model's config.json; 1 if it has none.
    """

    texts: Texts
    labels: tuple[str, ...]
    tags: Sequence[Sequence[str | None]]
    probabilities: Sequence[Sequence[float | None]]
    truncated: int
    temperature: float = 1.0

    def rows(self) -> Iterator[dict[str, Any]]:
        """One dictionary per sentence: ``row``, ``tokens``, ``tags`` and ``probabilities``."""
        for n, text in enumerate(self.texts.texts):
            yield {
                "row": int(self.texts.rows[n]),
                "tokens": words_of(text),
                "tags": list(self.tags[n]),
                "probabilities": [None if p is None else round(p, 6) for p in self.probabilities[n]],
            }

    def columns(self) -> list[str]:
        """The keys of :meth:`rows`."""
        return ["row", "tokens", "tags", "probabilities"]


def _most_probable(
    texts: Texts, tokens: Tokens, labels: tuple[str, ...], of_words: NDArray[np.float32], temperature: float = 1.0
) -> TagPredictions:
    """The most probable tags. ``of_words`` are the probabilities of the words with tokens, one sentence after the other."""
    tags: list[list[str | None]] = [[None] * len(words_of(text)) for text in texts.texts]
    probabilities: list[list[float | None]] = [[None] * len(of_text) for of_text in tags]
    first = tokens.labelled(np.arange(len(tokens)))
    for of_word, example, word in zip(of_words, first.example, first.word, strict=True):
        best = int(of_word.argmax())
        tags[example][word], probabilities[example][word] = labels[best], float(of_word[best])
    return TagPredictions(texts, labels, tags, probabilities, int((tokens.dropped > 0).sum()), temperature)


def as_sentences(
    source: Any, text_column: str | None, trained: Any, word_column: int | None = None, encoding: str | None = None
) -> Texts:
    """The sentences of a table, or of a list of lists of words."""
    if isinstance(source, Texts):
        return source
    if isinstance(source, list | tuple):
        remedy = "give a list of words for each sentence"
        if not source:
            raise FrostlineError(f"The list of sentences is empty: {remedy}.")
        sentences = tuple(sentence(one, f"Sentence {n}", remedy) for n, one in enumerate(source, start=1))
        rows: NDArray[np.int64] = np.arange(1, len(source) + 1)
        return Texts(texts=sentences, pairs=None, rows=rows, name="the list of sentences")
    texts, _ = read_unlabelled(
        source,
        word_column=word_column,
        encoding=encoding,
        text_column=text_column,
        trained=trained,
        task_type=TOKENS,
    )
    return texts


def require_model(folder: str | Path) -> None:
    """Raise a FrostlineError if the folder contains no model, no probe, no TF-IDF model and no bundle."""
    if not Path(folder).exists():
        raise FrostlineError(f"There is no folder {folder}: give that of a model, such as OUT/model of a sweep.")
    if not any((Path(folder) / name).is_file() for name in ("config.json", PROBE_FACTS, WORDS_FACTS, BUNDLE_FACTS)):
        inside = Path(folder) / "model"
        remedy = f"give {inside}" if inside.is_dir() else "give the folder OUT/model of a sweep"
        raise FrostlineError(f"{folder} contains no model (no config.json): {remedy}.")


def predicts_tags(folder: str | Path) -> bool:
    """Whether the model or probe in a folder predicts tags of words."""
    probe = saved_probe(folder)
    return is_tagger(Path(folder)) if probe is None else probe.of_words


def trained_columns(folder: str | Path) -> Mapping[str, str | None] | None:
    """The columns that a model or probe was trained on; None if frostline did not train it.

    Raises:
        FrostlineError: The file that names them is damaged.
    """
    for path in (Path(folder) / name for name in (RECORD, PROBE_FACTS, WORDS_FACTS)):
        if not path.is_file():
            continue
        try:
            columns = read_record(path).get("columns")
        except (OSError, ValueError) as error:
            raise FrostlineError(
                f"{path} is damaged ({error}): copy it again, or remove it and name the columns with --text-column."
            ) from error
        if isinstance(columns, dict) and "text" in columns:
            return columns
    return None


def predict(
    folder: str | Path,
    texts: "str | Path | pd.DataFrame | Sequence[str] | Sequence[Sequence[str]] | Texts",
    *,
    text_column: str | None = None,
    text_pair_column: str | None = None,
    word_column: int | None = None,
    encoding: str | None = None,
    threshold: float | None = None,
    stream: bool | None = None,
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
        word_column: The column of the words in a CoNLL file, counted from 1. By default the first one.
        encoding: The encoding of a text file that is not UTF-8.
        threshold: The probability of the second of two labels (or of the label that config.json names) from which it is
            predicted; of every label if a text can have several. By default it is that of the model's config.json, else 0.5.
        stream: Whether the layers are read from the folder one at a time, for a model that is larger than memory. By default
            they are if the weights do not fit into the memory that is free.
        trust_remote_code: Whether to run code that comes with the model.

    Raises:
        FrostlineError: The table cannot be read, the folder contains no model, transformers cannot classify with it, or a
            threshold is given for a model that has not two labels.
    """
    require_model(folder)
    if is_bundle(folder):
        raise FrostlineError(f"{folder} is a bundle of several tasks: use frostline.load_bundle(folder)(texts).")
    probe = saved_probe(folder)
    options: dict[str, Any] = {"trust_remote_code": trust_remote_code, "streams": whether_to_stream(stream, CPU)}
    if is_tagger(Path(folder)) if probe is None else probe.of_words:
        unsuitable = {"--threshold": threshold, "--text-pair-column": text_pair_column}
        if given := [flag for flag, value in unsuitable.items() if value is not None]:
            raise FrostlineError(f"The model in {folder} predicts tags of words: leave {' and '.join(given)} out.")
        sentences = as_sentences(texts, text_column, trained_columns(folder), word_column, encoding)
        if probe is not None:
            probed, tokens = probe.values(sentences, **options)
            return _most_probable(sentences, tokens, tuple(probe.about["labels"]), probed)
        tagger = load_classifier(Path(folder), of_words=True, **options)
        temperature = Outputs.of_config(tagger.model.config).temperature
        tokens, names = tagger.encode(sentences), tagger.model.config.id2label
        of_words = (logits_of_texts(tagger, tokens) / temperature).softmax(-1)
        of_words = of_words[tokens.labelled(np.arange(len(tokens))).position]  # a word has the tag of its first token
        labels = tuple(names[n] for n in range(len(names)))
        return _most_probable(sentences, tokens, labels, of_words.numpy(), temperature)
    texts = as_texts(texts, text_column, text_pair_column, trained_columns(folder), encoding)
    require_shape(Path(folder), texts)
    if probe is not None:
        outputs = Outputs.of_task(probe.about["task_type"], probe.about["labels"], threshold)
        values, tokens = probe.values(texts, **options)
        return outputs.of_values(texts, values, int((tokens.dropped > 0).sum()))
    if words := load_words(folder):
        _refuse_stream(folder, "it has no layers", stream=stream)
        model_of_words, about = words
        outputs = Outputs.of_task(about["task_type"], about["labels"], threshold)
        return outputs.of_values(texts, model_of_words.predictions(texts).astype(np.float32), 0)
    if encoder := saved_encoder(folder):
        _refuse_stream(folder, "sentence-transformers runs it", stream=stream)
        outputs = Outputs.of_task(encoder.about["task_type"], encoder.about["labels"], threshold)
        return outputs.of_values(texts, *encoder.values(texts, trust_remote_code=trust_remote_code))
    classifier = load_classifier(Path(folder), **options)
    outputs = Outputs.of_config(classifier.model.config, threshold)  # an unusable threshold is refused here
    tokens = classifier.encode(texts)
    return outputs.of_logits(texts, logits_of_texts(classifier, tokens), int((tokens.dropped > 0).sum()))


def _refuse_stream(folder: str | Path, why: str, *, stream: bool | None) -> None:
    """Refuse to stream a model that cannot be streamed."""
    if stream:
        raise FrostlineError(f"The model in {folder} cannot be streamed, because {why}: leave --stream out.")


def as_texts(
    source: Any,
    text_column: str | None,
    text_pair_column: str | None,
    trained: Mapping[str, str | None] | None,
    encoding: str | None = None,
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
    # A text can be too long for Path.exists, which then raises an error.
    if isinstance(source, str) and Path(source).suffix.lower() not in FORMAT_OF and not os.path.exists(source):
        raise FrostlineError(f"{quoted(source)} is no file: give the path of a table, or a list of texts.")
    texts, _ = read_unlabelled(
        source, encoding=encoding, text_column=text_column, text_pair_column=text_pair_column, trained=trained
    )
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
