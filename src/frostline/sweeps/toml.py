"""Specifications as TOML files."""

import json
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from frostline import FrostlineError

TRUST = "trust_remote_code"
# What a sweep.toml has that is no setting. Whether to run code that comes with a model, no file decides: one from others could.
NOT_SETTINGS = ("identity", "origin", TRUST)


def read_toml(path: str | Path) -> dict[str, Any]:
    """The values in a TOML file.

    Raises:
        FrostlineError: The file does not exist or is not valid TOML.
    """
    path = Path(path)
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise FrostlineError(f"There is no file {path}: give a TOML file, or --model and --train.") from error
    except OSError as error:
        raise FrostlineError(
            f"{path} cannot be read ({error.strerror}): give a TOML file; a model goes with --model."
        ) from error
    except (ValueError, RecursionError) as error:  # no TOML, no UTF-8, or a number of thousands of digits
        raise FrostlineError(
            f"{path} is not valid TOML: {error}. Correct it; a table of examples goes with --train."
        ) from error


def require_trust(written: Mapping[str, Any], path: Path, *, trusted: bool) -> None:
    """Refuse a file whose runs need code that comes with the model, unless the user trusts that code.

    Args:
        written: The values in the file.
        path: The file.
        trusted: Whether the user has said so, and not a file.

    Raises:
        FrostlineError: The user has not.
    """
    if written.get(TRUST, False) is not False and not trusted:
        raise FrostlineError(
            f"{path} asks to run code that comes with the model {written.get('model', '')}, and no file may decide that: read "
            "that code, and add --trust-remote-code."
        )


def to_toml(values: Mapping[str, Any], within: str = "") -> str:
    """Plain values as TOML. Values that are None are left out, because TOML has no null.

    ``within`` is what the name of each table begins with.
    """
    lines, tables = [], []
    for key, value in values.items():
        if isinstance(value, Mapping):
            name = within + _toml_key(key)
            tables.append(f"\n[{name}]\n{to_toml(value, f'{name}.')}")
        elif value is not None:
            lines.append(f"{_toml_key(key)} = {_toml_value(value)}\n")
    return "".join(lines + tables)


def _toml_key(key: str) -> str:
    return key if re.fullmatch("[A-Za-z0-9_-]+", key) else _toml_value(key)


def _toml_value(value: Any) -> str:
    if isinstance(value, Mapping):
        pairs = [f"{_toml_key(key)} = {_toml_value(one)}" for key, one in value.items() if one is not None]
        return f"{{{', '.join(pairs)}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(_toml_value(v) for v in value)}]"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
