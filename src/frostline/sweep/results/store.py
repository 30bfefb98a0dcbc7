"""The files of a result: their names, and how each is verified when it is read."""

import json
import os
import tomllib
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load, save

from frostline import FrostlineError
from frostline.data.files import (
    ARRAY_BYTES,
    checksum,
    create_folder,
    json_bytes,
    make_folder,
    move,
    read_inside,
    replace_file,
    require_inside,
    seal,
    seal_toml,
    unseal,
    unseal_toml,
)
from frostline.sweep.results.search_record import FILE as SEARCH
from frostline.sweep.toml import to_toml

if TYPE_CHECKING:
    from frostline.training.result import Result
    from frostline.training.specification import RunSpec

RECORD, PREDICTIONS = "result.json", "predictions.safetensors"
TEST_RECORD, TEST_PREDICTIONS = "test.json", "test.safetensors"


def require_intact(digest: str, files: Mapping[str, bytes]) -> None:
    """Require that these are the files of a result of this run, and that no byte of them is changed.

    Raises:
        ValueError: They are not.
    """
    facts = _record(files.get(RECORD, b""), digest)
    if files.keys() != {RECORD, *facts["files"]}:
        raise ValueError(f"{RECORD} names other files than there are")
    for name in facts["files"]:
        _require_checksum(facts, name, files[name])


def read_record(path: Path) -> dict[str, Any]:
    """The record in the folder of a result, verified."""
    return _record(read_inside(path / RECORD, path), path.name)


def read_all(path: Path) -> dict[str, bytes]:
    """Every file in the folder of a result, verified."""
    others = {name: _read_file(path, name) for name in read_record(path)["files"]}
    return {**others, RECORD: read_inside(path / RECORD, path)}


def read_predictions(path: Path) -> dict[str, NDArray[np.float32]]:
    """The logits of a result, by split."""
    return load(_read_file(path, PREDICTIONS))


def read_test(path: Path) -> tuple[dict[str, Any], NDArray[np.float32]] | None:
    """The score and the logits on the test set; None if there is no test set."""
    if TEST_RECORD not in read_record(path)["files"]:
        return None
    record: dict[str, Any] = json.loads(_read_file(path, TEST_RECORD))
    return record, load(_read_file(path, TEST_PREDICTIONS))["test"]


def _record(content: bytes, digest: str) -> dict[str, Any]:
    """The record of a result, verified."""
    facts = unseal(content)
    if facts["digest"] != digest:
        raise ValueError(f"{RECORD} belongs to another run")
    if not set(facts["files"]) <= {PREDICTIONS, TEST_RECORD, TEST_PREDICTIONS}:
        raise ValueError(f"{RECORD} names files that no result has")
    return facts


def _require_checksum(facts: Mapping[str, Any], name: str, content: bytes) -> None:
    if checksum(content) != facts["files"][name]:
        raise ValueError(f"the checksum of {name} is wrong")


def _read_file(path: Path, name: str) -> bytes:
    """The content of another file in the folder of a result, verified."""
    facts, content = read_record(path), read_inside(path / name, path, ARRAY_BYTES)
    _require_checksum(facts, name, content)
    return content


DAMAGED = "damaged"  # files whose content is not what was written
RETRIED = "retried"  # results and failures of runs that are trained again


def set_aside(path: Path, folder: Path) -> Path:
    """Move a file or a folder of a sweep into ``folder``, beside it, and return its new path. An older one there is kept.

    Raises:
        FrostlineError: It cannot be moved.
        FileNotFoundError: It does not exist, for example because another process has set it aside.
    """
    if not path.exists():
        raise FileNotFoundError(path)
    out = folder.parent
    make_folder(folder, inside=out)
    names = (folder / f"{path.name}{f'.{n}' if n else ''}" for n in count())
    try:
        target = next(name for name in names if move(path, name, inside=out, replace=False))
    except FileNotFoundError:
        raise
    except OSError as error:
        raise FrostlineError(f"{path} cannot be moved to {folder} ({error.strerror}): move it yourself.") from error
    return target


T = TypeVar("T")
FAILED = ".failed.json"
FAILURE_BYTES = 2**20  # of a record of a failure
MISSING = (FileNotFoundError, NotADirectoryError, IsADirectoryError)
DAMAGE = (ValueError, KeyError, TypeError, RecursionError, SafetensorError)  # what reading a damaged file can raise


@dataclass(frozen=True)
class Store:
    """The results in the folder of a sweep.

    Methods that read a result verify it first. If it is damaged, they set it aside and raise a FrostlineError, which says so.
    """

    out: Path

    @property
    def runs(self) -> Path:
        return self.out / "runs"

    def publish(self, digest: str, result: "Result") -> bool:
        """Publish a result. Returns False, and changes nothing, if the run has one."""
        files: dict[str, bytes] = {}
        if result.logits:
            files[PREDICTIONS] = save({name: np.ascontiguousarray(array) for name, array in result.logits.items()})
        if result.test_facts is not None and result.test_logits is not None:
            files[TEST_RECORD] = json_bytes(result.test_facts)
            files[TEST_PREDICTIONS] = save({"test": np.ascontiguousarray(result.test_logits)})
        sums = {name: checksum(content) for name, content in files.items()}
        return self._create(digest, {**files, RECORD: seal({**result.facts, "files": sums})})

    def fail(self, digest: str, facts: Mapping[str, Any]) -> None:
        """Record why a run ended in an error. This replaces an older reason."""
        replace_file(self._failure(digest), seal(facts), inside=self.out)

    def retry(self, digests: Collection[str], kinds: Collection[str]) -> None:
        """Set aside what is known of the runs that ended in one of these ways, so that they are trained again.

        Args:
            digests: The runs.
            kinds: ``failed`` for runs that ended in an error, ``diverged`` for runs that diverged, or both.
        """
        paths: list[Path] = []
        if "failed" in kinds:
            paths += [self._failure(digest) for digest in sorted(self._in_state("failed") & set(digests))]
        if "diverged" in kinds:
            done = sorted(self.done() & set(digests))
            paths += [self._result(one) for one in done if self.result(one)["outcome"] == "diverged"]
        for path in paths:
            with suppress(FileNotFoundError):  # another process has set it aside
                set_aside(path, self.out / RETRIED)

    def files(self, digest: str) -> dict[str, bytes]:
        """The files of a result, by name."""
        return self._intact(self._result(digest), read_all)

    def add(self, digest: str, files: Mapping[str, bytes]) -> bool:
        """Publish the files of a result from elsewhere. Returns False, and changes nothing, if the run has one.

        Raises:
            ValueError: They are not the files of an intact result of this run.
        """
        require_intact(digest, files)
        return self._create(digest, files)

    def results(self) -> dict[str, dict[str, Any]]:
        """Every result in the folder, by digest."""
        return {digest: self.result(digest) for digest in sorted(self.done())}

    def result(self, digest: str) -> dict[str, Any]:
        """The result of one run."""
        return self._intact(self._result(digest), read_record)

    def failures(self) -> dict[str, dict[str, Any]]:
        """The records of all runs that ended in an error and have no result, by digest."""
        found = {digest: self.record(digest) for digest in sorted(self._in_state("failed"))}
        # Another process may have trained a run, or set its record aside, since the folder was listed.
        return {digest: facts for digest, facts in found.items() if facts and facts.get("status") != "done"}

    def record(self, digest: str) -> dict[str, Any] | None:
        """The result of a run, or the record of its failure; None if it has neither, or no longer."""
        path = self._failure(digest)
        try:
            if self.has(digest):
                return self.result(digest)
            return self._intact(path, _read_failure) if path.exists() else None
        except GoneError:
            return None

    def has(self, digest: str) -> bool:
        return self._result(digest).exists()

    def has_ended(self, digest: str) -> bool:
        """Whether a run has a result or ended in an error."""
        return self.has(digest) or self._failure(digest).exists()

    def states(self) -> dict[str, str]:
        """``done`` or ``failed`` for each run that has ended, by digest. Only the names of files are read.

        Raises:
            FrostlineError: ``runs`` is a file, or a link leads out of the folder.
        """
        require_inside(self.runs, self.out)
        found: dict[str, str] = {}
        try:
            with suppress(FileNotFoundError), os.scandir(self.runs) as entries:
                for entry in entries:
                    if entry.is_symlink():
                        require_inside(Path(entry.path), self.out)
                    if "." not in entry.name:
                        found[entry.name] = "done"
                    elif entry.name.endswith(FAILED) and not entry.name.startswith("."):
                        found.setdefault(entry.name.removesuffix(FAILED), "failed")
        except NotADirectoryError as error:
            raise FrostlineError(
                f"{self.runs} is not a folder: move it away, and run the sweep's command again."
            ) from error
        return found

    def done(self) -> set[str]:
        """The digests of the runs that have a result."""
        return self._in_state("done")

    def ended(self) -> set[str]:
        """The digests of the runs that have a result or ended in an error."""
        return set(self.states())

    def predictions(self, digest: str) -> dict[str, NDArray[np.float32]]:
        """Logits of a run on the rows that it was scored on: ``validation_best`` and ``validation_last``, ``[rows, C]``."""
        return self._intact(self._result(digest), read_predictions)

    def predictions_on_all_rows(
        self, run: "RunSpec", folds: NDArray[np.int64] | None, split: str = "validation_best"
    ) -> NDArray[np.float32]:
        """Logits of a run on all rows of a split, ``[rows, C]``; NaN on rows that it was not scored on.

        Args:
            run: The run.
            folds: The fold of each validation row; None without folds.
            split: ``validation_best``, ``validation_last``, or another split, which has no folds.
        """
        from frostline.statistics.predictions import expand_to_all_rows  # imports scipy, unneeded for a list

        found = self.predictions(run.digest).get(split, np.zeros(0, np.float32))
        if folds is None or split not in ("validation_best", "validation_last"):
            return found
        return expand_to_all_rows(found, folds == run.fold)

    def test(self, digest: str) -> tuple[dict[str, Any], NDArray[np.float32]] | None:
        """Score and logits on the test set; None if there is no test set, or if the run has no result."""
        return self._intact(self._result(digest), read_test) if self.has(digest) else None

    def check(self) -> Iterator[str]:
        """Verify every file of every result, and the record of a search.

        Yields:
            A sentence for each one that is damaged and was therefore set aside.
        """
        search = [path for path in (self.out / SEARCH,) if path.exists()]
        results = [self._result(digest) for digest in sorted(self.done())]
        for path in [*results, *sorted(self.runs.glob(f"[!.]*{FAILED}")), *search]:
            try:
                self._intact(path, _reader_of(path))
            except DamagedError as error:
                yield str(error)
            except GoneError:  # another process has set it aside since it was listed
                continue

    def write_spec(self, values: Mapping[str, Any]) -> None:
        """Write sweep.toml."""
        replace_file(self.out / "sweep.toml", seal_toml(to_toml(values)), inside=self.out)

    def read_spec(self) -> dict[str, Any] | None:
        """The contents of sweep.toml; None if it does not exist.

        Raises:
            FrostlineError: The file cannot be read or is damaged.
        """
        path = self.out / "sweep.toml"
        require_inside(path, self.out)
        try:
            return tomllib.loads(unseal_toml(read_inside(path, self.out)))
        except FileNotFoundError:
            return None
        except NotADirectoryError as error:
            raise FrostlineError(f"{self.out} is a file, or in a file: give a folder instead.") from error
        except OSError as error:
            raise FrostlineError(
                f"{path} cannot be read ({error.strerror}): make it readable, or start again in another folder."
            ) from error
        except (ValueError, RecursionError) as error:  # another checksum, no TOML, no UTF-8, or too large
            raise FrostlineError(
                f"{path} is damaged or was edited ({error}): restore it, or start again in another folder."
            ) from error

    def _create(self, digest: str, files: Mapping[str, bytes]) -> bool:
        """Create the folder of a result, which ends an older failure."""
        created = create_folder(self._result(digest), files, inside=self.out)
        with suppress(FileNotFoundError):
            set_aside(self._failure(digest), self.out / RETRIED)
        return created

    def _in_state(self, state: str) -> set[str]:
        return {digest for digest, found in self.states().items() if found == state}

    def _result(self, digest: str) -> Path:
        return self.runs / digest

    def _failure(self, digest: str) -> Path:
        return self.runs / f"{digest}{FAILED}"

    def _intact(self, path: Path, read: Callable[[Path], T]) -> T:
        """What ``read`` finds in ``path``. If it raises an error, ``path`` is damaged and is set aside."""
        require_inside(path, self.out)
        try:
            return read(path)
        except FrostlineError:  # a link
            raise
        except OSError as error:
            if not isinstance(error, MISSING):
                raise FrostlineError(f"{error.filename} cannot be read ({error.strerror}): correct that.") from error
            damage: Exception = error
        except DAMAGE as error:
            damage = error
        reason = f"{damage.filename} is missing" if isinstance(damage, OSError) else damage
        try:
            target = set_aside(path, self.out / DAMAGED)
        except FileNotFoundError:
            raise GoneError(f"There is no {path}: run the sweep's command again to train that run.") from damage
        again = (
            "the command of the search writes it again"
            if path.name == SEARCH
            else "the sweep's command trains that run again"
        )
        raise DamagedError(f"{path} is damaged ({reason}): it is now in {target}, and {again}.") from damage


class GoneError(FrostlineError):
    """A file of a sweep is not there, maybe because another process has set it aside."""


class DamagedError(FrostlineError):
    """A file of a sweep was damaged and has been set aside."""


def _read_sealed(path: Path) -> dict[str, Any]:
    return unseal(read_inside(path, path.parent))


def _reader_of(path: Path) -> Callable[[Path], object]:
    """What reads a result, the record of a failure, or that of a search."""
    return read_all if path.is_dir() else _read_failure if path.name.endswith(FAILED) else _read_sealed


def _read_failure(path: Path) -> dict[str, Any]:
    facts = unseal(read_inside(path, path.parent, FAILURE_BYTES))
    if not isinstance(facts.get("reason", ""), str):
        raise ValueError("its reason is no text")
    return facts


TOLERANCE = 1e-5  # relative to the largest value: that of stacked runs and of the exactness check


def other_result(run: "RunSpec", store: Store, logits: Mapping[str, NDArray[Any]]) -> str:
    """A sentence if these logits of a run differ from those that another process published first; else empty.

    If the other result is damaged or gone, the sentence says so, and the place is free.
    """
    try:
        gap = disagreement(store.predictions(run.digest), logits)
    except (DamagedError, GoneError) as error:
        return str(error)
    if not gap:
        return ""
    return (
        f"Another process has also trained {run.recipe}, seed {run.seed}, with other predictions ({gap}): its result in "
        f"{store.runs / run.digest} stands."
    )


def disagreement(one: Mapping[str, NDArray[Any]], other: Mapping[str, NDArray[Any]]) -> str:
    """How the predictions of two results of one run differ; empty if they agree within the tolerance."""
    if {name: array.shape for name, array in one.items()} != {name: array.shape for name, array in other.items()}:
        return "they are not for the same examples"
    gap = max((_gap(one[name], other[name]) for name in one), default=0.0)
    return f"by {gap:.1g} of the largest value, where {TOLERANCE:g} is allowed" if gap > TOLERANCE else ""


def _gap(one: NDArray[Any], other: NDArray[Any]) -> float:
    """The largest difference, relative to the largest value; infinite if only one of two values is a number."""
    if not one.size or np.array_equal(one, other, equal_nan=True):
        return 0.0
    known = np.isfinite(one)
    if not np.array_equal(known, np.isfinite(other)) or not np.array_equal(one[~known], other[~known], equal_nan=True):
        return float("inf")
    first, second = one[known].astype(float), other[known].astype(float)
    return float(abs(first - second).max() / max(abs(first).max(), abs(second).max(), 1e-30))
