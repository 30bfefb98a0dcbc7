"""The encoding of a text file: UTF-8, the one that the user names, or what the bytes look like, for the error message."""

import codecs
import re
from io import BytesIO, TextIOWrapper
from pathlib import Path
from typing import TextIO

from frostline import FrostlineError
from frostline.data.wording import quoted

UTF8 = "utf-8-sig"  # with or without a byte order mark
MARKS = {  # byte order marks; that of UTF-16 begins that of UTF-32
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
SIGNS = "‘’“”„«»–—…•€£§°®©™¿¡"
# Accented letters stand beside ASCII, those of other alphabets do not.
ACCENTED = rf"(?:(?<![^\x00-\x7f])|(?!.[^\x00-\x7f]))[{{}}ÄÖÜÉ]|[{SIGNS}]"
ALPHABET = rf"(?<![A-Za-z])[{{}}](?![A-Za-z])|[{SIGNS}]"
# Encodings that a file may have, each with a pattern of its frequent characters, or of their bytes for those of East Asia. Of
# encodings that fit a file equally well, the first is named.
CANDIDATES: dict[str, str | bytes] = {
    "cp1252": ACCENTED.format("àáâãäåæçèéêëìíîïñòóôõöøùúûüßœ"),
    "cp949": rb"[\xb0-\xc8][\xa1-\xfe]|\xa4[\xbb\xbe\xcc\xd0]",
    "cp932": rb"\x82[\x9f-\xf1]|\x83[\x40-\x96]|[\x81\x88-\x97].",
    "gb18030": rb"[\xa1\xa3\xb0-\xd7][\xa1-\xfe]",
    "euc_jp": rb"[\xa1\xa4\xa5\xb0-\xcf].",
    "big5": rb"[\xa1\xa4-\xc6].",
    "cp1251": ALPHABET.format("а-яё"),
    "koi8_r": ALPHABET.format("а-яё"),
    "cp1256": ALPHABET.format("ء-ي"),
    "cp1253": ALPHABET.format("ΐά-ώ"),
    "mac_roman": ACCENTED.format("àáâãäåæçèéêëìíîïñòóôõöøùúûüßœ"),
    "cp1250": ACCENTED.format("ąćęłńóśźżáčďéěíňřšťúůýžőűăâîşţßäöü"),
}
LINES, SHARE = 200, 0.6  # lines that are looked at; the share of frequent characters in an encoding that is named
CONTROL = re.compile("[\x00-\x08\x0e-\x1f\x7f-\x9f]")  # but tabs, line ends and form feeds
UNREADABLE = re.compile(f"{CONTROL.pattern}|\ufffd")
TWICE = re.compile(
    "[\xc2-\xf4][\x80-\xbf€‚ƒ„…†‡ˆ‰Š‹ŒŽ‘’“”•–—˜™š›œžŸ]"
)  # how the bytes of a UTF-8 letter look in cp1252 and latin1


def open_text(path: Path, encoding: str, newline: str = "\n") -> TextIO:
    """Open a file in the encoding of :func:`text_encoding`. By default lines end at line feeds only.

    Ending lines at U+2028 or at a lone carriage return as well would split texts.
    """
    return path.open(encoding=encoding, newline=newline)


def text_encoding(path: Path, given: str | None = None) -> str:
    """The encoding that reads a file: ``given``, or UTF-8 if the file is UTF-8, since hardly a file is by chance.

    Raises:
        FrostlineError: The file cannot be decoded, or there is no such encoding.
    """
    content = path.read_bytes()
    named, wide = None if given is None else _codec(given), _wide(content)
    if wide and named and named.startswith(wide[:6]):
        return wide
    if wide:
        instead = f", not {given}" if given else ""
        raise FrostlineError(
            f"{path}: the file is {wide.upper()}{instead}; pass --encoding {wide}, or save it as UTF-8."
        )
    if named and named.startswith(("utf-16", "utf-32")):
        raise FrostlineError(f"{path}: the file is not {given}; leave out --encoding, or correct it.")
    error = _first_error(content, "utf-8")
    if named is None or named.startswith("utf-8") or (error is None and not content.isascii()):
        if error is None:
            return UTF8
        raise FrostlineError(f"{path}{_not_utf8(content, error)}.")
    if (wrong := _first_error(content, named)) is not None:
        raise FrostlineError(f"{path}{_place(content, wrong)} is not {given}{_advice(content)}.")
    return named


def garbled_word(text: str) -> str | None:
    """The first word of a text that was probably decoded wrongly; None if there is none.

    It has a control character or U+FFFD, or the text is UTF-8 that was read as cp1252 or latin1.
    """
    if found := UNREADABLE.search(text):
        return next((word for word in text.split() if UNREADABLE.search(word)), found[0])  # U+0085 is white space
    if TWICE.search(text):
        for encoding in ("latin1", "cp1252"):
            try:
                text.encode(encoding).decode()
            except UnicodeError:
                continue
            return next(word for word in text.split() if not word.isascii())
    return None


def _codec(name: str) -> str:
    """The usual name of an encoding of texts."""
    try:
        TextIOWrapper(BytesIO(), encoding=name)
        return codecs.lookup(name).name
    except (LookupError, ValueError):
        raise FrostlineError(
            f"--encoding {quoted(name)} is not known; give one such as utf-16, {', '.join([*CANDIDATES][:4])}."
        ) from None


def _wide(content: bytes) -> str | None:
    """UTF-16 or UTF-32: by the byte order mark, or because line ends and commas only make sense so; None for other files."""
    if marked := next((name for mark, name in MARKS.items() if content.startswith(mark)), None):
        return marked
    if b"\0" not in content[:4096]:
        return None
    expected = len(re.findall(rb"[\n\t,{]", content)) / 2  # some of these bytes may be parts of letters
    for name in ("utf-32-le", "utf-32-be", "utf-16-le", "utf-16-be"):
        try:
            text = content.decode(name)
        except UnicodeError:
            continue
        if len(re.findall(r"[\n\t,{]", text)) > expected and not CONTROL.search(text[:4096]):
            return name
    return None


def _first_error(content: bytes, encoding: str) -> UnicodeError | None:
    try:
        content.decode(encoding)
    except UnicodeError as error:
        return error
    return None


def _place(content: bytes, error: UnicodeError) -> str:
    """The line and the byte of an error."""
    start = getattr(error, "start", 0)
    line = content.count(b"\n", 0, start) + 1
    return f", line {line}: byte {start:,} (0x{content[start]:02x})"


def _not_utf8(content: bytes, error: UnicodeError) -> str:
    """What is wrong with a file that is not UTF-8, and what to do."""
    if b"\0" in content:
        return ": this is not a UTF-8 text file; export the table as CSV, or correct the ending of its name"
    place = _place(content, error)
    if getattr(error, "start", 0) > len(content) - 4 and "end of data" in str(error):
        return f"{place} begins a character that is cut off; the file is not complete, write or copy it again"
    lines = [line for line in content.split(b"\n") if not line.isascii()]
    broken = [line for line in lines if _first_error(line, "utf-8") is not None]
    if len(broken) < len(lines):
        return (
            f"{place} is not UTF-8, as in {len(broken):,} of the {len(lines):,} lines with other characters than ASCII: the file "
            f"mixes encodings, or is damaged; write {'this line' if len(broken) == 1 else 'these lines'} again"
        )
    return f"{place} is not UTF-8{_advice(content)}"


def _advice(content: bytes) -> str:
    """The encoding that the bytes look like, with a word as it reads it, and what to do."""
    name, word = _guess(content)
    if name is None:
        return "; pass the encoding that the program which wrote it uses with --encoding, or save the file as UTF-8"
    return (
        f"; it looks like {name} ({quoted(word, 24)}): pass --encoding {name} if this reads right, else that of the program "
        "which wrote it, or save it as UTF-8"
    )


def _guess(content: bytes) -> tuple[str | None, str]:
    """The encoding in which a file has the largest share of frequent characters, and a word as it reads it."""
    lines = b"\n".join([line for line in content.split(b"\n") if not line.isascii()][:LINES])
    best: tuple[float, str | None, str] = (SHARE, None, "")
    for name, pattern in CANDIDATES.items():
        try:
            text = lines.decode(name)
        except UnicodeDecodeError:
            continue
        beyond = [char for char in text if not char.isascii()]
        if isinstance(pattern, str):
            frequent = len(re.findall(pattern, text))
        else:
            frequent = sum(re.fullmatch(pattern, char.encode(name), re.DOTALL) is not None for char in beyond)
        if frequent > best[0] * len(beyond):
            word = next(word for word in re.split(r"[\s,;|\"]+", text) if not word.isascii())
            best = frequent / len(beyond), name, word
    return best[1:]
