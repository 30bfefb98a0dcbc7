"""The files of checkpoints: tensors as safetensors, everything else as JSON in the metadata. Nothing is pickled.

    checkpoints/<run>.<steps>.<checksum>.safetensors

A file is written under a temporary name, flushed to disk and renamed. Older ones of the same run are removed only after that.
"""

import json
import math
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from frostline.data.files import file_checksum, make_folder, move, remove, require_inside, sync, temporary_path
from frostline.sweep.results.set_aside import DAMAGED, set_aside
from frostline.training.checkpoint import State

FOLDER, ENDING = "checkpoints", ".safetensors"
TENSOR, ARRAY, NUMBER = "$tensor", "$array", "$number"  # keys of leaves that JSON cannot express
DAMAGE = (SafetensorError, KeyError, TypeError, ValueError, RecursionError)  # what reading a damaged file can raise


@dataclass(frozen=True)
class CheckpointFiles:
    """The checkpoints in the folder of a sweep. ``about`` identifies what a state belongs to, in texts and numbers."""

    out: Path

    @property
    def folder(self) -> Path:
        return self.out / FOLDER

    def save(self, run: str, steps: int, state: State, about: Mapping[str, Any]) -> None:
        """Keep a state of a run instead of older ones.

        Args:
            run: Its digest.
            steps: The number of steps so far.
            state: The state.
            about: What the state belongs to.

        Raises:
            OSError, SafetensorError: It cannot be written. The older state is kept.
            FrostlineError: The folder leads out of the sweep's, or is not writable.
        """
        make_folder(self.folder, inside=self.out)
        tensors: dict[str, Tensor] = {}
        tree = _to_json(state, tensors)
        with temporary_path(self.folder / run, inside=self.out) as part:
            save_file(tensors, part, {"state": json.dumps(tree), "about": json.dumps(about)})
            sync(part)
            target = self.folder / f"{run}.{steps}.{file_checksum(part)}{ENDING}"
            move(part, target, inside=self.out)
        for file in self._files(run):
            if file != target and _steps(file) <= steps:  # a later one is of a process that has taken the run over
                remove(file, inside=self.out)

    def load(self, run: str, about: Mapping[str, Any], note: Callable[[str], None]) -> State | None:
        """The last state of a run; None if there is none, or if it belongs to something else than ``about``.

        A damaged file is set aside. ``note`` is called with a sentence about it.
        """
        for file in sorted(self._files(run), key=_steps, reverse=True):
            require_inside(file, self.out)
            try:
                found = _read(file)
            except FileNotFoundError:  # another process has saved a later one, or ended the run
                continue
            except OSError as error:  # it may be readable the next time
                note(f"{file} cannot be read ({error.strerror}): the run starts from an earlier step.")
                continue
            except DAMAGE:
                note(f"{file} is damaged: it is now in {set_aside(file, self.out / DAMAGED)}.")
                continue
            if found[0] == dict(about):
                return found[1]
        return None

    def remove(self, runs: Collection[str]) -> None:
        """Remove the states of these runs, and the folder if none is left."""
        for run in runs:
            for file in self._files(run):
                remove(file, inside=self.out)
        with suppress(OSError):  # it has other files, or another process has removed it
            self.folder.rmdir()  # empty, if at all

    def _files(self, run: str) -> list[Path]:
        return [file for file in self.folder.glob(f"{run}.*{ENDING}") if file.is_file()]  # a pipe has no end


def _steps(file: Path) -> int:
    steps = file.name.split(".")[1]
    return int(steps) if steps.isdecimal() else -1


def _read(file: Path) -> tuple[dict[str, Any], State]:
    """What a file belongs to, and its state.

    Raises:
        ValueError: The file is not what was written.
    """
    if not file.name.endswith(f".{file_checksum(file)}{ENDING}"):
        raise ValueError("its checksum is wrong")
    with safe_open(file, "pt") as opened:
        metadata = opened.metadata()
        tensors = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
    return json.loads(metadata["about"]), _from_json(json.loads(metadata["state"]), tensors)


def _to_json(value: Any, tensors: dict[str, Tensor]) -> Any:
    """A state without tensors, arrays and numbers that are not finite. Its tensors and arrays are added to ``tensors``."""
    if isinstance(value, Mapping):
        return {name: _to_json(one, tensors) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_to_json(one, tensors) for one in value]
    if isinstance(value, Tensor | np.ndarray):
        kind, tensor = (TENSOR, value) if isinstance(value, Tensor) else (ARRAY, torch.from_numpy(value))
        name = str(len(tensors))
        tensors[name] = _alone(tensor)
        return {kind: name}
    if isinstance(value, float) and not math.isfinite(value):
        return {NUMBER: repr(float(value))}
    return value.item() if isinstance(value, np.generic) else value


def _from_json(value: Any, tensors: Mapping[str, Tensor]) -> Any:
    """The state that :func:`_to_json` has turned into this."""
    if isinstance(value, list):
        return [_from_json(one, tensors) for one in value]
    if not isinstance(value, dict):
        return value
    if len(value) == 1:
        ((kind, leaf),) = value.items()
        if kind in (TENSOR, ARRAY):
            return tensors[leaf] if kind == TENSOR else tensors[leaf].numpy()
        if kind == NUMBER:
            return float(leaf)
    return {name: _from_json(one, tensors) for name, one in value.items()}


def _alone(tensor: Tensor) -> Tensor:
    """The tensor on the host, contiguous, and without storage that it shares with others."""
    tensor = tensor.detach().cpu().contiguous()
    return tensor if tensor.untyped_storage().nbytes() == tensor.nbytes else tensor.clone()
