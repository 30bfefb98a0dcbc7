"""What the documentation says of files, links, pictures and a new kind of way. The tour runs its examples."""

import ast
import csv
import json
import os
import pkgutil
import re
import shutil
import subprocess
import sys
from itertools import chain
from pathlib import Path
from typing import Any

from tiny import Frostline

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = [
    ROOT / "README.md",
    *sorted(path for path in DOCS.rglob("*.md") if path.parent.name not in ("tables", "benchmarks")),
]
BLOCK = re.compile(r"^```(console|python|toml)\n(.*?)^```", re.MULTILINE | re.DOTALL)
DIFF = re.compile(r"^`(\S+)`[^\n]*:\n\n```diff\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks(page: Path) -> list[tuple[str, str]]:
    """The language and the content of each example, in order."""
    return [(kind, text) for kind, text in BLOCK.findall(page.read_text(encoding="utf-8"))]


def with_changes(text: str, diff: str) -> str:
    """A file with the changes of a diff. Their lines must occur exactly once in it."""
    for hunk in re.split(r"(?m)^@@.*\n", diff):
        lines = hunk.splitlines(keepends=True)
        before, after = ("".join(line[1:] for line in lines if line[0] in kept) for kept in (" -", " +"))
        assert text.count(before) == 1, before
        text = text.replace(before, after)
    return text


def test_the_new_kind_of_way_trains(tiny_bert: Path, tiny_table: Path, tmp_path: Path) -> None:
    """`sweep` with a copy of the package that has the changes of the page."""
    page = DOCS / "how-to" / "ways-to-tune.md"
    package = shutil.copytree(ROOT / "src", tmp_path / "src") / "frostline"
    [code] = [text for kind, text in blocks(page) if kind == "python"]
    [own] = [node for node in ast.parse(code).body if isinstance(node, ast.ClassDef)]
    with (package / "training" / "start.py").open("a", encoding="utf-8") as start:
        start.write(f"\n\n{ast.unparse(own)}\n")
    for name, diff in DIFF.findall(page.read_text(encoding="utf-8")):
        (package / name).write_text(with_changes((package / name).read_text(encoding="utf-8"), diff), encoding="utf-8")
    code = "from pages import draw_nothing; draw_nothing(); from frostline.cli import main; main()"
    words = f"--model {tiny_bert} --train {tiny_table} --tune full,gradient-noise --out {tmp_path / 'o'}".split()
    quick = ["--seeds", "1", "--learning-rate", "1e-3", "--num-train-epochs", "1"]
    paths = os.pathsep.join(map(str, (package.parent, ROOT / "tests")))
    done = subprocess.run(
        [sys.executable, "-c", code, "sweep", *words, *quick],
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


def test_the_layout_shows_the_path_of_a_sweep(settings: dict[str, Any], frostline: Frostline) -> None:
    """From the shell to a step of training, a published result and results.csv."""
    shown = re.findall(r"^\| `(\S+\.py)` \| `(\S+)` \|", (DOCS / "layout.md").read_text(encoding="utf-8"), re.MULTILINE)
    ends, passed = {"backward", "Store.publish", "write_tables"}, set()
    package = Path(sys.modules["frostline"].__file__ or "").parent

    def on_call(frame: Any, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_qualname in ends:
            while frame:
                path = Path(frame.f_code.co_filename)
                if path.is_relative_to(package):
                    passed.add((path.relative_to(package).as_posix(), frame.f_code.co_qualname.split(".<locals>")[0]))
                frame = frame.f_back

    words = [(f"--{name.replace('_', '-')}", value) for name, value in settings.items()]
    sys.setprofile(on_call)
    try:
        result = frostline("sweep", *chain.from_iterable(words), "--workers", 1, "--stack", 1)
    finally:
        sys.setprofile(None)
    assert result.code == 0, result.err
    assert passed == {*shown}
    assert len(shown) <= 20 and len({file for file, _ in shown}) <= 12


def test_references_in_docstrings_name_what_is_there() -> None:
    for path in sorted((ROOT / "src").rglob("*.py")):
        for name in re.findall(r":(?:mod|func|class|meth|attr|data):`~?(frostline\.[\w.]+)`", path.read_text("utf-8")):
            pkgutil.resolve_name(name)


def test_the_picture_of_the_layout_is_up_to_date() -> None:
    code = "import draw_layout; print(draw_layout.draw(), end='')"
    drawn = subprocess.run([sys.executable, "-c", code], cwd=DOCS, capture_output=True, text=True, check=True).stdout
    assert (DOCS / "_static" / "layout.svg").read_text(encoding="utf-8") == drawn, "run `python docs/draw_layout.py`"


def test_result_files_record_command_date_and_machine() -> None:
    for path in (ROOT / "benchmarks" / "results").glob("*.json"):
        result = json.loads(path.read_text(encoding="utf-8"))
        assert {"question", "command", "date", "machine", "tables"} <= set(result), path.name
