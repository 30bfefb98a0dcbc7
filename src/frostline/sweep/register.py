"""Register a sweep: write its settings and its scored examples into its folder."""

from dataclasses import asdict

from frostline.data.files import ELSEWHERE, locked, make_folder, write_sealed
from frostline.sweep.plan import read_settings
from frostline.sweep.prepare import Prepared
from frostline.sweep.results.folder import write_rows


def register(prepared: Prepared) -> None:
    """Create the folder of a sweep, or add the grid of this sweep to an existing folder."""
    out = prepared.store.out
    make_folder(out, inside=out)
    identity, origin = asdict(prepared.identity), asdict(prepared.origin)
    # Another process may have extended the grid since this sweep was prepared.
    with locked(out / ".sweep.lock", ELSEWHERE, inside=out):
        existing = prepared.store.read_spec()
        spec = prepared.spec
        if existing is not None:
            spec = spec.extended(read_settings(existing, out), prepared.identity.train_rows)
        prepared.store.write_spec({**spec.model_dump(mode="json"), "identity": identity, "origin": origin})
    facts = {
        "columns": asdict(prepared.data.task.columns),
        "notes": prepared.plan.notes,
        "report": prepared.data.report.as_dict(),
        "max_length": prepared.plan.max_length,
        "truncated": prepared.plan.truncated,
        "truncated_by_class": prepared.plan.truncated_by_class,
    }
    write_sealed(out / "data.json", facts, inside=out)
    write_rows(out, "validation", prepared.data.validation, prepared.data.folds)
    for name, examples in prepared.data.other_splits.items():
        write_rows(out, name, examples)
    if prepared.data.test is not None:
        write_rows(out, "test", prepared.data.test)
