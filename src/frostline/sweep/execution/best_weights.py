"""What the best run of each k has learned so far, kept until the recommended model is saved."""

import os
import shutil
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from frostline.training.specification import RunSpec

UNUSABLE = (OSError, SafetensorError)  # of a file that cannot be written or read


@dataclass(frozen=True)
class BestWeights:
    """A folder with one file for each k: the trained parameters of the run with most examples, and of those of the best.

    It saves training the recommended run a second time, and nothing depends on it: a run is a pure function of its
    specification, so what is not here can be had again.
    """

    folder: Path

    def offer(self, run: RunSpec, score: float, parameters: Mapping[str, Tensor]) -> None:
        """Save the trained parameters of ``run`` if it is better than the saved run.

        More examples win; then a higher score; then an earlier seed. The answer chooses in the same way, so the order in which
        concurrent runs end does not matter.

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

    def of(self, digest: str) -> dict[str, Tensor] | None:
        """The trained parameters of a run by name; None where they were not cached, or are damaged."""
        for file in sorted(self.folder.glob("*.safetensors")):
            try:
                if _about(file)["run"] == digest:
                    return load_file(file)
            except UNUSABLE:
                continue  # to be had again by training
        return None

    def drop(self) -> None:
        """Remove them all."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _rank(self, file: Path) -> tuple[int, float, int]:
        try:
            about = _about(file)
            return int(about["train_size"]), float(about["score"]), -int(about["seed"])
        except (*UNUSABLE, KeyError):
            return (0, 0.0, 0)


def _about(file: Path) -> dict[str, str]:
    with safe_open(file, "pt") as opened:
        return dict(opened.metadata())
