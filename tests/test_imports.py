"""The architecture: modules import downwards only, and what is heavy waits until it is needed."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import frostline

ROOT = Path(frostline.__file__).parent
ORDER = (
    *(
        "errors",
        "folding",
        "data",
        "metrics",
        "statistics",
        "probes",
        "guesses",
        "comparison",
        "specification",
        "race",
        "machine",
        "memory",
        "layers",
        "absent",
        "parts",
        "replacing",
        "gradients",
        "linear",
        "lookup",
        "dropout",
        "attending",
        "narrow",
        "packing",
        "cut",
        "stacking",
        "tokens",
    ),
    *(
        "cost",
        "passing",
        "hidden",
        "checking",
        "cache",
        "pretrained",
        "progress",
        "training",
        "run",
        "sweep",
        "sentence",
        "answer",
        "analysis",
        "report",
        "gather",
    ),
    *("savedprobe", "probing", "prediction", "api", "finding", "demo", "studies", "cli", "__main__"),
)


def chapter(module: str) -> str:
    return module.split(".")[1] if "." in module else module


def imports(path: Path) -> Iterator[str]:
    """frostline modules that a file imports when it is loaded (within functions: when it is needed, any order)."""
    tree = ast.parse(path.read_text())
    inside = {
        id(node) for function in ast.walk(tree) if isinstance(function, ast.FunctionDef) for node in ast.walk(function)
    }
    typing = {
        id(node)
        for block in ast.walk(tree)
        if isinstance(block, ast.If) and ast.unparse(block.test) == "TYPE_CHECKING"
        for node in ast.walk(block)
    }
    for node in ast.walk(tree):
        if id(node) in inside | typing:
            continue
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("frostline"):
            yield from ([f"frostline.{x.name}" for x in node.names] if node.module == "frostline" else [node.module])
        elif isinstance(node, ast.Import):
            yield from (name.name for name in node.names if name.name.startswith("frostline"))


def files() -> list[Path]:
    return sorted(path for path in ROOT.rglob("*.py") if path != ROOT / "__init__.py")


def module_of(path: Path) -> str:
    return ".".join(("frostline", *path.relative_to(ROOT).with_suffix("").parts)).removesuffix(".__init__")


def test_every_module_has_its_place_in_the_order() -> None:
    assert {chapter(module_of(path)) for path in files()} == set(ORDER)


def test_the_design_tells_the_same_order() -> None:
    design = (Path(__file__).parents[1] / "docs" / "design.md").read_text(encoding="utf-8")
    story = design.partition("## The story")[2].partition("##")[0]
    assert tuple(re.findall(r"^    (\w+)(?:\.py|/)", story, re.MULTILINE)) == ORDER[:-1]  # but for __main__


@pytest.mark.parametrize("path", files(), ids=module_of)
def test_modules_import_downwards_only(path: Path) -> None:
    own = chapter(module_of(path))
    above = [name for name in imports(path) if ORDER.index(chapter(name)) > ORDER.index(own)]
    assert not above


def test_nothing_goes_in_a_circle() -> None:
    graph = {module_of(path): set(imports(path)) for path in files()}
    done: set[str] = set()

    def visit(name: str, under_way: tuple[str, ...]) -> None:
        assert name not in under_way, " -> ".join((*under_way, name))
        if name not in done:
            for other in graph.get(name, ()):
                visit(other, (*under_way, name))
            done.add(name)

    for name in graph:
        visit(name, ())


def loaded_after(code: str) -> set[str]:
    """Names of the heavy libraries that this code loads."""
    heavy = ("torch", "transformers", "datasets", "matplotlib", "sklearn", "pandas", "numpy")
    found = f"{code}\nimport sys\nprint(*[name for name in {heavy!r} if name in sys.modules])"
    return set(subprocess.run([sys.executable, "-c", found], capture_output=True, text=True, check=True).stdout.split())


def test_importing_the_package_loads_nothing_heavy() -> None:
    assert loaded_after("import frostline, frostline.cli, frostline.errors, frostline.specification") == set()


def test_analysis_and_its_page_need_no_torch() -> None:
    modules = ("metrics", "statistics", "answer", "analysis", "gather", "report.analysis", "studies", "studies.beside")
    code = f"import {', '.join(f'frostline.{name}' for name in modules)}"
    assert not {"torch", "transformers", "datasets"} & loaded_after(code)


def test_help_loads_nothing_heavy() -> None:
    code = """
import contextlib, io, sys
from frostline.cli import main
sys.argv = ["frostline", "sweep", "--help"]
with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.StringIO()) as out:
    main()
assert "--tune VALUE" in out.getvalue()"""
    assert loaded_after(code) == set()
