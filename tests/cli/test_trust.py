"""Code that comes with a model runs only if the command line says so. No file decides it."""

import ast
import json
import shutil
from pathlib import Path

import pytest

import frostline as package
from frostline import FrostlineError
from frostline.model.loading import load_pretrained, read_config
from frostline.sweeps.results.folder import Folder
from frostline.sweeps.slurm import script
from small_models import OWN_CLASSES, with_own_code
from tiny import Frostline, change_settings, sentences, write_csv


@pytest.fixture
def ran(tmp_path: Path) -> Path:
    """A file that the code of the stranger writes."""
    return tmp_path / "ran"


@pytest.fixture
def own(tiny_bert: Path, tmp_path: Path, ran: Path) -> Path:
    """The folder of a model with code of its own."""
    folder = Path(shutil.copytree(tiny_bert, tmp_path / "own"))
    writes = f"import pathlib\npathlib.Path({str(ran)!r}).write_text('the code of the stranger ran')"
    with_own_code(folder, before=writes)
    return folder


def changed(path: Path, **facts: object) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **facts}))


@pytest.fixture
def folder(finished_small: Path, tmp_path: Path, own: Path, tiny_bert: Path) -> Path:
    """A sweep of a stranger with a missing run: its sweep.toml trusts the code of the model beside it."""
    out = Path(shutil.copytree(finished_small, tmp_path / "o"))
    shutil.rmtree(out / "runs" / Folder(out).runs[-1].digest)
    change_settings(out, "trust_remote_code = false", "trust_remote_code = true")
    change_settings(out, json.dumps(str(tiny_bert)), json.dumps(str(own)))
    return out


@pytest.mark.parametrize(
    ("command", "values"),
    [("sweep --tune 0", ["true", "1", '"yes"', "[1]", "0"]), ("sweep --plan --tune 0", ["true"])],
)
def test_a_file_of_settings_is_refused_that_trusts_code(
    own: Path, tiny_table: Path, ran: Path, frostline: Frostline, command: str, values: list[str]
) -> None:
    """`0` is no `false`: whatever the key says, only its absence and `false` mean that no code is needed."""
    for value in values:
        keys = f'model = "{own}"\ntrain = "{tiny_table}"\nout = "o"\ntrust_remote_code = {value}\n'
        Path("t.toml").write_text(keys)
        for more in ([], ["--no-trust-remote-code"]):
            got = frostline(*command.split(), "t.toml", *more)
            assert got.code == 2 and "no file may decide that" in got.err and "--trust-remote-code" in got.err
    assert not ran.exists() and not Path("o").exists()


def test_the_command_line_can_trust_the_code(own: Path, tiny_table: Path, ran: Path, frostline: Frostline) -> None:
    Path("t.toml").write_text(f'model = "{own}"\ntrain = "{tiny_table}"\ntrust_remote_code = true\n')
    got = frostline("sweep", "--plan", "t.toml", "--tune", "0", "--trust-remote-code")
    assert got.code == 0 and ran.exists(), got


@pytest.mark.parametrize("trusts", ["true", '"yes"', "false"])
def test_work_does_not_trust_what_the_folder_says(folder: Path, ran: Path, frostline: Frostline, trusts: str) -> None:
    change_settings(folder, "trust_remote_code = true", f"trust_remote_code = {trusts}")
    got = frostline("work", "o")
    assert got.code == 2 and len(got.err.splitlines()) == 1 and not ran.exists()
    assert trusts == "false" or "o/sweep.toml asks to run code that comes with the model" in got.err
    with pytest.raises(FrostlineError):
        package.work(folder)
    assert not ran.exists()
    assert frostline("work", "o", "--trust-remote-code").code == 2, "its weights are others"
    assert ran.exists() == (trusts != "false"), "the user trusts it, but the sweep has never run it"


@pytest.mark.parametrize("command", ["report o", "status o --all", "merge o --out m", "analyze o --out a"])
def test_commands_that_read_a_folder_run_no_code(folder: Path, ran: Path, frostline: Frostline, command: str) -> None:
    assert frostline(*command.split()).code == 0 and not ran.exists()
    if "merge" in command:
        assert Folder(Path("m")).written.own_code and not Folder(Path("m")).spec.trust_remote_code


@pytest.mark.parametrize(
    "command",
    [
        *("check own", "probe --model own --train t.csv", "bundle own own2 --out b", "predict own t.csv"),
        "find --model own --train t.csv --out f",
    ],
)
def test_commands_that_load_a_model_run_no_code(own: Path, ran: Path, frostline: Frostline, command: str) -> None:
    shutil.copytree(own, "own2")
    write_csv(Path("t.csv"), sentences(60))
    got = frostline(*command.split())
    assert got.code == 2 and not ran.exists()


@pytest.mark.parametrize(
    ("file", "facts"),
    [
        ("config.json", OWN_CLASSES),
        (
            "config.json",
            {"auto_map": {"AutoTokenizer": [None, "modeling_own.OwnTokenizer"], **OWN_CLASSES["auto_map"]}},
        ),
        ("tokenizer_config.json", {"tokenizer_class": "Own", "auto_map": ["modeling_own.OwnTokenizer", None]}),
        ("config.json", {"attn_implementation": "own/kernels"}),
        ("config.json", {"_attn_implementation": "kernels-community/flash-attn2"}),
        ("config.json", {"experts_implementation": "own/kernels:experts"}),
    ],
)
def test_no_part_of_a_model_is_run(tiny_bert: Path, own: Path, ran: Path, file: str, facts: dict[str, object]) -> None:
    shutil.copy(tiny_bert / "config.json", own / "config.json")
    changed(own / file, **facts)
    for load in (
        lambda: read_config(str(own), own, "unusable"),
        lambda: load_pretrained(str(own), labels="ab", task_type="text-classification"),
    ):
        try:
            load()
        except FrostlineError as error:
            assert "kernels" not in str(facts) or "asks to run the kernels" in str(error)
    assert not ran.exists()
    if "kernels" in str(facts):
        with pytest.raises(FrostlineError, match="of the hub, which are code"):
            read_config(str(own), own, "unusable")


@pytest.mark.parametrize("file", ["config.json", "tokenizer_config.json"])
def test_code_of_another_repository_is_refused(own: Path, ran: Path, file: str) -> None:
    """Nothing pins its version, and no digest has it."""
    classes = {"AutoConfig": "other/code--modeling_own.OwnConfig", "AutoTokenizer": [None, "other/code--own.Own"]}
    changed(own / file, auto_map=classes)
    with pytest.raises(FrostlineError, match=r"runs code of other/code, .* remove other/code-- from the auto_map"):
        load_pretrained(str(own), labels="ab", task_type="text-classification", trust_remote_code=True)
    assert not ran.exists()


def test_runs_with_and_without_own_code_do_not_mix(finished_small: Path, tmp_path: Path, frostline: Frostline) -> None:
    shutil.copytree(finished_small, tmp_path / "o")
    got = frostline("sweep", "o/sweep.toml", "--out", "o", "--trust-remote-code")
    assert got.code == 2 and "value of trust_remote_code is different (False there, True now)" in got.err


def test_tasks_get_the_trust_of_their_command(tmp_path: Path) -> None:
    for search in ((), ("find",)):
        assert script(tmp_path, search=search, trust_remote_code=True).count("--trust-remote-code") == 1
        assert "--trust-remote-code" not in script(tmp_path, search=search)


FILES = sorted(Path(package.__file__).parent.rglob("*.py"))
UNPICKLE = {"pickle", "joblib", "dill", "cloudpickle", "marshal", "shelve"}


def test_whoever_loads_a_model_says_whether_its_code_runs() -> None:
    """Left out, transformers asks on the terminal. Nothing that may come from others is unpickled."""
    for node in (one for file in FILES for one in ast.walk(ast.parse(file.read_text()))):
        if isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if name in ("from_pretrained", "from_config", "SentenceTransformer"):
                of_memory = isinstance(node.args[0], ast.Constant) and node.args[0].value is None
                assert of_memory or any(keyword.arg in (None, "trust_remote_code") for keyword in node.keywords)
            assert ast.unparse(node.func) not in ("torch.load", "eval", "exec")
            assert not any(keyword.arg == "allow_pickle" for keyword in node.keywords)
        modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        modules += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        assert not UNPICKLE & set(modules)
