"""The encoding of a text file: UTF-8, the one that the user names, or what the bytes look like, for the error message."""

import codecs
import re
import unicodedata
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
# Encodings that a file may have, the most frequent first, with the stricter encoding of their frequent characters.
CANDIDATES = {
    **{
        "cp1252": "cp1252",
        "cp949": "iso2022_kr",
        "cp932": "shift_jis",
        "euc_jp": "euc_jp",
        "gb18030": "gb2312",
        "big5": "big5",
    },
    **{
        one: one for one in ("mac_roman", "cp1250", "cp1251", "koi8_r", "cp1253", "cp1254", "cp1255", "cp1256", "cp874")
    },
    **{one: one for one in ("iso8859_15", "cp850")},
}
KANA, EAST_ASIAN = {"HIRAGANA", "KATAKANA"}, {"CJK", "HIRAGANA", "KATAKANA"}
OF_SCRIPT = {"iso2022_kr": {"HANGUL SYLLABLE"}, **dict.fromkeys(("shift_jis", "euc_jp", "gb2312", "big5"), EAST_ASIAN)}
FREQUENT = {"gb2312": 0xD8, "big5": 0xC7}  # frequent Chinese characters have a smaller first byte
SAMPLE, SHOWN = 200, 4  # lines that decide between encodings; encodings that a message names
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
    """Encodings in which a file makes sense, with a word as each reads it, and what to do."""
    found = _readings(content)
    if len(found) < 2:
        name, looks = (
            next(iter(found), "NAME"),
            "".join(f"; it looks like {one} ({quoted(word, 24)})" for one, word in found.items()),
        )
        return f"{looks}; pass --encoding {name}, or save the file as UTF-8"
    shown = " or ".join(f"{name} ({quoted(word, 24)})" for name, word in found.items())
    return f"; it may be {shown}: pass the one that reads right, such as --encoding {next(iter(found))}, or save it as UTF-8"


def _readings(content: bytes) -> dict[str, str]:
    """The most plausible encodings, the best first, each with a word as it reads it."""
    lines = [line for line in content.split(b"\n") if not line.isascii()][:SAMPLE]
    scores: dict[str, float] = {}
    read: dict[str, list[str]] = {}  # the words with other characters than ASCII
    for name, strict in CANDIDATES.items():
        try:
            words = [
                word for line in lines for word in re.split(r"[\s,;|\"]+", line.decode(name)) if not word.isascii()
            ]
        except UnicodeDecodeError:
            continue
        if not words or any(CONTROL.search(word) or "Co" in map(unicodedata.category, word) for word in words):
            continue
        if words in read.values() or (name in ("cp932", "euc_jp") and not any(KANA & _scripts(word) for word in words)):
            continue
        scores[name], read[name] = sum(_is_plausible(word, strict) for word in words) / len(words), words
    likely = [name for name, score in scores.items() if score >= max(0.3, 0.8 * max(scores.values()))]
    found = sorted(likely, key=lambda name: -round(scores[name], 2))[:SHOWN]
    shared = range(min((len(read[name]) for name in found), default=0))
    telling = max(shared, key=lambda n: len({read[name][n] for name in found}), default=0)
    by_word = {read[name][telling]: name for name in reversed(found)}  # of those that read it alike, the best
    return {name: read[name][telling] for name in found if by_word[read[name][telling]] == name}


def _scripts(word: str) -> set[str]:
    """The scripts of the letters of a word. Letters of Hangul that form no syllable have the script ``HANGUL LETTER``."""
    names = (unicodedata.name(char, "?").split() for char in word if unicodedata.category(char)[0] in "LM")
    return {" ".join(name[:2]) if name[0] == "HANGUL" else name[0].partition("-")[0] for name in names} - {"COMBINING"}


def _is_frequent(char: str, strict: str) -> bool:
    """Whether a letter is among the frequent ones of an encoding, given by a stricter one."""
    try:
        return char.encode(strict)[0] < FREQUENT.get(strict, 256)
    except UnicodeEncodeError:
        return False


def _is_plausible(word: str, strict: str) -> bool:
    """Whether a word with other characters than ASCII looks like one of a language: one script, regular case, usual signs."""
    letters, scripts = [char for char in word if char.isalpha()], _scripts(word)
    signs = [char for char in word if not (char.isascii() or char.isalpha() or unicodedata.category(char)[0] in "MPZ")]
    frequent = sum(_is_frequent(char, strict) for char in letters)
    if 2 * frequent < len(letters) or not set(signs) <= set("€£¥°©®™×·½"):
        return False
    if all(char.isascii() or unicodedata.category(char)[0] not in "LM" for char in word):
        return True
    if strict in OF_SCRIPT:
        return scripts <= OF_SCRIPT[strict]
    beyond = sum(not char.isascii() for char in letters)
    if len(scripts) > 1 or (scripts == {"LATIN"} and beyond > max(1, 0.8 * len(letters))):
        return False
    parts = [part for part in re.split(r"[\W\d_]+", word) if part]
    return all(part in (part.lower(), part.upper(), part.capitalize()) for part in parts)
