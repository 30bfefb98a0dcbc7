"""Files of tensors beside the results: checkpoints of runs under way, and the trained parameters of the best run of each k.

    checkpoints/<run>.<steps>.<checksum>.safetensors
    weights/<k>.<run>.<checksum>.safetensors

Both hold a state: tensors, and JSON for what is no tensor. Nothing is pickled. A file is written under a temporary name, flushed
to disk and renamed. Files of lower rank (fewer steps, or a worse run) of the same run or k are removed only after that.
"""

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from frostline.data.files import file_checksum, is_left_over, publish_tensors, remove, require_inside, sync
from frostline.sweeps.results.store import DAMAGED, set_aside
from frostline.training.run import Run, State

TENSOR, ARRAY, NUMBER = "$tensor", "$array", "$number"  # keys of leaves that JSON cannot express
UNUSABLE = (OSError, SafetensorError)  # what writing or reading a file can raise
DAMAGE = (SafetensorError, KeyError, TypeError, ValueError, RecursionError)  # what reading a damaged file can raise
NAME = re.compile(r"[\w.-]+\.[0-9a-f]{32}\.safetensors")
Rank = tuple[float, ...]  # of two files of a run or of a k, the one with the higher rank counts


@dataclass(frozen=True)
class TensorFiles:
    """Files in the folder ``name`` of a sweep. Their names begin with a run or a k, and end with their checksums."""

    out: Path
    name: str

    @property
    def folder(self) -> Path:
        return self.out / self.name

    def of(self, name: str = "*") -> list[Path]:
        """The files of a run or of a k."""
        return sorted(file for file in self.folder.glob(f"{name}.*.safetensors") if file.is_file())  # a pipe has no end

    def publish(self, name: str, rank: Rank, about: Mapping[str, Any], write: Callable[[Path], object]) -> None:
        """Add the file that ``write`` writes, and remove those that it replaces.

        Of several processes that do so at the same time, the last one to get here sees the files of all.

        Raises:
            OSError, SafetensorError: It cannot be written. The older files are kept.
            FrostlineError: The folder leads out of the sweep's.
        """
        require_inside(self.folder, self.out)
        self.folder.mkdir(parents=True, exist_ok=True)
        target = publish_tensors(self.folder, f"{name}.", write, inside=self.out)
        for file in self.of(_group(target)):
            if file == target:
                continue
            if (other := _header(file)) is None:
                with suppress(FileNotFoundError):  # another process has removed it
                    self._set_aside(file)
            elif other[0] <= rank or other[1] != about:  # one that belongs to something else is of no use any more
                remove(file, inside=self.out)
            else:
                remove(target, inside=self.out)
        sync(self.folder)

    def save(self, name: str, rank: Rank, about: Mapping[str, Any], state: State) -> None:
        """Keep a state instead of those of lower rank. ``about`` identifies what it belongs to, in texts and numbers.

        Raises:
            OSError, SafetensorError: It cannot be written. The older files are kept.
            FrostlineError: The folder leads out of the sweep's.
        """
        tensors: dict[str, Tensor] = {}
        metadata = {"state": _to_json(state, tensors), "rank": rank, "about": about}
        texts = {key: json.dumps(value) for key, value in metadata.items()}
        self.publish(name, rank, about, lambda part: save_file(tensors, part, texts))

    def load(self, of: str, about: Mapping[str, Any], note: Callable[[str], None]) -> State | None:
        """The state of the highest rank that belongs to ``about``; None if there is none.

        A damaged file is set aside. ``note`` is called with a sentence about it.
        """
        found = {file: _header(file) for file in self.of(of)}
        for file in sorted(found, key=lambda file: found[file] or ((math.inf,), {}), reverse=True):
            require_inside(file, self.out)
            try:
                if not file.name.endswith(f".{file_checksum(file)}.safetensors"):
                    raise ValueError("its checksum is wrong")
                with safe_open(file, "pt") as opened:
                    metadata = opened.metadata()
                    tensors = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
                if json.loads(metadata["about"]) == dict(about):
                    state: State = _from_json(json.loads(metadata["state"]), tensors)
                    return state
            except FileNotFoundError:  # another process has replaced it, or ended the run
                continue
            except OSError as error:  # it may be readable the next time
                note(f"{file} cannot be read ({error.strerror}), so it is not used.")
            except DAMAGE:
                note(self._set_aside(file))
        return None

    def _set_aside(self, file: Path) -> str:
        """A sentence about a damaged file, which is moved away."""
        return f"{file} is damaged: it is now in {set_aside(file, self.out / DAMAGED)}."

    def remove(self, files: Iterable[Path]) -> None:
        """Remove these files, and the folder if none is left."""
        for file in files:
            remove(file, inside=self.out)
        with suppress(OSError):  # it has other files, or another process has removed it
            self.folder.rmdir()  # empty, if at all


def _group(file: Path) -> str:
    """The run or the k of a file."""
    return file.name.split(".")[0]


def _header(file: Path) -> tuple[Rank, dict[str, Any]] | None:
    """The rank of a file, and what it belongs to; None if it is damaged, or if another process has just removed it."""
    try:
        with safe_open(file, "pt") as opened:
            metadata = opened.metadata() or {}
        rank, about = tuple(map(float, json.loads(metadata["rank"]))), dict(json.loads(metadata["about"]))
    except (OSError, RuntimeError, *DAMAGE):  # a RuntimeError if the file goes while it is opened
        return None
    return (rank, about) if rank and all(map(math.isfinite, rank)) else None


@dataclass(frozen=True)
class BestWeights:
    """The trained parameters of the best run of each k.

    These files save time and are not needed for correctness. A run is a pure function of its settings, so training it again gives
    the same parameters.

    More examples win, then a higher score, then an earlier seed. The answer recommends a run by the same rule, so the order in
    which concurrent runs end does not matter.
    """

    out: Path

    @property
    def files(self) -> TensorFiles:
        """Their files."""
        return TensorFiles(self.out, "weights")

    @property
    def folder(self) -> Path:
        """The folder of their files."""
        return self.files.folder

    def save_if_best(self, run: Run, score: float, parameters: Mapping[str, Tensor]) -> None:
        """Save the trained parameters of ``run`` if it is better than the saved run of the same k.

        Raises:
            OSError, SafetensorError: The file cannot be written.
        """
        if self._is_best(run, score):
            self.files.save(_name(run), _rank(run, score), {}, dict(parameters))

    def add(self, run: Run, score: float, content: bytes) -> None:
        """Save the content of the file of ``run`` from another folder, by the same rule.

        Raises:
            OSError: The file cannot be written.
        """
        if self._is_best(run, score):
            self.files.publish(_name(run), _rank(run, score), {}, lambda part: part.write_bytes(content))

    def ranks(self) -> dict[str, Rank]:
        """The rank of the saved run of each k, by what the name of its file begins with."""
        # a killed process may have left a second file of a k: the best one comes last
        return {_group(file): rank for file, rank in sorted(self._saved().items(), key=lambda saved: saved[1])}

    def better_than(self, ranks: Mapping[str, Rank]) -> dict[str, tuple[float, bytes]]:
        """The score and the file of each saved run that has a higher rank than the run of the same k here, by digest."""
        return {
            file.name.split(".")[1]: (rank[1], file.read_bytes())
            for file, rank in self._saved().items()
            if rank > ranks.get(_group(file), ())
        }

    def load(self, digest: str, note: Callable[[str], None]) -> dict[str, Tensor] | None:
        """The trained parameters of a run, by name; None if they are not stored.

        A damaged file is set aside. ``note`` is called with a sentence about it.
        """
        return self.files.load(f"*.{digest}", {}, note)

    def remove(self) -> None:
        """Remove all stored parameters."""
        require_inside(self.folder, self.out)
        self.files.remove([file for file in self.folder.glob("*") if NAME.fullmatch(file.name) or is_left_over(file)])

    def _is_best(self, run: Run, score: float) -> bool:
        require_inside(self.folder, self.out)
        return all(_rank(run, score) > rank for rank in self._saved(_k(run)).values())

    def _saved(self, k: str = "*") -> dict[Path, Rank]:
        """The files of a k, or of all, that can be read, and their ranks."""
        return {file: header[0] for file in self.files.of(k) if (header := _header(file))}


def _name(run: Run) -> str:
    """What the name of a run's file begins with: k and digest."""
    return f"{_k(run)}.{run.digest}"


def _k(run: Run) -> str:
    """The k of a run, as the names of files have it."""
    return run.recipe.replace(" ", "-")


def _rank(run: Run, score: float) -> Rank:
    return run.train_size, score, -run.seed


def not_stored(run: Run, error: Exception) -> str:
    """A sentence about trained parameters that could not be stored."""
    return (
        f"The trained parameters of {run.recipe}, seed {run.seed} could not be stored ({error}). If this run is "
        "recommended, it is trained again."
    )


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
