"""Find the lower layers that several classifiers share, from their weights.

Names of files and settings of the training are never read. A layer is shared if all its tensors are bitwise identical.

One of the classifiers is the trunk: the one that shares the most layers with another one. The cut of each classifier is the
number of lower layers that it shares with the trunk. The cut of the trunk is the largest cut of the others.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

import torch
import xxhash
from tokenizers import Tokenizer
from torch import Tensor
from transformers import PreTrainedModel

from frostline import FrostlineError
from frostline.data.wording import listed
from frostline.model.anatomy import Anatomy
from frostline.model.classifier import Classifier
from frostline.model.output_keys import OUTPUT_KEYS
from frostline.model.places import EMBEDDINGS, layer_number

OF_TASK = (
    "id2label",
    "label2id",
    "problem_type",
    "num_labels",
    "finetuning_task",
    *OUTPUT_KEYS,
)  # what a configuration says of a task
OF_FILE = ("_name_or_path", "transformers_version", "architectures")


@dataclass(frozen=True)
class Contents:
    """What decides which layers a classifier shares with another one.

    Attributes:
        kind: The class of the model.
        config: The settings that change hidden states.
        max_length: The most tokens of a text.
        tokenizer: What decides the tokens of a text.
        lower: For the embeddings and then for each layer: a digest of each tensor, by name.
    """

    kind: str
    config: Mapping[str, Any]
    max_length: int
    tokenizer: Mapping[str, Any]
    lower: tuple[Mapping[str, bytes], ...]

    @classmethod
    def of(cls, classifier: Classifier, anatomy: Anatomy) -> "Contents":
        """The contents of a classifier with these layers."""
        model = classifier.model
        parts: list[dict[str, bytes]] = [{} for _ in range(anatomy.count + 1)]
        for name, tensor, part in lower_tensors(model, anatomy):
            if name not in anatomy.idle:
                parts[part][name] = _digest(tensor)
        return cls(
            kind=type(model).__name__,
            config=_settings(model.config.to_dict()),
            max_length=classifier.max_length,
            tokenizer=_tokenizer_state(classifier.tokenizer),
            lower=tuple(parts),
        )

    def shared_layers(self, other: "Contents") -> int | None:
        """How many of the lowest layers both have; None if their embeddings differ."""
        equal = [a == b for a, b in zip(self.lower, other.lower, strict=True)]
        return sum(takewhile(bool, equal[1:])) if equal[0] else None


def lower_tensors(model: PreTrainedModel, anatomy: Anatomy) -> Iterator[tuple[str, Tensor, int]]:
    """The tensors of embeddings and layers: name, value, and 0 for the embeddings or n + 1 for layer n.

    Buffers that the model's weights file has are included.
    """
    for name, tensor in model.state_dict().items():
        if name in anatomy.places:
            place = anatomy.places[name]
            number = layer_number(place)
            if number is not None or place == EMBEDDINGS:
                yield name, tensor, 0 if number is None else number + 1
        elif name.startswith(f"{anatomy.path}."):
            yield name, tensor, int(name.removeprefix(f"{anatomy.path}.").split(".")[0]) + 1
        else:
            yield name, tensor, 0


@dataclass(frozen=True)
class Sharing:
    """Which lower layers several classifiers share.

    Attributes:
        trunk: The number of the classifier that runs the shared layers for all.
        cuts: For each classifier: how many of the lowest layers it shares with the trunk.
        layers: The number of layers of each classifier, L.
    """

    trunk: int
    cuts: tuple[int, ...]
    layers: int

    @property
    def layers_run(self) -> int:
        """How many layers run for a batch."""
        return max(self.cuts) + sum(self.layers - cut for cut in self.cuts)


def find_sharing(contents: Mapping[str, Contents]) -> Sharing:
    """The layers that classifiers share, by their names.

    Raises:
        FrostlineError: A classifier shares nothing with the others, or reads texts differently.
    """
    names, all_contents = list(contents), list(contents.values())
    _require_equal_settings(contents)
    depth = [[a.shared_layers(b) for b in all_contents] for a in all_contents]
    most = [max((-1 if n is None else n) for j, n in enumerate(row) if j != i) for i, row in enumerate(depth)]
    trunk = max(range(len(names)), key=lambda i: most[i])
    if most[trunk] < 0:
        raise FrostlineError(
            f"No two of the models {listed(names)} have the same embeddings, so they share nothing: they are fully "
            "fine-tuned, or come from different pretrained models. Run `frostline predict` with each of them."
        )
    apart = [name for name, cut in zip(names, depth[trunk], strict=True) if cut is None]
    if apart:
        raise FrostlineError(
            f"{listed(apart)} cannot be in a bundle with {names[trunk]}, because their embeddings differ: a fully fine-tuned "
            "model shares nothing, and neither does one of another pretrained model. Leave it out."
        )
    cuts = [most[trunk] if n == trunk or cut is None else cut for n, cut in enumerate(depth[trunk])]
    return Sharing(trunk, tuple(cuts), len(all_contents[0].lower) - 1)


def _require_equal_settings(contents: Mapping[str, Contents]) -> None:
    """Refuse classifiers that do not turn a text into the same tokens, or do not compute in the same way."""
    for name, found, usual in _unusual({name: one.kind for name, one in contents.items()}):
        raise FrostlineError(f"{name} is a {found}, but other models are {usual}: a bundle has models of one type.")
    for name, found, usual in _unusual({name: one.max_length for name, one in contents.items()}):
        raise FrostlineError(
            f"{name} reads at most {found} tokens of a text, but other models {usual}: train it again with max_length = "
            f"{usual}, or leave it out."
        )
    first, *others = contents.items()
    for name, one in others:
        settings = _different(one.config, first[1].config)
        if settings or len(one.lower) != len(first[1].lower):
            raise FrostlineError(
                f"{name} and {first[0]} differ in their config.json ({', '.join(settings) or 'layers'}): a bundle has models "
                "of one pretrained model."
            )
        if settings := _different(one.tokenizer, first[1].tokenizer):
            raise FrostlineError(
                f"{name} and {first[0]} have different tokenizers ({', '.join(settings)}): a bundle has models of one "
                "pretrained model."
            )


def _unusual(values: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    """Names whose value is not the most frequent one, with their own and the most frequent value."""
    usual = Counter(values.values()).most_common(1)[0][0]
    yield from ((name, value, usual) for name, value in values.items() if value != usual)


def _different(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[str]:
    return sorted(name for name in {*a, *b} if a.get(name) != b.get(name))


def _settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """The entries of a configuration that can change hidden states. Dropout does nothing in a prediction."""
    return {
        name: _settings(x) if isinstance(x, Mapping) else x
        for name, x in config.items()
        if name not in (*OF_TASK, *OF_FILE) and "dropout" not in name
    }


def _tokenizer_state(tokenizer: Any) -> dict[str, Any]:
    """What decides the tokens of a text. A fast tokenizer also stores the truncation of its last call, which is left out."""
    state: dict[str, Any] = {
        "special tokens": {name: str(token) for name, token in tokenizer.special_tokens_map.items()},
        "padding": (tokenizer.pad_token_id, tokenizer.pad_token_type_id),
        "inputs": tuple(tokenizer.model_input_names),
    }
    if tokenizer.is_fast:
        backend = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
        backend.no_truncation()
        backend.no_padding()
        state["rules"] = backend.to_str()
    else:
        state["rules"] = (type(tokenizer).__name__, tokenizer.get_vocab())
    return state


def _digest(tensor: Tensor) -> bytes:
    """A digest of type, shape and bits of a tensor."""
    digest = xxhash.xxh3_128(f"{tensor.dtype} {tuple(tensor.shape)}".encode())
    digest.update(tensor.detach().contiguous().view(-1).view(torch.uint8).numpy().data)
    return digest.digest()


def same_bits(a: Tensor, b: Tensor) -> bool:
    """Whether two tensors have the same type, shape and bits."""
    return a.dtype == b.dtype and a.shape == b.shape and _digest(a) == _digest(b)
