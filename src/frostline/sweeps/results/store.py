"""The results of a sweep: one immutable folder for each run. Everything else is rebuilt from them.

    sweep.toml                               the settings, with defaults
    runs/<digest>/result.json                the record of a run
    runs/<digest>/predictions.safetensors    its logits
    runs/<digest>/test.json                  its test score, with logits in test.safetensors; not read before k is chosen
    runs/<digest>.failed.json                why a run ended in an error
    damaged/, retried/                       what no longer counts, because it was damaged or its run is trained again

The folder of a result is written under a temporary name, flushed to disk, and published with a rename, which never replaces
another result. A published result is therefore complete. To resume a sweep, to add runs to it or to merge two folders, it is
enough to train the runs whose folder does not exist.

``result.json`` has a checksum of itself and of the other files. A file that is not what was written, or that does not have the
form of a record, is recognized when it is read. Its result is then set aside in ``damaged/``.
"""

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
    is_left_over,
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
    validated,
)
from frostline.sweeps.toml import to_toml
from frostline.training.result import SCHEMA_VERSION, Failure, RunRecord, TestRecord

if TYPE_CHECKING:
    from frostline.training.result import Result
    from frostline.training.run import Run

T = TypeVar("T")
RECORD, PREDICTIONS = "result.json", "predictions.safetensors"
TEST_RECORD, TEST_PREDICTIONS = "test.json", "test.safetensors"
FAILED, SEARCH = ".failed.json", "search.json"
ALTERNATIVES_FILE = "alternatives.safetensors"
FAILURE_BYTES = 2**20  # of a record of a failure
MISSING = (FileNotFoundError, NotADirectoryError, IsADirectoryError)
DAMAGE = (ValueError, KeyError, TypeError, RecursionError, SafetensorError)  # what reading a damaged file can raise
DAMAGED = "damaged"  # files whose content is not what was written
RETRIED = "retried"  # results and failures of runs that are trained again
TOLERANCE = 1e-5  # of predictions, relative to the largest value: that of stacked runs and of the exactness check


class GoneError(FrostlineError):
    """A file of a sweep is not there, maybe because another process has set it aside."""


class DamagedError(FrostlineError):
    """A file of a sweep was damaged and has been set aside."""


@dataclass(frozen=True)
class Store:
    """The results in the folder of a sweep.

    Methods that read a result verify it first. If it is damaged, they set it aside and raise a FrostlineError, which says so.
    """

    out: Path

    @property
    def runs(self) -> Path:
        return self.out / "runs"

    def publish(self, result: "Result") -> bool:
        """Publish a result. Returns False, and changes nothing, if the run has one."""
        files: dict[str, bytes] = {}
        if result.logits:
            files[PREDICTIONS] = save({name: np.ascontiguousarray(array) for name, array in result.logits.items()})
        if result.test is not None and result.test_logits is not None:
            files[TEST_RECORD] = json_bytes(result.test.model_dump())
            files[TEST_PREDICTIONS] = save({"test": np.ascontiguousarray(result.test_logits)})
        sums = {name: checksum(content) for name, content in files.items()}
        record = result.record.model_copy(update={"files": sums})
        return self.add(record.digest, {**files, RECORD: seal(record.model_dump(mode="json"))})

    def add(self, digest: str, files: Mapping[str, bytes]) -> bool:
        """Publish the files of a result, which ends an older failure. Returns False, and changes nothing, if the run has one."""
        created = create_folder(self._result(digest), files, inside=self.out)
        with suppress(FileNotFoundError):
            set_aside(self._failure(digest), self.out / RETRIED)
        return created

    def fail(self, failure: Failure) -> None:
        """Record why a run ended in an error. This replaces an older reason."""
        replace_file(self._failure(failure.digest), seal(failure.model_dump(mode="json")), inside=self.out)

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
            paths += [self._result(one) for one in done if self.result(one).outcome == "diverged"]
        for path in paths:
            with suppress(FileNotFoundError):  # another process has set it aside
                set_aside(path, self.out / RETRIED)

    def files(self, digest: str) -> dict[str, bytes]:
        """The files of a result, by name."""
        return self._intact(self._result(digest), _read_all)

    def results(self) -> dict[str, RunRecord]:
        """Every result in the folder, by digest."""
        return {digest: self.result(digest) for digest in sorted(self.done())}

    def result(self, digest: str) -> RunRecord:
        """The result of one run."""
        return self._intact(self._result(digest), _read_record)

    def failures(self) -> dict[str, Failure]:
        """The records of all runs that ended in an error and have no result, by digest."""
        found = {digest: self.record(digest) for digest in sorted(self._in_state("failed"))}
        # Another process may have trained a run, or set its record aside, since the folder was listed.
        return {digest: one for digest, one in found.items() if isinstance(one, Failure)}

    def record(self, digest: str) -> RunRecord | Failure | None:
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
        return self._intact(self._result(digest), lambda path: load(_read_file(path, PREDICTIONS)))

    def predictions_on_all_rows(
        self, run: "Run", folds: NDArray[np.int64] | None, split: str = "validation_best"
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

    def test(self, digest: str) -> tuple[TestRecord, NDArray[np.float32]] | None:
        """Score and logits on the test set; None if there is no test set, or if the run has no result."""
        return self._intact(self._result(digest), _read_test) if self.has(digest) else None

    def check(self) -> Iterator[str]:
        """Verify every file of every result.

        Yields:
            A sentence for each one that is damaged and was therefore set aside.
        """
        results = [(self._result(digest), _read_all) for digest in sorted(self.done())]
        failures = [(path, _read_failure) for path in sorted(self.runs.glob(f"[!.]*{FAILED}"))]
        readers: list[tuple[Path, Callable[[Path], object]]] = [*results, *failures]
        for path, read in readers:
            try:
                self._intact(path, read)
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
        raise DamagedError(
            f"{path} is damaged ({reason}): it is now in {target}, and the sweep's command trains that run again."
        ) from damage


def _read_record(path: Path) -> RunRecord:
    facts, digest = unseal(read_inside(path / RECORD, path)), path.name
    if isinstance(written := facts.get("schema_version"), int) and written != SCHEMA_VERSION:
        raise FrostlineError(
            f"The result of the run {digest} has version {written} of the format, and this version of frostline reads "
            f"{SCHEMA_VERSION}: install the version that wrote it, or start again in another folder."
        )
    record = validated(RunRecord, facts, strict=None)
    if record.digest != digest:
        raise ValueError(f"{RECORD} belongs to another run")
    if not record.files.keys() <= {PREDICTIONS, TEST_RECORD, TEST_PREDICTIONS}:
        raise ValueError(f"{RECORD} names files that no result has")
    return record


def _read_file(path: Path, name: str, record: RunRecord | None = None) -> bytes:
    """The content of another file in the folder of a result, verified."""
    content = read_inside(path / name, path, ARRAY_BYTES)
    if checksum(content) != (record or _read_record(path)).files[name]:
        raise ValueError(f"the checksum of {name} is wrong")
    return content


def _read_all(path: Path) -> dict[str, bytes]:
    record = _read_record(path)
    others = {name: _read_file(path, name, record) for name in record.files}
    return {**others, RECORD: read_inside(path / RECORD, path)}


def _read_test(path: Path) -> tuple[TestRecord, NDArray[np.float32]] | None:
    record = _read_record(path)
    if TEST_RECORD not in record.files:
        return None
    on_test = TestRecord.model_validate_json(_read_file(path, TEST_RECORD, record))
    return on_test, load(_read_file(path, TEST_PREDICTIONS, record))["test"]


def _read_failure(path: Path) -> Failure:
    return validated(Failure, unseal(read_inside(path, path.parent, FAILURE_BYTES)), strict=None)


def is_before_first_run(folder: Path) -> bool:
    """Whether a folder has nothing but what a search writes before its first run, such as locks."""
    own = (SEARCH, ALTERNATIVES_FILE)
    return folder.is_dir() and all(
        is_left_over(one) or one.match(".*.lock") or one.name in own for one in folder.iterdir()
    )


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
        return next(name for name in names if move(path, name, inside=out))
    except FileNotFoundError:
        raise
    except OSError as error:
        raise FrostlineError(f"{path} cannot be moved to {folder} ({error.strerror}): move it yourself.") from error


def other_result(run: "Run", store: Store, logits: Mapping[str, NDArray[Any]]) -> str:
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
    """How the predictions of two results of one run differ; empty if they agree, as the exactness contract promises."""
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
