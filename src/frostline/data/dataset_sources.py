"""Data sets with splits: a folder of files, a saved ``DatasetDict``, or a data set on the Hugging Face hub."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from frostline import FrostlineError
from frostline.data.kinds import FORMAT_OF, DataSettings
from frostline.data.table import Table
from frostline.data.wording import first_line, listed, quoted

SPLIT_WORDS = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("validation", "valid", "val", "dev", "development"), "validation"),
    **dict.fromkeys(("test", "testing"), "test"),
}
Read = Callable[..., Table]  # read_table or a variant: takes a source and, for a source that is no file, its ``name``
SplitOf = Callable[[str], str | None]  # split_of_name or a variant
SHARD = re.compile(r"(?P<stem>.+)-\d{5}-of-(?P<count>\d{5})(-[0-9a-f]{16})?")  # older ones end in a checksum


def read_splits(data: str | Path, *, config: str | None, read: Read) -> dict[str, Table]:
    """The tables of a folder or hub data set by split. The result always has a "train" split.

    ``read`` reads one table. The name of a file or split must contain the word train, validation (or valid, val, dev) or
    test. MNLI has two validation and two test sets, of which the matched ones are read.

    Raises:
        FrostlineError: There is no such data set, it has no training split, or two files could be the same split.
    """
    path = Path(data)
    if not is_folder(path):
        return from_dict(load_hub(str(data), config), str(data), read)
    if config is not None:
        raise FrostlineError(
            f"{path}: this is a folder, and --config {quoted(config)} is for hub data sets; leave it out."
        )
    return from_folder(path, read)


def is_folder(path: Path) -> bool:
    """Whether the path is a folder; otherwise it is a name on the hub. A file is refused."""
    if path.is_file():
        raise FrostlineError(
            f"{path}: this is a file, not a folder with splits; give the folder, or the file as train."
        )
    return path.is_dir()


def split_of_name(name: str) -> str | None:
    """The split whose word the name contains. None without such a word, with several, and for MNLI's "mismatched" sets."""
    words = re.findall("[a-z]+", name.lower())
    found = {SPLIT_WORDS[word] for word in words if word in SPLIT_WORDS}
    return found.pop() if len(found) == 1 and "mismatched" not in words else None


def source_name(settings: DataSettings, train: Any) -> str:
    """The name of the hub data set, folder or file, without words such as train. If nothing is left, the name of the folder."""
    if settings.data is not None:
        return "-".join(part for part in (Path(settings.data).resolve().name, settings.config) if part)
    if not isinstance(train, str | Path):
        return "data"
    path = Path(train).resolve()
    if split_of_name(path.stem) is None:
        return path.stem
    stem = match["stem"] if (match := SHARD.fullmatch(path.stem)) else path.stem
    parts = re.split("([^A-Za-z0-9]+)", stem)
    kept = [n for n in range(0, len(parts), 2) if parts[n].lower() not in SPLIT_WORDS and parts[n]]
    return "".join(parts[n - 1] * (n != kept[0]) + parts[n] for n in kept) or path.parent.name


def from_folder(folder: Path, read: Read, split_of: SplitOf = split_of_name) -> dict[str, Table]:
    """The tables in a folder by split. The folder holds files, or was written by ``save_to_disk``."""
    if any((folder / name).is_file() for name in ("dataset_dict.json", "state.json")):
        import datasets

        saved = datasets.load_from_disk(str(folder))
        splits = saved if isinstance(saved, datasets.DatasetDict) else {"train": saved}
        return from_dict(splits, str(folder), read, split_of)
    files = _split_files(folder, split_of) or _split_files(folder / "data", split_of)  # as on the hub
    _require_train(str(folder), files, sorted(one.name for one in folder.iterdir()), "file")
    for split, paths in files.items():
        shards = [SHARD.fullmatch(path.stem) for path in paths]
        alike = {
            (shard["stem"], shard["count"], path.suffix) if shard else path
            for shard, path in zip(shards, paths, strict=True)
        }
        if len(alike) > 1:
            raise FrostlineError(
                f"{paths[0].parent}: {listed(path.name for path in paths)} could all be the {split} split; leave only one of "
                "them there, or pass it with its own flag."
            )
        if shards[0] and len(paths) != (count := int(shards[0]["count"])):
            raise FrostlineError(
                f"{paths[0].parent}: {len(paths)} of the {count} files of the {split} split are there; copy or download the "
                f"others, or pass one file with --{split}."
            )
    others = sorted(
        path for path in files["train"][0].parent.iterdir() if path.is_file() and path.suffix.lower() in FORMAT_OF
    )
    unread = [path.name for path in others if not any(path in paths for paths in files.values())]
    tables = {split: concatenated([read(path) for path in paths]) for split, paths in files.items()}
    return _with_note(tables, str(folder), unread)


def from_dict(splits: Mapping[str, Any], name: str, read: Read, split_of: SplitOf = split_of_name) -> dict[str, Table]:
    """The tables of a ``DatasetDict`` by split. Errors call it ``name``."""
    split_by_name = {one: split_of(one) for one in splits}
    _require_train(name, [split for split in split_by_name.values() if split], list(splits), "split")
    for split in dict.fromkeys(filter(None, split_by_name.values())):
        same = [one for one in splits if split_by_name[one] == split]
        if len(same) > 1:
            raise FrostlineError(
                f"{name}: {listed(same)} could all be the {split} split; pass the intended one as a file or a table."
            )
    tables = {
        split: read(splits[one], name=f"{name} ({one})") for one, split in split_by_name.items() if split is not None
    }
    return _with_note(tables, name, [one for one, split in split_by_name.items() if split is None])


def _with_note(tables: dict[str, Table], name: str, unread: Sequence[str]) -> dict[str, Table]:
    """The tables; those for training have a note on the files or splits that are not read, if there are any."""
    if not unread:
        return tables
    note = f"{name}: left out, because only names with train, validation (or valid, val, dev) or test are read: {listed(unread)}."
    return {**tables, "train": replace(tables["train"], notes=(*tables["train"].notes, note))}


def load_hub(name: str, config: str | None) -> Mapping[str, Any]:
    """The splits of a hub data set."""
    import datasets

    try:
        return datasets.load_dataset(name, config)  # type: ignore[no-any-return]
    except (OSError, ValueError, RuntimeError, datasets.exceptions.DatasetsError) as error:
        raise FrostlineError(
            f"{quoted(name)} is no folder and cannot be loaded from the hub ({first_line(error).rstrip('.')}); check the name "
            "and the network, or give a folder with --data."
        ) from None


def concatenated(tables: Sequence[Table]) -> Table:
    """Concatenate tables with the same columns. The rows of several tables are numbered consecutively."""
    if len(tables) == 1:
        return tables[0]
    other = next((one for one in tables if set(one.columns) != set(tables[0].columns)), None)
    if other is not None:
        raise FrostlineError(
            f"{other.name}: its columns ({listed(other.columns)}) differ from the columns of {tables[0].name} "
            f"({listed(tables[0].columns)}); give shards of one table."
        )
    other = next((one for one in tables if one.class_names != tables[0].class_names), None)
    if other is not None:
        raise FrostlineError(
            f"{other.name}: the classes of its labels differ from those of {tables[0].name}, or are in another order; give "
            "shards of one table."
        )
    return Table(
        name=f"{tables[0].name} and {len(tables) - 1} more",
        columns={one: [cell for table in tables for cell in table.cells(one)] for one in tables[0].columns},
        rows=np.arange(1, sum(map(len, tables)) + 1),
        class_names=tables[0].class_names,
        notes=tuple(note for table in tables for note in table.notes),
        has_header=tables[0].has_header,
    )


def _split_files(folder: Path, split_of: SplitOf) -> dict[str, list[Path]]:
    """The files in a folder by split. Files whose name contains no split are ignored."""
    files: dict[str, list[Path]] = {}
    for path in sorted(folder.iterdir()) if folder.is_dir() else []:
        split = split_of(path.stem)
        if split is not None and path.is_file() and path.suffix.lower() in FORMAT_OF:
            files.setdefault(split, []).append(path)
    return files


def _require_train(name: str, found: Iterable[str], present: list[str], kind: str) -> None:
    if "train" not in found:
        known = f" ({', '.join(FORMAT_OF)})" if kind == "file" else ""
        found_names = f"found: {listed(present)}" if present else f"there is no {kind} at all"
        raise FrostlineError(
            f"{name}: no {kind}{known} has train in its name ({found_names}); rename one, or give a file as train."
        )
