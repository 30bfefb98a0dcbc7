"""The folder of a bundle: the shared weights once, and the other weights of each task.

``bundle.json`` has the names of the tasks and their cuts. ``shared/`` has the embeddings, the shared layers and the tokenizer.
``tasks/NAME/`` has all other weights of a task, and the files of its model that describe it.
"""

import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import transformers
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import PreTrainedModel

from frostline import FrostlineError
from frostline.data.files import files_in, read_record, require_recorded, write_record
from frostline.data.wording import first_line
from frostline.frozen.bundle.sharing import Sharing, lower_tensors, same_bits
from frostline.model.anatomy import Anatomy, find_layers
from frostline.model.checkpoint import read_config
from frostline.model.classifier import Classifier, prepared
from frostline.model.loading import load_tokenizer, without_load_settings
from frostline.model.model_files import quiet_loading

FORMAT = 1
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")  # of a task
FACTS, WEIGHTS = "bundle.json", "model.safetensors"
SHARED, TASKS = "shared", "tasks"
COPIED = ("config.json", "frostline.json", "README.md")


@dataclass(frozen=True)
class LoadedBundle:
    """The classifiers of a bundle. Shared weights are in memory once.

    Attributes:
        tasks: The names of the tasks.
        classifiers: The classifier of each task.
        anatomy: The layers of every classifier.
        sharing: Which layers they share.
    """

    tasks: tuple[str, ...]
    classifiers: tuple[Classifier, ...]
    anatomy: Anatomy
    sharing: Sharing

    @property
    def models(self) -> list[PreTrainedModel]:
        """The models of all tasks."""
        return [one.model for one in self.classifiers]


class BundleWriter:
    """Writes a bundle: first the trunk, then the other tasks one after the other, so that two models are in memory."""

    def __init__(self, folder: Path, anatomy: Anatomy, sharing: Sharing, trunk: Classifier) -> None:
        self.folder, self.anatomy, self.sharing = folder, anatomy, sharing
        cut = max(sharing.cuts)
        self.shared = {name: x for name, x, part in lower_tensors(trunk.model, anatomy) if part <= cut}
        _write_weights(folder / SHARED, self.shared)
        with without_load_settings(trunk.tokenizer):
            trunk.tokenizer.save_pretrained(folder / SHARED)

    def add(self, name: str, model: PreTrainedModel, cut: int, origin: Path) -> None:
        """Write what a task does not share. ``origin`` is the folder of its whole model."""
        target = self.folder / TASKS / name
        lower = {
            name
            for name, x, part in lower_tensors(model, self.anatomy)
            if part <= cut and name in self.shared and same_bits(x, self.shared[name])
        }
        _write_weights(target, {name: x for name, x in model.state_dict().items() if name not in lower})
        for file in COPIED:
            if (origin / file).is_file():
                shutil.copyfile(origin / file, target / file)

    def finish(self, names: Sequence[str], model_class: str) -> None:
        """Write ``bundle.json``."""
        facts = {
            "format": FORMAT,
            "model_class": model_class,
            "trunk": names[self.sharing.trunk],
            "tasks": {name: {"shared_layers": cut} for name, cut in zip(names, self.sharing.cuts, strict=True)},
        }
        write_record(self.folder / FACTS, facts, files_in(self.folder).values(), inside=self.folder)


def is_bundle(folder: str | Path) -> bool:
    """Whether a folder is a bundle."""
    return (Path(folder) / FACTS).is_file()


def task_folder(folder: str | Path, task: str) -> Path:
    """Where a bundle has the files of a task."""
    return Path(folder) / TASKS / task


def task_names(folder: str | Path) -> list[str]:
    """The names of a bundle's tasks.

    Raises:
        FrostlineError: The bundle is damaged.
    """
    return list(_facts(Path(folder))["tasks"])


def read_bundle(folder: Path) -> LoadedBundle:
    """Load the classifiers of all tasks. Needs nothing but the folder.

    Raises:
        FrostlineError: The bundle is damaged.
    """
    facts = _facts(folder)
    try:
        require_recorded(folder, facts, optional=lambda name: False)
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
    return LoadedBundle(tuple(names), tuple(classifiers[name] for name in names), anatomy, sharing)


def _assembled(
    model_class: str, folder: Path, shared: Mapping[str, Tensor], own: Mapping[str, Tensor]
) -> PreTrainedModel:
    """A classifier whose parameters are those of ``own``, and the very tensors of ``shared`` where ``own`` has none.

    Raises:
        KeyError: A weight is missing.
    """
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
    """The content of ``bundle.json``.

    Raises:
        FrostlineError: It cannot be read, or lacks something.
    """
    try:
        facts = read_record(folder / FACTS)
        known = {"format", "model_class", "trunk", "tasks"} <= facts.keys() and facts["trunk"] in facts["tasks"]
        known = known and all(map(NAME.fullmatch, facts["tasks"]))
    except (OSError, ValueError, AttributeError, TypeError) as error:
        raise _damaged(folder, first_line(error)) from error
    if not known or facts["format"] != FORMAT:
        raise _damaged(folder, f"{FACTS} is not of format {FORMAT}")
    return facts


def _damaged(folder: Path, why: str) -> FrostlineError:
    return FrostlineError(f"The bundle in {folder} is damaged ({why}): make it again with `frostline bundle`.")


def _write_weights(folder: Path, tensors: Mapping[str, Tensor]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    save_file({name: x.contiguous() for name, x in tensors.items()}, folder / WEIGHTS, {"format": "pt"})
