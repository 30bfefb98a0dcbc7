"""How messages show names, numbers, durations and foreign text, and speak Python or the command line; how values are parsed."""

import difflib
import html
import json
import os
import re
import shlex
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from math import ceil
from pathlib import PurePath
from typing import Any

from frostline import FrostlineError

SHOWN_ROWS = 10  # the largest number of row numbers in a message or report
LONG_LINE = 200  # characters of an error's message
# Characters that show nothing: control and format characters, variation selectors, fillers and the blank Braille pattern
# (Default_Ignorable_Code_Point in Unicode's DerivedCoreProperties.txt). Tag characters (group 1) tell the flags of regions.
INVISIBLE = re.compile(
    r"(\U0001f3f4[\U000e0020-\U000e007f]+)|[\x00-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f"
    r"\u200b-\u200f\u2028-\u202e\u2060-\u206f\u2800\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U0001bca0-\U0001bca3"
    r"\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
# Letters, dashes and quotation marks that look like others in most fonts.
LOOKS_LIKE = str.maketrans(
    "аеһіјорсԛѕԝухӏԁοօیکہАВЕЅІЈКМНОРСТУХ‐‑‒–—―−‘’‛ʼ′“”„‟″вкмнт",
    "aehijopcqswyxldooيكهABESIJKMHOPCTYX-------'''''\"\"\"\"\"bkmht",
)
CONTROLS = ("Cc", "Cf", "Cs", "Zl", "Zp")  # Unicode's control and format characters, surrogates, separators of lines
BAR = re.compile(r"\r|\n*(\x1b\[A)+\Z")  # what tqdm writes before a bar, and to reach its line
JOINERS = "\u200c\u200d"  # the only format characters that words and emoji need


def counted(count: int, one: str, several: str = "") -> str:
    """``1 run``, ``2 runs``."""
    return f"{count:,} {one if count == 1 else several or f'{one}s'}"


def quoted(value: object, limit: int = 60) -> str:
    """The value's ``repr``, shortened to ``limit`` characters. It shows invisible characters and unusual spaces."""
    shown = INVISIBLE.sub(lambda found: found[1] or ascii(found[0])[1:-1], repr(value))
    return shown if len(shown) <= limit else shown[: limit - 4] + "..." + shown[-1]


def listed(values: Iterable[object], limit: int = 12) -> str:
    """The values quoted and separated by commas: ``'a', 'b', 'c' and 4 more``."""
    all_values = list(values)
    shown = ", ".join(quoted(value) for value in all_values[:limit])
    return shown if len(all_values) <= limit else f"{shown} and {len(all_values) - limit:,} more"


def first_rows(rows: Iterable[int]) -> str:
    """The first row numbers for a message: ``3, 8`` or ``3, 8, ...``."""
    numbers = list(map(int, rows))
    return ", ".join(map(str, numbers[:SHOWN_ROWS])) + (", ..." if len(numbers) > SHOWN_ROWS else "")


def harmless(text: str, *, keep: str = "\n\t") -> str:
    """The text with an escape such as ``\\x1b`` or ``\\u202e`` for each character that a terminal obeys, or does not show.

    These are control characters, which can change what was printed before, direction overrides, and characters without width.
    Those to ``keep`` stay.
    """
    if text.isprintable():
        return text
    kept = keep + JOINERS
    return "".join(
        one
        if one.isprintable() or one in kept or unicodedata.category(one) not in CONTROLS
        else one.encode("unicode_escape").decode()
        for one in text
    )


class HarmlessStream:
    """A stream on which all text is :func:`harmless`. Text for which the program itself vouches goes to ``unchecked``.

    Args:
        unchecked: The stream.
        bars: Whether a library may draw progress bars, which begin with a carriage return or move to another line.
    """

    def __init__(self, unchecked: Any, *, bars: bool = False) -> None:
        self.unchecked, self.bars = unchecked, bars

    def write(self, text: str) -> int:
        of_bar = BAR.match(text) if self.bars else None
        start = of_bar[0] if of_bar else ""
        if self.unchecked is not None:  # a program without a console has no streams
            self.unchecked.write(start + harmless(text[len(start) :]))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.unchecked, name)


def unchecked(stream: Any) -> Any:
    """The stream itself, if it is a :class:`HarmlessStream` or not."""
    return stream.unchecked if isinstance(stream, HarmlessStream) else stream


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """`` (did you mean 'label'?)`` if one of the known names is similar, else an empty string."""
    text = ""
    for one in similar_names(name, known):
        differing = difference(name, one) if visible(name) == visible(one) else ""
        text += f" (did you mean {quoted(one)}?{f' They differ in {differing}' if differing else ''})"
    return text


def similar_names(name: str, known: Iterable[str], limit: int = 1) -> list[str]:
    """The known names that are similar to ``name``, at most ``limit``, the most similar first."""
    by_visible = {visible(one): one for one in known}
    return [by_visible[one] for one in difflib.get_close_matches(visible(name), list(by_visible), n=limit)]


def is_storable(text: str) -> bool:
    """Whether a text can be written as UTF-8. A text with half a character (a lone surrogate) cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def visible(name: str, *, fold_case: bool = True) -> str:
    """What readers take a name for: no white space, invisible characters or forms of a character, and by default no case."""
    shown = "".join(unicodedata.normalize("NFKC", INVISIBLE.sub(r"\1", name)).split())
    return (shown.casefold() if fold_case else shown).translate(LOOKS_LIKE)


def difference(one: str, other: str) -> str:
    """The characters beyond ASCII in which two names differ, such as ``U+200B ZERO WIDTH SPACE``, at most two."""
    counts = Counter(one), Counter(other)
    differing = [char for char in dict.fromkeys(one + other) if char > "~" and counts[0][char] != counts[1][char]]
    return " and ".join(f"U+{ord(char):04X} {unicodedata.name(char, '')}".strip() for char in differing[:2])


MARKDOWN = re.compile(r"([\\`*_\[\]#|~$])")


def in_markdown(text: str) -> str:
    """Text from a user on one line, escaped so that Markdown shows it unchanged."""
    return MARKDOWN.sub(r"\\\1", html.escape(" ".join(text.split()), quote=False))


def first_line(error: BaseException) -> str:
    """The type of an error and the first line of its message: ``ValueError: not a number``.

    A long line is cut after a sentence: torch explains a lack of memory in ten.
    """
    line = "".join(str(error).strip().splitlines()[:1])
    ends = [found.start() for found in re.finditer(r"\. (?=[A-Z])", line[:LONG_LINE])]
    if len(line) > LONG_LINE and ends:
        line = line[: ends[-1]]
    return ": ".join([type(error).__name__, *([line] if line else [])])


def capitalized(text: str) -> str:
    """The text with its first letter in upper case. All other letters stay as they are."""
    return f"{text[:1].upper()}{text[1:]}"


def ranges(numbers: Iterable[int]) -> list[tuple[int, int]]:
    """Ranges of consecutive numbers in ascending order, each as its first and its last number."""
    found: list[tuple[int, int]] = []
    for number in sorted(set(numbers)):
        if found and found[-1][1] == number - 1:
            found[-1] = (found[-1][0], number)
        else:
            found.append((number, number))
    return found


def duration(seconds: float) -> str:
    """A rounded duration with its unit: ``9.5 s``, ``42 s``, ``3 min 20 s``, ``45 min``, ``2.5 h``."""
    if seconds < 119.5:
        return f"{seconds:.2g} s" if seconds < 9.95 else f"{seconds:.0f} s"
    if seconds < 595:
        minutes, rest = divmod(round(seconds / 10), 6)
        return f"{minutes} min" + (f" {10 * rest} s" if rest else "")
    return f"{seconds / 60:.0f} min" if seconds < 7170 else f"{seconds / 3600:.1f} h"


INTEGER = re.compile(r"[+-]?[0-9]+")
QUOTED = re.compile(r'"((?:[^"]|"")*)"(?=\s*(?:[=,]|$))')
PART = re.compile(rf",\s*(?:{QUOTED.pattern})?[^,]*")
NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
UNITS = {
    **dict.fromkeys(("s", "sec", "second", "seconds"), 1),
    **dict.fromkeys(("m", "min", "minute", "minutes"), 60),
    **dict.fromkeys(("h", "hour", "hours"), 3600),
}  # of a duration, in seconds
DURATION = re.compile(rf"\s*([0-9]*\.?[0-9]+)\s*({'|'.join(UNITS)})?\s*")


def comma_separated(text: str) -> list[str]:
    """The parts of a text between its commas, without surrounding white space.

    As in CSV, a part with commas stands in double quotes, and a double quote inside them is doubled.
    """
    parts = []
    for match in PART.finditer(f",{text}"):
        part = match[0].strip().removeprefix(",").strip()
        if quotes := QUOTED.match(part):  # ``=VALUE`` may follow them
            part = quotes[1].replace('""', '"') + part[quotes.end() :]
        parts.append(part)
    return parts


def comma_joined(values: Iterable[object]) -> str:
    """The values as :func:`comma_separated` reads them."""
    texts = [str(value) for value in values]
    plain = [text == text.strip() and not {",", '"'} & {*text} for text in texts]
    doubled = [text.replace('"', '""') for text in texts]
    return ",".join(text if one else f'"{twice}"' for text, one, twice in zip(texts, plain, doubled, strict=True))


def normalized_name(name: str) -> str:
    """The letters and digits of a name in lower case: SST-2, sst2 and sst_2 give the same."""
    return "".join(char for char in name.casefold() if char.isalnum())


def duration_at_least(seconds: float) -> str:
    """A duration as :func:`parse_duration` reads it, rounded up: ``90s`` up to 99 seconds, else minutes."""
    return f"{ceil(seconds)}s" if seconds <= 99 else f"{ceil(seconds / UNITS['min'])}min"


def parse_duration(text: str) -> float:
    """Seconds from ``90``, ``90s``, ``10min`` or ``2h``.

    Raises:
        FrostlineError: The text is not a duration.
    """
    found = DURATION.fullmatch(text)
    if not found:
        raise FrostlineError(f"{text!r} is not a duration: give seconds, or as in 90s, 10min, 2h.")
    return float(found[1]) * UNITS[found[2] or "s"]


# Settings and arguments that are true or false. A flag for one of them has no value.
SWITCHES = (
    "trust_remote_code",
    "skip_unlabelled",
    "gradient_checkpointing",
    "load_best_model_at_end",
    "label_all_tokens",
    "standardize_targets",
    "tune_pooler",
    "frozen_dropout",
    "stream",
    "keep_adapter",
    "embed",
    "calibrate",
    "refit",
    "exhaustive",
    "overwrite",
    "wait",
)
FUNCTIONS = (  # and commands
    *("find", "sweep", "plan", "work", "merge", "track", "predict", "bundle", "push", "probe", "check"),
)
VALUE = (
    r"'[^']*'|\"[^\"]*\"|[0-9][\w.,-]*\b|[\w.-]+(?:,[\w.-]+)+\b|[A-Z]{3,}\b|"
    r"(?:none|named|full|auto|cpu|balanced|float32|logistic|ridge|utf-16|cp\d+|(?:\w+-)*classification|regression)\b|"
    r"[a-z0-9]+_[a-z0-9_]+"
)
OF_SHELL = re.compile(
    rf"`(?P<command>frostline (?P<name>\w+)[^`]*)`|(?<![\w-])--(?P<no>no-)?(?P<flag>[a-z][a-z-]*)=?(?: ?(?P<value>{VALUE}))?"
)
CLI_ONLY = {"same command": "same call", ", or the key in a TOML file": "", "give a TOML file, or ": "give "}
_for_shell = [False]  # whether messages are read in a shell


@contextmanager
def shell_spoken() -> Iterator[None]:
    """For the command line: messages name flags and commands, as they are written in this package."""
    before, _for_shell[0] = _for_shell[0], True
    try:
        yield
    finally:
        _for_shell[0] = before


def spoken(message: str) -> str:
    """A message in the language of its reader: as it is in a shell, else with arguments for flags and calls for commands."""
    if _for_shell[0]:
        return message
    for words, instead in CLI_ONLY.items():
        message = message.replace(words, instead)
    return OF_SHELL.sub(_in_python, message)


def _in_python(found: re.Match[str]) -> str:
    """``tune=`` for ``--tune``, and a call for a command: ``open("o").more(seeds=5)`` for ``sweep o/sweep.toml --seeds 5``."""
    if found["command"]:
        calls = [_call(part) for part in found["command"].split(" && ")]
        return f"`{'; '.join(calls)}`" if found["name"] in FUNCTIONS else found[0]
    name, value = found["flag"].replace("-", "_"), found["value"]
    if found["no"] or name in SWITCHES:
        return f"{name}={not found['no']}{'' if value is None else f' {value}'}"
    return name + "=" + ("" if value is None else _literal(value.strip("'\"")))


def _call(command: str) -> str:
    """The call for a command with its arguments."""
    _, name, *words = shlex.split(command)
    given: list[str] = []
    for word in words:
        if word.startswith("--"):
            flag = word.removeprefix("--no-").removeprefix("--").replace("-", "_")
            given.append(f"{flag}=False" if word.startswith("--no-") else f"{flag}=")
        elif given and given[-1].endswith("="):
            given[-1] += _literal(word)
        else:
            given.append(_literal(word))
    folder, toml = os.path.split(words[0]) if words else ("", "")
    start = f"frostline.{name}"
    if toml == "sweep.toml":
        start, given = f"frostline.open({_literal(folder or '.')}).more", given[1:]
    ends = ("..." if one.endswith("=") and one[:-1] not in SWITCHES else "True" * one.endswith("=") for one in given)
    arguments = ", ".join(map("".join, zip(given, ends, strict=True)))
    return f"{start}({arguments})" if words else start


def _literal(word: str) -> str:
    """A word of a command line as Python writes the value: a number, a placeholder such as FILE, or a text in quotes."""
    return word if NUMBER.fullmatch(word) or word.isupper() else json.dumps(word, ensure_ascii=False)


def model_name(model: str) -> str:
    """The name of a model. For a local folder it is the last part of the path except ``model``, so that no path
    of this machine is shown."""
    if not (os.path.isabs(model) or model.startswith((".", "~")) or "\\" in model):
        return model
    parts = [part for part in PurePath(model).parts if part not in ("model", "/", ".", "..", "~")]
    return parts[-1] if parts else "model"


def kept_layers(depth: int | None) -> str:
    """What to write after the name of a model of which only the first ``depth`` layers are kept; empty for None."""
    return "" if depth is None else f", cut to its first {'layer' if depth == 1 else f'{depth} layers'}"
