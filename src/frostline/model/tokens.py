"""Encoded examples: encoded once, stored in flat arrays, and padded only in a batch; and the vocabulary that a model knows."""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, TypeGuard

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase, PreTrainedTokenizerFast

from frostline import FrostlineError
from frostline.data.tags import words_of

TYPES = "token_type_ids"
WORDS = "words"  # beside the inputs of the model while sentences are encoded
CHUNK = 8192  # examples in one call of the tokenizer, to limit its memory


class LabelledTokens(NamedTuple):
    """The P tokens of some examples that carry the tag of their word, ``[P]`` each.

    Attributes:
        position: The position of the token among all tokens of these examples.
        example: The place of its example among these examples.
        place: Its place among the labelled tokens of its example. If only first tokens are labelled, that is its word.
        word: The word of the sentence that it belongs to.
        is_first: Whether it is the first token of its word.
    """

    position: NDArray[np.int64]
    example: NDArray[np.int64]
    place: NDArray[np.int64]
    word: NDArray[np.int64]
    is_first: NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Tokens:
    """The tokens of N examples, in one flat array for each input of the model.

    An example that was not encoded has no tokens.

    Attributes:
        inputs: By name of the model's input: ``[T]`` or ``[T, ...]``, the T tokens of all examples.
        offsets: ``[N + 1]``, where the tokens of each example begin, and T.
        padding: By name of the model's input: the value of padded positions.
        dropped: ``[N]``, how many tokens of each example were truncated.
        words: ``[T]``, which word of its sentence a token belongs to; -1 for special tokens. None for texts.
        untagged: ``[2, N]``, how many words of each sentence were cut off, and how many others have no token. None for texts.
        zeroed_types: Whether some had a token type that the model lacks, which became 0.
    """

    inputs: dict[str, NDArray[np.int32]]
    offsets: NDArray[np.int64]
    padding: dict[str, int]
    dropped: NDArray[np.int32]
    words: NDArray[np.int32] | None = None
    untagged: NDArray[np.int32] | None = None
    zeroed_types: bool = False

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @cached_property
    def lengths(self) -> NDArray[np.int64]:
        """``[N]``, the number of tokens of each example; 0 if it was not encoded."""
        return np.diff(self.offsets)

    @property
    def of_words(self) -> bool:
        """Whether the examples are sentences of words."""
        return self.words is not None

    def truncated(self, rows: NDArray[np.int64] | slice = slice(None)) -> float:
        """The share of these examples that were truncated, of those that were encoded; NaN if none was."""
        dropped = self.dropped[rows][self.lengths[rows] > 0]
        return float((dropped > 0).mean()) if len(dropped) else float("nan")

    def batch(self, rows: NDArray[np.int64], length: int | None = None) -> dict[str, Tensor]:
        """The model's inputs for the examples ``rows``, ``[B, S]`` each. S is ``length``, or by default the longest length."""
        lengths = self.lengths[rows]
        assert lengths.all(), "some of these examples were not encoded"
        real = np.arange(length or int(lengths.max())) < lengths[:, None]  # [B, S]
        positions = flat_positions(self.offsets, rows)
        batch = {}
        for name, flat in self.inputs.items():
            grid = np.full(real.shape + flat.shape[1:], self.padding.get(name, 0), np.int64)
            grid[real] = flat[positions]
            batch[name] = torch.from_numpy(grid)
        batch["attention_mask"] = torch.from_numpy(real.astype(np.int64))
        return batch

    def one_token(self, rows: NDArray[np.int64], *, last: bool) -> dict[str, Tensor]:
        """The first or last token of the examples ``rows``, as inputs ``[B, 1]`` of the model.

        This is enough for a classifier head that reads no other token.
        """
        assert self.lengths[rows].all(), "some of these examples were not encoded"
        positions = self.offsets[1:][rows] - 1 if last else self.offsets[rows]
        batch = {
            name: torch.from_numpy(flat[positions].astype(np.int64))[:, None] for name, flat in self.inputs.items()
        }
        batch["attention_mask"] = torch.ones(len(rows), 1, dtype=torch.long)
        return batch

    @cached_property
    def begins_word(self) -> NDArray[np.bool_]:
        """``[T]``: whether a token is the first one of a word."""
        assert self.words is not None
        before = np.concatenate([[-1], self.words[:-1]])
        before[self.offsets[:-1][self.lengths > 0]] = -1  # the last token of another example
        return np.asarray((self.words >= 0) & (self.words != before))

    def labelled(self, rows: NDArray[np.int64], *, every_token: bool = False) -> LabelledTokens:
        """The tokens of the examples ``rows`` that carry the tag of their word: the first one of a word, or every one."""
        assert self.words is not None
        flat = flat_positions(self.offsets, rows)
        is_first, words = self.begins_word[flat], self.words[flat].astype(np.int64)
        examples = np.repeat(np.arange(len(rows)), self.lengths[rows])
        chosen = np.flatnonzero(words >= 0 if every_token else is_first)
        example, word = examples[chosen], words[chosen]
        place = np.arange(len(chosen)) - np.searchsorted(example, example) if every_token else word
        return LabelledTokens(chosen, example, place, word, is_first[chosen])

    @cached_property
    def keys(self) -> NDArray[np.void]:
        """``[N]``: for each example, a 16-byte digest of all its inputs."""
        names = sorted(self.inputs)
        digests = bytearray()
        for start, stop in zip(self.offsets[:-1], self.offsets[1:], strict=True):
            digest = hashlib.blake2b(digest_size=16)
            for name in names:
                digest.update(name.encode() + self.inputs[name][start:stop].tobytes())
            digests += digest.digest()
        return np.frombuffer(bytes(digests), dtype=np.dtype("V16"))

    @staticmethod
    def join(parts: Sequence["Tokens"]) -> "Tokens":
        """The examples of several ``Tokens``, one after the other."""
        sizes = [part.lengths for part in parts]
        words = [part.words for part in parts if part.words is not None]
        untagged = [part.untagged for part in parts if part.untagged is not None]
        return Tokens(
            inputs={name: np.concatenate([part.inputs[name] for part in parts]) for name in parts[0].inputs},
            offsets=np.concatenate([[0], np.cumsum(np.concatenate(sizes))]),
            padding=parts[0].padding,
            dropped=np.concatenate([part.dropped for part in parts]),
            words=np.concatenate(words) if words else None,
            untagged=np.concatenate(untagged, 1) if untagged else None,
            zeroed_types=any(part.zeroed_types for part in parts),
        )


def flat_positions(offsets: NDArray[np.int64], rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """``[T]``: the positions in the flat arrays of all tokens of the examples ``rows``."""
    starts, lengths = offsets[rows], offsets[rows + 1] - offsets[rows]
    ends = np.cumsum(lengths)
    positions: NDArray[np.int64] = np.repeat(starts - (ends - lengths), lengths)
    return positions + np.arange(len(positions))


def chunks_within(lengths: NDArray[np.int64], capacity: int) -> Iterator[slice]:
    """Split batches of K runs along their examples, so that no padded grid of a run exceeds ``capacity`` tokens.

    ``lengths`` ``[K, B]`` are the tokens of each example. The slices of B come in order, each with one example at least.
    """
    start, count = 0, lengths.shape[1]
    while start < count:
        tokens = np.maximum.accumulate(lengths[:, start:].max(0)) * np.arange(1, count - start + 1)
        end = start + max(1, int(np.searchsorted(tokens, capacity, "right")))
        yield slice(start, end)
        start = end


def encode(
    tokenizer: PreTrainedTokenizerBase,
    texts: Sequence[str],
    pairs: Sequence[str] | None,
    max_length: int,
    rows: NDArray[np.int64] | None = None,
    *,
    of_words: bool = False,
) -> Tokens:
    """Encode texts, or pairs of texts, as examples of at most ``max_length`` tokens.

    Some tokenizers return no token for an empty text (GPT-2). Such an example gets one end-of-text token.

    Args:
        tokenizer: The model's tokenizer.
        texts: The text of each example.
        pairs: The second text of each example, if there is one.
        max_length: Longer examples are truncated.
        rows: The examples to encode; None: all. Other examples get no tokens.
        of_words: Whether the texts are sentences of words (:mod:`frostline.data.tags`).
    """
    names = [name for name in tokenizer.model_input_names if name != "attention_mask"]
    columns = [*names, *[WORDS] * of_words]
    flat: dict[str, list[NDArray[np.int32]]] = {name: [] for name in columns}
    lengths, dropped = np.zeros(len(texts), np.int64), np.zeros(len(texts), np.int32)
    untagged = np.zeros((2, len(texts)), np.int32)
    for_empty = next(
        x for x in (tokenizer.eos_token_id, tokenizer.sep_token_id, tokenizer.pad_token_id, 0) if x is not None
    )

    def tokenize_chunk(chunk: Sequence[int], **limit: Any) -> dict[str, list[Any]]:
        second = {} if pairs is None else {"text_pair": [pairs[n] for n in chunk]}
        return tokenized(tokenizer, [texts[n] for n in chunk], of_words=of_words, **second, **limit)

    chosen: list[int] = list(range(len(texts))) if rows is None else np.unique(rows).tolist()
    for start in range(0, len(chosen), CHUNK):
        chunk = chosen[start : start + CHUNK]
        encoded = tokenize_chunk(chunk)
        full_lengths = np.array([len(ids) for ids in encoded["input_ids"]])
        if len(too_long := np.flatnonzero(full_lengths > max_length)):
            truncated = tokenize_chunk([chunk[n] for n in too_long], truncation=True, max_length=max_length)
            for name in columns:
                for n, ids in zip(too_long, truncated[name], strict=True):
                    encoded[name][n] = ids
        for n in np.flatnonzero(full_lengths == 0):
            for name in columns:
                encoded[name][n] = [{"input_ids": for_empty, WORDS: -1}.get(name, 0)]
        for name in columns:
            flat[name] += [np.asarray(row, np.int32) for row in encoded[name]]
        lengths[chunk] = [len(ids) for ids in encoded["input_ids"]]
        dropped[chunk] = np.maximum(full_lengths - lengths[chunk], 0)
        for row, words in zip(chunk, encoded[WORDS], strict=True) if of_words else ():
            count = len(words_of(texts[row]))
            kept = max(words) + 1 if dropped[row] else count
            untagged[:, row] = count - kept, kept - len({*words} - {-1})
    joined = {name: np.concatenate([np.zeros(0, np.int32), *arrays]) for name, arrays in flat.items()}
    of_types = {TYPES: tokenizer.pad_token_type_id} if TYPES in names else {}
    return Tokens(
        words=joined.pop(WORDS, None),
        untagged=untagged if of_words else None,
        inputs=joined,
        offsets=np.concatenate([[0], np.cumsum(lengths)]),
        padding=dict.fromkeys(names, 0) | {"input_ids": tokenizer.pad_token_id} | of_types,
        dropped=dropped,
    )


def tokenized(
    tokenizer: PreTrainedTokenizerBase, texts: Sequence[str], *, of_words: bool = False, **options: Any
) -> dict[str, list[Any]]:
    """The inputs of the model for each text, by name; of sentences also the word of each token.

    A sentence is read as the running text that a pipeline of transformers would be given: a tokenizer may give a word other
    tokens alone than after a space.

    Raises:
        FrostlineError: The tokenizer cannot read a text, because it has no token for what it does not know.
    """
    given = [" ".join(filter(None, words_of(text))) for text in texts] if of_words else list(texts)
    try:
        found = tokenizer(given, return_attention_mask=False, verbose=False, return_offsets_mapping=of_words, **options)
    except Exception as error:
        if type(error) is not Exception:  # as which the library of fast tokenizers raises all that it refuses
            raise
        raise FrostlineError(
            f"The tokenizer cannot encode a text ({str(error).rstrip('.')}): use the model's own tokenizer, or give this one an "
            "unknown token that is in its vocabulary."
        ) from error
    encoded = {name: list(values) for name, values in found.items()}
    if of_words:
        encoded[WORDS] = [_word_of_each(*both) for both in zip(texts, encoded.pop("offset_mapping"), strict=True)]
    return encoded


def _word_of_each(sentence: str, spans: Sequence[tuple[int, int]]) -> list[int]:
    """The first word of which each token has a character; -1 if there is none, as for special tokens and for a space alone."""
    words: list[int] = []  # of each character of the running text
    for n, word in enumerate(words_of(sentence)):
        words += [*[-1] * bool(words and word), *[n] * len(word)]
    return [next((word for word in words[start:end] if word >= 0), -1) for start, end in spans]


ZEROED_TYPES = (
    "The tokenizer gives tokens types that the model does not have, such as type 1 for a second text. "
    "They are read as type 0."
)
OTHER_TOKENS = (
    "transformers builds the tokenizer as a {}, which gives texts other tokens than the model's tokenizer.json: if the model was "
    "pretrained with those, scores are lower than they could be."
)
UNTAGGED = (
    "{} % of the words are cut off, because their sentences have more tokens than the model is given. They are neither trained "
    "on nor scored.",
    "{} % of the words have no token, such as words of invisible characters. They have no tag and do not count in the token "
    "accuracy; an entity that begins with one is missed.",
)
SAMPLE = "In 2023, the film's budget wasn't 650,841.20 €; naïve CamelCase  fans said: 'Größe?' WOW!"


def notes_on_tokens(tokens: Tokens, tokenizer: PreTrainedTokenizerBase, folder: Path) -> list[str]:
    """What is peculiar about the tokens of examples, and about the tokenizer of the model in a folder."""
    other = [OTHER_TOKENS.format(type(tokenizer).__name__)] * _differs_from_file(tokenizer, folder / "tokenizer.json")
    lost: list[str] = []
    if tokens.untagged is not None:
        counts = tokens.untagged.sum(1)
        shares = 100 * counts / max(1, counts.sum() + tokens.begins_word.sum())
        lost = [note.format(f"{share:.2g}") for note, share in zip(UNTAGGED, shares, strict=True) if share]
    return [*[ZEROED_TYPES] * tokens.zeroed_types, *lost, *other]


def _differs_from_file(tokenizer: PreTrainedTokenizerBase, file: Path) -> bool:
    """Whether a tokenizer gives a text other tokens than its file, aside from those around a text."""
    if not (tokenizer.is_fast and file.is_file()):
        return False
    try:
        of_file = PreTrainedTokenizerFast(tokenizer_file=str(file))
        one, other = (x(SAMPLE, add_special_tokens=False)["input_ids"] for x in (tokenizer, of_file))
    except Exception as error:
        if type(error) is not Exception:  # tokenizers raises this class where it lacks an unknown token
            raise
        return False
    return bool(one != other)


def vocabulary_size(model: PreTrainedModel) -> int | None:
    """How many tokens the model knows; None if it has no vocabulary and reads characters (CANINE)."""
    size: int | None = getattr(model.config.get_text_config(), "vocab_size", None)
    return size


def vocabulary_tables(model: PreTrainedModel) -> dict[str, nn.Embedding]:
    """The embedding tables of the vocabulary, by their path in the model."""
    size = vocabulary_size(model)
    return {
        path: module
        for path, module in model.named_modules()
        if isinstance(module, nn.Embedding) and module.num_embeddings == size
    }


def padding_fill(model: PreTrainedModel) -> int:
    """The token in padded positions: the model's own, by which some heads find the last token of a text.

    The tokenizer may pad with another one. The attention mask hides either.
    """
    pad, size = getattr(model.config.get_text_config(), "pad_token_id", None), vocabulary_size(model)
    return pad if is_token(pad, size) else 0


def is_token(number: int | None, size: int | None) -> TypeGuard[int]:
    """Whether a number is that of a token in a vocabulary of this size (None: no vocabulary)."""
    return number is not None and number >= 0 and (size is None or number < size)


def suited(tokens: Tokens, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> Tokens:
    """The tokens as the model takes them: padded with its own token, and with type 0 instead of types that it lacks.

    Raises:
        FrostlineError: The model does not know a token, so the tokenizer belongs to another model, or tokens were added to it
            only. A GPU cannot report them, and a stack would look them up in another run.
    """
    size, ids = vocabulary_size(model), tokens.inputs["input_ids"]
    if len(ids) and not is_token(largest := int(ids.max()), size):
        token = tokenizer.convert_ids_to_tokens(largest)
        raise FrostlineError(
            f"The tokenizer gives the token {token!r} the number {largest}, and the model knows {size} tokens, from 0 to "
            f"{(size or 0) - 1}: use the model's own tokenizer, or save the model after "
            "model.resize_token_embeddings(len(tokenizer))."
        )
    inputs, padding = dict(tokens.inputs), {**tokens.padding, "input_ids": padding_fill(model)}
    types = inputs.get(TYPES)
    count = getattr(model.config.get_text_config(), "type_vocab_size", None)
    if types is None or not count:  # types are not looked up in a table of their own
        return replace(tokens, padding=padding)
    unknown = types >= count
    inputs[TYPES] = np.where(unknown, 0, types)
    padding[TYPES] = padding[TYPES] if padding[TYPES] < count else 0
    return replace(tokens, inputs=inputs, padding=padding, zeroed_types=bool(unknown.any()))
