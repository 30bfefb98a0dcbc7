"""Sentences of the docs and of docstrings are short."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
CODE = sorted(path for folder in ("src", "tests", "benchmarks", "docs") for path in (ROOT / folder).rglob("*.py"))
DOCS = (
    path for path in sorted((ROOT / "docs").rglob("*.md")) if path.parent.name != "tables"
)  # which `make docs` writes
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", ROOT / "CONTRIBUTING.md", *DOCS]
WORDS = 40
DOCUMENTED = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Module)


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


def test_no_sentence_of_a_docstring_is_long() -> None:
    assert not {str(path): found for path in CODE if (found := too_long(docstrings(path)))}


def test_no_sentence_of_the_docs_is_long() -> None:
    assert not {str(path): found for path in PAGES if (found := too_long([path.read_text(encoding="utf-8")]))}
