"""Data that come with their splits: a folder of files, a saved ``DatasetDict``, a set from the Hugging Face hub."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from frostline import FrostlineError
from frostline.data.tables import EXTENSIONS, Table, read_table
from frostline.data.wording import listed, quoted

SPLITS = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("validation", "valid", "val", "dev", "development"), "validation"),
    **dict.fromkeys(("test", "testing"), "test"),
}
Read = Callable[..., Table]  # read_table, or what does more: takes a source and, for what is no file, a ``name``
SplitOf = Callable[[str], str | None]  # split_word, or what knows more splits
NO_HUB_SET = (
    "--data {name}: there is no such folder, and no hub set could be loaded by that name ({reason}); check the name, "
    "--config and the network."
)
SHARD = re.compile(r"(?P<stem>.+)-\d{5}-of-\d{5}")


def read_splits(
    data: str | Path,
    *,
    config: str | None = None,
    column_names: Sequence[str] | None = None,
) -> dict[str, Table]:
    """The tables of a folder or hub set by split. There is a "train" among them, or it is an error.

    The word train, validation (valid, val, dev) or test in a name says the split. Of MNLI's two validation and test
    sets the matched ones are read.
    """
    path, read = Path(data), partial(read_table, column_names=column_names)
    if not is_folder(path):
        return from_dict(load_hub(str(data), config), str(data), read)
    if config is not None:
        raise FrostlineError(f"{path}: this is a folder, and --config {quoted(config)} is for hub sets; leave it out.")
    return from_folder(path, read)


def is_folder(path: Path) -> bool:
    """Whether it is one, not a name on the hub; a file is an error."""
    if path.is_file():
        raise FrostlineError(f"{path}: this is a file, not a folder with splits; pass it with --train.")
    return path.is_dir()


def split_word(name: str) -> str | None:
    """The split that a file or split name tells: exactly one of the known words, and not MNLI's "mismatched"."""
    words = re.findall("[a-z]+", name.lower())
    found = {SPLITS[word] for word in words if word in SPLITS}
    return found.pop() if len(found) == 1 and "mismatched" not in words else None


def from_folder(folder: Path, read: Read, split_of: SplitOf = split_word) -> dict[str, Table]:
    """The tables of a folder of files, or of what ``save_to_disk`` wrote, by split."""
    if any((folder / name).is_file() for name in ("dataset_dict.json", "state.json")):
        return from_dict(_saved(folder), str(folder), read, split_of)
    files = _split_files(folder, split_of) or _split_files(folder / "data", split_of)  # as on the hub
    _require_train(str(folder), files, sorted(one.name for one in folder.iterdir()), "file")
    return {split: _read_shards(split, paths, read) for split, paths in files.items()}


def _split_files(folder: Path, split_of: SplitOf) -> dict[str, list[Path]]:
    """The tables in a folder whose names tell a split, by split."""
    files: dict[str, list[Path]] = {}
    for path in sorted(folder.iterdir()) if folder.is_dir() else []:
        split = split_of(path.stem)
        if split is not None and path.is_file() and path.suffix.lower() in EXTENSIONS:
            files.setdefault(split, []).append(path)
    return files


def _read_shards(split: str, paths: list[Path], read: Read) -> Table:
    """One file, or the shards (train-00000-of-00002) of one table."""
    stems = {match["stem"] if (match := SHARD.fullmatch(path.stem)) else path.name for path in paths}
    if len(stems) > 1:
        raise FrostlineError(
            f"{paths[0].parent}: {listed(path.name for path in paths)} could all be the {split} split; "
            "keep one of them there, or pass it by its own flag."
        )
    return joined([read(path) for path in paths])


def joined(tables: Sequence[Table]) -> Table:
    """One table of several with the same columns; the rows of more than one are numbered through."""
    if len(tables) == 1:
        return tables[0]
    other = next((one for one in tables if set(one.columns) != set(tables[0].columns)), None)
    if other is not None:
        raise FrostlineError(
            f"{other.name}: its columns ({listed(other.columns)}) are not those of {tables[0].name} "
            f"({listed(tables[0].columns)}); give shards of one table."
        )
    return Table(
        name=f"{tables[0].name} and {len(tables) - 1} more",
        columns={one: [cell for table in tables for cell in table.cells(one)] for one in tables[0].columns},
        rows=np.arange(1, sum(map(len, tables)) + 1),
        class_names=tables[0].class_names,
        notes=tuple(note for table in tables for note in table.notes),
    )


def from_dict(splits: Mapping[str, Any], name: str, read: Read, split_of: SplitOf = split_word) -> dict[str, Table]:
    """The tables of a ``DatasetDict`` by split; ``name`` is what errors call it."""
    words = {split: split_of(split) for split in splits}
    _require_train(name, [word for word in words.values() if word], list(splits), "split")
    for word in dict.fromkeys(filter(None, words.values())):
        alike = [split for split in splits if words[split] == word]
        if len(alike) > 1:
            raise FrostlineError(
                f"{name}: {listed(alike)} could all be the {word} split; pass the one that is meant as a file or a table."
            )
    return {word: read(splits[split], name=f"{name} ({split})") for split, word in words.items() if word is not None}


def _require_train(name: str, found: Iterable[str], there: list[str], kind: str) -> None:
    if "train" not in found:
        known = f" ({', '.join(EXTENSIONS)})" if kind == "file" else ""
        raise FrostlineError(
            f"{name}: no {kind}{known} has train in its name, of {listed(there) or 'none at all'}; name one so, or "
            "pass a file with --train."
        )


def _saved(folder: Path) -> Mapping[str, Any]:
    """What ``save_to_disk`` wrote; a set without splits is all training."""
    import datasets

    loaded = datasets.load_from_disk(str(folder))
    return loaded if isinstance(loaded, datasets.DatasetDict) else {"train": loaded}


def load_hub(name: str, config: str | None, sentence: str = NO_HUB_SET) -> Mapping[str, Any]:
    """The splits of a hub set; ``sentence`` is the error where there is none, with {name} and {reason}."""
    import datasets

    try:
        return datasets.load_dataset(name, config)  # type: ignore[no-any-return]
    except (OSError, ValueError, RuntimeError, datasets.exceptions.DatasetsError) as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")
        raise FrostlineError(sentence.format(name=quoted(name), reason=reason)) from None
