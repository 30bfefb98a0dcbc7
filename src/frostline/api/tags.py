"""Predict the tags of words with a saved model of token classification."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from frostline import FrostlineError
from frostline.api.outputs import Outputs
from frostline.data.examples import Texts
from frostline.data.kinds import TOKENS
from frostline.data.load import read_unlabelled
from frostline.data.tags import sentence, words_of
from frostline.frozen.logits import logits_of_texts
from frostline.model.checkpoint import Streams
from frostline.model.classifier import load_classifier
from frostline.model.tokens import Tokens
from frostline.training.probes.saved import SavedProbe


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


def predict_tags(folder: str | Path, texts: Texts, *, trust_remote_code: bool, streams: Streams) -> TagPredictions:
    """The tag of each word: the most probable one at its first token.

    Args:
        folder: The folder of a model.
        texts: Sentences.
        trust_remote_code: Whether to run code that comes with the model.
        streams: Decides whether its layers are streamed.
    """
    tagger = load_classifier(Path(folder), of_words=True, trust_remote_code=trust_remote_code, streams=streams)
    temperature = Outputs.of_config(tagger.model.config).temperature
    tokens, names = tagger.encode(texts), tagger.model.config.id2label
    logits = logits_of_texts(tagger, tokens)
    of_words = (logits / temperature).softmax(-1)[tokens.labelled(np.arange(len(tokens))).position]
    labels = tuple(names[n] for n in range(len(names)))
    return _most_probable(texts, tokens, labels, of_words.numpy(), temperature)


def predict_tags_by_probe(
    probe: SavedProbe, texts: Texts, *, trust_remote_code: bool, streams: Streams
) -> TagPredictions:
    """The tag of each word by a linear probe: the most probable one at its first token."""
    of_words, tokens = probe.values(texts, trust_remote_code=trust_remote_code, streams=streams)
    return _most_probable(texts, tokens, tuple(probe.about["labels"]), of_words)


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
