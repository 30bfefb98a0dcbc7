"""The files of a model, in a folder or downloaded from the hub."""

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import transformers
from huggingface_hub import snapshot_download
from huggingface_hub.errors import HFValidationError
from safetensors import SafetensorError

from frostline import FrostlineError
from frostline.data.sealed import FILES, files_in, read_record, require_recorded
from frostline.data.wording import first_line

RECORD = "frostline.json"  # in the folder of a saved model
MODEL_FILES = ["*.json", "*.safetensors", "*.txt", "*.model", "*.jinja"]
TOKENIZER_FILES = {"tokenizer.json", "vocab.txt", "vocab.json", "merges.txt", "sentencepiece.bpe.model", "spm.model"}
OTHER_WEIGHTS = (".bin", ".pt", ".pth", ".h5", ".msgpack", ".ckpt")


def model_folder(name: str, revision: str | None, files: list[str]) -> tuple[Path, str | None]:
    """The folder of a model, and its commit if it comes from the hub.

    Args:
        name: A folder or a hub name.
        revision: A branch, tag or commit of a hub model; None: its main branch.
        files: Patterns of the files to download.

    Raises:
        FrostlineError: There is no such folder or hub model, or a revision is given for a folder.
    """
    path = Path(name).expanduser()
    if path.is_dir():
        if not (path / "config.json").is_file():
            raise FrostlineError(
                f"The folder {name} is not a model: it has no config.json. Give a folder that save_pretrained wrote, "
                "or a hub name."
            )
        if revision:
            raise FrostlineError(
                f"{name} is a folder, and a folder has no revision {revision!r}: leave --revision out, or give a hub name."
            )
        return path, None
    if path.exists() or name.startswith((".", "/", "~")) or name.count("/") > 1:
        raise FrostlineError(f"There is no model folder {name}: check the path, or give a hub name such as org/model.")
    try:
        snapshot = Path(snapshot_download(name, revision=revision, allow_patterns=files))
    except (OSError, ValueError, HFValidationError) as error:
        raise FrostlineError(
            f"The model {name!r} (revision {revision or 'main'}) is neither a folder nor available from the hub "
            f"({type(error).__name__}): check its name, or download it on a machine with a network and give its folder."
        ) from error
    return snapshot, snapshot.name


def require_files(name: str, folder: Path) -> None:
    """Check that a folder has weights in safetensors and a tokenizer, and that a model of frostline is what was saved.

    Raises:
        FrostlineError: One of them is missing, or the model was changed.
    """
    require_intact(folder)
    if not list(folder.glob("*.safetensors")):
        other = [p.name for p in folder.iterdir() if p.suffix in OTHER_WEIGHTS]
        found = f"only {', '.join(sorted(other))}" if other else "no weights at all"
        raise FrostlineError(
            f"The model {name} has no weights in safetensors ({found}), and frostline reads no other format: "
            "convert them with transformers' save_pretrained, which writes model.safetensors."
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
        facts = read_record(folder / RECORD)
        require_recorded(folder, facts, optional=lambda name: not _is_read(name))
        others = [name for name in files_in(folder) if "/" not in name and _is_read(name)]
        if added := [name for name in others if name not in (RECORD, *facts[FILES])]:
            raise ValueError(f"{added[0]} was added")
    except (OSError, ValueError) as error:
        raise FrostlineError(
            f"The model in {folder} is not what frostline saved ({error}): copy it again, or let the command that "
            f"wrote it write it again. If you changed it yourself, remove its {RECORD}."
        ) from error


def _is_read(name: str) -> bool:
    """Whether opening a model can read a file of this name."""
    if name.endswith(".txt"):
        return name.rpartition("/")[2] in TOKENIZER_FILES
    return any(fnmatch(name, pattern) for pattern in MODEL_FILES)


def tokenizer_files(folder: Path) -> set[str]:
    """Names of the tokenizer files in a folder."""
    return {
        p.name
        for p in folder.iterdir()
        if p.name in TOKENIZER_FILES or (p.name.startswith("tokenizer") and p.suffix == ".model")
    }


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
        ImportError,
        RuntimeError,
        SafetensorError,
    ) as error:
        raise FrostlineError(
            f"The model {name} cannot be used: {problem} ({first_line(error)[:200].rstrip('.')}). "
            "Download its files again, or choose another model."
        ) from error


@contextmanager
def quiet_loading() -> Iterator[None]:
    """While the context is open, hide transformers' table of newly initialized parameters and its progress bar."""
    level = transformers.utils.logging.get_verbosity()
    transformers.utils.logging.set_verbosity_error()
    bars = transformers.utils.logging.is_progress_bar_enabled()
    transformers.utils.logging.disable_progress_bar()
    try:
        yield
    finally:
        transformers.utils.logging.set_verbosity(level)
        if bars:
            transformers.utils.logging.enable_progress_bar()


def files_digest(files: Sequence[Path]) -> str:
    """A digest of the files' names and contents."""
    digest = hashlib.sha256()
    for file in files:
        digest.update(file.name.encode() + b"\0")
        with file.open("rb") as handle:
            while block := handle.read(1 << 22):
                digest.update(block)
    return digest.hexdigest()
