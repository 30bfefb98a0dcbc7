"""Names, numbers, durations and errors in messages."""

import io
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frostline import FrostlineError
from frostline.data.wording import (
    SWITCHES,
    HarmlessStream,
    comma_joined,
    comma_separated,
    duration,
    duration_at_least,
    first_line,
    harmless,
    parse_duration,
    ranges,
    shell_spoken,
    unchecked,
)
from frostline.sweeps.settings import Settings


@given(st.sets(st.integers(0, 30)))
def test_ranges_contain_every_number_and_are_separated_by_gaps(numbers: set[int]) -> None:
    found = ranges(numbers)
    assert [n for first, last in found for n in range(first, last + 1)] == sorted(numbers)
    assert all(one[1] + 1 < other[0] for one, other in pairwise(found))


def test_durations_are_rounded_and_have_a_unit() -> None:
    shown = {0.123: "0.12 s", 9.94: "9.9 s", 42: "42 s", 200: "3 min 20 s", 300: "5 min", 2700: "45 min", 9000: "2.5 h"}
    assert {seconds: duration(seconds) for seconds in shown} == shown


def test_the_first_line_of_an_error_has_its_type() -> None:
    errors = ("not a number\nline 2", " \n", "")
    assert [first_line(ValueError(one)) for one in errors] == ["ValueError: not a number", "ValueError", "ValueError"]


@given(st.lists(st.text("abc .", max_size=90), min_size=1, max_size=9))
def test_a_long_line_of_an_error_is_cut_after_a_sentence(sentences: list[str]) -> None:
    """A full stop inside a sentence, as in an abbreviation, is followed by a small letter."""
    message = ". ".join(f"X{one.rstrip(' .')}" for one in sentences)

    shown = first_line(ValueError(message)).removeprefix("ValueError: ")
    assert message.startswith(shown) and message[len(shown) : len(shown) + 3] in ("", ". X")
    assert len(shown) < 200 or ". X" not in message[:199]
    assert shown == message or len(message) > 200


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain, é, 日本語, \U0001f600", "plain, é, 日本語, \U0001f600"),
        ("a\nb\tc", "a\nb\tc"),
        ("12\u00a0%", "12\u00a0%"),
        ("\x1b[31m", r"\x1b[31m"),
        ("\x1b]8;;http://x\x1b\\\\", r"\x1b]8;;http://x\x1b" + "\\\\"),
        ("a\rb\x08\x00\x7f", r"a\rb\x08\x00\x7f"),
        ("\x9b2J\x85", r"\x9b2J\x85"),
        ("\u202eabc\u2066\u200e", r"\u202eabc\u2066\u200e"),
        ("\u200b\ufeff\u00ad\U000e0041", r"\u200b\ufeff\xad\U000e0041"),
        ("a\u2028b\u2029", r"a\u2028b\u2029"),
        ("\udc80", r"\udc80"),
        ("\U0001f468\u200d\U0001f373 \u06cc\u200c", "\U0001f468\u200d\U0001f373 \u06cc\u200c"),
    ],
)
def test_text_that_controls_a_terminal_is_shown_as_escapes(text: str, shown: str) -> None:
    assert harmless(text) == shown == harmless(shown)
    assert harmless("a\nb", keep="") == r"a\nb"


def test_a_stream_checks_all_text_but_the_bars_of_libraries() -> None:
    out, err = io.StringIO(), io.StringIO()
    print("a\x1b[1m", "b\r", file=HarmlessStream(out))
    stream = HarmlessStream(err, bars=True)
    for text in ("\r 10%|x\x1b[1m", "\n\x1b[A", "\x1b[A\x1b[31m", "a\rb"):
        stream.write(text)
    assert (out.getvalue(), unchecked(stream)) == ("a\\x1b[1m b\\r\n", err)
    assert err.getvalue() == "\r 10%|x\\x1b[1m" + "\n\x1b[A" + "\\x1b[A\\x1b[31m" + "a\\rb"


@given(st.floats(0.01, 1e6))
def test_a_duration_for_a_flag_is_enough_and_little_more(seconds: float) -> None:
    assert seconds <= parse_duration(duration_at_least(seconds)) < seconds + 60
    assert [parse_duration(text) for text in ("5 minutes", "1 hour", "2sec", "7")] == [300, 3600, 2, 7]
    assert duration_at_least(62.1) == "63s" and duration_at_least(99.5) == "2min"


@given(st.lists(st.text('ab ",=\n', max_size=5).map(str.strip).filter(bool), min_size=1))
def test_parts_are_read_as_they_are_joined(words: list[str]) -> None:
    assert comma_separated(comma_joined(words)) == words


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ('"rock, pop",jazz', ["rock, pop", "jazz"]),
        (' "rock, pop" , jazz', ["rock, pop", "jazz"]),
        ('"say ""hi"", you",b', ['say "hi", you', "b"]),
        ('"rock, pop"=2,jazz=1', ["rock, pop=2", "jazz=1"]),
        ('5" disk,"quoted" word', ['5" disk', '"quoted" word']),
        ('"""quoted""",b', ['"quoted"', "b"]),
        ('"not closed,b', ['"not closed', "b"]),
        ("a,,b", ["a", "", "b"]),
    ],
)
def test_commas_in_quotes_separate_nothing(text: str, parts: list[str]) -> None:
    assert comma_separated(text) == parts


def test_messages_name_arguments_and_calls_in_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same messages name flags and commands in a shell."""
    monkeypatch.setattr("frostline.data.wording._for_shell", [False])
    in_python = {
        "leave --labels out, or --no-stream.": "leave labels= out, or stream=False.",
        "with --frozen-dropout, or --test none": 'with frozen_dropout=True, or test="none"',
        "pass --task-type token-classification or --train FILE": 'pass task_type="token-classification" or train=FILE',
        "--num-train-epochs 3,9 --label-column 'a b' --max-length 64": 'num_train_epochs="3,9" label_column="a b" max_length=64',
        "run `frostline track o --to mlflow`": 'run `frostline.track("o", to="mlflow")`',
        "run `frostline predict`; `frostline status o --watch`": "run `frostline.predict`; `frostline status o --watch`",
        "`frostline sweep 'o b/sweep.toml' --tune last-2,full --seeds 5`": (
            '`frostline.open("o b").more(tune="last-2,full", seeds=5)`'
        ),
        "`frostline work o --wait && frostline sweep sweep.toml --no-stream`": (
            '`frostline.work("o", wait=True); frostline.open(".").more(stream=False)`'
        ),
        "model is missing: give --model, or the key in a TOML file (hub name).": "model is missing: give model= (hub name).",
    }
    for message, expected in in_python.items():
        error = FrostlineError(message)
        assert str(error) == expected
        with shell_spoken():
            assert str(error) == message
    switches = {name for name, field in Settings.model_fields.items() if field.annotation in (bool, bool | None)}
    assert switches == {*SWITCHES} - {"exhaustive", "overwrite", "wait"}
