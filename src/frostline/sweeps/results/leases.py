"""Leases: which process trains which run, so that several processes can share the runs of one folder.

    leases/<run>.<n>.json     the n-th lease of a run: who has it, and since when

A process takes a run by creating the file of its next lease. Of several processes, the file system lets one create it. The lease
with the highest number counts. As numbers only grow while anybody has the run, two processes that both find its holder dead
cannot both take it over. Every few seconds, a holder renews the times of its files. A run is free if nobody has a lease, or if
the holder of its last lease is dead. That is so if

- it ran on this machine, and the list of processes says that it has ended;
- its file has had no new time for ``silent_after`` seconds, a setting of the process that waits. The file system sets the time of
  a file. Its clock is read from a new file, so clocks of machines are not compared.

A folder may come from others. What their leases say is therefore shown, but nothing is computed from it that could take long.

On a network file system, two properties are needed: only one process can create a file of a given name, and a file that is opened
has the times and the content that it had on the server then. If a holder that was taken for dead continues, two processes train
one run. The first published result stands.
"""

import errno
import json
import os
import platform
import re
import uuid
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from datetime import datetime
from functools import cache
from pathlib import Path
from tempfile import TemporaryFile
from threading import Event, Thread
from time import time
from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field

from frostline import FrostlineError
from frostline.data.files import create_file, is_left_over, make_folder, read_inside, remove

SILENT_AFTER = 30.0  # seconds without a sign of life, after which a holder is dead
RENEWED = 5.0  # seconds between two signs of life
LEASE_BYTES = 64 * 2**10  # the largest size of a lease that is read
FILE = re.compile(r"(?P<run>\w{1,64})\.(?P<number>[1-9][0-9]{0,3})\.json", re.ASCII)
LAST = 9999  # the highest number of a lease: so many processes have died with a run
NOBODY = "nobody"  # the holder of a damaged lease, who does not live
Text = Annotated[str, Field(max_length=256)]
Number = Annotated[int, Field(ge=0, le=2**32)]


class Lease(BaseModel):
    """The lease of one process on one run."""

    model_config = ConfigDict(strict=True, frozen=True)

    run: str
    number: int
    holder: Text
    host: Text = ""
    pid: Number = 0
    started: Text = ""  # when the process started, by the clock of its kernel; empty if unknown
    kernel: Text = ""  # which start of which machine; empty if unknown
    since: Text = ""  # by the clock of the holder, for display
    at_a_time: Annotated[int, Field(ge=1, le=2**32)] = 1  # runs or stacks that the holder trains at the same time
    silent: float = 0.0  # seconds since its last sign of life, by the clock of the file system

    def age(self) -> float:
        """Seconds since it began, for display: clocks of two machines may differ. 0 if they differ more, or it is unreadable."""
        try:
            begun = datetime.fromisoformat(self.since).astimezone()
            return max(0.0, (datetime.now().astimezone() - begun).total_seconds())
        except (ValueError, OverflowError):
            return 0.0


class Leases:
    """The leases in the folder of a sweep. Within its context, it is a holder that can take runs."""

    def __init__(self, out: Path, silent_after: float = SILENT_AFTER, *, at_a_time: int = 1) -> None:
        self.out, self.folder, self.holder = out, out / "leases", uuid.uuid4().hex[:12]
        self.silent_after, self.at_a_time = float(silent_after), at_a_time
        self.held: dict[str, int] = {}  # the runs of this holder, with the numbers of their leases
        self._over = Event()
        self._thread = Thread(target=self._renew, daemon=True)

    def __enter__(self) -> Self:
        make_folder(self.folder, inside=self.out)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.release(list(self.held))
            folders = [self.out / name for name in ("runs", "checkpoints", "leases")]
            inner = [path for folder in folders if not folder.is_symlink() for path in folder.glob(".*.part")]
            incomplete = list(filter(is_left_over, inner))
            if all(self.is_dead(lease) for lease in self.current()):  # nobody lives who could have been writing these
                for path in incomplete:
                    remove(path, inside=self.out)
        finally:  # last, because the clock of the file system is read while the thread lives
            self._over.set()
            self._thread.join()

    def take(self, groups: Iterable[Sequence[str]]) -> list[str]:
        """Take the free runs of the first group that has any, and return them. Runs that this holder has are not free."""
        last = self._last()
        for group in groups:
            if taken := [run for run in group if self._take(run, last.get(run))]:
                return taken
        return []

    def taken(self, ended: Collection[str] = ()) -> set[str]:
        """The runs that are not free, because this holder or another one that lives has them.

        The leases of runs that have ``ended`` are removed if this holder has them, or a dead one.
        """
        self.release(ended)
        found = set[str]()
        for lease in self.current():
            if not self.is_dead(lease):
                found.add(lease.run)
            elif lease.run in ended:
                self._remove(lease.run, lease.number)
        return found

    def release(self, runs: Collection[str]) -> None:
        """Give these runs back, as far as this holder has them."""
        for run in self.held.keys() & runs:
            self._remove(run, self.held.pop(run))

    def current(self) -> list[Lease]:
        """The last lease of each run, whether its holder lives or not."""
        return list(self._last().values())

    def is_dead(self, lease: Lease) -> bool:
        """Whether the holder of a current lease is dead. The description of this module has the rules."""
        if lease.holder == self.holder:
            return False
        ended = lease.kernel == kernel() != "" and started(lease.pid) != lease.started
        return lease.holder == NOBODY or ended or lease.silent > self.silent_after

    def _last(self) -> dict[str, Lease]:
        """The last lease of each run."""
        numbers: dict[str, int] = {}
        for path in self.folder.glob("*.json"):
            if found := FILE.fullmatch(path.name):
                numbers[found["run"]] = max(int(found["number"]), numbers.get(found["run"], 0))
        leases = dict[str, Lease]()
        now = self._now() if numbers else 0.0
        for run, number in sorted(numbers.items()):
            path = self._file(run, number)
            try:
                lease = self._read(run, number)
                # fresh also on a network, where opening the file asks the server
                leases[run] = lease.model_copy(update={"silent": now - os.stat(path).st_mtime})
            except PermissionError as error:
                raise FrostlineError(
                    f"{path} cannot be read ({error.strerror}): make it readable, or remove it."
                ) from error
            except OSError as error:  # it was given back in the meantime
                if error.errno == errno.ELOOP:
                    leases[run] = Lease(run=run, number=number, holder=NOBODY)
        return leases

    def _now(self) -> float:
        """The time by the clock of the file system; outside of the context, where nothing is written, that of this machine."""
        if not self._thread.is_alive():
            return time()
        with TemporaryFile(dir=self.folder) as file:
            os.utime(file.fileno())  # some network file systems let a machine set this time, for leases as well as here
            return os.fstat(file.fileno()).st_mtime

    def _read(self, run: str, number: int) -> Lease:
        """A lease. A damaged one has a holder that does not exist."""
        try:
            content = read_inside(self._file(run, number), self.out, LEASE_BYTES)
            return Lease.model_validate({**json.loads(content), "run": run, "number": number})
        except (ValueError, TypeError, RecursionError):
            return Lease(run=run, number=number, holder=NOBODY)

    def _take(self, run: str, last: Lease | None) -> bool:
        """Take a run if it is free."""
        if last is not None and not self.is_dead(last):
            return False
        number = last.number + 1 if last else 1
        if number > LAST:
            raise FrostlineError(f"{self._file(run, LAST)} is a lease that no process can take over: remove it.")
        lease = Lease(
            run=run,
            number=number,
            holder=self.holder,
            host=platform.node(),
            pid=os.getpid(),
            started=started(os.getpid()),
            kernel=kernel(),
            since=datetime.now().astimezone().isoformat(timespec="seconds"),
            at_a_time=self.at_a_time,
        )
        content = lease.model_dump_json(exclude={"run", "number", "silent"}, indent=1).encode()
        created = create_file(self._file(run, number), content, inside=self.out)
        if created:
            self.held[run] = number
        return created

    def _remove(self, run: str, number: int) -> None:
        for n in range(1, number + 1):  # the last one last, so that no older one counts meanwhile
            remove(self._file(run, n), inside=self.out)

    def _renew(self) -> None:
        while not self._over.wait(RENEWED):
            for run, number in list(self.held.items()):
                with suppress(OSError):  # it was given back, or a network is interrupted
                    os.utime(self._file(run, number), follow_symlinks=False)

    def _file(self, run: str, number: int) -> Path:
        return self.folder / f"{run}.{number}.json"


@cache
def kernel() -> str:
    """Identifies the processes that this one sees: the kernel from its start to its end, the container, and the user.

    Empty if the system has no such names.
    """
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {os.readlink('/proc/self/ns/pid')} {os.getuid()}"
    except OSError:
        return ""


def started(pid: int) -> str:
    """When a process started, by the clock of its kernel: another one of this number differs. Empty if it has ended."""
    try:
        state, *others = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return "" if state in "ZX" else others[18]
    except (OSError, ValueError, IndexError):
        return ""
