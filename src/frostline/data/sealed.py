"""JSON, TOML and arrays that carry their own checksum, so that every changed, missing or additional byte is recognized.

In JSON it is the last key, in TOML a comment in the last line: it covers all bytes before it. In safetensors it is in the
metadata, and covers all bytes, with zeros in its own place. It protects against damage, not against forgery.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import xxhash
from numpy.typing import NDArray
from safetensors.numpy import load, save

from frostline.data.files import json_bytes, replace_file, with_nulls

END = b"\n}\n"  # how a JSON object of :func:`frostline.data.files.json_bytes` ends
KEY = "checksum"
IN_JSON, IN_TOML, IN_ARRAYS = f',\n "{KEY}": "%s"'.encode() + END, f"# {KEY}: %s\n".encode(), f'"{KEY}":"'.encode()
BLANK = b"0" * 32


def checksum(content: bytes) -> str:
    """The checksum of these bytes."""
    return xxhash.xxh3_128_hexdigest(content)


def file_checksum(path: Path) -> str:
    """The checksum of a file's content, which need not fit into memory."""
    digest = xxhash.xxh3_128()
    with path.open("rb") as file:
        while block := file.read(1 << 22):
            digest.update(block)
    return digest.hexdigest()


def seal(facts: Mapping[str, Any]) -> bytes:
    """Facts as JSON with a checksum."""
    return _with_checksum(json_bytes(facts).removesuffix(END), IN_JSON)


def write_sealed(path: Path, facts: Mapping[str, Any], *, inside: Path) -> None:
    """Write facts as JSON with a checksum, atomically. Numbers that are not finite become null."""
    replace_file(path, seal(with_nulls(facts)), inside=inside)


def unseal(content: bytes) -> dict[str, Any]:
    """The facts that :func:`seal` wrote.

    Raises:
        ValueError: The content is not exactly what :func:`seal` wrote.
    """
    _without_checksum(content, IN_JSON)
    facts: dict[str, Any] = json.loads(content)
    del facts[KEY]
    return facts


def seal_toml(text: str) -> bytes:
    """A text in TOML with a checksum."""
    return _with_checksum(text.encode(), IN_TOML)


def unseal_toml(content: bytes) -> str:
    """The text that :func:`seal_toml` was given.

    Raises:
        ValueError: The content is not exactly what :func:`seal_toml` wrote.
    """
    return _without_checksum(content, IN_TOML).decode()


def seal_arrays(arrays: Mapping[str, NDArray[Any]]) -> bytes:
    """Arrays as safetensors with a checksum."""
    content = save({name: np.ascontiguousarray(array) for name, array in arrays.items()}, {KEY: BLANK.decode()})
    return content.replace(BLANK, checksum(content).encode(), 1)


def unseal_arrays(content: bytes) -> dict[str, NDArray[Any]]:
    """The arrays that :func:`seal_arrays` was given. Their order may differ.

    Raises:
        ValueError: The content is not exactly what :func:`seal_arrays` wrote.
        SafetensorError: It was never safetensors.
    """
    before, key, rest = content.partition(IN_ARRAYS)
    written, after = rest[: len(BLANK)], rest[len(BLANK) :]
    if checksum(before + key + BLANK + after).encode() != written:
        raise ValueError("its checksum is wrong")
    return load(content)


def _with_checksum(body: bytes, form: bytes) -> bytes:
    return body + form % checksum(body).encode()


def _without_checksum(content: bytes, form: bytes) -> bytes:
    """What :func:`_with_checksum` was given."""
    body = content[: -len(form % BLANK)]
    if _with_checksum(body, form) != content:
        raise ValueError("its checksum is wrong")
    return body
