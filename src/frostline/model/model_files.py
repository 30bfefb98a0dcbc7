"""The files of a model, in a folder or downloaded from the hub. Needs no torch, so that a wrong folder is refused at once."""

import hashlib
import json
import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from fnmatch import fnmatch
from glob import glob
from itertools import chain
from pathlib import Path
from typing import Any

from huggingface_hub.errors import HFValidationError, StrictDataclassError
from safetensors import SafetensorError

from frostline import FrostlineError
from frostline.data.files import FILES, files_in, new_folder, read_record, require_recorded, unrecorded, write_record
from frostline.data.reader import POINTER
from frostline.data.wording import first_line
from frostline.model.terms import OWN

WHOLE, INDEX = "model.safetensors", "model.safetensors.index.json"


def weight_files(folder: Path) -> list[Path]:
    """The files that transformers reads: one file, or those that an index names. Empty if there is neither."""
    if (folder / WHOLE).is_file():
        return [folder / WHOLE]
    if not (folder / INDEX).is_file():
        return []
    names = json.loads((folder / INDEX).read_bytes())["weight_map"].values()
    return [folder / Path(name).name for name in sorted(set(names))]


RECORD, HEAD, BUNDLE = "frostline.json", "head.json", "bundle.json"  # in the folder of a saved model, or of several
ESTIMATOR = "estimator.json"  # in the folder of a saved model that trains no layer
TASK_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")  # in a bundle
MODULES, POOLING, DENSE = "modules.json", "1_Pooling", "2_Dense"
KINDS = {"": "Transformer", POOLING: "Pooling", DENSE: "Dense"}  # of modules of sentence-transformers, by folder
MODEL_FILES = ["*.json", "*.safetensors", "*.txt", "*.model", "*.jinja"]
TOKENIZER_FILES = {"tokenizer.json", "vocab.txt", "vocab.json", "merges.txt", "sentencepiece.bpe.model", "spm.model"}
TOKENIZER_SETTINGS = {"tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"}
NO_WEIGHTS = ("training_args", "optimizer", "scheduler", "rng_state", "scaler", "tokenizer", "vocab", "model_head")
LOADED = "A.from_pretrained('{folder}').save_pretrained('{folder}')"
OTHER_WEIGHTS = {  # by ending, what can be done with weights that are not safetensors
    **dict.fromkeys(
        (".bin", ".pt", ".pth", ".ckpt"),
        f'convert them: python -c "from transformers import AutoModel as A; {LOADED}"',
    ),
    **dict.fromkeys(
        (".h5", ".msgpack", ".gguf"),
        "convert them with transformers' from_pretrained, which has an option for each format, and save_pretrained",
    ),
    **dict.fromkeys(
        (".onnx", ".tflite", ".mlmodel", ".mlpackage", ".xml", ".engine"),
        "they were exported to run, not to be trained: give the model that they were made from",
    ),
}
ADAPTER, ADAPTER_WEIGHTS = "adapter_config.json", "adapter_model"
PAGES = (b"<!doctype", b"<html")
REMEDIES = {
    "does not recognize this architecture": "Update transformers, or choose another model",
    "Unrecognized configuration class": "Choose a model of another type",
    "Unrecognized model": "Choose another model, whose config.json names its model_type",
}  # by what transformers says


Streams = Callable[[int], bool]  # from the bytes of all weights in memory to whether the layers are streamed


def never_streams(needed: int) -> bool:
    """All weights are loaded."""
    return False


def model_folder(name: str, revision: str | None, files: list[str]) -> tuple[Path, str | None]:
    """The folder of a model by its name, a folder or a hub name; and its commit if it comes from the hub.

    ``revision`` is a branch, tag or commit of a hub model; ``files`` are patterns of the files to download.

    Raises:
        FrostlineError: There is no such folder or hub model, or a revision is given for a folder.
    """
    if (folder := local_folder(name, revision)) is not None:
        return folder, None
    from huggingface_hub import snapshot_download

    try:
        snapshot = Path(snapshot_download(name, revision=revision, allow_patterns=files))
    except (OSError, ValueError, HFValidationError) as error:
        raise FrostlineError(
            f"The model {name!r} (revision {revision or 'main'}) is neither a folder nor available from the hub "
            f"({type(error).__name__}): check its name, or download it on a machine with a network and give its folder."
        ) from error
    _require_config(name, snapshot)
    return snapshot, snapshot.name


def checkpoint_files(name: str) -> list[Path]:
    """The files with the weights of a model by its name.

    Raises:
        FrostlineError: There is no such model, or it has no such files.
    """
    files = weight_files(model_folder(name, None, MODEL_FILES)[0])
    if not files:
        raise FrostlineError(f"{name} has no {WHOLE}: only safetensors files are compared.")
    return files


def local_folder(name: str, revision: str | None) -> Path | None:
    """The folder of a model by its name; None if that can only be a hub name.

    Raises:
        FrostlineError: There is no such folder, it has no model, or a revision is given for it.
    """
    path = Path(name).expanduser()
    if path.is_dir():
        _require_config(name, path)
        if revision:
            raise FrostlineError(
                f"{name} is a folder, and a folder has no revision {revision!r}: leave --revision out, or give a hub name."
            )
        return path
    if path.is_file():
        remedy = OTHER_WEIGHTS.get(path.suffix, "give the folder of a model, or a hub name")
        if (path.parent / "config.json").is_file():
            remedy = "give its folder, {folder}"
        raise FrostlineError(f"The model {name} is a file: {remedy.format(folder=path.parent)}.")
    if "://" in name:
        hub_name = "/".join(name.rstrip("/").split("/")[3:5]) or "org/model"
        raise FrostlineError(f"The model {name} is an address: give its hub name, such as {hub_name}.")
    if path.exists() or name.startswith((".", "/", "~")) or name.count("/") > 1:
        raise FrostlineError(f"There is no model folder {name}: check the path, or give a hub name such as org/model.")
    return None


def _require_config(name: str, folder: Path) -> None:
    """Raise an error that says what a folder is if it has no config.json."""
    _require_content(name, folder, [folder / "config.json"])
    if (folder / "config.json").is_file():
        return
    what = _adapter(folder) or _other_weights(folder, folder)
    if (folder / ESTIMATOR).is_file():
        what = (
            "It holds a probe or another model without layers of its own, for `frostline predict` and `frostline evaluate`: "
            f"give the model that a probe reads, which {ESTIMATOR} names"
        )
    if is_bundle(folder):
        what = "It holds a bundle, for `frostline predict`: give one of the models that it was made from"
    if what is None:
        inside = (glob(f"{depth}/config.json", root_dir=folder) for depth in ("*", "*/*", "*/*/*"))
        found = next(
            (
                one
                for one in sorted((folder / path).parent for path in chain(*inside))
                if "model_type" in json_object(one / "config.json")
            ),
            None,
        )
        what = (
            "Give a folder that save_pretrained wrote, or a hub name"
            if found is None
            else f"Its model is in {found}: give that"
        )
    raise FrostlineError(f"The folder {name} is not a model: it has no config.json. {what}.")


def _adapter(folder: Path) -> str | None:
    """That a folder has an adapter without the weights of its model, and how to get a whole model; None for other folders."""
    if not (folder / ADAPTER).is_file() or weight_files(folder):
        return None
    if (folder.parent / "config.json").is_file():
        return f"It holds only an adapter of the model in {folder.parent}: give that folder"
    facts = json_object(folder / ADAPTER)
    base = facts.get("base_model_name_or_path") or facts.get("model_name") or "another model"
    return (
        f"It holds only an adapter of {base}: merge it into that model with the library that wrote it (in PEFT, "
        f"merge_and_unload), save the result with the tokenizer of {base}, and give that"
    )


def _instead_of_weights(name: str, folder: Path) -> str:
    """What a folder without weights in safetensors has, and what to do."""
    if found := _adapter(folder) or _other_weights(folder, name):
        return found
    if elsewhere := sorted(file.name for file in folder.glob("*.safetensors") if ADAPTER_WEIGHTS not in file.name):
        return f"transformers does not read {', '.join(elsewhere[:3])}: rename it to {WHOLE}, or add {INDEX} if there are several"
    return (
        "It has no others either: copy or download them, or convert those of the hub with transformers' save_pretrained"
    )


def _other_weights(folder: Path, shown: Path | str) -> str | None:
    """Which weights of other formats a folder has, and what to do about them; None if there are none."""
    files = [*folder.iterdir(), *folder.glob("*/*.onnx"), *folder.glob("*/*.xml")]
    other = sorted(file for file in files if file.suffix in OTHER_WEIGHTS and not file.stem.startswith(NO_WEIGHTS))
    other = [file for file in other if ADAPTER_WEIGHTS not in file.name]
    if not other:
        return None
    remedy = OTHER_WEIGHTS[other[0].suffix].format(folder=shown)
    return f"Its weights are only in {', '.join(file.name for file in other[:3])}; {remedy}"


def _require_content(name: str, folder: Path, files: Sequence[Path]) -> None:
    """Raise an error if a file is only a pointer of Git LFS, a broken link, a web page or empty."""
    for file in files:
        if file.is_symlink() and not file.exists():
            raise FrostlineError(
                f"The model {name} cannot be used: {file.name} is a link to {file.readlink()}, which does not exist. "
                "Download the model again, or copy the files themselves."
            )
        if not file.exists():
            continue
        start = b""
        if file.is_file():  # opening a pipe would wait for ever
            with file.open("rb") as handle:
                start = handle.read(64)
        if start.startswith(POINTER):
            raise FrostlineError(
                f"The model {name} cannot be used: {file.name} is a pointer of Git LFS instead of the file. Get the files with "
                f"`git -C {folder} lfs pull`, or download the model with `hf download`."
            )
        if not start or start.lstrip().lower().startswith(PAGES):
            what = "a web page" if start else "empty" if file.is_file() else "no ordinary file"
            raise FrostlineError(
                f"The model {name} cannot be used: {file.name} is {what}. Download the model with `hf download`, or "
                "copy it again."
            )


def json_object(file: Path) -> dict[str, Any]:
    """The object in a JSON file; an empty one if it cannot be read, which is reported where it is needed."""
    try:
        found = json.loads(file.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")  # by type of model


def layers_in_config(folder: Path) -> int | None:
    """The number of layers that config.json names; None if it names none. The text model of several is meant."""
    facts = json_object(folder / "config.json")
    text = facts.get("text_config")
    known = [one.get(name) for one in (facts, text) if isinstance(one, dict) for name in LAYERS]
    return next((count for count in known if isinstance(count, int)), None)


def is_tagger(folder: Path) -> bool:
    """Whether the folder has a model that predicts a tag for each word."""
    return saved_class(folder).endswith("ForTokenClassification") or json_object(folder / HEAD).get("reads") == OWN


def saved_class(folder: Path) -> str:
    """The name of the class that a model was saved as; empty if its configuration names none."""
    names = json_object(folder / "config.json").get("architectures")
    return str(names[0]) if isinstance(names, list) and names else ""


def format_of(folder: Path) -> str:
    """The library that opens the classifier in a folder (:func:`frostline.model.terms.opened_by`)."""
    if (folder / HEAD).is_file():
        return "frostline"
    return "sentence-transformers" if _modules(folder) == [*KINDS.items()] else "transformers"


def _modules(folder: Path) -> list[tuple[str, str]]:
    """The subfolder and the kind of each module of a model of sentence-transformers; empty for other models."""
    try:
        return [(one["path"], one["type"].rpartition(".")[2]) for one in json.loads((folder / MODULES).read_bytes())]
    except (OSError, ValueError, RecursionError, KeyError, TypeError, AttributeError):
        return []


def module_files(folder: Path) -> list[Path]:
    """What sentence-transformers, and so SetFit, reads of a model beside the transformer, such as the pooling."""
    modules = _modules(folder)
    inside = [folder / path for path, _ in modules if path and Path(path).name == path]
    files = [file for one in inside for file in sorted(one.rglob("*")) if file.is_file()]
    return [folder / MODULES, *sorted(folder.glob("*sentence_*.json")), *files] if modules else []


def is_bundle(folder: str | Path) -> bool:
    """Whether a folder is a bundle."""
    return (Path(folder) / BUNDLE).is_file()


def has_own_code(folder: Path) -> bool:
    """Whether a model or its tokenizer runs Python code that comes with it."""
    return bool(_auto_maps(folder))


def code_elsewhere(folder: Path) -> str | None:
    """The other repository of the hub with the code that a model or its tokenizer runs; None if there is none."""
    found = re.search('"([^"]+)--', _auto_maps(folder))
    return found[1] if found else None


def _auto_maps(folder: Path) -> str:
    """Which classes of its own code a model and its tokenizer name, as JSON; empty if they name none."""
    known = (json_object(folder / name).get("auto_map") for name in ("config.json", "tokenizer_config.json"))
    return "".join(json.dumps(one) for one in known if one is not None)


def runs_own_code(loaded: object) -> bool:
    """Whether a loaded model or tokenizer runs Python code that came with it."""
    return type(loaded).__module__.startswith("transformers_modules.")


def require_files(name: str, folder: Path) -> None:
    """Check that a folder has weights in safetensors and a tokenizer, and that a model of frostline is what was saved.

    Raises:
        FrostlineError: One of them is missing, the model was changed, or an adapter would be loaded with it.
    """
    _require_content(
        name,
        folder,
        [
            *sorted(folder.glob("*.json")),
            *sorted(folder.glob("*.safetensors")),
            *(folder / one for one in sorted(TOKENIZER_FILES)),
        ],
    )
    require_intact(folder)
    weights = readable(lambda: weight_files(folder), name, f"its {INDEX} cannot be read")
    if not weights:
        raise FrostlineError(f"The model {name} has no weights in safetensors. {_instead_of_weights(name, folder)}.")
    if (folder / ADAPTER).is_file():
        raise FrostlineError(
            f"The model {name} has an adapter beside its weights, which transformers would load if PEFT is installed: merge it "
            f"into the model with PEFT's merge_and_unload and give that, or remove {ADAPTER} to do without it."
        )
    if absent := [file.name for file in weights if not file.exists()]:
        raise FrostlineError(
            f"The model {name} lacks {len(absent)} of {len(weights)} files that {INDEX} names ({absent[0]}): download it again "
            "with `hf download`, or copy them."
        )
    if not tokenizer_files(folder) and "auto_map" in json_object(folder / "tokenizer_config.json"):
        raise FrostlineError(
            f"The tokenizer of {name} runs Python code of its own and has none of the usual files, such as tokenizer.json. "
            "Choose another model, or convert it to a fast tokenizer of transformers."
        )
    if not tokenizer_files(folder):
        raise FrostlineError(
            f"The model {name} has no tokenizer: tokenizer.json or a vocabulary file belongs beside config.json. "
            "Copy the tokenizer's files from the model that this one was made from."
        )


def require_intact(folder: Path) -> None:
    """Check that a model that frostline saved is what was saved. Any other model has no record of that.

    Raises:
        FrostlineError: A file is changed or missing, or there is another one that transformers would read.
    """
    if not (folder / RECORD).is_file():
        return
    try:
        recorded = read_record(folder / RECORD)[FILES]
        require_recorded(folder, recorded, optional=lambda name: not is_read(name))
        others = unrecorded(folder, RECORD, recorded)
        if added := [name for name in others if "/" not in name and is_read(name)]:
            raise ValueError(f"{added[0]} was added")
    except (OSError, ValueError) as error:
        raise FrostlineError(
            f"The model in {folder} is not what frostline saved ({error}): copy it again, or let the command that "
            f"wrote it write it again. If you changed it yourself, remove its {RECORD}."
        ) from error


@contextmanager
def model_written(target: Path, what: str, facts: Mapping[str, Any] | None = None) -> Iterator[Path]:
    """A new folder for a model, which takes the place of ``target`` when this is closed.

    Args:
        target: The folder. An older one is removed only after the new one is complete.
        what: What is written, such as ``model``.
        facts: The content of ``frostline.json``, which also records the checksums of all files; None: there is none.

    Raises:
        FrostlineError: The folder cannot be written.
    """
    try:
        with new_folder(target, inside=target.parent, replace=True) as aside:
            yield aside
            files = [path for path in aside.rglob("*") if path.is_file()]
            mode = max(file.stat().st_mode for file in files)
            for file in files:
                file.chmod(mode)  # safetensors lets only the owner read weights
            if facts is not None:
                write_record(aside / RECORD, facts, files_in(aside).values(), inside=aside)
    except (OSError, SafetensorError) as error:
        raise FrostlineError(
            f"The {what} could not be written to {target} ({error}): free disk space or choose another --out, and run the same "
            "command again."
        ) from error


def is_read(name: str) -> bool:
    """Whether opening a model can read a file of this name."""
    if name.endswith(".txt"):
        return name.rpartition("/")[2] in TOKENIZER_FILES
    return any(fnmatch(name, pattern) for pattern in MODEL_FILES)


def copy_model(folder: Path, target: Path) -> list[Path]:
    """Copy what opening a model reads, with code of its own if it has some, into ``target``, and return the copied files."""
    files = [one for one in sorted(folder.iterdir()) if one.is_file() and (is_read(one.name) or one.suffix == ".py")]
    copied = [target / file.relative_to(folder) for file in dict.fromkeys([*files, *module_files(folder)])]
    for file in copied:
        file.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(folder / file.relative_to(target), file)
    return copied


def tokenizer_files(folder: Path) -> set[str]:
    """Names of the tokenizer files in a folder."""
    return {
        p.name
        for p in folder.iterdir()
        if p.name in TOKENIZER_FILES or (p.name.startswith("tokenizer") and p.suffix == ".model")
    }


def tokenizer_digest(folder: Path) -> str:
    """The digest of the tokenizer's files and of its settings, such as whether it reads lower case."""
    names = tokenizer_files(folder) | {name for name in TOKENIZER_SETTINGS if (folder / name).is_file()}
    return files_digest([folder / name for name in sorted(names)])


def readable(load: Any, name: str, problem: str) -> Any:
    """Call ``load``; an error about unusable files becomes a ``FrostlineError``.

    Raises:
        FrostlineError: ``load`` failed. The message has the model's ``name``, the ``problem``, and the first line of the
            library's message.
    """
    try:
        return load()
    except (
        OSError,
        ValueError,
        KeyError,
        TypeError,
        AttributeError,
        AssertionError,
        ImportError,
        RuntimeError,
        ArithmeticError,
        SafetensorError,
        StrictDataclassError,
    ) as error:
        said = str(error)
        remedy = next(
            (one for words, one in REMEDIES.items() if words in said),
            "Download its files again, or choose another model",
        )
        if "trust_remote_code" in said:
            pinned = "" if Path(name).expanduser().is_dir() else ", with the --revision that you have read"
            raise FrostlineError(
                f"The model {name} comes with Python code of its own, which is not run unless you trust it: read it, and give "
                f"--trust-remote-code{pinned}."
            ) from error
        if isinstance(error, ImportError):
            remedy = "Install what it needs, or choose another model"
        raise FrostlineError(
            f"The model {name} cannot be used: {problem} ({first_line(error)[:200].rstrip('.')}). {remedy}."
        ) from error


@contextmanager
def quiet_loading() -> Iterator[None]:
    """While the context is open, hide transformers' table of newly initialized parameters and its progress bar."""
    from transformers.utils import logging

    level = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        with without_progress_bar():
            yield
    finally:
        logging.set_verbosity(level)


@contextmanager
def without_progress_bar() -> Iterator[None]:
    """While the context is open, transformers shows no progress bar."""
    from transformers.utils import logging

    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()


def files_digest(files: Sequence[Path]) -> str:
    """A digest of the files' names and contents."""
    digest = hashlib.sha256()
    for file in files:
        digest.update(file.name.encode() + b"\0")
        with file.open("rb") as handle:
            hashlib.file_digest(handle, lambda: digest)  # adds to it
    return digest.hexdigest()
