"""The limits that keep the code readable: short files, short functions, few parameters, short sentences."""

import ast
import re
import statistics
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCES = sorted((ROOT / "src").rglob("*.py"))
CODE = sorted(path for folder in ("src", "tests", "benchmarks", "docs") for path in (ROOT / folder).rglob("*.py"))
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
FILE_LINES, FUNCTION_LINES, PARAMETERS, MEDIAN_LINES, WORDS = 300, 60, 6, 150, 40
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
DOCUMENTED = (*FUNCTIONS, ast.ClassDef, ast.Module)


def named(path: Path) -> str:
    return str(path.relative_to(ROOT))


def lines_of(path: Path) -> int:
    return len(path.read_text(encoding="utf-8").splitlines())


def functions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    yield from (node for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, FUNCTIONS))


def sentences(text: str) -> Iterator[str]:
    """The sentences of Markdown or of a docstring; code, tables, headings and links' addresses are left out."""
    text = re.sub(r"(?ms)^```.*?^```|^(?: {4}|\t).*?$|^\|.*?$|^#.*?$|<[^>]+>", "\n\n", text)
    text = re.sub(r"``?[^`]*``?", "CODE", re.sub(r"\]\([^)]*\)", "]", text))
    for paragraph in re.split(r"\n\s*\n|\n\s*(?:[-*>]|\d+\.)\s", text):
        yield from re.split(r"(?<=[.!?:;])\s+(?=[A-Z`*\[(\d])", " ".join(paragraph.split()))


def docstrings(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, DOCUMENTED) and (text := ast.get_docstring(node)):
            yield re.sub(r"(?m)^(\w+:)$", r"\n\1\n", re.sub(r"(?m)^ {4}", "", text))


def too_long(texts: Iterator[str] | list[str]) -> list[str]:
    return [one for text in texts for one in sentences(text) if len(re.findall(r"[\w'’.-]*\w[\w'’.-]*", one)) > WORDS]


@pytest.mark.parametrize("path", CODE, ids=named)
def test_files_and_functions_are_short(path: Path) -> None:
    assert lines_of(path) <= FILE_LINES
    long = [
        f"{f.name}: {f.end_lineno - f.lineno + 1}" for f in functions(path) if f.end_lineno - f.lineno >= FUNCTION_LINES
    ]
    assert not long


@pytest.mark.parametrize("path", SOURCES, ids=named)
def test_functions_take_few_positional_parameters(path: Path) -> None:
    """An autograd function (its first parameter is ``ctx``) is an exception: torch passes its arguments by position."""
    arguments = {f.name: [a.arg for a in f.args.args if a.arg not in ("self", "cls")] for f in functions(path)}
    assert not [name for name, own in arguments.items() if len(own) > PARAMETERS and own[0] != "ctx"]


def test_a_typical_file_is_shorter_still() -> None:
    assert statistics.median(map(lines_of, SOURCES)) <= MEDIAN_LINES


@pytest.mark.parametrize("path", CODE, ids=named)
def test_no_sentence_of_a_docstring_is_long(path: Path) -> None:
    assert not too_long(docstrings(path))


@pytest.mark.parametrize("path", PAGES, ids=named)
def test_no_sentence_of_the_docs_is_long(path: Path) -> None:
    assert not too_long([path.read_text(encoding="utf-8")])


def test_the_readme_is_one_screen_after_another_but_not_many() -> None:
    assert lines_of(ROOT / "README.md") <= 120


def test_a_release_has_a_short_changelog() -> None:
    releases = re.split(r"(?m)^## ", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"))[1:]
    assert releases and all(len(text.strip().splitlines()) <= 40 for text in releases)
