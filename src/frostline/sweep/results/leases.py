"""Leases: which process trains which run, so that several processes can share the runs of one folder.

    leases/<run>.<n>.json     the n-th lease of a run: who has it, and since when
    leases/<holder>.beat      where its holder runs, and a number that it changes every few seconds
    leases/<holder>.lock      locked while the holder's process exists

A process takes a run by creating the file of its next lease. Of several processes, the file system lets one create it. The lease
with the highest number counts. A run is free if nobody has a lease, or if the holder of its last lease is dead. That is so if

- the holder has removed its beat, which it does when it ends;
- its lock is free, and it ran under the kernel of this process, where locks are reliable;
- its beat has not changed for ``silent_after`` seconds, a setting of the process that waits. It counts them from when it first
  read that beat. Two clocks are never compared, so wrong clocks and jumps do no harm.

A folder may come from others. What their leases say is therefore shown, but nothing is computed from it that could take long.

On a network file system, two properties are needed: only one process can create a file of a given name, and a file that is opened
has the content that was there when it was last closed. Locks are not needed there. If a holder that was taken for dead continues,
two processes train one run. The first published result stands.
"""

import errno
import json
import os
import platform
import re
import uuid
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from datetime import datetime
from functools import cache
from pathlib import Path
from threading import Event, Thread
from time import monotonic
from typing import Self

from filelock import Timeout

from frostline import FrostlineError
from frostline.data.files import create_file, file_lock, is_left_over, json_bytes, make_folder, read_inside, remove

SILENT_AFTER = 30.0  # seconds without a new beat, after which a holder is dead
BEAT = 5.0  # seconds between two beats
LEASE_BYTES = 64 * 2**10  # the largest size of a lease or beat that is read
HOLDER = re.compile(r"\w{1,64}", re.ASCII)
LEASE = re.compile(r"(?P<run>\w{1,64})\.(?P<number>[1-9][0-9]{0,3})\.json", re.ASCII)
LAST = 9999  # the highest number of a lease: so many processes have died with a run
MOST = {str: 256, int: 2**32}  # the longest text and the largest number in a lease


@dataclass(frozen=True)
class Lease:
    """The lease of one process on one run."""

    run: str
    number: int
    holder: str
    host: str
    pid: int
    kernel: str  # which start of which machine; empty if unknown
    since: str  # by the clock of the holder, for display
    at_a_time: int  # runs or stacks that the holder trains at the same time

    def age(self) -> float:
        """Seconds since it began, for display: clocks of two machines may differ. 0 if they differ more, or it is unreadable."""
        try:
            return max(
                0.0, (datetime.now().astimezone() - datetime.fromisoformat(self.since).astimezone()).total_seconds()
            )
        except (ValueError, OverflowError):
            return 0.0


FACTS = {field.name: field.type for field in fields(Lease)[2:]}  # in the file of a lease, whose name has run and number


@dataclass
class _Watch:
    """What this process knows of another holder."""

    beat: str | None  # None if it could not be read
    since: float  # when this beat was first read, by the clock of this process
    lives: bool  # whether it is known that the holder lived then


class Leases:
    """The leases in the folder of a sweep. Within its context, it is a holder that can take runs."""

    def __init__(self, out: Path, silent_after: float = SILENT_AFTER, *, at_a_time: int = 1) -> None:
        self.folder, self.holder, self.silent_after = out / "leases", uuid.uuid4().hex[:12], float(silent_after)
        self.at_a_time = at_a_time  # runs or stacks that this holder trains at the same time
        self.held: dict[str, int] = {}  # the runs of this holder, with the numbers of their leases
        self._watched: dict[str, _Watch] = {}
        self._dead: set[str] = set()
        self._lock = file_lock(self._file(self.holder, "lock"), timeout=0, inside=out)
        self._kernel = kernel()
        self._over = Event()
        self._thread = Thread(target=self._beat, daemon=True)

    def __enter__(self) -> Self:
        make_folder(self.folder, inside=self.folder.parent)
        try:
            self._lock.acquire()
        except OSError:  # a file system without locks
            self._kernel = ""  # nobody may take its free lock as a sign of death
        try:
            self._write_beat(0)  # after the lock, so that a beat without a lock shows that its holder is dead
        except OSError:  # a full disk
            self._lock.release()
            self._remove_signs(self.holder)
            raise
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        self.release(list(self.held))
        self._lock.release()
        folders = (self.folder, *(self.folder.with_name(name) for name in ("runs", "checkpoints")))
        own = [folder for folder in folders if not folder.is_symlink()]
        incomplete = [path for folder in own for path in folder.glob(".*.part") if is_left_over(path)]
        busy = {lease.holder for lease in self.current()}
        for holder in {path.stem for path in self.folder.glob("*.beat")} - busy:
            if holder == self.holder or holder in self._dead or self._is_dead_here(holder):
                self._remove_signs(holder)
        if not any(self.folder.glob("*.beat")):  # nobody lives who could have been writing these
            for path in incomplete:
                remove(path, inside=self.folder.parent)

    @property
    def beat(self) -> Path:
        """The file that shows, while the context is open, that this holder lives. No other folder has one of this name."""
        return self._file(self.holder, "beat").absolute()

    def take(self, groups: Iterable[Sequence[str]]) -> list[str]:
        """Take the free runs of the first group that has any, and return them. Runs that this holder has are not free."""
        last = self._last()
        for group in groups:
            if taken := [run for run in group if self._is_free(run, last) and self._create(run, last.get(run, 0) + 1)]:
                return taken
        return []

    def taken(self) -> set[str]:
        """The runs that are not free, because this holder or another one that lives has them."""
        last = self._last()
        return {run for run in last if not self._is_free(run, last)}

    def release(self, runs: Collection[str]) -> None:
        """Give these runs back, as far as this holder has them."""
        for run in self.held.keys() & runs:
            for number in range(1, self.held.pop(run) + 1):  # the last one last, so that no older one counts meanwhile
                remove(self._file(run, f"{number}.json"), inside=self.folder.parent)

    def forget(self, runs: Collection[str]) -> None:
        """Remove the leases of runs that have ended, which a killed process may have left."""
        for run, number in self._last().items():
            if run in runs and (lease := self._read(run, number)) is not None and self.is_dead(lease):
                self.held[run] = number
        self.release(runs)

    def current(self) -> list[Lease]:
        """The last lease of each run, whether its holder lives or not."""
        found = (self._read(run, number) for run, number in sorted(self._last().items()))
        return [lease for lease in found if lease is not None]

    def undecided(self) -> bool:
        """Whether there is a holder of which this process does not know yet whether it lives."""
        others = {lease.holder for lease in self.current()} - {self.holder}
        return any(not self._watched[holder].lives for holder in others & self._watched.keys())

    def is_dead(self, lease: Lease) -> bool:
        """Whether the holder of a lease is known to be dead. The description of this module has the rules."""
        try:
            beat = self._beat_of(lease.holder)
        except (FileNotFoundError, ValueError):
            return True
        except OSError:  # a network that is interrupted; a beat that stays unreadable is no sign of life
            beat = None
        now, here = monotonic(), lease.kernel == kernel() != ""
        watch = self._watched.setdefault(lease.holder, _Watch(beat, now, here))
        if beat not in (None, watch.beat):
            self._watched[lease.holder] = watch = _Watch(beat, now, True)
        if now - watch.since > self.silent_after or (here and self._lock_is_free(lease.holder)):
            self._dead.add(lease.holder)
            return True
        return False

    def sign_of_life(self, lease: Lease) -> str:
        """What is known at once about the holder of a lease: ``lives``, ``dead``, or ``unknown`` on another machine."""
        if self.is_dead(lease):
            return "dead"
        watch = self._watched.get(lease.holder)
        return "lives" if watch and watch.lives else "unknown"

    def _is_free(self, run: str, last: dict[str, int]) -> bool:
        if run not in last:
            return True
        lease = self._read(run, last[run])
        return lease is not None and lease.holder != self.holder and self.is_dead(lease)

    def _create(self, run: str, number: int) -> bool:
        since = datetime.now().astimezone().isoformat(timespec="seconds")
        own = (self.holder, platform.node(), os.getpid(), self._kernel, since, self.at_a_time)
        if number > LAST:
            raise FrostlineError(
                f"{self._file(run, f'{LAST}.json')} is a lease that no process can take over: remove it."
            )
        facts = json_bytes(dict(zip(FACTS, own, strict=True)))
        created = create_file(self._file(run, f"{number}.json"), facts, inside=self.folder.parent)
        if created:
            self.held[run] = number
        return created

    def _last(self) -> dict[str, int]:
        """The number of the last lease of each run."""
        last: dict[str, int] = {}
        for path in self.folder.glob("*.json"):
            if found := LEASE.fullmatch(path.name):
                last[found["run"]] = max(int(found["number"]), last.get(found["run"], 0))
        return last

    def _read(self, run: str, number: int) -> Lease | None:
        """A lease; None if it was given back in the meantime. A damaged one has a holder that does not exist."""
        file = self._file(run, f"{number}.json")
        try:
            facts = json.loads(self._content(file))
            if {name: type(facts[name]) for name in facts} == FACTS and HOLDER.fullmatch(facts["holder"]):
                sizes = ((len(one) if isinstance(one, str) else one, MOST[type(one)]) for one in facts.values())
                if all(0 <= size <= most for size, most in sizes) and facts["at_a_time"]:
                    return Lease(run, number, **facts)
        except PermissionError as error:
            raise FrostlineError(
                f"{file} cannot be read ({error.strerror}): make it readable, or remove it."
            ) from error
        except OSError as error:
            if error.errno != errno.ELOOP:
                return None
        except (ValueError, TypeError, RecursionError):
            pass
        return Lease(run, number, holder="nobody", host="", pid=0, kernel="", since="", at_a_time=1)

    def _content(self, path: Path) -> bytes:
        """The content of a lease or beat, which may come from others."""
        return read_inside(path, self.folder.parent, LEASE_BYTES)

    def _beat_of(self, holder: str) -> str:
        return self._content(self._file(holder, "beat")).decode()

    def _is_dead_here(self, holder: str) -> bool:
        """Whether a holder ran under this kernel and is dead."""
        with suppress(OSError, ValueError):
            where, _, _ = self._beat_of(holder).partition(" ")
            return where == kernel() != "" and self._lock_is_free(holder)
        return False

    def _lock_is_free(self, holder: str) -> bool:
        try:
            with file_lock(self._file(holder, "lock"), timeout=0, inside=self.folder.parent):
                pass
        except (Timeout, OSError):
            return False
        if not self._file(holder, "beat").exists():  # it has ended meanwhile, and the look at its lock made a new file
            remove(self._file(holder, "lock"), inside=self.folder.parent)
        return True

    def _beat(self) -> None:
        count = 0
        while not self._over.wait(BEAT):
            count += 1
            with suppress(OSError):  # a full disk, or a network that is interrupted
                self._write_beat(count)

    def _remove_signs(self, holder: str) -> None:
        """Remove the beat and the lock of a holder."""
        for kind in ("beat", "lock"):
            remove(self._file(holder, kind), inside=self.folder.parent)

    def _write_beat(self, count: int) -> None:
        self._file(self.holder, "beat").write_text(f"{self._kernel} {count}")

    def _file(self, name: str, kind: str) -> Path:
        return self.folder / f"{name}.{kind}"


@cache
def kernel() -> str:
    """Identifies the kernel that runs this process, from its start to its end; empty if it has no such name."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""
