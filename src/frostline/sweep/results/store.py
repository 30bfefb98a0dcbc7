"""The folder of a sweep: one immutable file for each result, and tables rebuilt from them at will.

    sweep.toml                    the specification as understood
    runs/<digest>.json            one result; its logits are in <digest>.predictions.safetensors
    runs/<digest>.test.json       its score on test, with <digest>.test.safetensors: what chooses never opens these
    runs/<digest>.failed.json     why a run ended in an error; the run is tried again next time

A file is written aside, synced, and published by a hard link, which never overwrites. So a run that is there is
whole, and resuming, growing a grid and merging folders are one operation: list what is there, run what is not.
"""

import errno
import json
import math
import os
import re
import tomllib
import uuid
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file, save

from frostline import FrostlineError
from frostline.sweep.toml import to_toml

if TYPE_CHECKING:  # a result is made with torch, and kept without
    from frostline.training.run import Result


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
            self._link(f"{digest}.test.safetensors", save({"test": np.ascontiguousarray(result.test_logits)}))
            self._link(f"{digest}.test.json", _json(result.test_facts))
        if result.logits:
            arrays = {name: np.ascontiguousarray(array) for name, array in result.logits.items()}
            self._link(f"{digest}.predictions.safetensors", save(arrays))
        self._link(f"{digest}.json", _json(result.facts))
        (self.runs / f"{digest}.failed.json").unlink(missing_ok=True)

    def fail(self, digest: str, facts: Mapping[str, Any]) -> None:
        """Write down why a run ended in an error, in place of an older reason."""
        replace(self.runs / f"{digest}.failed.json", _json(facts))

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
        replace(self.out / "sweep.toml", to_toml(values).encode())

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

    def _link(self, name: str, content: bytes) -> None:
        """Publish a new file; one of that name that is there already stays."""
        target = self.runs / name
        aside = _write_aside(target, content)
        try:
            os.link(aside, target)
        except FileExistsError:
            pass  # another process was first; a run is a pure function of its specification
        finally:
            aside.unlink(missing_ok=True)


def _damaged(path: Path, error: Exception) -> FrostlineError:
    all_of_the_run = path.with_name(f"{path.name.split('.')[0]}.*")
    return FrostlineError(
        f"{path} is damaged ({type(error).__name__}: {error}): delete {all_of_the_run} and run the sweep's command "
        "again; only that run is repeated."
    )


def replace(path: Path, content: bytes) -> None:
    """Write a file that is rebuilt at will: whole or not at all."""
    os.replace(_write_aside(path, content), path)


def write_facts(path: Path, facts: Mapping[str, Any]) -> None:
    """Write plain facts as JSON, whole or not at all; a number that is not defined becomes null."""
    replace(path, _json(with_nulls(facts)))


def with_nulls(value: Any) -> Any:
    """Plain facts as JSON has them: None in place of a number that is not defined."""
    if isinstance(value, Mapping):
        return {name: with_nulls(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [with_nulls(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def make_folder(folder: Path) -> None:
    """Make it where there is none, and see that files can be written into it, before anything that takes long.

    Raises:
        FrostlineError: it cannot be made or written into.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise FrostlineError(f"{folder} cannot be written into ({error.strerror}): choose another --out.") from error


def _write_aside(path: Path, content: bytes) -> Path:
    aside = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with aside.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        with suppress(OSError):  # the error that is told is the first
            aside.unlink()
        if error.errno == errno.ENOSPC:
            raise FrostlineError(
                f"The disk is full: {path} could not be written. Make room and run the same command again; "
                "finished runs are kept."
            ) from error
        raise FrostlineError(f"{path} cannot be written ({error.strerror}): choose another --out.") from error
    return aside


def _json(facts: Mapping[str, Any]) -> bytes:
    return (json.dumps(facts, indent=1, ensure_ascii=False, allow_nan=False) + "\n").encode()


def file_name(words: str) -> str:
    """A name of a model or task as the name of a file or folder."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", words).strip("-.") or "data"
