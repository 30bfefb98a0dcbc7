"""The machine that a run uses: device, precision, threads, room on its disk."""

import os
import platform
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version

import psutil
import torch

from frostline import FrostlineError

PRECISIONS = {"float32": torch.float32, "bfloat16": torch.bfloat16}


@dataclass(frozen=True)
class Machine:
    """Where a sweep runs; ``precision`` is that of matrix products, weights are always fp32."""

    device: torch.device
    precision: str

    @property
    def dtype(self) -> torch.dtype:
        """That of matrix products."""
        return PRECISIONS[self.precision]

    @property
    def autocast(self) -> Callable[[], AbstractContextManager[object]]:
        if self.precision == "float32":
            return nullcontext
        return lambda: torch.autocast(self.device.type, self.dtype)

    def facts(self) -> dict[str, str | int]:
        """What can change the last bits of a result, for the record."""
        name = torch.cuda.get_device_name(self.device) if self.device.type == "cuda" else platform.machine()
        return {
            "device": self.device.type,
            "device_name": name,
            "threads": torch.get_num_threads(),
            "instructions": torch.backends.cpu.get_cpu_capability(),
            "python": platform.python_version(),
            **_versions(),
        }


@cache
def _versions() -> dict[str, str]:
    return {name: version(name) for name in ("frostline", "torch", "transformers", "numpy")}


def this_machine(device: str = "auto", precision: str = "auto") -> Machine:
    """The device asked for, and bf16 where its processor multiplies in it; looked up, not assumed.

    Raises:
        FrostlineError: unknown name, or a device that is not here.
    """
    known = ("auto", "cpu", "cuda", "mps")
    if device not in known or precision not in ("auto", *PRECISIONS):
        raise FrostlineError(
            f"device = {device!r}, precision = {precision!r} is not known: devices are {', '.join(known)}, "
            f"precisions auto, {', '.join(PRECISIONS)}."
        )
    here = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if device == "auto":
        device = "cuda" if here["cuda"] else "cpu"
    if not here[device]:
        raise FrostlineError(f"This machine has no device {device!r}: use --device cpu.")
    if precision == "auto":
        precision = "bfloat16" if _has_bf16(device) else "float32"
    return Machine(torch.device(device), precision)


def _has_bf16(device: str) -> bool:
    if device == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    if device == "mps":
        return False
    abilities = torch.cpu.get_capabilities()
    return bool(abilities.get("avx512_bf16") or abilities.get("amx_bf16"))


def free_bytes(path: os.PathLike[str]) -> int:
    """Free bytes of the disk that holds ``path``."""
    return int(psutil.disk_usage(os.fspath(path)).free)
