"""Merge folders of one sweep, from machines that share nothing, into one folder."""

import os
from collections.abc import Sequence
from dataclasses import asdict
from functools import reduce
from pathlib import Path

from frostline import FrostlineError
from frostline.data.files import ARRAY_BYTES, make_folder, new_folder, read_inside, replace_file
from frostline.sweeps.grid import Origin
from frostline.sweeps.join import difference
from frostline.sweeps.results.folder import Folder
from frostline.sweeps.results.store import Store, disagreement
from frostline.sweeps.settings import OutputSettings
from frostline.sweeps.toml import TRUST
from frostline.training.run import Run

FILES = ("data.json", "*.parquet")  # what belongs to all runs; tables that are made from the results are left out
MADE = ("results.parquet",)


def merge(folders: Sequence[str | Path], out: str | Path) -> dict[str, int]:
    """Merge folders of one sweep into a new folder. No folder that is read is changed, except that damage is set aside.

    Args:
        folders: Folders of sweeps with the same model, data and settings. Their grids may differ.
        out: The new folder. It has the runs of all folders.

    Returns:
        The number of runs that are ``done``, ``failed`` and ``pending``.

    Raises:
        FrostlineError: The folders hold different sweeps, a run that is in two of them has different results, or ``out`` exists.
    """
    sweeps, out = [Folder(folder) for folder in folders], Path(out).expanduser()
    if os.path.lexists(out):
        raise FrostlineError(f"{out} exists: choose another --out, which is created.")
    for sweep in sweeps:
        _require_same(sweeps[0], sweep)
    make_folder(out.parent, inside=out.parent)
    try:
        with new_folder(out, inside=out.parent) as part:
            merged = Store(part)
            for number, sweep in enumerate(sweeps):
                _add_results(sweep, merged, sweeps[:number])
            for sweep in sweeps:
                for digest, failure in sweep.store.failures().items():
                    if not merged.has_ended(digest):
                        merged.fail(failure)
            found = [path for sweep in sweeps for pattern in FILES for path in sorted(sweep.out.glob(pattern))]
            # each from the first folder that has it
            for source in {path.name: path for path in reversed(found) if path.name not in MADE}.values():
                replace_file(part / source.name, read_inside(source, source.parent, ARRAY_BYTES), inside=part)
            first, rows = sweeps[0], sweeps[0].identity.train_rows
            spec = reduce(lambda one, other: one.extended(other, rows), (sweep.spec for sweep in sweeps))
            start, in_memory = first.written.origin.folder_for(first.out), first.written.origin.in_memory
            origin = Origin.of(start, out, in_memory)  # as seen from the new folder
            tables = {"identity": asdict(first.identity), "origin": asdict(origin), TRUST: first.written.own_code}
            merged.write_spec({**spec.model_dump(mode="json"), "out": str(out), **tables})
    except FileExistsError as error:
        raise FrostlineError(
            f"{out} exists, which another process has created meanwhile: choose another --out."
        ) from error
    return Folder(out).counts()


def _require_same(one: Folder, other: Folder) -> None:
    """Refuse folders of different sweeps, and those of a search, whose steps cannot be merged."""
    if other.search:
        raise FrostlineError(
            f"{other.out} is the folder of a search, whose steps cannot be merged: give folders of sweeps."
        )
    if found := difference(one.written, other.written):
        name, here, there = found
        detail = f" ({here} and {there})" if here else ""
        raise FrostlineError(
            f"{one.out} and {other.out} hold different sweeps: their {name} is different{detail}. Give folders of one sweep."
        )
    for name in OutputSettings.model_fields:
        values = [getattr(sweep.spec, name) for sweep in (one, other)]
        if values[0] != values[1] and name not in ("out", "track"):
            here, there = ("not given" if value is None else value for value in values)
            raise FrostlineError(
                f"{one.out} and {other.out} would be answered differently: their {name} is {here} and {there}. Run the command "
                "of one of them with the value of the other; runs are not trained again."
            )


def _add_results(sweep: Folder, merged: Store, before: Sequence[Folder]) -> None:
    """Add the results of a folder. One that is there, from a folder ``before``, must agree."""
    other = sweep.store
    for run in sweep.requested:
        if not other.has(run.digest) or merged.add(run.digest, other.files(run.digest)):
            continue
        one = next(folder.store for folder in before if folder.store.has(run.digest))
        gap = disagreement(one.predictions(run.digest), other.predictions(run.digest))
        tests = [found[1] for store in (one, other) if (found := store.test(run.digest))]
        if not gap and len(tests) == 2:
            gap = disagreement({"test": tests[0]}, {"test": tests[1]})
        if gap:
            raise FrostlineError(
                f"{run.recipe}, seed {run.seed} has different results in {one.out} ({_machine(one, run)}) and "
                f"{other.out} ({_machine(other, run)}); its predictions differ {gap}: remove runs/{run.digest} from "
                "one of the folders."
            )


def _machine(store: Store, run: Run) -> str:
    """The machine on which a run was trained, as far as its results depend on it."""
    found = store.result(run.digest).provenance
    return ", ".join(f"{name} {getattr(found, name)}" for name in ("device_name", "instructions", "threads", "torch"))
