"""The machine that a run uses: device, precision, threads, free disk space, memory, and whether it ran out."""

import gc
import os
import platform
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from time import perf_counter, thread_time

import psutil
import torch
from torch import Tensor

from frostline import FrostlineError
from frostline.fast.switch import glibc

CPU = torch.device("cpu")
STAGED_BYTES = 65536  # a copy of at most this size from ordinary memory does not wait for the GPU
PRECISIONS = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


@dataclass(frozen=True)
class Machine:
    """The device of a sweep and the precision of its matrix products. Weights are always stored in float32.

    Attributes:
        device: The CPU or GPU.
        precision: ``float32``, or ``bfloat16`` or ``float16`` for matrix products under autocast.
    """

    device: torch.device
    precision: str

    @property
    def dtype(self) -> torch.dtype:
        """The data type of matrix products."""
        return PRECISIONS[self.precision]

    @property
    def autocast(self) -> Callable[[], AbstractContextManager[object]]:
        """A function that opens a context in which matrix products have this precision."""
        if self.precision == "float32":
            return nullcontext
        return lambda: torch.autocast(self.device.type, self.dtype)

    def time(self) -> float:
        """The time in seconds, after the device has finished its work. CPUs have no work left."""
        if self.device.type in ("cuda", "mps"):
            torch.accelerator.synchronize(self.device)
        return perf_counter()

    @property
    def gpus(self) -> list[str]:
        """The CUDA GPUs that this process may use, as CUDA_VISIBLE_DEVICES names them; empty on other devices.

        The process itself trains on the first one. Counting them does not start CUDA.
        """
        if self.device.type != "cuda":
            return []
        count, named = torch.cuda.device_count(), os.environ.get("CUDA_VISIBLE_DEVICES")
        return named.split(",")[:count] if named else [str(number) for number in range(count)]

    @property
    def name(self) -> str:
        """The device in words, as its driver calls it."""
        if self.device.type == "cuda":
            return str(torch.cuda.get_device_name(self.device))
        threads = torch.get_num_threads()
        return f"CPU, {threads} thread{'s' * (threads > 1)}" if self.device.type == "cpu" else self.device.type.upper()

    def facts(self) -> dict[str, str | int]:
        """Hardware, versions and thread count, for the result file. If one changes, the last bits of a result can change."""
        name = torch.cuda.get_device_name(self.device) if self.device.type == "cuda" else platform.machine()
        return {
            "device": self.device.type,
            "device_name": name,
            "threads": torch.get_num_threads(),
            "instructions": torch.backends.cpu.get_cpu_capability(),
            "python": platform.python_version(),
            **{name: version(name) for name in ("frostline", "torch", "transformers", "numpy")},
        }


def this_machine(device: str = "auto", precision: str = "auto") -> Machine:
    """The machine with the requested device and precision.

    ``auto`` is ``cuda`` if this machine has it, else ``cpu``; and ``bfloat16`` if the device has instructions for it, else
    ``float32``.

    Raises:
        FrostlineError: This machine does not have the device, or the device not the precision.
    """
    available = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if device == "auto":
        device = "cuda" if available["cuda"] else "cpu"
    if not available[device]:
        raise FrostlineError(f"This machine has no device {device!r}: use --device cpu.")
    if (device, precision) == ("mps", "float16"):
        raise FrostlineError(
            "float16 cannot be used with the device mps, whose optimizer cannot skip steps: give --precision float32."
        )
    if precision == "auto":
        found = torch.cpu.get_capabilities() if device == "cpu" else {}
        has_bf16 = found.get("avx512_bf16") or found.get("amx_bf16")  # instructions: emulation does not count
        if device == "cuda":
            has_bf16 = torch.cuda.is_bf16_supported(including_emulation=False)
        precision = "bfloat16" if has_bf16 else "float32"
    return Machine(torch.device(device), precision)


def can_fork(device: torch.device) -> bool:
    """Whether forked processes can train on the device.

    Only Linux forks a process with threads safely. Autograd refuses to run in a fork if there is an accelerator.
    """
    return device.type == "cpu" and sys.platform == "linux" and not torch.accelerator.is_available()


def free_bytes(path: os.PathLike[str]) -> int:
    """Free bytes on the disk that holds ``path``."""
    return int(psutil.disk_usage(os.fspath(path)).free)


def to_device(x: Tensor, device: torch.device) -> Tensor:
    """``x`` on ``device``. The host does not wait for a copy to a CUDA GPU.

    CUDA copies a large tensor without waiting only from pinned memory, and stages a small one itself.
    """
    if device.type == "cuda" and x.device.type == "cpu":
        source = x.pin_memory() if x.nbytes > STAGED_BYTES else x
        return source.to(device, non_blocking=True)
    return x.to(device)


@contextmanager
def without_cudnn_attention() -> Iterator[None]:
    """While the context is open, torch's attention does not use cuDNN, its first choice on recent GPUs.

    cuDNN makes a plan for each new shape, which takes 10 to 500 ms. Batches of texts rarely have the shape of an earlier one.
    """
    before = torch.backends.cuda.cudnn_sdp_enabled()  # type: ignore[no-untyped-call]
    torch.backends.cuda.enable_cudnn_sdp(False)
    try:
        yield
    finally:
        torch.backends.cuda.enable_cudnn_sdp(before)


@contextmanager
def random_state_restored(device: torch.device) -> Iterator[None]:
    """On exit, restore the state of torch's generators of the CPU and of ``device``. No other GPU is initialized."""
    on_gpu = device.type in ("cuda", "mps")
    with torch.random.fork_rng([device], device_type=device.type) if on_gpu else torch.random.fork_rng([]):
        yield


SHORTEST, LONGEST = 0.02, 0.25  # seconds between two samples
OVERHEAD = 50  # the pause after a sample lasts at least this many times the sample's own processor time
# In errors of lacking memory that have no class of their own. cuBLAS and cuDNN write ALLOC_FAILED.
WORDS = ("out of memory", "can't allocate memory", "not enough memory", "alloc_failed")


class PeakMemory:
    """The highest sample so far."""

    bytes = 0


@contextmanager
def peak_memory(machine: Machine) -> Iterator[PeakMemory]:
    """Measure the peak memory while the context is open; ``bytes`` is final when it closes.

    On a GPU this is the peak of torch's allocator. Elsewhere it is the memory that this process has in use, without files
    mapped from disk. It is sampled 4 to 50 times a second, which takes at most 2 % of one core.
    """
    gc.collect()
    if machine.device.type == "cuda":
        peak = PeakMemory()
        torch.cuda.reset_peak_memory_stats(machine.device)
        yield peak
        peak.bytes = torch.cuda.max_memory_allocated(machine.device)
        return
    with sampled_peak(_meter()) as peak:
        yield peak


@contextmanager
def sampled_peak(used: Callable[[], int]) -> Iterator[PeakMemory]:
    """The highest value of ``used()`` while the context is open. A thread samples it, with one last sample at the end."""
    peak, done = PeakMemory(), threading.Event()

    def sample() -> None:
        ended = False
        while not ended:
            started = thread_time()
            peak.bytes = max(peak.bytes, used())
            ended = done.wait(min(max(SHORTEST, OVERHEAD * (thread_time() - started)), LONGEST))
        peak.bytes = max(peak.bytes, used())

    thread = threading.Thread(target=sample, daemon=True)
    thread.start()
    try:
        yield peak
    finally:
        done.set()
        thread.join()


@dataclass(frozen=True)
class DeviceMemory:
    """The memory of a device, in bytes.

    Attributes:
        total: All of it.
        free: What no process uses.
        held: What this process uses of it.
    """

    total: int
    free: int
    held: int

    def fits(self, memory_bytes: float, at_a_time: int) -> bool:
        """Whether processes that take this many bytes each fit into the free memory. This process is one of them."""
        return at_a_time * max(0.0, memory_bytes - self.held) <= self.free


def device_memory(device: torch.device) -> DeviceMemory:
    """The memory of a CUDA GPU. Other devices use that of the machine."""
    if device.type == "cuda":
        free, total = torch.cuda.mem_get_info(device)
        return DeviceMemory(total, free, torch.cuda.memory_reserved(device))
    machine = psutil.virtual_memory()
    return DeviceMemory(machine.total, machine.available, anonymous_memory(psutil.Process()))


def memory_limit(device: torch.device) -> int:
    """Bytes that one training may take.

    On a GPU: 85 % of the memory that other processes leave free. Elsewhere: half of the machine's available memory.
    """
    memory = device_memory(device)
    return int(0.85 * (memory.free + memory.held) if device.type == "cuda" else 0.5 * memory.free)


def memory_ran_out(error: BaseException) -> bool:
    """Whether the error says that the memory of the machine or of its device is used up."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and any(words in str(error).lower() for words in WORDS)


def release_unused(device: torch.device) -> None:
    """Release the memory that torch holds on a CUDA GPU without using it."""
    if device.type == "cuda":
        torch.cuda.empty_cache()  # smaller tensors do not fit into the blocks that torch holds for larger ones


def anonymous_memory(process: psutil.Process) -> int:
    """Bytes of memory that a process holds, without mapped files."""
    memory = process.memory_info()
    return int(memory.rss - getattr(memory, "shared", 0))


@cache
def _meter() -> Callable[[], int]:
    """A function that returns the bytes that this process has in use.

    The process may hold freed memory for its next allocations. With glibc, which reports the size of its heap, this memory
    does not count. With other C libraries it does.
    """
    libc = glibc()
    if libc is None:
        return lambda: anonymous_memory(psutil.Process())  # the calling process, which may be a fork of this one
    libc.malloc_trim(0)  # releases freed memory: afterwards the process holds only memory in use
    outside = anonymous_memory(psutil.Process()) - libc.mallinfo2().in_use
    return lambda: outside + libc.mallinfo2().in_use
