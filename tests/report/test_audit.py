"""The tables of the audit: what is trained, what was merged, and what each phase changed."""

from typing import Any

from frostline.report.tables.audit import CHECKS, audit_table, phases_table
from frostline.training.result import AuditRecord

TRAINED = {"embeddings": 0, "layer 0": 0, "layer 1": 4, "layer 2": 4, "head": 2}


def audit(**more: Any) -> AuditRecord:
    """The audit of a run that trains two layers."""
    places = {place: {"trained": count, "frozen": 4 - count} for place, count in TRAINED.items()}
    numbers = {"parameters": 20, "trainable_parameters": 10, "clipped_parameters": 3, "tuned_share": 0.5}
    return AuditRecord.model_validate({"by_place": places, **numbers, "checks": dict.fromkeys(CHECKS, True), **more})


def test_merged_matrices_are_counted_and_explained() -> None:
    names = ["layer.1.query.weight", "layer.2.query.weight"]
    table = audit_table([("last 2", audit(merged=[])), ("lora-2", audit(merged=names))])
    cells = [{entry.column.key: entry for entry in table.entries(row)}["trained"] for row in table.rows]
    assert [(cell.text, cell.small) for cell in cells] == [
        ("layers 2 to 3, head", ()),
        ("layers 2 to 3, head", ("2 matrices merged",)),
    ]
    assert "low-rank updates" in table.caption and b'last 2,"' in table.csv()
    assert "low-rank updates" not in audit_table([("last 2", audit())]).caption


def test_each_phase_has_its_steps_and_what_it_changed() -> None:
    phases = [
        {"steps": 4, "moved": ["head"]},
        {"steps": 2, "moved": ["layer 2", "head"]},
        {"steps": 1, "moved": ["layer 2"]},
    ]
    table = phases_table([("last 2", audit()), ("gradual-1", audit(phases=phases))])
    assert table is not None
    assert [[entry.text for entry in table.entries(row)] for row in table.rows] == [
        ["gradual-1", "1", "4", "head"],
        ["gradual-1", "2", "2", "layer 3, head"],
        ["gradual-1", "3", "1", "layer 3"],
    ]
    assert phases_table([("last 2", audit())]) is None
