"""Data sets that come with their splits: a folder of files, a saved ``DatasetDict``, or a set from the Hugging Face hub."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from frostline import FrostlineError
from frostline.data.formats.reader import EXTENSIONS, read_table
from frostline.data.table import Table
from frostline.data.wording import listed, quoted

SPLIT_WORDS = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("validation", "valid", "val", "dev", "development"), "validation"),
    **dict.fromkeys(("test", "testing"), "test"),
}
Read = Callable[..., Table]  # read_table or an extension of it: takes a source and, if it is not a file, its ``name``
SplitOf = Callable[[str], str | None]  # split_of_name or an extension of it
NO_HUB_SET = (
    "--data {name}: there is no such folder, and no hub data set could be loaded by that name ({reason}); check the name, "
    "--config and the network."
)
SHARD = re.compile(r"(?P<stem>.+)-\d{5}-of-\d{5}")


def read_splits(
    data: str | Path,
    *,
    config: str | None = None,
    column_names: Sequence[str] | None = None,
) -> dict[str, Table]:
    """The tables of a folder or hub data set by split; a "train" split is among them.

    A name contains the word train, validation (valid, val, dev) or test. Of MNLI's two validation and test sets, the matched
    ones are read.

    Raises:
        FrostlineError: There is no such data set, it has no training split, or two files could be the same split.
    """
    path, read = Path(data), partial(read_table, column_names=column_names)
    if not is_folder(path):
        return from_dict(load_hub(str(data), config), str(data), read)
    if config is not None:
        raise FrostlineError(
            f"{path}: this is a folder, and --config {quoted(config)} is for hub data sets; leave it out."
        )
    return from_folder(path, read)


def is_folder(path: Path) -> bool:
    """Whether the path is a folder rather than a name on the hub; a file is an error."""
    if path.is_file():
        raise FrostlineError(f"{path}: this is a file, not a folder with splits; pass it with --train.")
    return path.is_dir()


def split_of_name(name: str) -> str | None:
    """The split that a file or split name shows with exactly one of the known words; None for MNLI's "mismatched"."""
    words = re.findall("[a-z]+", name.lower())
    found = {SPLIT_WORDS[word] for word in words if word in SPLIT_WORDS}
    return found.pop() if len(found) == 1 and "mismatched" not in words else None


def from_folder(folder: Path, read: Read, split_of: SplitOf = split_of_name) -> dict[str, Table]:
    """The tables of a folder of files, or of a folder that ``save_to_disk`` wrote, by split."""
    if any((folder / name).is_file() for name in ("dataset_dict.json", "state.json")):
        return from_dict(_saved(folder), str(folder), read, split_of)
    files = _split_files(folder, split_of) or _split_files(folder / "data", split_of)  # the hub uses data/
    _require_train(str(folder), files, sorted(one.name for one in folder.iterdir()), "file")
    return {split: _read_shards(split, paths, read) for split, paths in files.items()}


def from_dict(splits: Mapping[str, Any], name: str, read: Read, split_of: SplitOf = split_of_name) -> dict[str, Table]:
    """The tables of a ``DatasetDict`` by split; ``name`` is what errors call it."""
    split_by_name = {one: split_of(one) for one in splits}
    _require_train(name, [split for split in split_by_name.values() if split], list(splits), "split")
    for split in dict.fromkeys(filter(None, split_by_name.values())):
        same = [one for one in splits if split_by_name[one] == split]
        if len(same) > 1:
            raise FrostlineError(
                f"{name}: {listed(same)} could all be the {split} split; pass the intended one as a file or a table."
            )
    return {
        split: read(splits[one], name=f"{name} ({one})") for one, split in split_by_name.items() if split is not None
    }


def load_hub(name: str, config: str | None, message: str = NO_HUB_SET) -> Mapping[str, Any]:
    """The splits of a hub data set; ``message`` is the error if there is none, with {name} and {reason}."""
    import datasets

    try:
        return datasets.load_dataset(name, config)  # type: ignore[no-any-return]
    except (OSError, ValueError, RuntimeError, datasets.exceptions.DatasetsError) as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")
        raise FrostlineError(message.format(name=quoted(name), reason=reason)) from None


def concatenated(tables: Sequence[Table]) -> Table:
    """One table from several with the same columns; if there are several, their rows are numbered consecutively."""
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


def _split_files(folder: Path, split_of: SplitOf) -> dict[str, list[Path]]:
    """The tables in a folder whose names show a split, by split."""
    files: dict[str, list[Path]] = {}
    for path in sorted(folder.iterdir()) if folder.is_dir() else []:
        split = split_of(path.stem)
        if split is not None and path.is_file() and path.suffix.lower() in EXTENSIONS:
            files.setdefault(split, []).append(path)
    return files


def _read_shards(split: str, paths: list[Path], read: Read) -> Table:
    """The table in one file or in its shards (train-00000-of-00002)."""
    stems = {match["stem"] if (match := SHARD.fullmatch(path.stem)) else path.name for path in paths}
    if len(stems) > 1:
        raise FrostlineError(
            f"{paths[0].parent}: {listed(path.name for path in paths)} could all be the {split} split; "
            "leave one of them there, or pass it by its own flag."
        )
    return concatenated([read(path) for path in paths])


def _require_train(name: str, found: Iterable[str], present: list[str], kind: str) -> None:
    if "train" not in found:
        known = f" ({', '.join(EXTENSIONS)})" if kind == "file" else ""
        raise FrostlineError(
            f"{name}: no {kind}{known} has train in its name, of {listed(present) or 'none at all'}; rename one, or "
            "pass a file with --train."
        )


def _saved(folder: Path) -> Mapping[str, Any]:
    """The splits that ``save_to_disk`` wrote; a ``Dataset`` without splits is the training split."""
    import datasets

    loaded = datasets.load_from_disk(str(folder))
    return loaded if isinstance(loaded, datasets.DatasetDict) else {"train": loaded}
