"""Connect to a cluster of Ray, or start one on this machine and end it again."""

import math
import os
import signal
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from threading import current_thread, main_thread
from typing import Any

from frostline import FrostlineError

ENDS_WITHIN = 5.0  # seconds that the tasks of a stopped command get to end
RETRIES = 3  # how often Ray starts a task again whose process or node is lost
QUIET = {  # for a cluster on this machine
    "RAY_USAGE_STATS_ENABLED": "0",  # nothing is sent to anybody
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # Ray warns without it; a task without GPUs chooses the CPU itself
}


@dataclass(frozen=True, kw_only=True)
class Ray:
    """Trains runs as tasks of Ray, on a cluster or on this machine.

    Attributes:
        address: The address of a cluster, such as ``auto``. Without one, that in the variable ``RAY_ADDRESS`` counts. Without
            both, a cluster is started on this machine, and ended after the last run.
        cpus: CPU cores of each task. It trains one run or one stack at a time, on this many threads.
        gpus: GPUs of each task, also shares such as 0.5. By default one if the cluster has any, unless the device is the CPU.

    Raises:
        FrostlineError: A number is impossible.
    """

    address: str | None = None
    cpus: int = 1
    gpus: float | None = None

    def __post_init__(self) -> None:
        if self.cpus < 1:
            raise FrostlineError(f"--cpus cannot be {self.cpus}: give 1 or more.")
        if self.gpus is not None and not (0 <= self.gpus < 1 or (self.gpus >= 1 and float(self.gpus).is_integer())):
            raise FrostlineError(f"--gpus cannot be {self.gpus:g}: give a share below 1, or a whole number.")


@dataclass(frozen=True)
class Cluster:
    """A cluster that this process is connected to.

    Attributes:
        module: The package ray.
        is_own: Whether this process has started it. It then ends with its tasks and their files.
    """

    module: Any
    is_own: bool = False

    def nodes(self) -> list[Mapping[str, float]]:
        """The resources of each node that lives."""
        return [node["Resources"] for node in self.module.nodes() if node["Alive"]]

    @property
    def has_gpus(self) -> bool:
        return any(node.get("GPU", 0) > 0 for node in self.nodes())

    def capacity(self, needs: Mapping[str, float]) -> int:
        """How many tasks with these needs can run at the same time."""
        return sum(
            min(math.floor(node.get(name, 0) / number) for name, number in needs.items() if number)
            for node in self.nodes()
        )


def package() -> Any:
    """The package ray.

    Raises:
        FrostlineError: It is not installed.
    """
    try:
        import ray
    except ImportError as error:
        raise FrostlineError('--executor ray needs the package ray: pip install "frostline[ray]".') from error
    return ray


@contextmanager
def connected(ray: Ray) -> Iterator[Cluster]:
    """Connect to the cluster at the address, or start one on this machine and end it with the context.

    A program that is connected to Ray keeps its connection.

    Raises:
        FrostlineError: Ray is not installed, or there is no cluster at the address.
    """
    before, module = signal.getsignal(signal.SIGTERM), package()
    if module.is_initialized():
        yield Cluster(module)
        return
    address = ray.address or os.environ.get("RAY_ADDRESS") or "local"
    with tempfile.TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True) as folder:
        own: dict[str, Any] = {"include_dashboard": False, "_temp_dir": folder} if address == "local" else {}
        for name, value in QUIET.items():
            os.environ.setdefault(name, value)
        try:
            with _temporary_files_in(folder if own else None):
                module.init(address=address, log_to_driver=False, logging_level="ERROR", **own)
        except (OSError, ValueError, RuntimeError) as error:  # also ConnectionError
            said = (str(error).strip() or type(error).__name__).splitlines()[0]
            raise FrostlineError(
                f"Ray cannot start a cluster on this machine ({said}): correct that, or give --address."
                if own
                else f"There is no cluster of Ray at {address} ({said}): correct --address, or leave it out for this machine."
            ) from error
        finally:
            if current_thread() is main_thread():
                signal.signal(signal.SIGTERM, before)  # Ray replaces it
        try:
            yield Cluster(module, is_own=bool(own))
        finally:
            module.shutdown()


@contextmanager
def _temporary_files_in(folder: str | None) -> Iterator[None]:
    """Processes that start here put their temporary files into this folder, if there is one."""
    before = os.environ.get("TMPDIR")
    if folder:
        os.environ["TMPDIR"] = folder
    try:
        yield
    finally:
        os.environ.pop("TMPDIR", None)
        if before is not None:
            os.environ["TMPDIR"] = before
