"""The files of a sweep: one immutable file for each result. Everything else is rebuilt from them.

    sweep.toml                    the settings, with defaults
    runs/<digest>.json            the result of a run; its logits are in <digest>.predictions.safetensors
    runs/<digest>.test.json       its test score, with logits in <digest>.test.safetensors; not read before k is chosen
    runs/<digest>.failed.json     why a run ended in an error; the run is repeated by the next call

A file is written under a temporary name, synced to disk, and published with a hard link, which never overwrites. A published
result is therefore complete. To resume a sweep, to add runs to it or to merge two folders, it is enough to train the runs whose
file does not exist.
"""

import json
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file, save

from frostline import FrostlineError
from frostline.data.files import create_file, json_bytes, replace_file
from frostline.statistics.predictions import expand_to_all_rows
from frostline.sweep.toml import to_toml

if TYPE_CHECKING:  # Result imports torch, which reading a folder does not need
    from frostline.training.result import Result
    from frostline.training.specification import RunSpec


@dataclass(frozen=True)
class Store:
    """The results in the folder of a sweep."""

    out: Path

    @property
    def runs(self) -> Path:
        return self.out / "runs"

    def publish(self, digest: str, result: "Result") -> None:
        """Write the files of a result. ``<digest>.json`` comes last, because its existence means that the run is done."""
        if result.test_facts is not None and result.test_logits is not None:
            create_file(
                self.runs / f"{digest}.test.safetensors", save({"test": np.ascontiguousarray(result.test_logits)})
            )
            create_file(self.runs / f"{digest}.test.json", json_bytes(result.test_facts))
        if result.logits:
            arrays = {name: np.ascontiguousarray(array) for name, array in result.logits.items()}
            create_file(self.runs / f"{digest}.predictions.safetensors", save(arrays))
        create_file(self.runs / f"{digest}.json", json_bytes(result.facts))
        (self.runs / f"{digest}.failed.json").unlink(missing_ok=True)

    def fail(self, digest: str, facts: Mapping[str, Any]) -> None:
        """Record why a run ended in an error. This replaces an older reason."""
        replace_file(self.runs / f"{digest}.failed.json", json_bytes(facts))

    def results(self) -> dict[str, dict[str, Any]]:
        """Every result in the folder, by digest."""
        return {path.stem: self._read(path) for path in self._files("*.json") if path.name.count(".") == 1}

    def result(self, digest: str) -> dict[str, Any]:
        """The result of one run."""
        return self._read(self.runs / f"{digest}.json")

    def failures(self) -> dict[str, dict[str, Any]]:
        """The records of all runs that ended in an error and have no result, by digest."""
        found = {path.name.split(".")[0]: path for path in self._files("*.failed.json")}
        return {digest: self._read(p) for digest, p in found.items() if not (self.runs / f"{digest}.json").exists()}

    def has(self, digest: str) -> bool:
        return (self.runs / f"{digest}.json").exists()

    def predictions(self, digest: str) -> dict[str, NDArray[np.float32]]:
        """Logits of a run on the rows that it was scored on: ``validation_best`` and ``validation_last``, ``[rows, C]``."""
        return self._arrays(self.runs / f"{digest}.predictions.safetensors")

    def predictions_on_all_rows(
        self, run: "RunSpec", folds: NDArray[np.int64] | None, split: str = "validation_best"
    ) -> NDArray[np.float32]:
        """Logits of a run on all rows of a split, ``[rows, C]``; NaN on rows that it was not scored on.

        Args:
            run: The run.
            folds: The fold of each validation row; None without folds.
            split: ``validation_best``, ``validation_last``, or another split, which has no folds.
        """
        found = self.predictions(run.digest)[split]
        if folds is None or split not in ("validation_best", "validation_last"):
            return found
        return expand_to_all_rows(found, folds == run.fold)

    def test(self, digest: str) -> tuple[dict[str, Any], NDArray[np.float32]] | None:
        """Score and logits on the test set; None if there is no test set."""
        path = self.runs / f"{digest}.test.json"
        if not path.exists():
            return None
        return self._read(path), self._arrays(self.runs / f"{digest}.test.safetensors")["test"]

    def write_spec(self, values: Mapping[str, Any]) -> None:
        """Write sweep.toml."""
        replace_file(self.out / "sweep.toml", to_toml(values).encode())

    def read_spec(self) -> dict[str, Any] | None:
        """The contents of sweep.toml; None if it does not exist.

        Raises:
            FrostlineError: The file cannot be read or is damaged.
        """
        path = self.out / "sweep.toml"
        try:
            return tomllib.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        except OSError as error:
            raise FrostlineError(f"{path} cannot be read ({error.strerror}): choose another --out.") from error
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise FrostlineError(f"{path} is damaged ({error}): restore it, or choose another --out.") from error

    def _files(self, pattern: str) -> Iterable[Path]:
        return sorted(self.runs.glob(pattern))

    def _read(self, path: Path) -> dict[str, Any]:
        try:
            facts: dict[str, Any] = json.loads(path.read_bytes())
            if facts["digest"] != path.name.split(".")[0]:
                raise ValueError("it belongs to another run")
        except (ValueError, KeyError, TypeError) as error:
            raise _damaged(path, error) from error
        return facts

    def _arrays(self, path: Path) -> dict[str, NDArray[np.float32]]:
        try:
            return load_file(path)
        except (OSError, SafetensorError) as error:
            raise _damaged(path, error) from error


def _damaged(path: Path, error: Exception) -> FrostlineError:
    files_of_the_run = path.with_name(f"{path.name.split('.')[0]}.*")
    return FrostlineError(
        f"{path} is damaged ({type(error).__name__}: {error}): delete {files_of_the_run} and run the sweep's command "
        "again; only that run is repeated."
    )
