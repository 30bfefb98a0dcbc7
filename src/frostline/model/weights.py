"""Single weights of the safetensors files of a model, and values that stand for those that are not in memory."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path

import torch
import xxhash
from safetensors import safe_open
from torch import Tensor


@dataclass(frozen=True)
class Source:
    """Where the value of a parameter is."""

    file: Path
    key: str


def shapes_in(files: Iterable[Path]) -> Iterator[tuple[Source, tuple[int, ...], bool]]:
    """For each weight: where it is, its shape, and whether it holds floating-point numbers. Only headers are read."""
    for file in files:
        with safe_open(file, "pt") as opened:
            for key in opened.keys():  # noqa: SIM118 -- it is no dictionary
                part = opened.get_slice(key)
                yield Source(file, key), tuple(part.get_shape()), "F" in part.get_dtype()


def weight_bytes(files: Iterable[Path], dtype: torch.dtype = torch.float32) -> int:
    """The bytes that the weights take in memory as this type."""
    return sum(dtype.itemsize * prod(shape) for _, shape, _ in shapes_in(files))


def read_weights(sources: Mapping[str, Source]) -> Iterator[tuple[str, Tensor]]:
    """The value of each parameter by name, file by file.

    The values are mapped from their files. Their memory is returned when no tensor of a file is left.
    """
    by_file: dict[Path, list[str]] = {}
    for name, source in sources.items():
        by_file.setdefault(source.file, []).append(name)
    for file, names in by_file.items():
        with safe_open(file, "pt") as opened:
            for name in names:
                yield name, opened.get_slice(sources[name].key)[...]


def read_weight(source: Source) -> Tensor:
    """The value of one parameter."""
    ((_, value),) = read_weights({source.key: source})
    return value


def floating_type(files: Iterable[Path]) -> torch.dtype:
    """The type of the first weights that are floating-point numbers; float32 if there are none."""
    for source, shape, floating in shapes_in(files):
        if floating and shape:
            with safe_open(source.file, "pt") as opened:
                value: Tensor = opened.get_slice(source.key)[:0]
                return value.dtype
    return torch.float32


def quantized_in(files: Iterable[Path]) -> str | None:
    """A weight whose numbers have one byte or less, and need a scale to be read; None if there is none. Masks are no weights."""
    for file in files:
        with safe_open(file, "pt") as opened:
            for key in opened.keys():  # noqa: SIM118
                kind = opened.get_slice(key).get_dtype()
                if kind.startswith(("F8", "F4")) or (kind in ("I8", "U8") and key.endswith("weight")):
                    return str(key)
    return None


def unread(shape: Iterable[int], device: torch.device | str = "cpu", dtype: torch.dtype = torch.float32) -> Tensor:
    """A value that stands for one that is not in memory: NaN everywhere, in the memory of one number.

    Every result that depends on it is NaN.
    """
    return torch.full((), torch.nan, device=device, dtype=dtype).expand(*shape)


def is_unread(value: Tensor) -> bool:
    """Whether a value is one of :func:`unread`."""
    return value.dim() > 0 and not any(value.stride())


def digest_of(value: Tensor) -> str:
    """A digest of the bytes of a tensor."""
    return xxhash.xxh3_128_hexdigest(value.detach().cpu().flatten().view(torch.uint8).numpy().data)
