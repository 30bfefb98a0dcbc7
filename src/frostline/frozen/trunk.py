"""Several classifiers that share their frozen layers: find these layers, run them once for all, and the folder of a bundle.

A layer is shared if all its tensors are bitwise identical. Names of files and settings of the training are never read. One of the
classifiers is the trunk: the one that shares the most layers with another one. The cut of each classifier is the number of
lower layers that it shares with the trunk. The cut of the trunk is the largest cut of the others.

The trunk runs as a whole. Each other classifier starts from the hidden states of the trunk at its own cut. It gets the very
tensor that its own layers would have computed, padded positions included, so its logits are bitwise identical to those
of the whole classifier.

In the folder, ``bundle.json`` has the names of the tasks and their cuts. ``shared/`` has the embeddings, the shared layers and
the tokenizer. ``tasks/NAME/`` has all other weights of a task, and the files of its model that describe it.

Shapes: B examples in a batch, S padded length, C outputs, D width.
"""

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any

import transformers
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from torch import Tensor
from transformers import PreTrainedModel

from frostline import FrostlineError
from frostline.data.files import FILES, files_in, read_record, require_recorded, write_record
from frostline.data.wording import first_line, listed
from frostline.frozen.cut import cut_at
from frostline.model.anatomy import Anatomy, Batch, find_layers
from frostline.model.classifier import Classifier, load_classifier, prepared
from frostline.model.loading import load_tokenizer, read_config, without_load_settings
from frostline.model.model_files import BUNDLE, TASK_NAME, quiet_loading
from frostline.model.terms import EMBEDDINGS, OUTPUT_KEYS, layer_number
from frostline.model.weights import digest_of

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
        facts: What must be the same: the class of the model, the settings that change hidden states, and all that decides the
            tokens of a text, by name.
        lower: For the embeddings and then for each layer: a digest of each tensor, by name.
    """

    facts: Mapping[str, Any]
    lower: tuple[Mapping[str, str], ...]

    @classmethod
    def of(cls, classifier: Classifier, anatomy: Anatomy) -> "Contents":
        """The contents of a classifier with these layers."""
        model, tokenizer = classifier.model, classifier.tokenizer
        parts: list[dict[str, str]] = [{} for _ in range(anatomy.count + 1)]
        for name, tensor, part in lower_tensors(model, anatomy):
            if name not in anatomy.idle:
                parts[part][name] = _digest(tensor)
        rules: Any = (type(tokenizer).__name__, tokenizer.get_vocab())
        if tokenizer.is_fast:  # it also stores the truncation of its last call, which is left out
            backend = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
            backend.no_truncation()
            backend.no_padding()
            rules = backend.to_str()
        facts = {
            **_settings(model.config.to_dict()),
            "class": type(model).__name__,
            "layers": anatomy.count,
            "max_length": classifier.max_length,
            "special tokens": {name: str(token) for name, token in tokenizer.special_tokens_map.items()},
            "padding": (tokenizer.pad_token_id, tokenizer.pad_token_type_id),
            "inputs": tuple(tokenizer.model_input_names),
            "tokenizer": rules,
        }
        return cls(facts, tuple(parts))

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
    first, usual = names[0], all_contents[0].facts
    for name, one in contents.items():
        if different := sorted(key for key in {*one.facts, *usual} if one.facts.get(key) != usual.get(key)):
            raise FrostlineError(
                f"{name} and {first} differ in {listed(different)}: leave one of them out, because a bundle has models of one "
                "pretrained model, which read texts in the same way."
            )
    depth = [[a.shared_layers(b) for b in all_contents] for a in all_contents]
    most = [max((-1 if n is None else n) for j, n in enumerate(row) if j != i) for i, row in enumerate(depth)]
    trunk = max(range(len(names)), key=lambda i: most[i])
    apart = [name for name, cut in zip(names, depth[trunk], strict=True) if cut is None]
    if apart:
        raise FrostlineError(
            f"{listed(apart)} cannot be in a bundle with {names[trunk]}, because their embeddings differ: a fully "
            "fine-tuned model shares nothing, and neither does one of another pretrained model. Leave it out."
        )
    cuts = [most[trunk] if n == trunk or cut is None else cut for n, cut in enumerate(depth[trunk])]
    return Sharing(trunk, tuple(cuts), len(all_contents[0].lower) - 1)


def _settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """The entries of a configuration that can change hidden states. Dropout does nothing in a prediction."""
    return {
        name: _settings(x) if isinstance(x, Mapping) else x
        for name, x in config.items()
        if name not in (*OF_TASK, *OF_FILE) and "dropout" not in name
    }


def _digest(tensor: Tensor) -> str:
    """A digest of type, shape and bits of a tensor."""
    return f"{tensor.dtype} {tuple(tensor.shape)} {digest_of(tensor)}"


FORMAT = 1
WEIGHTS = "model.safetensors"
SHARED, TASKS = "shared", "tasks"
COPIED = ("config.json", "frostline.json", "README.md")


def write_bundle(folder: Path, tasks: Mapping[str, Path], sharing: Sharing) -> None:
    """Write a bundle of the classifiers in these folders, by the names of their tasks. Two models are in memory at once."""
    trunk = load_classifier(list(tasks.values())[sharing.trunk])
    anatomy, deepest = find_layers(trunk.model), max(sharing.cuts)
    shared = {name: x for name, x, part in lower_tensors(trunk.model, anatomy) if part <= deepest}
    _write_weights(folder / SHARED, shared)
    with without_load_settings(trunk.tokenizer):
        trunk.tokenizer.save_pretrained(folder / SHARED)
    for (task, origin), cut in zip(tasks.items(), sharing.cuts, strict=True):
        model, target = load_classifier(origin).model, task_folder(folder, task)
        lower = {
            name
            for name, x, part in lower_tensors(model, anatomy)
            if part <= cut and name in shared and _digest(x) == _digest(shared[name])
        }
        _write_weights(target, {name: x for name, x in model.state_dict().items() if name not in lower})
        for file in COPIED:
            if (origin / file).is_file():
                shutil.copyfile(origin / file, target / file)
    facts = {
        "format": FORMAT,
        "model_class": type(trunk.model).__name__,
        "trunk": list(tasks)[sharing.trunk],
        "tasks": {name: {"shared_layers": cut} for name, cut in zip(tasks, sharing.cuts, strict=True)},
    }
    write_record(folder / BUNDLE, facts, files_in(folder).values(), inside=folder)


def task_folder(folder: str | Path, task: str) -> Path:
    """Where a bundle has the files of a task."""
    return Path(folder) / TASKS / task


def task_names(folder: str | Path) -> list[str]:
    """The names of a bundle's tasks.

    Raises:
        FrostlineError: The bundle is damaged.
    """
    return list(_facts(Path(folder))["tasks"])


def read_bundle(folder: Path) -> tuple[dict[str, Classifier], Anatomy, Sharing]:
    """The classifier of each task, the layers of every one, and which they share. Shared weights are in memory once.

    Needs nothing but the folder.

    Raises:
        FrostlineError: The bundle is damaged.
    """
    facts = _facts(folder)
    try:
        require_recorded(folder, facts[FILES])
    except (OSError, ValueError) as error:
        raise _damaged(folder, str(error)) from error
    names, trunk = list(facts["tasks"]), facts["trunk"]
    tokenizer = load_tokenizer(str(folder), folder / SHARED)
    classifiers: dict[str, Classifier] = {}
    try:
        cuts = tuple(int(one["shared_layers"]) for one in facts["tasks"].values())
        shared = load_file(folder / SHARED / WEIGHTS)
        for name in (trunk, *(name for name in names if name != trunk)):
            own = load_file(folder / TASKS / name / WEIGHTS)
            model = _assembled(facts["model_class"], folder / TASKS / name, shared, own)
            classifiers[name] = prepared(model, tokenizer)
            if name == trunk:  # its weights have been aligned; the others take them over
                shared = {key: x for key, x in model.state_dict().items() if key in shared}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RuntimeError, SafetensorError) as error:
        raise _damaged(folder, first_line(error)) from error
    anatomy = find_layers(classifiers[trunk].model)
    sharing = Sharing(names.index(trunk), cuts, anatomy.count)
    return {name: classifiers[name] for name in names}, anatomy, sharing


def _assembled(
    model_class: str, folder: Path, shared: Mapping[str, Tensor], own: Mapping[str, Tensor]
) -> PreTrainedModel:
    """A classifier whose parameters are those of ``own``, and the very tensors of ``shared`` where ``own`` has none."""
    config = read_config(str(folder), folder, "its config.json cannot be used")
    kind: Any = getattr(transformers, model_class)
    if PreTrainedModel not in getattr(kind, "__mro__", ()):
        raise TypeError(f"{model_class} is no class of models")
    with quiet_loading():
        model, info = kind.from_pretrained(None, config=config, state_dict={**shared, **own}, output_loading_info=True)
    if missing := info["missing_keys"]:
        raise KeyError(min(missing))
    parameters = dict(model.named_parameters())
    for name in (shared.keys() - own.keys()) & parameters.keys():
        parameters[name].data = shared[name]
    return model


def _facts(folder: Path) -> dict[str, Any]:
    """The content of ``bundle.json``. A :class:`FrostlineError` says that it cannot be read, or lacks something."""
    try:
        facts = read_record(folder / BUNDLE)
        known = {"format", "model_class", "trunk", "tasks"} <= facts.keys() and facts["trunk"] in facts["tasks"]
        known = known and all(map(TASK_NAME.fullmatch, facts["tasks"]))
    except (OSError, ValueError, AttributeError, TypeError) as error:
        raise _damaged(folder, first_line(error)) from error
    if not known or facts["format"] != FORMAT:
        raise _damaged(folder, f"{BUNDLE} is not of format {FORMAT}")
    return facts


def _damaged(folder: Path, why: str) -> FrostlineError:
    return FrostlineError(f"The bundle in {folder} is damaged ({why}): make it again with `frostline bundle`.")


def _write_weights(folder: Path, tensors: Mapping[str, Tensor]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    save_file({name: x.contiguous() for name, x in tensors.items()}, folder / WEIGHTS, {"format": "pt"})


@contextmanager
def branches(
    models: Sequence[PreTrainedModel], anatomy: Anatomy, sharing: Sharing
) -> Iterator[Callable[[Batch], list[Tensor]]]:
    """A function from a padded batch to the logits ``[B, C]`` of each classifier. On exit, the models are restored."""
    states: dict[int, Tensor] = {}  # by cut: the trunk's hidden states, [B, S, D]
    others = [n for n in range(len(models)) if n != sharing.trunk]
    wanted = {sharing.cuts[n] for n in others}

    def tap(number: int, hidden: Tensor) -> None:
        if number in wanted:
            states[number] = hidden

    with ExitStack() as opened:
        whole = opened.enter_context(cut_at(models[sharing.trunk], anatomy, None, tap=tap))
        upper = {n: opened.enter_context(cut_at(models[n], anatomy, sharing.cuts[n])) for n in others}

        def run(batch: Batch) -> list[Tensor]:
            logits = {sharing.trunk: whole(batch)}
            logits |= {n: upper[n](batch, states[sharing.cuts[n]]) for n in others}
            states.clear()
            return [logits[n] for n in range(len(models))]

        yield run
