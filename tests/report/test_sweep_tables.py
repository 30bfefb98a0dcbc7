"""The tables of a whole sweep: its audit, and its runs by learning rate."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from frostline.report.tables.sweep_tables import CHECKS, audit_table
from frostline.training.result import AuditRecord
from pages import page_of, raw
from synthetic_sweep import make_folder

TRAINED = {"embeddings": 0, "layer 0": 0, "layer 1": 4, "layer 2": 4, "head": 2}


def audit(*, failed: Sequence[str] = (), **more: Any) -> AuditRecord:
    """The audit of a run that trains two layers."""
    places = {place: {"trained": count, "frozen": 4 - count} for place, count in TRAINED.items()}
    numbers = {"parameters": 20, "trainable_parameters": 10, "clipped_parameters": 3, "tuned_share": 0.5}
    checks = {name: name not in failed for name in CHECKS}
    return AuditRecord.model_validate({"by_place": places, **numbers, "checks": checks, **more})


def test_merged_matrices_and_phases_are_told() -> None:
    phases = [{"steps": 4, "moved": ["head"]}, {"steps": 2, "moved": ["layer 2", "head"]}]
    names = ["layer.1.query.weight", "layer.2.query.weight"]
    table = audit_table({"last 2": audit(merged=[]), "lora-2": audit(merged=names), "gradual-1": audit(phases=phases)})
    cells = [entries[1] for _, entries in table.entries()]
    assert {cell.text for cell in cells} == {"layers 2 to 3, head"}
    assert [cell.small for cell in cells] == [
        (),
        ("2 matrices merged",),
        ("phase 1, 4 steps: head", "phase 2, 2 steps: layer 3, head"),
    ]
    assert "low-rank updates" in table.caption and "Of each phase" in table.caption and b'last 2,"' in table.csv()
    plain = audit_table({"last 2": audit(failed=["frozen_bytes_unchanged"])})
    assert "low-rank" not in plain.caption and "phase" not in plain.caption
    assert [entry.text for entry in plain.entries()[0][1] if entry.bad] == ["no"]


def test_failures_by_k_and_learning_rate(tmp_path: Path) -> None:
    rates = (5e-5, 1e-3)
    out = make_folder(
        tmp_path / "out", tune=(0, 2, "full"), seeds=3, learning_rates=rates, diverged=[("full", 1)], test=False
    )
    assert "Failures by tuned layers" in page_of(out).words
    rows = raw(out, "failures")
    keys = [(row["tuned"], float(row["learning_rate"]), row["failed"]) for row in rows]
    expected = [
        ("head only", 1e-3, "0"),
        *((k, rate, str(int(k == "full"))) for k in ("last 2", "full") for rate in rates),
    ]
    assert keys == expected
    assert float(rows[-1]["failure_rate"]) == pytest.approx(1 / 3)
    assert float(rows[-1]["failure_rate_low"]) < 0.01 and float(rows[-1]["failure_rate_high"]) > 0.9
