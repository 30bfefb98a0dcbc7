"""The folder of a sweep: one immutable file for each result, and tables rebuilt from them at will.

    sweep.toml                    the specification as understood
    runs/<digest>.json            one result; its logits are in <digest>.predictions.safetensors
    runs/<digest>.test.json       its score on test, with <digest>.test.safetensors: what chooses never opens these
    runs/<digest>.failed.json     why a run ended in an error; the run is tried again next time

A file is written aside, synced, and published by a hard link, which never overwrites. So a run that is there is
whole, and resuming, growing a grid and merging folders are one operation: list what is there, run what is not.
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
from frostline.sweep.toml import to_toml

if TYPE_CHECKING:  # a result is made with torch, and kept without
    from frostline.training.result import Result


@dataclass(frozen=True)
class Store:
    """A sweep's folder."""

    out: Path

    @property
    def runs(self) -> Path:
        return self.out / "runs"

    def publish(self, digest: str, result: "Result") -> None:
        """Put a result into the folder; the file that makes it count comes last."""
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
        """Write down why a run ended in an error, in place of an older reason."""
        replace_file(self.runs / f"{digest}.failed.json", json_bytes(facts))

    def results(self) -> dict[str, dict[str, Any]]:
        """Every result in the folder, by digest."""
        return {path.stem: self._read(path) for path in self._files("*.json") if path.name.count(".") == 1}

    def result(self, digest: str) -> dict[str, Any]:
        """One of them."""
        return self._read(self.runs / f"{digest}.json")

    def failures(self) -> dict[str, dict[str, Any]]:
        """Every run that ended in an error and has no result."""
        found = {path.name.split(".")[0]: path for path in self._files("*.failed.json")}
        return {digest: self._read(p) for digest, p in found.items() if not (self.runs / f"{digest}.json").exists()}

    def has(self, digest: str) -> bool:
        return (self.runs / f"{digest}.json").exists()

    def predictions(self, digest: str) -> dict[str, NDArray[np.float32]]:
        """Logits of a run on the validation rows: ``validation_best`` and ``validation_last``, ``[rows, C]``."""
        return self._arrays(self.runs / f"{digest}.predictions.safetensors")

    def test(self, digest: str) -> tuple[dict[str, Any], NDArray[np.float32]] | None:
        """Score and logits on test, once the answer stands; None where there is no test."""
        path = self.runs / f"{digest}.test.json"
        if not path.exists():
            return None
        return self._read(path), self._arrays(self.runs / f"{digest}.test.safetensors")["test"]

    def write_spec(self, values: Mapping[str, Any]) -> None:
        """Write sweep.toml."""
        replace_file(self.out / "sweep.toml", to_toml(values).encode())

    def read_spec(self) -> dict[str, Any] | None:
        """What sweep.toml says; None where there is none.

        Raises:
            FrostlineError: it is there but cannot be read.
        """
        path = self.out / "sweep.toml"
        try:
            return tomllib.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        except OSError as error:
            raise FrostlineError(f"{path} cannot be read ({error.strerror}): choose another --out.") from error
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise FrostlineError(f"{path} is damaged ({error}): put it back, or choose another --out.") from error

    def _files(self, pattern: str) -> Iterable[Path]:
        return sorted(self.runs.glob(pattern))

    def _read(self, path: Path) -> dict[str, Any]:
        try:
            facts: dict[str, Any] = json.loads(path.read_bytes())
            if facts["digest"] != path.name.split(".")[0]:
                raise ValueError("it is of another run")
        except (ValueError, KeyError, TypeError) as error:
            raise _damaged(path, error) from error
        return facts

    def _arrays(self, path: Path) -> dict[str, NDArray[np.float32]]:
        try:
            return load_file(path)
        except (OSError, SafetensorError) as error:
            raise _damaged(path, error) from error


def _damaged(path: Path, error: Exception) -> FrostlineError:
    all_of_the_run = path.with_name(f"{path.name.split('.')[0]}.*")
    return FrostlineError(
        f"{path} is damaged ({type(error).__name__}: {error}): delete {all_of_the_run} and run the sweep's command "
        "again; only that run is repeated."
    )
