"""Sentences of CoNLL files that no blank line divides."""

from pathlib import Path

import pytest

from frostline import FrostlineError
from frostline.data.kinds import DataSpec
from frostline.data.load import load_data

MANY = "".join(f"Anna\tB-person\nsings{n}\tO\n\n" for n in range(30))
ONE = MANY.replace("\n\n", "\n")


def refusal(folder: Path, **contents: str) -> str | None:
    for name, content in contents.items():
        (folder / f"{name}.conll").write_text(content)
    try:
        load_data(DataSpec(**{name: folder / f"{name}.conll" for name in contents}))
    except FrostlineError as error:
        return str(error)
    return None


def test_a_file_without_blank_lines_is_refused(tmp_path: Path) -> None:
    remedy = "because it has no blank line; write a blank line after each sentence."
    assert refusal(tmp_path, train=ONE) == f"{tmp_path}/train.conll: the file has one sentence of 60 words, {remedy}"
    long = ONE * 4
    assert (
        refusal(tmp_path, train=MANY, test=long)
        == f"{tmp_path}/test.conll: the file has one sentence of 240 words, {remedy}"
    )
    assert refusal(tmp_path, train=MANY, test=ONE) is None  # maybe a long sentence


def test_a_sentence_that_was_chosen_from_many_is_no_file_without_blank_lines(tmp_path: Path) -> None:
    (tmp_path / "train.conll").write_text(MANY)
    with pytest.raises(FrostlineError, match="1 of 1 rows held out"):
        load_data(DataSpec(train=tmp_path / "train.conll", first_rows=1))
