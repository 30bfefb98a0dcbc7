"""The trained parameters of the best run of each k, stored until the recommended model is saved."""

import os
import shutil
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from filelock import FileLock
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from frostline.training.specification import RunSpec

UNUSABLE = (OSError, SafetensorError)  # what writing or reading a file can raise


@dataclass(frozen=True)
class BestWeights:
    """A folder with one file for each k: the trained parameters of its best run.

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
        file = self.folder / f"{run.trainable.replace(' ', '-')}.safetensors"
        self.folder.mkdir(exist_ok=True)
        with FileLock(self.folder / ".lock"):  # several runs may end at the same time
            if (run.train_size, score, -run.seed) <= self._rank(file):
                return
            part = file.with_name(f".{file.name}.{uuid.uuid4().hex[:8]}.part")
            about = {"run": run.digest, "train_size": str(run.train_size), "score": repr(score), "seed": str(run.seed)}
            try:
                save_file({name: p.detach().cpu().contiguous() for name, p in parameters.items()}, part, about)
                os.replace(part, file)
            finally:
                part.unlink(missing_ok=True)

    def load(self, digest: str) -> dict[str, Tensor] | None:
        """The trained parameters of a run, by name; None if they are not stored, or if their file is damaged."""
        for file in sorted(self.folder.glob("*.safetensors")):
            try:
                if _about(file)["run"] == digest:
                    return load_file(file)
            except UNUSABLE:
                continue
        return None

    def remove(self) -> None:
        """Remove all stored parameters."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _rank(self, file: Path) -> tuple[int, float, int]:
        """The train size, the score and the negative seed of the saved run; lower than any run if there is none."""
        try:
            about = _about(file)
            return int(about["train_size"]), float(about["score"]), -int(about["seed"])
        except (*UNUSABLE, KeyError):
            return (0, 0.0, 0)


def _about(file: Path) -> dict[str, str]:
    """The metadata of a file."""
    with safe_open(file, "pt") as opened:
        return dict(opened.metadata())
