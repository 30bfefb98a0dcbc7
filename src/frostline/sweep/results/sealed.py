"""JSON that carries its own checksum, so that every changed, missing or additional byte is recognized.

The checksum is the last key. It covers all bytes before it. It protects against damage, not against forgery.
"""

import json
from collections.abc import Mapping
from typing import Any

import xxhash

from frostline.data.files import json_bytes

END = b"\n}\n"  # how a JSON object of :func:`frostline.data.files.json_bytes` ends
KEY = "checksum"


def checksum(content: bytes) -> str:
    """The checksum of these bytes."""
    return xxhash.xxh3_128_hexdigest(content)


def seal(facts: Mapping[str, Any]) -> bytes:
    """Facts as JSON with a checksum."""
    return _with_checksum(json_bytes(facts).removesuffix(END))


def unseal(content: bytes) -> dict[str, Any]:
    """The facts that :func:`seal` wrote.

    Raises:
        ValueError: The content is not exactly what :func:`seal` wrote.
    """
    body = content[: -len(_with_checksum(b""))]
    if _with_checksum(body) != content:
        raise ValueError("its checksum is wrong")
    facts: dict[str, Any] = json.loads(content)
    del facts[KEY]
    return facts


def _with_checksum(body: bytes) -> bytes:
    return body + f',\n "{KEY}": "{checksum(body)}"'.encode() + END
