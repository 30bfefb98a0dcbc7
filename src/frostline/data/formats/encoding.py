"""Text files in UTF-8, and the error message for other encodings."""

from pathlib import Path
from typing import TextIO


def open_text(path: Path) -> TextIO:
    """Open a UTF-8 file, with or without a byte order mark. Lines end at line feeds only.

    Ending lines at U+2028 or at a lone carriage return as well would split texts.
    """
    return path.open(encoding="utf-8-sig", newline="\n")


def iconv(path: Path, encoding: str) -> str:
    """The shell command that converts the file to UTF-8."""
    return f"iconv -f {encoding} -t utf-8 '{path}' > '{path.stem}-utf8{path.suffix}'"


def not_utf8(path: Path) -> str:
    """The error message for a file that cannot be decoded: the first invalid byte, and how to convert the file."""
    content = path.read_bytes()
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        return f"{path}: the file is UTF-16, not UTF-8; save it as UTF-8: {iconv(path, 'utf-16')}."
    if b"\0" in content:
        return f"{path}: this is not a UTF-8 text file; export the table as CSV, or correct the ending of its name."
    try:
        content.decode()
    except UnicodeDecodeError as error:
        line, byte = content.count(b"\n", 0, error.start) + 1, content[error.start]
        return (
            f"{path}, line {line}: byte {error.start:,} (0x{byte:02x}) is not UTF-8; save the file as UTF-8, for "
            f"example: {iconv(path, 'latin1')} (or with cp1252, cp949, ..., if the file is in that encoding)."
        )
    return f"{path}: the file changed while it was read; try again."
