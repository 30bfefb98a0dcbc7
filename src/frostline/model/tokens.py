"""Texts as token numbers: encoded once, kept flat, padded only when a batch is made."""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import PreTrainedTokenizerBase

CHUNK = 8192  # texts handed to the tokenizer at a time: bounds its memory


@dataclass(frozen=True, eq=False)
class Tokens:
    """N texts as one flat array for each input of the model, and where each text begins.

    ``inputs``: name -> ``[T]`` (or ``[T, ...]``), T tokens in all; ``offsets``: ``[N + 1]``; ``padding``: what fills a batch;
    ``dropped``: ``[N]``, tokens that each text lost to the length limit.
    """

    inputs: dict[str, NDArray[np.int32]]
    offsets: NDArray[np.int64]  # of a text that was not encoded the same as of the next: it has no tokens
    padding: dict[str, int]
    dropped: NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @cached_property
    def lengths(self) -> NDArray[np.int64]:
        return np.diff(self.offsets)

    def truncated(self, rows: NDArray[np.bool_] | None = None) -> float:
        """The share of texts that are cut, of those that were encoded (among these ``rows``); NaN where there are none."""
        encoded = self.lengths > 0 if rows is None else rows & (self.lengths > 0)
        return float((self.dropped[encoded] > 0).mean()) if encoded.any() else float("nan")

    def batch(self, rows: NDArray[np.int64], length: int | None = None) -> dict[str, Tensor]:
        """The model's inputs for these rows, ``[B, S]`` each; S is ``length`` or the longest row."""
        lengths = self.lengths[rows]
        assert lengths.all(), "some of these texts were not encoded"
        real = np.arange(length or int(lengths.max())) < lengths[:, None]  # [B, S]
        where = flat_positions(self.offsets, rows)
        batch = {}
        for name, flat in self.inputs.items():
            grid = np.full(real.shape + flat.shape[1:], self.padding.get(name, 0), np.int64)
            grid[real] = flat[where]
            batch[name] = torch.from_numpy(grid)
        batch["attention_mask"] = torch.from_numpy(real.astype(np.int64))
        return batch

    def one_token(self, rows: NDArray[np.int64], *, last: bool) -> dict[str, Tensor]:
        """The same rows as texts of one token, their first or last, ``[B, 1]``: all that some heads look at."""
        assert self.lengths[rows].all(), "some of these texts were not encoded"
        where = self.offsets[1:][rows] - 1 if last else self.offsets[rows]
        batch = {name: torch.from_numpy(flat[where].astype(np.int64))[:, None] for name, flat in self.inputs.items()}
        batch["attention_mask"] = torch.ones(len(rows), 1, dtype=torch.long)
        return batch

    @cached_property
    def keys(self) -> NDArray[np.void]:
        """One 16-byte digest a row, of everything that the model is given for it."""
        names = sorted(self.inputs)
        digests = bytearray()
        for start, stop in zip(self.offsets[:-1], self.offsets[1:], strict=True):
            row = hashlib.blake2b(digest_size=16)
            for name in names:
                row.update(name.encode() + self.inputs[name][start:stop].tobytes())
            digests += row.digest()
        return np.frombuffer(bytes(digests), dtype=np.dtype("V16"))

    @staticmethod
    def join(parts: Sequence["Tokens"]) -> "Tokens":
        """The rows of several, one after the other."""
        sizes = [part.lengths for part in parts]
        return Tokens(
            inputs={name: np.concatenate([part.inputs[name] for part in parts]) for name in parts[0].inputs},
            offsets=np.concatenate([[0], np.cumsum(np.concatenate(sizes))]),
            padding=parts[0].padding,
            dropped=np.concatenate([part.dropped for part in parts]),
        )


def flat_positions(offsets: NDArray[np.int64], rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """Where the tokens of these rows stand in a flat array, ``[T]``."""
    starts, lengths = offsets[rows], offsets[rows + 1] - offsets[rows]
    ends = np.cumsum(lengths)
    positions: NDArray[np.int64] = np.repeat(starts - (ends - lengths), lengths)
    return positions + np.arange(len(positions))


def parts_within(lengths: NDArray[np.int64], room: int) -> Iterator[slice]:
    """Texts that have these ``lengths``, ``[K, B]``, in parts along B: of each of the K at most ``room`` places in a padded
    grid, or one text."""
    start, count = 0, lengths.shape[1]
    while start < count:
        places = np.maximum.accumulate(lengths[:, start:].max(0)) * np.arange(1, count - start + 1)
        end = start + max(1, int(np.searchsorted(places, room, "right")))
        yield slice(start, end)
        start = end


def encode(
    tokenizer: PreTrainedTokenizerBase,
    texts: Sequence[str],
    pairs: Sequence[str] | None,
    max_length: int,
    rows: NDArray[np.int64] | None = None,
) -> Tokens:
    """Texts (or pairs of texts) as tokens, at most ``max_length`` each; ``rows``: only these, the others stay without.

    A text for which a tokenizer gives no token at all (GPT-2 and the empty text) becomes one end-of-text token.
    """
    names = [name for name in tokenizer.model_input_names if name != "attention_mask"]
    flat: dict[str, list[NDArray[np.int32]]] = {name: [] for name in names}
    lengths, dropped = np.zeros(len(texts), np.int64), np.zeros(len(texts), np.int32)
    nothing = next(
        x for x in (tokenizer.eos_token_id, tokenizer.sep_token_id, tokenizer.pad_token_id, 0) if x is not None
    )

    def call(where: Sequence[int], **limit: Any) -> Any:
        second = {} if pairs is None else {"text_pair": [pairs[n] for n in where]}
        return tokenizer([texts[n] for n in where], **second, return_attention_mask=False, verbose=False, **limit)

    chosen: list[int] = list(range(len(texts))) if rows is None else np.unique(rows).tolist()
    for start in range(0, len(chosen), CHUNK):
        where = chosen[start : start + CHUNK]
        found = call(where)
        whole = np.array([len(ids) for ids in found["input_ids"]])
        if len(long := np.flatnonzero(whole > max_length)):
            short = call([where[place] for place in long], truncation=True, max_length=max_length)
            for name in names:
                for place, ids in zip(long, short[name], strict=True):
                    found[name][place] = ids
        for place in np.flatnonzero(whole == 0):
            for name in names:
                found[name][place] = [nothing if name == "input_ids" else 0]
        for name in names:
            flat[name] += [np.asarray(row, np.int32) for row in found[name]]
        lengths[where] = [len(ids) for ids in found["input_ids"]]
        dropped[where] = np.maximum(whole - lengths[where], 0)
    padding = dict.fromkeys(names, 0)
    padding["input_ids"] = tokenizer.pad_token_id
    if "token_type_ids" in padding:
        padding["token_type_ids"] = tokenizer.pad_token_type_id
    return Tokens(
        inputs={name: np.concatenate([np.zeros(0, np.int32), *some]) for name, some in flat.items()},
        offsets=np.concatenate([[0], np.cumsum(lengths)]),
        padding=padding,
        dropped=dropped,
    )
