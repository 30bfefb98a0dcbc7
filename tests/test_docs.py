"""Runs every example of the README and the documentation unchanged, on tiny models with the names that they use."""

import ast
import csv
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import huggingface_hub.constants
import pytest

from frostline.cli import app
from tagged import conll, tagged
from tiny import sentences, tiny_bert_folder, write_csv

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = [
    ROOT / "README.md",
    *sorted(path for path in DOCS.rglob("*.md") if path.parent.name not in ("tables", "benchmarks")),
]
HUB_NAME = "google-bert/bert-base-uncased"
BLOCK = re.compile(r"^```(console|python|toml)\n(.*?)^```", re.MULTILINE | re.DOTALL)
DIFF = re.compile(r"^`(\S+)`[^\n]*:\n\n```diff\n(.*?)^```", re.MULTILINE | re.DOTALL)
ONE_EPOCH = "--num-train-epochs 1"
FAST = {
    "sweep": ONE_EPOCH,
    "find": f"{ONE_EPOCH} --budget 1s",
    "compare": f"{ONE_EPOCH} --learning-rate 1e-3 --head-learning-rate 1e-3",
    "study": ONE_EPOCH,
}


def blocks(page: Path) -> list[tuple[str, str]]:
    """The language and the content of each example, in order."""
    return [(kind, text) for kind, text in BLOCK.findall(page.read_text(encoding="utf-8"))]


def commands(text: str) -> list[list[str]]:
    """The words of each ``$ frostline ...`` line. CI tests the installation."""
    return [shlex.split(line[2:], comments=True)[1:] for line in text.splitlines() if line.startswith("$ frostline ")]


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with ``my-model`` and a hub cache that has the model of the examples."""
    folder = tmp_path_factory.mktemp("models")
    tiny_bert_folder(folder / "my-model")
    hub = folder / "hub" / f"models--{HUB_NAME.replace('/', '--')}"
    tiny_bert_folder(hub / "snapshots" / ("0" * 40), layers=4)
    (hub / "refs").mkdir()
    (hub / "refs" / "main").write_text("0" * 40)
    return folder


@pytest.fixture
def desk(tmp_path: Path, models: Path, finished_sweep: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with everything that the examples use: tables, models, results, a finished sweep."""
    rows = sentences(120)
    write_csv(tmp_path / "reviews.csv", rows)
    write_csv(tmp_path / "new.csv", [{"text": row["text"]} for row in rows[:5]])
    stars = [{"comment": row["text"], "stars": str(1 + n % 3)} for n, row in enumerate(rows)]
    write_csv(tmp_path / "comments.csv", stars)
    marks = {
        "plot": lambda words: "plot" in words,
        "warm": lambda words: "warm" in words,
        "long": lambda words: len(words) > 6,
    }
    flags = [{name: int(mark(row["text"].split())) for name, mark in marks.items()} for row in rows]
    both = list(zip(rows, flags, strict=True))
    write_csv(tmp_path / "indicators.csv", [{"text": row["text"], **of_row} for row, of_row in both])
    lines = [{"text": row["text"], "labels": [name for name, has in of_row.items() if has]} for row, of_row in both]
    (tmp_path / "topics.jsonl").write_text("\n".join(map(json.dumps, lines)))
    words, tags = tagged(100)
    (tmp_path / "entities.conll").write_text(conll(words, tags))
    (tmp_path / "new.conll").write_text(conll(words[:5], tags[:5]))
    table = [{"task": "sentiment", "k": k, "seed": seed, "acc": 0.6 + 0.1 * k} for k in (0, 1, 2) for seed in (0, 1)]
    write_csv(tmp_path / "runs.csv", [{name: str(value) for name, value in row.items()} for row in table])
    (tmp_path / "glue" / "sst2").mkdir(parents=True)
    for split, count, seed in (("train", 80, 0), ("dev", 40, 1)):
        lines = [f"{row['text']}\t{int(row['label'] == 'positive')}" for row in sentences(count, seed=seed)]
        (tmp_path / "glue" / "sst2" / f"{split}.tsv").write_text("\n".join(["sentence\tlabel", *lines]) + "\n")
    (tmp_path / "my-model").symlink_to(models / "my-model")
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(models / "hub"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(words: list[str]) -> None:
    """Run a command in this process, with flags that make it fast. Flags of the example come later and take precedence."""
    if "ray" in words:  # tests/faults/test_ray.py has a cluster
        words = [*words, "--dry-run"]
    quick = [] if "--dry-run" in words else FAST.get(words[0], "").split()
    app([words[0], *quick, *words[1:]], standalone_mode=False)


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page)], ids=lambda page: str(page.relative_to(ROOT)))
def test_examples(page: Path, desk: Path, finished_sweep: Path, capsys: pytest.CaptureFixture[str]) -> None:
    all_commands = [words for kind, text in blocks(page) if kind == "console" for words in commands(text)]
    made = {words[words.index("--out") + 1] for words in all_commands if "--out" in words}
    if "reviews" not in made:  # the page reads this folder but does not create it
        (desk / "reviews").symlink_to(finished_sweep)
    for kind, text in blocks(page):
        if kind == "toml":
            (desk / "reviews.toml").write_text(text)
        elif kind == "python":
            exec(text, {})
            assert capsys.readouterr().out.strip(), text
        for words in commands(text) if kind == "console" else []:
            if words[0] == "demo":
                continue  # tests/api/test_demo.py runs it
            run(words)
            assert capsys.readouterr().out.strip(), words
    for path in re.findall(r"^\| `(reviews/\S+)`", page.read_text(encoding="utf-8"), re.MULTILINE):
        assert (desk / path).exists(), path


def with_changes(text: str, diff: str) -> str:
    """A file with the changes of a diff. Their lines must occur exactly once in it."""
    for hunk in re.split(r"(?m)^@@.*\n", diff):
        lines = hunk.splitlines(keepends=True)
        before, after = ("".join(line[1:] for line in lines if line[0] in kept) for kept in (" -", " +"))
        assert text.count(before) == 1, before
        text = text.replace(before, after)
    return text


def test_the_new_kind_of_way_trains(tiny_bert: Path, tiny_table: Path, tmp_path: Path) -> None:
    """`compare` of a copy of the package that has the changes of the page."""
    page = DOCS / "how-to" / "ways-to-tune.md"
    package = shutil.copytree(ROOT / "src", tmp_path / "src") / "frostline"
    [code] = [text for kind, text in blocks(page) if kind == "python"]
    own = [node for node in ast.parse(code).body if isinstance(node, ast.Import | ast.ImportFrom | ast.ClassDef)]
    (package / "training" / "ways" / "gradient_noise.py").write_text("\n".join(map(ast.unparse, own)))
    for name, diff in DIFF.findall(page.read_text(encoding="utf-8")):
        (package / name).write_text(with_changes((package / name).read_text(encoding="utf-8"), diff), encoding="utf-8")
    code = "from figures import draw_nothing; draw_nothing(); from frostline.cli import main; main()"
    words = f"--model {tiny_bert} --train {tiny_table} --ways full,gradient-noise --out {tmp_path / 'o'}".split()
    quick = ["--seeds", "1", "--learning-rate", "1e-3", "--num-train-epochs", "1"]
    paths = os.pathsep.join(map(str, (package.parent, ROOT / "tests")))
    done = subprocess.run(
        [sys.executable, "-c", code, "compare", *words, *quick],
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    losses: dict[str, list[str]] = {}
    with (tmp_path / "o" / "scores.csv").open(encoding="utf-8") as table:
        for row in csv.DictReader(table):
            if row["metric"] == "loss":
                losses.setdefault(row["run"], []).append(row["value"])
    full, noisy = losses.values()
    assert "gradient-noise" in done.stdout and full != noisy


def test_the_make_commands_of_the_readme_exist() -> None:
    makefile, readme = (ROOT / "Makefile").read_text(), PAGES[0].read_text(encoding="utf-8")
    for command in ("demo", "test"):
        assert f"make {command}" in readme
        assert re.search(rf"^{command}:", makefile, re.MULTILINE)


def test_every_relative_link_exists() -> None:
    generated = {"command-line.md"}
    for page in [*PAGES, *(DOCS / "benchmarks").glob("*.md"), ROOT / "CONTRIBUTING.md"]:
        for target in re.findall(r"\]\(([^)#:]+?)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists() or Path(target).name in generated, f"{page.name}: {target}"


def test_the_picture_of_the_layout_is_up_to_date() -> None:
    code = "import draw_layout; print(draw_layout.draw(), end='')"
    drawn = subprocess.run([sys.executable, "-c", code], cwd=DOCS, capture_output=True, text=True, check=True).stdout
    assert (DOCS / "_static" / "layout.svg").read_text(encoding="utf-8") == drawn, "run `python docs/draw_layout.py`"


def test_result_files_record_command_date_and_machine() -> None:
    for path in (ROOT / "benchmarks" / "results").glob("*.json"):
        result = json.loads(path.read_text(encoding="utf-8"))
        assert {"question", "command", "date", "machine", "tables"} <= set(result), path.name
