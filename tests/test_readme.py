"""The README's commands and its Python, run as they stand: on a tiny model under the hub name that they use."""

import json
import re
import shlex
from pathlib import Path

import huggingface_hub.constants
import pytest

from frostline.cli import app
from tiny import sentences, tiny_bert_folder, write_csv

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
COMMANDS = re.findall(r"^    (frostline .*)$", README, re.MULTILINE)
PYTHON = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
HUB_NAME = "google-bert/bert-base-uncased"


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with what the README speaks of: its CSV files, its local model, and its hub model in the hub's cache."""
    rows = sentences(120)
    write_csv(tmp_path / "reviews.csv", rows)
    write_csv(tmp_path / "new.csv", [{"text": row["text"]} for row in rows[:5]])
    tiny_bert_folder(tmp_path / "my-model")
    table = [{"task": "sentiment", "k": k, "seed": seed, "acc": 0.6 + 0.1 * k} for k in (0, 1, 2) for seed in (0, 1)]
    write_csv(tmp_path / "runs.csv", [{name: str(value) for name, value in row.items()} for row in table])
    (tmp_path / "glue" / "sst2").mkdir(parents=True)
    for split, count, seed in (("train", 80, 0), ("dev", 40, 1)):
        lines = [f"{row['text']}\t{int(row['label'] == 'positive')}" for row in sentences(count, seed=seed)]
        (tmp_path / "glue" / "sst2" / f"{split}.tsv").write_text("\n".join(["sentence\tlabel", *lines]) + "\n")
    commit = "0" * 40
    hub = tmp_path / "hub" / f"models--{HUB_NAME.replace('/', '--')}"
    tiny_bert_folder(hub / "snapshots" / commit, layers=12)
    (hub / "refs").mkdir()
    (hub / "refs" / "main").write_text(commit)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_commands(desk: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """All of them in their order; what they promise to leave is there."""
    assert len(COMMANDS) >= 11
    for command in COMMANDS:
        app(shlex.split(command)[1:], standalone_mode=False)
        assert capsys.readouterr().out.strip(), command
    for promised in re.findall(r"^    (reviews/\S+)", README, re.MULTILINE):
        assert (desk / promised).exists(), promised
    assert (desk / "new.predictions.csv").read_text().startswith("row,text,label,p(negative),p(positive)\n")


def test_python(desk: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert len(PYTHON) == 1
    exec(PYTHON[0], {})
    said = capsys.readouterr().out.strip()
    assert said == json.loads((desk / "mine" / "answer.json").read_text())["sentence"]


def test_the_two_commands_are_in_the_makefile() -> None:
    makefile = (Path(__file__).parents[1] / "Makefile").read_text()
    for command in ("demo", "test"):
        assert f"make {command}" in README
        assert re.search(rf"^{command}:", makefile, re.MULTILINE)
