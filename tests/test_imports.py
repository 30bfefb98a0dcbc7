"""The architecture: folders import only from earlier ones, and heavy libraries are loaded only when needed."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import frostline

ROOT = Path(frostline.__file__).parent
ORDER = "data statistics fast model frozen training sweeps report search api studies cli".split()  # noqa: SIM905
SWEEP = ("results", "execution")  # the subfolders of sweeps/
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


def test_a_folder_imports_only_from_those_before_it() -> None:
    for path in FILES:
        own = ORDER.index(path.relative_to(ROOT).parts[0])
        assert not [name for name in imported_folders(path) if ORDER.index(name) > own], path


def test_subfolders_of_sweeps_import_only_from_those_before_them() -> None:
    """The files directly in sweeps/ import from ``results`` only."""
    for path in sorted((ROOT / "sweeps").rglob("*.py")):
        folder = path.relative_to(ROOT / "sweeps").parts[0]
        assert folder in SWEEP or path.parent == ROOT / "sweeps", path
        before = SWEEP[: SWEEP.index(folder) + 1] if folder in SWEEP else SWEEP[:1]
        imported = {name.split(".")[2] for name in imported_modules(path) if name.startswith("frostline.sweeps.")}
        assert imported & set(SWEEP) <= set(before), path


def loaded_after(code: str) -> set[str]:
    """The names of the heavy libraries that this code loads."""
    found = f"{code}\nimport sys\nprint(*[name for name in {HEAVY!r} if name in sys.modules])"
    return set(subprocess.run([sys.executable, "-c", found], capture_output=True, text=True, check=True).stdout.split())


HEAVY = ("torch", "transformers", "datasets", "matplotlib", "sklearn", "scipy.stats", "pandas", "numpy")
COMMANDS = """
import contextlib, io, os, sys
from frostline.cli import main
def run(words):
    sys.argv = ["frostline", *words.split()]
    with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.StringIO()) as out:
        with contextlib.redirect_stderr(io.StringIO()) as err:
            main()
    return out.getvalue(), err.getvalue()
"""


def test_importing_the_package_and_its_help_load_nothing_heavy() -> None:
    code = f"import frostline.sweeps.settings\n{COMMANDS}\nassert '--tune LIST' in run('sweep --help')[0]"
    assert loaded_after(code) == set()


def test_analysis_and_its_page_need_no_torch() -> None:
    modules = ("statistics.curve", "report.answer.analysis", "report.pages.analysis_page", "studies.comparison")
    code = f"import {', '.join(f'frostline.{name}' for name in modules)}"
    assert not {"torch", "transformers", "datasets"} & loaded_after(code)


MISTAKES = [
    "find --model m --train t.csv --budget -5",
    "find --model m --train t.csv --budget soon",
    "find --train t.csv",
    "find --model m --train none.csv",
    "find --modle m",
    "sweep --model m --train t.csv --tune 0 --seeds 0 --out o",
    "sweep --model m --train none.csv --tune 0 --out o",
    "sweep --plan --model m --train t.csv --tune last",
    "sweep --model m --train t.csv --tune full,loro-2",
    "find --model ./none --train t.csv",
    "find --model m --train t.csv --text-column body",
    "find --model m --train t.csv --labels x,y",
    "find --model m --train t.csv --validation other.csv",
    "find --model m --train t.csv --metric acuracy",
    "find --model m --train t.csv --train-size 900",
    "find --model m --train t.csv --out full",
    "sweep --model m --train {films} --tune 0 --out {sweep} --seeds 2 --per-device-train-batch-size 7",
    "probe --model m --train t.csv --label-column score",
    "predict none t.csv",
    "predict {model} none.csv",
    "predict {model} t.csv --out t.csv",
    "predict {model} t.csv --text-column body",
    "evaluate {model} t.csv",
    "sweep none.toml",
    "status none",
    "work full",
    "report full",
    "merge full none --out o",
    "analyze t.csv --out o",
    "check ./none",
    "check none",
    "probe --model none --train t.csv",
    "find --model none --train t.csv",
    "find --model {model} --train t.csv --tune auto,lora-99",
    "find --model {model} --train t.csv --tune 99",
    "sweep --model {model} --train t.csv --tune full,mean-pooled-99",
    "sweep --model {model} --train t.csv --tune 0,99 --out o",
    "sweep --plan --model {model} --train t.csv --tune 0,99",
    "find --model {model} --train t.csv --out t.csv/o",
    "find --model {model} --train t.csv --out /proc/sys/o",
    "sweep --model {model} --train t.csv --tune 0 --out /proc/sys/o",
    "study none",
    "study lee2019 --task SST9",
    "study lee2019 --seeds 0",
    "study lee2019 --tune 0..L,x",
    "demo --out t.csv",
    "bundle {model} none --out o",
    "predict {model} t.csv --threshold 2",
    "audit ./none {model}",
    "audit {model} {model} --frozen layr.0",
    "cache rm",
    "cache rm none",
    "cache rm --all",
    "bundle {model} {model} --out o",
    "bundle {sweep} {sweep} --out o",
    "bundle {sweep} {sweep} --out o --names a,b,c",
    "bundle {sweep} {sweep} --out full --names a,b",
    "push none me/reviews",
    "push {model} me/reviews",
    "predict {model} t.csv",
    "probe --model {model} --train t.csv --kind none",
    "sweep --model {model} --train t.csv --tune 0 --out o --class-weights a=1",
    "demo --out {sweep}",
    "merge t.csv {sweep} --out o",
]


def test_a_mistake_is_answered_before_anything_heavy_is_loaded(
    tmp_path: Path, tiny_bert: Path, tiny_table: Path, finished_small: Path
) -> None:
    """Nor does the state of a sweep need heavy libraries."""
    (tmp_path / "t.csv").write_text("text,label\n" + "good,a\nbad,b\n" * 20)
    (tmp_path / "other.csv").write_text("text,label\ngood,c\n")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "notes.txt").touch()
    mistakes = [words.format(model=tiny_bert, films=tiny_table, sweep=finished_small) for words in MISTAKES]
    code = f"""{COMMANDS}
os.chdir({str(tmp_path)!r})
assert "4 done" in run({f"status {finished_small}"!r})[0]
for words in {mistakes!r}:
    said = run(words)[1]
    assert said.splitlines()[-1].startswith(("frostline: ", "Error: ")), (words, said)
    assert not [name for name in {HEAVY[:-1]!r} if name in sys.modules], words"""
    assert loaded_after(code) == {"numpy"}


# What creates, changes, renames or removes a file or folder, by the last part of its name.
WRITERS = {
    *("write_text", "write_bytes", "mkdir", "makedirs", "touch", "unlink", "rmdir", "rename", "renames", "chmod"),
    *("truncate", "symlink_to", "hardlink_to", "rmtree", "copyfile", "copy2", "copytree", "copymode", "removedirs"),
    *("posix_fallocate", "save_file", "save_pretrained", "savez", "savetxt", "tofile", "memmap", "open_memmap"),
    *("TemporaryFile", "NamedTemporaryFile", "TemporaryDirectory", "mkstemp", "mkdtemp", "FileLock", "SoftFileLock"),
    *("extractall", "to_csv", "to_pickle", "to_excel", "to_html", "RotatingFileHandler", "FileHandler"),
}
OF_MODULES = {  # of modules whose functions have names that others have, too
    "os": {"remove", "replace", "link", "symlink", "open", "mkfifo", "utime"},
    "shutil": {"move", "copy", "make_archive", "unpack_archive"},
    "np": {"save"},
    "torch": {"save"},
}
NEW_FOLDER = "a new folder of new_folder, whose name nobody else knows"
OWN_CACHE, OF_SYSTEM = "the user's own cache of hidden states", "a temporary folder of the system"
ELSEWHERE = {
    "data/files.py": "the place where all others write and lock",
    "sweeps/results/leases.py": "the beat of this process, whose name nobody else knows",
    "sweeps/results/tensor_files.py": "what publish_tensors asks for, and folders after require_inside",
    "model/classifier.py": NEW_FOLDER,
    "report/recommended_model.py": NEW_FOLDER,
    "model/model_files.py": NEW_FOLDER,
    "frozen/trunk.py": NEW_FOLDER,
    "training/start.py": NEW_FOLDER,
    "training/estimators.py": f"{NEW_FOLDER}, and {OF_SYSTEM}",
    "frozen/forward_pass.py": OWN_CACHE,
    "frozen/hidden_states.py": OWN_CACHE,
    "sweeps/execution/forecast.py": OWN_CACHE,
    "frozen/exactness.py": OF_SYSTEM,
    "sweeps/execution/ray_tasks.py": OF_SYSTEM,
    "cli/program.py": "the null device",
}


def writes(code: str) -> set[str]:
    """The names of what this code calls, or hands on, that writes."""
    found = set()
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Attribute):
            base = node.value.id if isinstance(node.value, ast.Name) else ""
            if node.attr in WRITERS or node.attr in OF_MODULES.get(base, ()):
                found.add(node.attr)
        if isinstance(node, ast.Name) and node.id in WRITERS:
            found.add(node.id)
        if isinstance(node, ast.ImportFrom) and node.module in OF_MODULES:
            found |= {alias.name for alias in node.names if alias.name in OF_MODULES[node.module]}
        if isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            modes = [*node.args, *(keyword.value for keyword in node.keywords if keyword.arg == "mode")]
            texts = [one.value for one in modes if isinstance(one, ast.Constant) and isinstance(one.value, str)]
            if name == "open" and any(len(text) <= 3 and set(text) & set("wax+") for text in texts):
                found.add("open")
    return found


def test_files_are_written_in_one_place_that_checks_the_path() -> None:
    """Everything else calls the functions of ``data/files.py``, whose keyword ``inside`` cannot be left out."""
    assert {path.relative_to(ROOT).as_posix() for path in FILES if writes(path.read_text())} == ELSEWHERE.keys()
