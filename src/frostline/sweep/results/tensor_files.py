"""Files of tensors beside the results: checkpoints of runs under way, and the trained parameters of the best run of each k.

    checkpoints/<run>.<steps>.<checksum>.safetensors
    weights/<k>.<checksum>.safetensors

Nothing is pickled: what is no tensor is JSON in the metadata. A file is written under a temporary name, flushed to disk and
renamed. Older ones of the same run or k are removed only after that.
"""

import json
import math
import re
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from frostline.data.files import (
    file_checksum,
    is_left_over,
    make_folder,
    move,
    remove,
    require_inside,
    sync,
    temporary_path,
)
from frostline.sweep.results.store import DAMAGED, set_aside
from frostline.training.run import Run, State

ENDING = ".safetensors"
TENSOR, ARRAY, NUMBER = "$tensor", "$array", "$number"  # keys of leaves that JSON cannot express
DAMAGE = (SafetensorError, KeyError, TypeError, ValueError, RecursionError)  # what reading a damaged file can raise


@dataclass(frozen=True)
class TensorFiles:
    """Files in a folder of a sweep. Their names end with their checksums."""

    out: Path
    name: ClassVar[str]

    @property
    def folder(self) -> Path:
        return self.out / self.name

    def _files(self, of: str = "*") -> list[Path]:
        return sorted(file for file in self.folder.glob(f"{of}.*{ENDING}") if file.is_file())  # a pipe has no end

    def _create(self, name: str, write: Callable[[Path], object]) -> Path:
        """The new file that ``write`` writes. Its name begins with ``name``."""
        with temporary_path(self.folder / name, inside=self.out) as part:
            write(part)
            sync(part)
            move(part, target := self.folder / f"{name}.{file_checksum(part)}{ENDING}", inside=self.out)
        return target

    def _set_aside(self, file: Path) -> str:
        """A sentence about a damaged file, which is moved away."""
        return f"{file} is damaged: it is now in {set_aside(file, self.out / DAMAGED)}."


def _is_intact(file: Path) -> bool:
    return file.name.endswith(f".{file_checksum(file)}{ENDING}")


class CheckpointFiles(TensorFiles):
    """The states of runs under way. ``about`` identifies what a state belongs to, in texts and numbers."""

    name = "checkpoints"

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
        metadata = {"state": json.dumps(_to_json(state, tensors)), "about": json.dumps(about)}
        target = self._create(f"{run}.{steps}", lambda part: save_file(tensors, part, metadata))
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
                note(self._set_aside(file))
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


def _steps(file: Path) -> int:
    steps = file.name.split(".")[1]
    return int(steps) if steps.isdecimal() else -1


def _read(file: Path) -> tuple[dict[str, Any], State]:
    """What a file belongs to, and its state.

    Raises:
        ValueError: The file is not what was written.
    """
    if not _is_intact(file):
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
        tensor = tensor.detach().cpu().contiguous()
        shares_storage = tensor.untyped_storage().nbytes() != tensor.nbytes
        tensors[name] = tensor.clone() if shares_storage else tensor
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


Rank = tuple[int, float, int]  # the train size, the score and the negative seed of a run: the highest is the best
NO_RANK: Rank = (0, 0.0, 0)  # lower than that of any run
NAME = re.compile(r"[\w.-]+\.[0-9a-f]{32}\.safetensors")  # of a file: k and checksum
UNUSABLE = (OSError, SafetensorError)  # what writing or reading a file can raise


class BestWeights(TensorFiles):
    """The trained parameters of the best run of each k.

    These files save time and are not needed for correctness. A run is a pure function of its settings, so training it again gives
    the same parameters.
    """

    name = "weights"

    def save_if_best(self, run: Run, score: float, parameters: Mapping[str, Tensor]) -> None:
        """Save the trained parameters of ``run`` if it is better than the saved run of the same k.

        More examples win, then a higher score, then an earlier seed. The answer recommends a run by the same rule, so the order
        in which concurrent runs end does not matter.

        Raises:
            OSError, SafetensorError: The file cannot be written.
        """
        about = {"run": run.digest, "train_size": str(run.train_size), "score": repr(score), "seed": str(run.seed)}

        def write(part: Path) -> None:
            save_file({name: p.detach().cpu().contiguous() for name, p in parameters.items()}, part, about)

        self._save_if_best(run, (run.train_size, score, -run.seed), write)

    def add(self, run: Run, score: float, content: bytes) -> None:
        """Save the content of the file of ``run`` from another folder, by the same rule.

        Raises:
            OSError: The file cannot be written.
        """
        self._save_if_best(run, (run.train_size, score, -run.seed), lambda part: part.write_bytes(content))

    def ranks(self) -> dict[str, Rank]:
        """The rank of the saved run of each k, by what the name of its file begins with."""
        found = sorted((_rank(file), _k(file)) for file in self._files())
        return {k: rank for rank, k in found}  # a killed process may have left a second file: the best one comes last

    def better_than(self, ranks: Mapping[str, Rank]) -> dict[str, tuple[float, bytes]]:
        """The score and the file of each saved run that has a higher rank than the run of the same k here, by digest."""
        found = {file: _rank(file) for file in self._files()}
        better = [file for file, rank in found.items() if rank > ranks.get(_k(file), NO_RANK)]
        return {_about(file)["run"]: (found[file][1], file.read_bytes()) for file in better}

    def _save_if_best(self, run: Run, rank: Rank, write: Callable[[Path], object]) -> None:
        k = run.recipe.replace(" ", "-")
        require_inside(self.folder, self.out)
        self.folder.mkdir(exist_ok=True)
        if rank <= max(map(_rank, self._files(k)), default=NO_RANK):
            return
        self._create(k, write)
        # Of several runs that end at the same time, the last one to get here sees the files of all.
        ranks = {file: _rank(file) for file in self._files(k)}
        for file, other in ranks.items():
            if other < max(ranks.values()):
                with suppress(FileNotFoundError):  # another process has removed it
                    remove(file, inside=self.out) if _about(file) else self._set_aside(file)
        sync(self.folder)

    def load(self, digest: str, note: Callable[[str], None]) -> dict[str, Tensor] | None:
        """The trained parameters of a run, by name; None if they are not stored.

        A damaged file is set aside. ``note`` is called with a sentence about it.
        """
        for file in self._files():
            require_inside(file, self.out)
            about = _about(file)
            if about and about["run"] != digest:
                continue
            if about and _is_intact(file):
                return load_file(file)
            note(self._set_aside(file))
        return None

    def remove(self) -> None:
        """Remove all stored parameters."""
        require_inside(self.folder, self.out)
        for file in [*self.folder.glob("*")]:
            if NAME.fullmatch(file.name) or is_left_over(file):
                remove(file, inside=self.out)
        with suppress(OSError):  # there is none, or it has files of others
            self.folder.rmdir()


def not_stored(run: Run, error: Exception) -> str:
    """A sentence about trained parameters that could not be stored."""
    return (
        f"The trained parameters of {run.recipe}, seed {run.seed} could not be stored ({error}). If this run is "
        "recommended, it is trained again."
    )


def _k(file: Path) -> str:
    """What the name of a file says about its k."""
    return file.name.rsplit(".", 2)[0]


def _rank(file: Path) -> Rank:
    """The train size, the score and the negative seed of the saved run; lower than any run if the file is damaged."""
    about = _about(file)
    return (int(about["train_size"]), float(about["score"]), -int(about["seed"])) if about else NO_RANK


def _about(file: Path) -> dict[str, str]:
    """The metadata of a file; empty if the file is damaged, or if another process has just removed it."""
    try:
        with safe_open(file, "pt") as opened:
            about = dict(opened.metadata() or {})
        usable = (
            isfinite(float(about["score"])) and int(about["train_size"]) >= 0 <= int(about["seed"]) and about["run"]
        )
    except (*UNUSABLE, KeyError, ValueError, RuntimeError):  # the last one if the file goes while it is opened
        return {}
    return about if usable else {}
