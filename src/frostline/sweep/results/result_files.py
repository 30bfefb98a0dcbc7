"""The files of a result: their names, and how each is verified when it is read."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load

from frostline.data.files import ARRAY_BYTES, checksum, read_inside, unseal

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
