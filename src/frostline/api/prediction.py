"""``frostline.predict``: label new texts with a saved model, a saved probe, or any classifier of transformers."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from frostline import FrostlineError
from frostline.api.outputs import Outputs, Predictions
from frostline.api.tags import TagPredictions, as_sentences, predict_tags, predict_tags_by_probe
from frostline.data.examples import Texts
from frostline.data.files import read_record
from frostline.data.kinds import FORMAT_OF
from frostline.data.load import read_unlabelled
from frostline.data.wording import quoted
from frostline.frozen.bundle.folder import FACTS as BUNDLE_FACTS
from frostline.frozen.bundle.folder import is_bundle
from frostline.frozen.logits import logits_of_texts
from frostline.model.classifier import is_tagger, load_classifier
from frostline.model.device import CPU
from frostline.model.model_files import RECORD
from frostline.sweep.streaming import whether_to_stream
from frostline.training.estimators.saved_encoder import saved_encoder
from frostline.training.probes.saved import FACTS as PROBE_FACTS
from frostline.training.probes.saved import SavedProbe, saved_probe
from frostline.training.probes.words import FACTS as WORDS_FACTS
from frostline.training.probes.words import load_words

if TYPE_CHECKING:
    import pandas as pd


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
    return _predicts_tags(folder, saved_probe(folder))


def _predicts_tags(folder: str | Path, probe: SavedProbe | None) -> bool:
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
    if _predicts_tags(folder, probe):
        unsuitable = {"--threshold": threshold, "--text-pair-column": text_pair_column}
        if given := [flag for flag, value in unsuitable.items() if value is not None]:
            raise FrostlineError(f"The model in {folder} predicts tags of words: leave {' and '.join(given)} out.")
        sentences = as_sentences(texts, text_column, trained_columns(folder), word_column, encoding)
        return _predicted_tags(folder, sentences, probe, options)
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


def _predicted_tags(
    folder: str | Path, sentences: Texts, probe: SavedProbe | None, options: Mapping[str, Any]
) -> TagPredictions:
    if probe is not None:
        return predict_tags_by_probe(probe, sentences, **options)
    return predict_tags(folder, sentences, **options)


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
