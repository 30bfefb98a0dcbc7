"""The architecture: folders import only from earlier ones, and heavy libraries are loaded only when needed."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import frostline

ROOT = Path(frostline.__file__).parent
ORDER = (
    "data",
    "statistics",
    "fast",
    "model",
    "frozen",
    "training",
    "sweep",
    "report",
    "search",
    "api",
    "studies",
    "cli",
)
SWEEP = ("work", "results", "execution", "forecast", "ray")  # the subfolders of sweep/
FILES = sorted(path for path in ROOT.rglob("*.py") if path.parent != ROOT)


def imported_modules(path: Path) -> Iterator[str]:
    """Modules that a file imports from when it is loaded; imports within functions do not count."""
    tree = ast.parse(path.read_text())
    inside = {id(n) for f in ast.walk(tree) if isinstance(f, ast.FunctionDef) for n in ast.walk(f)}
    yield from (n.module for n in ast.walk(tree) if isinstance(n, ast.ImportFrom) and n.module and id(n) not in inside)


def imported_folders(path: Path) -> Iterator[str]:
    """Folders of frostline that a file imports from when it is loaded."""
    yield from (name.split(".")[1] for name in imported_modules(path) if name.startswith("frostline."))


def test_the_order_lists_every_folder() -> None:
    assert {path.relative_to(ROOT).parts[0] for path in FILES} == set(ORDER)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_folder_imports_only_from_those_before_it(path: Path) -> None:
    own = ORDER.index(path.relative_to(ROOT).parts[0])
    assert not [name for name in imported_folders(path) if ORDER.index(name) > own]


@pytest.mark.parametrize("path", sorted((ROOT / "sweep").rglob("*.py")), ids=lambda path: str(path.relative_to(ROOT)))
def test_subfolders_of_sweep_import_only_from_those_before_them(path: Path) -> None:
    """The files directly in sweep/ import from ``work`` and ``results`` only."""
    folder = path.relative_to(ROOT / "sweep").parts[0]
    assert folder in SWEEP or path.parent == ROOT / "sweep"
    before = SWEEP[: SWEEP.index(folder) + 1] if folder in SWEEP else SWEEP[:2]
    imported = {name.split(".")[2] for name in imported_modules(path) if name.startswith("frostline.sweep.")}
    assert imported & set(SWEEP) <= set(before)


def loaded_after(code: str) -> set[str]:
    """The names of the heavy libraries that this code loads."""
    heavy = ("torch", "transformers", "datasets", "matplotlib", "sklearn", "pandas", "numpy")
    found = f"{code}\nimport sys\nprint(*[name for name in {heavy!r} if name in sys.modules])"
    return set(subprocess.run([sys.executable, "-c", found], capture_output=True, text=True, check=True).stdout.split())


def test_importing_the_package_loads_nothing_heavy() -> None:
    assert loaded_after("import frostline, frostline.cli, frostline.sweep.specification") == set()


def test_analysis_and_its_page_need_no_torch() -> None:
    modules = (
        "statistics.curve",
        "report.answer.analysis",
        "report.answer.groups",
        "report.pages.analysis",
        "studies.comparison",
    )
    code = f"import {', '.join(f'frostline.{name}' for name in modules)}"
    assert not {"torch", "transformers", "datasets"} & loaded_after(code)


def test_help_loads_nothing_heavy() -> None:
    code = """
import contextlib, io, sys
from frostline.cli import main
sys.argv = ["frostline", "sweep", "--help"]
with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.StringIO()) as out:
    main()
assert "--tune LIST" in out.getvalue()"""
    assert loaded_after(code) == set()


def test_the_state_of_a_sweep_is_shown_without_heavy_libraries(finished_small: Path) -> None:
    code = f"""
import contextlib, io, sys
from frostline.cli import main
sys.argv = ["frostline", "status", {str(finished_small)!r}]
with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.StringIO()) as out:
    main()
assert "4 done" in out.getvalue()"""
    assert loaded_after(code) == {"numpy"}
