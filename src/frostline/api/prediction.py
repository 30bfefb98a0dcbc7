"""``frostline.predict``: labels of texts, and tags of the words of sentences."""

import html
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from frostline import FrostlineError
from frostline.data.columns import Columns
from frostline.data.examples import Examples, Texts
from frostline.data.files import read_record, validated
from frostline.data.kinds import CLASSIFICATION, FORMAT_OF, MULTI_LABEL, REGRESSION, TOKENS
from frostline.data.load import read_unlabelled
from frostline.data.tags import sentence, words_of
from frostline.data.task import Task
from frostline.data.wording import counted, first_line, quoted
from frostline.model.model_files import (
    BUNDLE,
    ESTIMATOR,
    RECORD,
    format_of,
    has_own_code,
    is_bundle,
    is_tagger,
    saved_class,
)
from frostline.model.terms import TEMPERATURE, THRESHOLD, THRESHOLD_LABEL, THRESHOLDS
from frostline.statistics.answer import CalibrationError, ClassScores
from frostline.statistics.class_outputs import OUTPUTS, calibration, intervals_by_class
from frostline.statistics.inference import Ratio
from frostline.statistics.metrics import metrics_for
from frostline.statistics.predictions import Labelled, RunPredictions
from frostline.training.saved_estimators import read_estimator

if TYPE_CHECKING:
    import pandas as pd

    from frostline.model.tokens import Tokens

    TextSource = str | Path | pd.DataFrame | Sequence[str] | Sequence[Sequence[str]] | Texts


@dataclass(frozen=True, kw_only=True)
class Outputs:
    """How the outputs of a model are read.

    Attributes:
        task_type: The type of its task.
        classes: The names of its C classes, labels or tags; empty for regression.
        temperature: What its logits are divided by, from the model's config.json; 1 if it has none.
        thresholds: The probability from which a label is predicted: of each label if a text can have any number of them, or of
            one of two labels, else the other one is predicted. Empty: the label with the highest probability is predicted.
    """

    task_type: str
    classes: tuple[str, ...]
    temperature: float = 1.0
    thresholds: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def of_config(cls, config: Any, threshold: float | None = None, *, of_words: bool = False) -> "Outputs":
        """Those of a classifier (``of_words``, of a tagger) with this configuration of transformers, with the given threshold.

        Raises:
            FrostlineError: The threshold is unusable, or an output would be lost: the model predicts several numbers, or two
                labels have one name. Or it has one output, which may be a number or the logit of a label.
        """
        from frostline.model.loading import PROBLEM_TYPES

        keys, count = config.to_dict(), config.num_labels
        task_type = TOKENS if of_words else CLASSIFICATION
        if config.problem_type == PROBLEM_TYPES[MULTI_LABEL]:
            task_type = MULTI_LABEL
        elif config.problem_type == PROBLEM_TYPES[REGRESSION]:
            task_type = REGRESSION
        elif count == 1 and not of_words:  # a pipeline of transformers takes it for the logit of a label
            raise FrostlineError(
                "The model has one output, and its config.json does not say what it is: write there problem_type "
                f"{PROBLEM_TYPES[REGRESSION]} if it is a number, or {PROBLEM_TYPES[MULTI_LABEL]} if it is the logit of a label."
            )
        if task_type == REGRESSION and count > 1:
            raise FrostlineError(
                f"The model predicts {count} numbers for each text, of which only one would be written: give a model that "
                "predicts one number."
            )
        labels = () if task_type == REGRESSION else tuple(config.id2label[n] for n in range(count))
        if len({*labels}) < count and labels:
            raise FrostlineError(
                f"config.json names two outputs {quoted(max(labels, key=labels.count))}, so that one of their probabilities "
                "would be lost: correct id2label there."
            )
        return cls.of_task(task_type, labels, threshold, keys)

    @classmethod
    def of_task(
        cls, task_type: str, labels: Sequence[str], threshold: float | None, keys: Mapping[str, Any] | None = None
    ) -> "Outputs":
        """Those of a model for a task, with the ``keys`` of its config.json if it has one."""
        keys = keys or {}
        thresholds: Mapping[str, float] = {}
        if task_type == MULTI_LABEL:
            thresholds = _thresholds(keys, labels, threshold)
        elif threshold is not None or THRESHOLD in keys:
            if len(labels) != 2:
                found = counted(len(labels), "label") if labels else "no labels"
                raise FrostlineError(
                    f"A threshold is for two labels, but this model has {found}: leave --threshold out."
                )
            probability = _probability(_number(keys, THRESHOLD, 0.5) if threshold is None else threshold)
            label = keys.get(THRESHOLD_LABEL, labels[1])
            if label not in labels:
                raise FrostlineError(f"{THRESHOLD_LABEL} in config.json is {label!r}: name one of {', '.join(labels)}.")
            thresholds = {label: probability}
        temperature = _number(keys, TEMPERATURE, 1.0)
        return cls(task_type=task_type, classes=tuple(labels), temperature=temperature, thresholds=thresholds)

    def values_of(self, logits: NDArray[Any]) -> NDArray[np.float32]:
        """Probabilities ``[N, C]``, or numbers ``[N, 1]``."""
        scaled = logits / self.temperature if self.classes else logits
        return OUTPUTS[self.task_type](scaled).astype(np.float32)

    def of_logits(self, texts: Texts, logits: NDArray[Any], truncated: int) -> "Predictions":
        """The predictions from logits ``[N, C]`` or numbers ``[N, 1]``."""
        return Predictions(**vars(self), texts=texts, values=self.values_of(logits), truncated=truncated)

    def of_words(self, texts: Texts, logits: NDArray[Any], tokens: "Tokens", truncated: int) -> "TagPredictions":
        """The most probable tags. ``logits`` are those of the words with tokens, one sentence after the other."""
        tags: list[list[str | None]] = [[None] * len(words_of(text)) for text in texts.texts]
        probabilities: list[list[float | None]] = [[None] * len(of_text) for of_text in tags]
        first = tokens.labelled(np.arange(len(tokens)))
        for of_word, example, word in zip(self.values_of(logits), first.example, first.word, strict=True):
            best = int(of_word.argmax())
            tags[example][word], probabilities[example][word] = self.classes[best], float(of_word[best])
        assert tokens.untagged is not None
        missing = int(tokens.untagged[1].sum())
        return TagPredictions(
            **vars(self),
            texts=texts,
            tags=tags,
            probabilities=probabilities,
            truncated=truncated,
            without_token=missing,
        )


@dataclass(frozen=True, kw_only=True, repr=False)
class Predicted(Outputs):
    """What is predicted for N texts: a table with a row for each."""

    texts: Texts
    truncated: int

    def rows(self) -> Iterator[dict[str, Any]]:
        """One dictionary per text."""
        raise NotImplementedError

    def to_pandas(self) -> "pd.DataFrame":
        """One row per text, as :meth:`rows`."""
        import pandas as pd

        return pd.DataFrame(self.rows())

    def __repr__(self) -> str:
        about = f", {self.truncated} of them truncated" if self.truncated else ""
        classes = f"; classes {', '.join(map(quoted, self.classes))}" if self.classes else ""
        return f"<{type(self).__name__} of {self.task_type} for {counted(len(self.texts), 'text')}{about}{classes}>"

    def _repr_html_(self) -> str:
        return f"<p>{html.escape(repr(self).strip('<>'))}</p>{self.to_pandas()._repr_html_()}"  # type: ignore[operator]


@dataclass(frozen=True, kw_only=True, repr=False)
class Predictions(Predicted):
    """Predictions for N texts, with how the outputs of the model are read.

    ``classes``, ``temperature`` and ``thresholds`` are those of the model.

    Attributes:
        texts: The texts, with their row numbers in the source.
        values: Probabilities ``[N, C]``, or for regression predicted numbers ``[N, 1]``.
        truncated: The number of texts that were truncated to the model's length limit.
    """

    values: NDArray[np.float32]

    @property
    def labels(self) -> list[Any]:
        """The predicted label of each text, the list of its labels, or for regression the number."""
        return [self._label(n) if self.classes else float(self.values[n, 0]) for n in range(len(self.values))]

    def rows(self) -> Iterator[dict[str, Any]]:
        """One dictionary per text: ``row``, ``text``, ``label`` and a probability ``p(LABEL)`` for each label.

        Pairs also have ``text_pair``. If a text can have any number of labels, ``labels`` is their list. For regression,
        ``prediction`` replaces label and probabilities.
        """
        yield from ({**text_cells(self.texts, n), **self.cells(n)} for n in range(len(self.texts)))

    def cells(self, n: int) -> dict[str, Any]:
        """What is predicted for text ``n``: the keys of :meth:`rows` without row number and text."""
        if not self.classes:
            number = float(self.values[n, 0])  # a small one keeps six digits
            return {"prediction": round(number, 6) if abs(number) >= 1 else float(f"{number:.6g}")}
        both = zip(self.classes, self.values[n], strict=True)
        name = "labels" if self.task_type == MULTI_LABEL else "label"
        return {name: self._label(n), **{f"p({label})": round(float(p), 6) for label, p in both}}

    def _label(self, n: int) -> str | list[str]:
        """The predicted label of text ``n``, or all its labels."""
        if self.task_type == MULTI_LABEL:
            both = zip(self.classes, self.values[n].tolist(), strict=True)
            return [label for label, probability in both if probability >= self.thresholds[label]]
        if not self.thresholds:
            return self.classes[int(self.values[n].argmax())]
        ((label, least),) = self.thresholds.items()
        place = self.classes.index(label)
        return self.classes[place if float(self.values[n, place]) >= least else 1 - place]


def text_cells(texts: Texts, n: int) -> dict[str, Any]:
    """Row number and text of text ``n``, and the second text of a pair."""
    pair = {} if texts.pairs is None else {"text_pair": texts.pairs[n]}
    return {"row": int(texts.rows[n]), "text": texts.texts[n], **pair}


def _thresholds(config: Mapping[str, Any], labels: Sequence[str], given: float | None) -> dict[str, float]:
    """The given threshold for all labels, else those of config.json, else 0.5."""
    saved = config.get(THRESHOLDS, {})
    if given is not None:
        return dict.fromkeys(labels, _probability(given))
    if not isinstance(saved, Mapping) or any(label not in labels for label in saved):
        raise FrostlineError(
            f"{THRESHOLDS} in config.json must give a probability for labels among {', '.join(labels)}."
        )
    return {label: _probability(_number(saved, label, 0.5)) for label in labels}


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


@dataclass(frozen=True, kw_only=True, repr=False)
class TagPredictions(Predicted):
    """The tags of the words of N sentences, with how the outputs of the model are read.

    ``classes`` are the tags that the model knows, and ``temperature`` is what its logits are divided by.

    Attributes:
        texts: The sentences (:mod:`frostline.data.tags`), with their row numbers in the source.
        tags: For each sentence the tag of each word; None for a word after the model's length limit, or without a token.
        probabilities: The probability of each of these tags.
        truncated: The number of sentences that were truncated to the model's length limit.
        without_token: The number of words that have no token, aside from those after the limit.
    """

    tags: Sequence[Sequence[str | None]]
    probabilities: Sequence[Sequence[float | None]]
    without_token: int

    def rows(self) -> Iterator[dict[str, Any]]:
        """One dictionary per sentence: ``row``, ``tokens``, ``tags`` and ``probabilities``."""
        for n, text in enumerate(self.texts.texts):
            yield {
                "row": int(self.texts.rows[n]),
                "tokens": words_of(text),
                "tags": list(self.tags[n]),
                "probabilities": [None if p is None else round(p, 6) for p in self.probabilities[n]],
            }


def require_model(folder: str | Path) -> None:
    """Raise a FrostlineError if the folder contains no model, no estimator and no bundle."""
    folder = Path(folder)
    if not folder.exists():
        raise FrostlineError(f"There is no folder {folder}: give that of a model, such as OUT/model of a sweep.")
    if is_bundle(around := folder.absolute().parent.parent):
        raise FrostlineError(f"{folder} is a part of the bundle in {around} and shares its layers: give the bundle.")
    if not any((folder / name).is_file() for name in ("config.json", ESTIMATOR, BUNDLE)):
        inside = folder / "model"
        remedy = f"give {inside}" if inside.is_dir() else "give the folder OUT/model of a sweep"
        raise FrostlineError(f"{folder} contains no model (no config.json): {remedy}.")


def predicts_tags(folder: str | Path) -> bool:
    """Whether the model in a folder predicts tags of words."""
    saved = read_estimator(folder)
    return is_tagger(Path(folder)) if saved is None else saved.facts.task_type == TOKENS


def trained_task(folder: str | Path) -> Task | None:
    """The task that a model was trained on; None if frostline did not train it.

    Raises:
        FrostlineError: The file that describes it is damaged.
    """
    # a sweep that saves an estimator writes both, and the task into the first
    for path in (Path(folder) / name for name in (ESTIMATOR, RECORD)):
        if not path.is_file():
            continue
        try:
            record = read_record(path)
            if "task" in record:
                found = {name: record[name] for name in ("task_type", "labels", "columns")}
                return validated(Task, {"name": record["task"], **found})
        except (OSError, ValueError, KeyError) as error:
            raise FrostlineError(
                f"{path} is damaged ({first_line(error)}): copy it again, or remove it and name the columns with --text-column."
            ) from error
    return None


def refit_rows(folder: str | Path) -> int | None:
    """The number of labelled rows that a model was trained on if these were all but those of a test set; else None."""
    try:
        refit = read_record(Path(folder) / RECORD).get("refit")
    except (OSError, ValueError):  # the folder may come from others
        return None
    rows = refit.get("rows") if isinstance(refit, dict) else None
    return rows if isinstance(rows, int) else None


def predict(
    folder: str | Path,
    texts: "TextSource",
    *,
    text_column: str | None = None,
    text_pair_column: str | None = None,
    word_column: int | None = None,
    encoding: str | None = None,
    threshold: float | None = None,
    stream: bool | None = None,
    base: str | Path | None = None,
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
        base: The pretrained model that a probe reads, if it is elsewhere than when the probe was fitted.
        trust_remote_code: Whether to run code that comes with the model.

    Raises:
        FrostlineError: The table cannot be read, the folder contains no model, transformers cannot classify with it, or a
            threshold is given for a model that has not two labels.
    """
    require_model(folder)
    if is_bundle(folder):
        raise FrostlineError(f"{folder} is a bundle of several tasks: use frostline.load_bundle(folder)(texts).")
    saved, of_words, task = read_estimator(folder), predicts_tags(folder), trained_task(folder)
    # wrong options are refused before the model is loaded
    of_text = {"--threshold": threshold, "--text-pair-column": text_pair_column}
    if of_words and (given := [flag for flag, value in of_text.items() if value is not None]):
        raise FrostlineError(f"The model in {folder} predicts tags of words: leave {' and '.join(given)} out.")
    if stream and saved and saved.facts.probe is None:
        raise FrostlineError(f"The model in {folder} has no layers that can be streamed: leave --stream out.")
    if base and not (saved and saved.facts.probe):
        raise FrostlineError(f"The model in {folder} reads no other one: leave --base out.")
    if threshold is not None:
        _probability(threshold)
        if task:
            Outputs.of_task(task.task_type, task.labels, threshold)
    texts = as_texts(
        texts,
        task.columns if task else None,
        of_words=of_words,
        text_column=text_column,
        text_pair_column=text_pair_column,
        word_column=word_column,
        encoding=encoding,
    )
    require_shape(Path(folder), texts)
    if saved is None:
        _require_head(Path(folder))
    from frostline.frozen.logits import logits_of_texts  # a mistake is answered before these import torch
    from frostline.model.classifier import load_classifier
    from frostline.model.device import CPU
    from frostline.sweeps.streaming import whether_to_stream

    options: dict[str, Any] = {"trust_remote_code": trust_remote_code, "streams": whether_to_stream(stream, CPU)}
    tokens: Tokens | None
    if saved:
        outputs = Outputs.of_task(saved.facts.task_type, saved.facts.labels, threshold)
        logits, tokens = saved.logits(texts, base=base, **options)
    else:
        classifier = load_classifier(Path(folder), of_words=of_words, **options)
        outputs = Outputs.of_config(classifier.model.config, threshold, of_words=of_words)
        tokens = classifier.encode(texts)
        logits = logits_of_texts(classifier, tokens).numpy()
        if of_words:  # a word has the tag of its first token
            logits = logits[tokens.labelled(np.arange(len(tokens))).position]
    truncated = 0 if tokens is None else int((tokens.dropped > 0).sum())
    if of_words:
        assert tokens is not None
        return outputs.of_words(texts, logits, tokens, truncated)
    return outputs.of_logits(texts, logits, truncated)


def as_texts(source: Any, trained: Columns | None, *, of_words: bool = False, **columns: Any) -> Texts:
    """The texts of a table or a list, for a model that was ``trained`` on these columns; with ``of_words`` sentences.

    ``columns`` and the encoding are those of :func:`frostline.data.load.read_unlabelled`.
    """
    if isinstance(source, Texts):
        return source
    if isinstance(source, list | tuple):
        name, remedy = "the list of texts", "give strings, or a DataFrame for pairs of texts"
        if of_words:
            name, remedy = "the list of sentences", "give a list of words for each sentence"
            source = [sentence(one, f"Sentence {n}", remedy) for n, one in enumerate(source, start=1)]
        wrong = [one for one in source if not isinstance(one, str)]
        if wrong or not source:
            raise FrostlineError(f"T{name[1:]} {f'contains {quoted(wrong[0])}' if wrong else 'is empty'}: {remedy}.")
        return Texts(texts=tuple(source), pairs=None, rows=np.arange(1, len(source) + 1), name=name)
    # A text can be too long for Path.exists, which then raises an error.
    if isinstance(source, str) and Path(source).suffix.lower() not in FORMAT_OF and not os.path.exists(source):
        raise FrostlineError(f"{quoted(source)} is no file: give the path of a table, or a list of texts.")
    texts, _ = read_unlabelled(source, trained=trained, task_type=TOKENS if of_words else None, **columns)
    return texts


def require_shape(folder: Path, texts: Texts) -> None:
    """Refuse single texts for a model that was trained on pairs, and pairs for one that was trained on single texts."""
    task = trained_task(folder)
    if task and (task.columns.text_pair is None) != (texts.pairs is None):
        trained, given = ("single texts", "pairs") if texts.pairs is not None else ("pairs of texts", "single texts")
        raise FrostlineError(
            f"{texts.name} has {given}, but the model in {folder} was trained on {trained}: name the columns with "
            "--text-column and --text-pair-column."
        )


WITHOUT_HEAD = ("Model", "ForMaskedLM", "ForPreTraining", "ForCausalLM")  # endings of classes of pretrained models


def _require_head(folder: Path) -> None:
    """Refuse a pretrained model before torch is imported."""
    name = saved_class(folder)
    if name.endswith(WITHOUT_HEAD) and format_of(folder) == "transformers" and not has_own_code(folder):
        raise FrostlineError(
            f"The model in {folder} is not a trained classifier (it was saved as {name}, which has no head for labels): give "
            "the folder OUT/model of a sweep."
        )


SEED = 0  # of the simulation of calibrated probabilities
LEAST = 1e-7  # a probability


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """The scores of predictions.

    Attributes:
        examples: The number of texts with a label.
        scores: The score in each metric of the task, by name, with its 95 % interval.
        classes: Precision, recall and F1 of each class, with their intervals; empty for regression.
        calibration: How well the probabilities agree with the accuracy; None for numbers, and for tags of words.
    """

    examples: int
    scores: Mapping[str, Ratio]
    classes: Sequence[ClassScores]
    calibration: CalibrationError | None


def evaluate(predictions: Predictions | TagPredictions, examples: Examples) -> Evaluation:
    """Score the labels that were predicted, with the threshold that was applied.

    Args:
        predictions: Those of all texts of a table.
        examples: The texts of the same table that have a label.
    """
    rows = np.flatnonzero(np.isin(predictions.texts.rows, examples.rows))
    labels, targets = predictions.classes, examples.targets
    if isinstance(predictions, TagPredictions):
        outputs = _of_tags(predictions, rows, targets.shape[1])
    else:
        outputs = _of_labels(predictions)[rows] if labels else predictions.values[rows]
    names = [metric.name for metric in metrics_for(predictions.task_type, len(labels), labels)]
    first = Labelled.of(examples, predictions.task_type, labels, names[0])
    splits = {name: replace(first, metric=name) for name in names}
    return Evaluation(
        examples=len(examples),
        scores={name: RunPredictions(split, lambda run: outputs).alone("") for name, split in splits.items()},
        classes=intervals_by_class(splits[names[0]], outputs) if labels else [],
        calibration=_calibration(predictions, rows, first) if isinstance(predictions, Predictions) and labels else None,
    )


def _of_labels(predictions: Predictions) -> NDArray[np.float32]:
    """Logits ``[N, C]`` whose labels are the predicted ones, whatever their threshold."""
    chosen = [[label] if isinstance(label, str) else label for label in predictions.labels]
    return np.array([[1 if label in own else -1 for label in predictions.classes] for own in chosen], np.float32)


def _of_tags(predictions: TagPredictions, rows: NDArray[np.int64], words: int) -> NDArray[np.float32]:
    """The same for the tags of these sentences, ``[n, W, C]``; NaN for words without a tag."""
    place = {label: n for n, label in enumerate(predictions.classes)}
    outputs = np.full((len(rows), words, len(place)), np.nan, np.float32)
    for n, row in enumerate(rows.tolist()):
        for word, tag in enumerate(predictions.tags[row]):
            if tag is not None:
                outputs[n, word] = -1
                outputs[n, word, place[tag]] = 1
    return outputs


def _calibration(predictions: Predictions, rows: NDArray[np.int64], split: Labelled) -> CalibrationError:
    probability = np.clip(predictions.values[rows].astype(np.float64), LEAST, 1 - LEAST)
    several = predictions.task_type == MULTI_LABEL
    logits = np.log(probability / (1 - probability)) if several else np.log(probability)
    return calibration(logits, split.targets, np.random.default_rng(SEED), split.texts)
