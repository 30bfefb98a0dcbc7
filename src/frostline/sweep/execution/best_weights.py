"""The trained parameters of the best run of each k, stored until the recommended model is saved."""

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Self

from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from frostline.data.files import is_left_over, move, remove, require_inside, sync, temporary_path
from frostline.data.sealed import file_checksum
from frostline.sweep.results.set_aside import DAMAGED, set_aside
from frostline.training.specification import RunSpec

Rank = tuple[int, float, int]  # the train size, the score and the negative seed of a run: the highest is the best
NO_RANK: Rank = (0, 0.0, 0)  # lower than that of any run
NAME = re.compile(r"[\w.-]+\.[0-9a-f]{32}\.safetensors")  # of a file: k and checksum
UNUSABLE = (OSError, SafetensorError)  # what writing or reading a file can raise


@dataclass(frozen=True)
class BestWeights:
    """A folder with one file for each k: the trained parameters of its best run. The file's name ends with its checksum.

    These files save time and are not needed for correctness. A run is a pure function of its settings, so training it again gives
    the same parameters.
    """

    folder: Path

    @classmethod
    def in_folder(cls, out: Path) -> Self:
        """The trained parameters in the folder of a sweep."""
        return cls(out / "weights")

    def save_if_best(self, run: RunSpec, score: float, parameters: Mapping[str, Tensor]) -> None:
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

    def add(self, run: RunSpec, score: float, content: bytes) -> None:
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

    def _save_if_best(self, run: RunSpec, rank: Rank, write: Callable[[Path], object]) -> None:
        out = self.folder.parent
        k = run.recipe.replace(" ", "-")
        require_inside(self.folder, out)
        self.folder.mkdir(exist_ok=True)
        if rank <= max(map(_rank, self._files(k)), default=NO_RANK):
            return
        with temporary_path(self.folder / k, inside=out) as part:
            write(part)
            sync(part)
            move(part, self.folder / f"{k}.{file_checksum(part)}.safetensors", inside=out)
        # Of several runs that end at the same time, the last one to get here sees the files of all.
        ranks = {file: _rank(file) for file in self._files(k)}
        for file, other in ranks.items():
            if other < max(ranks.values()):
                with suppress(FileNotFoundError):  # another process has removed it
                    remove(file, inside=out) if _about(file) else self._set_aside(file)
        sync(self.folder)

    def _files(self, k: str = "*") -> list[Path]:
        return sorted(file for file in self.folder.glob(f"{k}.*.safetensors") if file.is_file())  # a pipe has no end

    def load(self, digest: str, note: Callable[[str], None]) -> dict[str, Tensor] | None:
        """The trained parameters of a run, by name; None if they are not stored.

        A damaged file is set aside. ``note`` is called with a sentence about it.
        """
        for file in self._files():
            require_inside(file, self.folder.parent)
            about = _about(file)
            if about and about["run"] != digest:
                continue
            if about and file.name.endswith(f".{file_checksum(file)}.safetensors"):
                return load_file(file)
            note(f"{file} is damaged: it is now in {self._set_aside(file)}.")
        return None

    def remove(self) -> None:
        """Remove all stored parameters."""
        require_inside(self.folder, self.folder.parent)
        for file in [*self.folder.glob("*")]:
            if NAME.fullmatch(file.name) or is_left_over(file):
                remove(file, inside=self.folder.parent)
        with suppress(OSError):  # there is none, or it has files of others
            self.folder.rmdir()

    def _set_aside(self, file: Path) -> Path:
        return set_aside(file, self.folder.parent / DAMAGED)


def not_stored(run: RunSpec, error: Exception) -> str:
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
