"""The tour: every command and Python block of README and docs runs as printed, with small models of random weights.

Only names of files are replaced, where a page is toured with another kind of table. Among the slow tests, the README has a
pretrained model (MiniLM, 6 layers) and real figures.
"""

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from importlib.util import find_spec
from pathlib import Path

import huggingface_hub.constants
import pytest

from hub_stand_in import hub_running
from pages import drawn
from tagged import conll, tagged
from tiny import Frostline, sentences, tiny_bert_folder, write_csv, write_sst2

ROOT = Path(__file__).parents[1]
HUB_NAME = "google-bert/bert-base-uncased"
EMPHASIZED = re.compile(r"(?<!\*)\*([^*]+)\*(?!\*)")  # in the paragraph before a Python block: what it prints
BLOCK = re.compile(r"^```(console|python|toml)\n(.*?)^```", re.MULTILINE | re.DOTALL)
PAGES = {
    str(page.relative_to(ROOT)): page
    for page in (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"))
    if page.parent.name != "tables" and BLOCK.search(page.read_text(encoding="utf-8"))
}
# Each page is toured as printed, with two classes, and some also with other kinds of tables in place of ``reviews.csv``.
TOUR = dict.fromkeys(PAGES, ("two",)) | {
    "README.md": ("two", "tags"),
    "docs/how-to/ways-to-tune.md": ("two", "tags"),
}
SLOW = {"README.md": ("numbers", "labels", "MiniLM")}
TABLES = {  # the training table of each kind, and one to predict
    "two": ("reviews.csv", "new.csv"),
    "MiniLM": ("few.csv", "new.csv"),
    "numbers": ("numbers.csv", "new.csv"),
    "labels": ("topics.jsonl", "new.csv"),
    "tags": ("entities.conll", "new.conll"),
}
# What a page needs that an earlier page has made.
SWEEP = "frostline sweep --model my-model --train reviews.csv --tune 0,1 --seeds 2 --out reviews"
BEFORE = dict.fromkeys(("docs/how-to/errors.md", "docs/how-to/results-of-others.md"), SWEEP)
# What cannot be done with a kind of table, and the reason that is printed.
REFUSED = {
    "tags": {
        "frostline find --model my-model --train entities.conll --tune last-2": "the head is fitted on one vector for each",
        "frostline sweep --model my-model --train entities.conll --tune mean-pooled-2": "but words have tags",
    }
}
# Packages of extras, without which a block of a page does not run.
EXTRAS = ("fastapi", "onnxruntime", "tensorboard")
# The commands that talk to the hub, which is a stand-in, and how the test starts them.
TO_HUB = {"frostline push": "from frostline.cli import main", "hf upload": "from huggingface_hub.cli.hf import main"}
# Commands that are run elsewhere, and where.
ELSEWHERE = {
    "make demo": "by hand, with all k and seeds",
    "make test": "CI, with the slow tests",
    "make test-all": "CI",
    "make lint": "CI",
    "make docs": "CI",
    ".ci/run": "CI",
    'make test PYTEST="-m every tests/frozen"': "by hand, because it takes long",
    "git clone https://github.com/frostline/frostline && cd frostline": "CI clones",
    "python3 -m venv .venv && source .venv/bin/activate": "make does the same",
    'pip install -e ".[demo]"': "make does the same",
    "frostline sweep --model my-model --train reviews.csv --tune 0,1,full --out reviews --executor ray --address auto --gpus 1": (
        "tests/faults/test_ray.py, with a cluster"
    ),
    "frostline demo --seeds 1": "test_the_demo_as_printed_runs_from_the_wheel, among the slow tests",
    "python benchmarks/on_gpu.py": "tests/test_on_gpu.py",
}


def commands(text: str) -> list[str]:
    """The lines after ``$``, without comments."""
    return [shlex.join(shlex.split(line[2:], comments=True)) for line in text.splitlines() if line.startswith("$ ")]


def hub_with(model: Path, folder: Path) -> str:
    """A cache of the hub in which this model has the name of the examples' one."""
    cached = folder / f"models--{HUB_NAME.replace('/', '--')}"
    (cached / "snapshots").mkdir(parents=True)
    (cached / "snapshots" / ("0" * 40)).symlink_to(model)
    (cached / "refs").mkdir()
    (cached / "refs" / "main").write_text("0" * 40)
    return str(folder)


@pytest.fixture(scope="module")
def four_layers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small model with random weights and four layers."""
    return tiny_bert_folder(tmp_path_factory.mktemp("four-layers"), layers=4)


@pytest.fixture
def on_hub(four_layers: Path, kind: str, request: pytest.FixtureRequest) -> Iterator[Path]:
    """The model with the name of the examples' one. Figures are real with MiniLM."""
    with drawn() if kind == "MiniLM" else nullcontext():
        yield request.getfixturevalue("minilm") if kind == "MiniLM" else four_layers


@pytest.fixture
def desk(tmp_path: Path, tiny_bert: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with the tables and the model of all pages."""
    rows = sentences(90)
    few = rows[:60]
    write_csv(tmp_path / "reviews.csv", rows)
    write_csv(tmp_path / "new.csv", [{"text": row["text"]} for row in rows[:5]])
    stars = [
        {"comment": row["text"], "stars": str(1 + n % 3), "author": f"author {n % 16}"} for n, row in enumerate(rows)
    ]
    write_csv(tmp_path / "comments.csv", stars)
    write_csv(tmp_path / "few.csv", few)
    counts = [{"text": row["text"], "label": str(len(row["text"].split()) + n / 100)} for n, row in enumerate(rows)]
    write_csv(tmp_path / "numbers.csv", counts)
    flags = [
        {"plot": "plot" in row["text"], "warm": "warm" in row["text"], "long": len(row["text"]) > 30} for row in few
    ]
    both = list(zip(few, flags, strict=True))
    write_csv(
        tmp_path / "indicators.csv", [{"text": row["text"]} | {k: str(v) for k, v in of.items()} for row, of in both]
    )
    lines = [{"text": row["text"], "labels": [name for name, has in of.items() if has]} for row, of in both]
    (tmp_path / "topics.jsonl").write_text("\n".join(map(json.dumps, lines)))
    sentences_of_words, tags = tagged(60)
    (tmp_path / "entities.conll").write_text(conll(sentences_of_words, tags))
    (tmp_path / "new.conll").write_text(conll(sentences_of_words[:5], tags[:5]))
    table = [{"task": "sentiment", "k": k, "seed": seed, "acc": 0.6 + 0.1 * k} for k in (0, 1, 2) for seed in (0, 1)]
    write_csv(tmp_path / "runs.csv", [{name: str(value) for name, value in row.items()} for row in table])
    write_sst2(tmp_path / "glue" / "sst2", train=80, dev=40)
    (tmp_path / "my-model").symlink_to(tiny_bert)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_every_page_is_toured_and_every_command_runs_somewhere() -> None:
    assert PAGES.keys() == TOUR.keys() > SLOW.keys()
    printed = [
        one for page in PAGES.values() for _, text in BLOCK.findall(page.read_text("utf-8")) for one in commands(text)
    ]
    code = [
        name for name, page in PAGES.items() if re.search(r"^```text\n(from|import) ", page.read_text("utf-8"), re.M)
    ]
    assert code == ["docs/how-to/ways-to-tune.md"]  # tests/report/test_recommended_model.py runs it
    elsewhere = {shlex.join(shlex.split(command)) for command in ELSEWHERE}
    assert elsewhere == {
        one for one in printed if not one.startswith(("frostline ", "mv ", *TO_HUB)) or one in elsewhere
    }


def to_hub(command: str) -> None:
    """Run a command that uploads a folder, with a stand-in of the hub."""
    start = next(start for start in TO_HUB if command.startswith(start))
    code = f"import sys; {TO_HUB[start]}; sys.argv = {shlex.split(command)!r}; main()"
    with hub_running() as hub:
        done = subprocess.run([sys.executable, "-c", code], env=hub.environment, capture_output=True, text=True)
        [(name, files)] = hub.files.items()
    assert done.returncode == 0 and name in done.stdout, (command, done)
    assert "README.md" in files and files.keys() & {"config.json", "estimator.json"}


def with_names(text: str, kind: str) -> str:
    """A command or a block with the names of the files of this kind."""
    for of_two, of_kind in zip(TABLES["two"], TABLES[kind], strict=True):
        text = text.replace(of_two, of_kind)
    return text


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        *((name, kind) for name, kinds in TOUR.items() for kind in kinds),
        *(pytest.param(name, kind, marks=pytest.mark.slow) for name, kinds in SLOW.items() for kind in kinds),
    ],
)
def test_tour(
    name: str,
    kind: str,
    desk: Path,
    on_hub: Path,
    frostline: Frostline,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", hub_with(on_hub, desk / "hub"))
    blocks = [("console", f"$ {BEFORE[name]}\n")] if name in BEFORE else []
    page = PAGES[name].read_text("utf-8")
    missing: set[str] = set()
    for language, text in [*blocks, *BLOCK.findall(page)]:
        text = with_names(text, kind)
        needed = [one for one in EXTRAS if re.search(rf"^(from|import) {one}|--(track|to) {one}", text, re.MULTILINE)]
        if absent := {one for one in needed if find_spec(one) is None}:
            missing |= absent
            continue
        if language == "toml":
            (desk / "reviews.toml").write_text(text)
        elif language == "python":
            exec(text, {})
            printed, before = capsys.readouterr().out, page.partition(text)[0].rpartition("\n\n```")[0]
            said = [" ".join(one.split()) for one in EMPHASIZED.findall(before.rpartition("\n\n")[2])]
            assert printed.strip() and all(one in printed for one in said), (text, said, printed)
        for command in commands(text) if language == "console" else []:
            if command.startswith(tuple(TO_HUB)):
                to_hub(command)
                continue
            if command.startswith("mv "):
                subprocess.run(shlex.split(command), check=True)
            if not command.startswith("frostline ") or command in ELSEWHERE:
                continue
            done = frostline(*shlex.split(command)[1:])
            refusal = next((why for start, why in REFUSED.get(kind, {}).items() if command.startswith(start)), None)
            assert done.code == (2 if refusal else 0), (command, done)
            assert (refusal in done.err) if refusal else done.out.strip(), (command, done)
            assert "Traceback" not in done.out + done.err, (command, done)
    for path in re.findall(r"^\| `(reviews/\S+)`", page, re.MULTILINE):
        assert (desk / path).exists() or kind not in ("two", "MiniLM"), path
    if missing:
        pytest.skip(f"the rest of {name} runs; its blocks with {', '.join(sorted(missing))} need that package")
