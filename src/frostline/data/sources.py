"""Data that come with their splits: a folder of files, a saved ``DatasetDict``, a set from the Hugging Face hub."""

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from frostline.data.tables import EXTENSIONS, Table, read_table
from frostline.data.wording import listed, quoted
from frostline.errors import FrostlineError

SPLITS = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("validation", "valid", "val", "dev", "development"), "validation"),
    **dict.fromkeys(("test", "testing"), "test"),
}
SHARD = re.compile(r"(?P<stem>.+)-\d{5}-of-\d{5}")


def read_splits(
    data: str | Path, *, config: str | None = None, column_names: Sequence[str] | None = None
) -> dict[str, Table]:
    """The tables of a folder or hub set by split. There is a "train" among them, or it is an error.

    The word train, validation (valid, val, dev) or test in a name says the split. Of MNLI's two validation and test
    sets the matched ones are read.
    """
    path = Path(data)
    if path.is_file():
        raise FrostlineError(f"{path}: this is a file, not a folder with splits; pass it with --train.")
    if not path.is_dir():
        tables = _from_dict(_loaded(str(data), config), str(data), column_names)
    elif config is not None:
        raise FrostlineError(f"{path}: this is a folder, and --config {quoted(config)} is for hub sets; leave it out.")
    elif any((path / name).is_file() for name in ("dataset_dict.json", "state.json")):
        tables = _from_dict(_saved(path), str(path), column_names)
    else:
        tables = _from_files(path, column_names)
    return tables


def split_word(name: str) -> str | None:
    """The split that a file or split name tells: exactly one of the known words, and not MNLI's "mismatched"."""
    words = re.findall("[a-z]+", name.lower())
    found = {SPLITS[word] for word in words if word in SPLITS}
    return found.pop() if len(found) == 1 and "mismatched" not in words else None


def _from_files(folder: Path, column_names: Sequence[str] | None) -> dict[str, Table]:
    files = _split_files(folder) or _split_files(folder / "data")  # as on the hub
    _require_train(str(folder), files, sorted(one.name for one in folder.iterdir()), "file")
    return {split: _read_shards(paths, column_names) for split, paths in files.items()}


def _split_files(folder: Path) -> dict[str, list[Path]]:
    """The tables in a folder whose names tell a split, by split."""
    files: dict[str, list[Path]] = {}
    for path in sorted(folder.iterdir()) if folder.is_dir() else []:
        split = split_word(path.stem)
        if split is not None and path.is_file() and path.suffix.lower() in EXTENSIONS:
            files.setdefault(split, []).append(path)
    return files


def _read_shards(paths: list[Path], column_names: Sequence[str] | None) -> Table:
    """One file, or the shards (train-00000-of-00002) of one table, whose rows are numbered through."""
    stems = {match["stem"] if (match := SHARD.fullmatch(path.stem)) else path.name for path in paths}
    if len(stems) > 1:
        raise FrostlineError(
            f"{paths[0].parent}: {listed(path.name for path in paths)} could all be the {split_word(paths[0].stem)} "
            "split; keep one of them there, or pass it by its own flag."
        )
    tables = [read_table(path, column_names=column_names) for path in paths]
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


def _from_dict(splits: Mapping[str, Any], name: str, column_names: Sequence[str] | None) -> dict[str, Table]:
    words = {split: split_word(split) for split in splits}
    _require_train(name, [word for word in words.values() if word], list(splits), "split")
    return {
        word: read_table(splits[split], column_names=column_names, name=f"{name} ({split})")
        for split, word in words.items()
        if word is not None
    }


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


def _loaded(name: str, config: str | None) -> Mapping[str, Any]:
    import datasets

    try:
        return datasets.load_dataset(name, config)  # type: ignore[no-any-return]
    except (OSError, ValueError, RuntimeError, datasets.exceptions.DatasetsError) as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")
        raise FrostlineError(
            f"--data {quoted(name)}: there is no such folder, and no hub set could be loaded by that name ({reason}); "
            "check the name, --config and the network."
        ) from None
