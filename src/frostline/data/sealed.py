"""JSON, TOML and arrays that carry their own checksum, so that every changed, missing or additional byte is recognized.

In JSON it is the last key, in TOML a comment in the last line: it covers all bytes before it. In safetensors it is in the
metadata, and covers all bytes, with zeros in its own place. It protects against damage, not against forgery.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import xxhash
from numpy.typing import NDArray
from safetensors.numpy import load, save

from frostline.data.files import json_bytes, read_file, replace_file, with_nulls

FILES, CARD = "files", "README.md"
RECORD_BYTES = 2**30  # of a record, which may have all words of a TF-IDF model
MOST = 1e150  # the largest number in JSON: its square and the sum of many are finite
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
    facts: dict[str, Any] = parsed(content)
    del facts[KEY]
    return facts


def parsed(content: bytes) -> Any:
    """JSON that may come from others: its numbers are finite and not so large that computing with them overflows.

    Raises:
        ValueError: It is no such JSON, or is nested too deep.
    """
    try:
        return json.loads(content, parse_float=_bounded, parse_int=_bounded, parse_constant=_bounded)
    except RecursionError as error:
        raise ValueError("it is nested too deep") from error


def write_record(path: Path, facts: Mapping[str, Any], files: Iterable[Path], *, inside: Path) -> None:
    """Write facts as JSON with a checksum. They get the sizes and checksums of other files in their folder, too."""
    sums = {
        file.relative_to(path.parent).as_posix(): (file.stat().st_size, file_checksum(file))
        for file in files
        if file != path
    }
    write_sealed(path, {**facts, FILES: sums}, inside=inside)


def read_record(path: Path) -> dict[str, Any]:
    """The facts that :func:`write_record` wrote, with the sizes and checksums. The other files are not verified.

    Raises:
        OSError: The file cannot be read.
        ValueError: It is not what was written.
    """
    facts = unseal(read_file(path, RECORD_BYTES))
    if not isinstance(facts.get(FILES), dict):
        raise ValueError(f"{path.name} has no checksums of files")
    return facts


def require_recorded(folder: Path, facts: Mapping[str, Any], *, optional: Callable[[str], bool]) -> None:
    """Verify the files of a folder that a record names. Files that are ``optional`` may be missing.

    Raises:
        OSError: A file cannot be read.
        ValueError: A file is missing, or is not what was written.
    """
    for name, recorded in facts[FILES].items():
        parts, file = PurePosixPath(name).parts, folder / name
        if (
            not parts
            or ".." in parts
            or parts[0] == "/"
            or "\\" in name
            or not (isinstance(recorded, list) and recorded)
        ):
            raise ValueError(f"the record names {name!r}")
        if optional(name) and not file.exists():
            continue
        if not file.is_file():
            raise ValueError(f"{name} is missing")
        if file.stat().st_size != recorded[0] or [file_checksum(file)] != recorded[1:]:  # a wrong size is no work
            raise ValueError(f"the checksum of {name} is wrong")


def files_in(folder: Path) -> dict[str, Path]:
    """The files of a saved model by name. A card may be edited and hidden files come from tools: they are not recorded."""
    found = ((path.relative_to(folder).as_posix(), path) for path in sorted(folder.rglob("*")) if path.is_file())
    return {name: path for name, path in found if path.name != CARD and not f"/{name}".count("/.")}


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


def _bounded(text: str) -> float | int:
    """A number of JSON."""
    number = int(text) if text.lstrip("-").isdecimal() else float(text)
    if not abs(number) <= (MOST if isinstance(number, float) else 2**63):
        raise ValueError(f"it has the number {text[:40]}")
    return number


def _with_checksum(body: bytes, form: bytes) -> bytes:
    return body + form % checksum(body).encode()


def _without_checksum(content: bytes, form: bytes) -> bytes:
    """What :func:`_with_checksum` was given."""
    body = content[: -len(form % BLANK)]
    if _with_checksum(body, form) != content:
        raise ValueError("its checksum is wrong")
    return body
