"""The table of the audit, which checks that frozen parameters stay frozen."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from frostline.data.wording import ranges
from frostline.model.places import EMBEDDINGS, layer_number
from frostline.report import formatting
from frostline.report.tables.by_depth import TUNED
from frostline.report.tables.table import Column, ReportTable, Row, Values

CHECKS = {
    "optimizer_holds_exactly_the_trained": "optimizer holds\nonly trainable",
    "each_parameter_in_one_place": "each parameter\ncounted once",
    "frozen_bytes_unchanged": "frozen weights\nunchanged",
    "frozen_gradients_none": "no gradient\nif frozen",
    "frozen_in_eval_mode": "frozen in\neval mode",
}


def audit_table(samples: Sequence[tuple[str, Mapping[str, Any]]]) -> ReportTable:
    """The audit of one run of each k. ``samples`` are pairs of k and the ``audit`` of a run's result."""
    shown = ("trainable_parameters", "parameters", "clipped_parameters", *CHECKS)
    rows = [
        Row(
            {
                **{"tuned": name, "place": n, "trained": trained_parts(audit["by_place"])},
                **{key: audit[key] for key in shown},
            }
        )
        for n, (name, audit) in enumerate(samples)
    ]
    columns = (
        TUNED,
        Column("trained", "trained", number=False),
        Column(
            *("trainable_parameters", "parameters", formatting.count),
            small=lambda row: [formatting.percent(row["trainable_parameters"] / row["parameters"])],
        ),
        Column("parameters"),
        *(Column(key, title, formatting.yes_no, bad=_failed(key)) for key, title in CHECKS.items()),
        Column("clipped_parameters", "tensors\nclipped", formatting.count),
    )
    caption = (
        "One run of each k. The optimizer holds, and gradient clipping counts, the trainable parameters and no others."
    )
    return ReportTable("audit", "Audit", caption, columns, tuple(rows))


def is_checked(audit: Mapping[str, Any]) -> bool:
    """Whether a run was trained in the training loop, which checks what it trains."""
    return CHECKS.keys() <= audit.keys()


def trained_parts(by_place: Mapping[str, Mapping[str, int]]) -> str:
    """The trained parts of the model as text, such as ``layers 4 to 6, head``."""
    trained = [place for place, counts in by_place.items() if counts["trained"]]
    layers = [number for place in trained if (number := layer_number(place)) is not None]
    parts = [place for place in trained if layer_number(place) is None]
    if layers:
        names = [f"{first + 1} to {last + 1}" if last > first else str(first + 1) for first, last in ranges(layers)]
        text = f"layer{'s' if len(layers) > 1 else ''} {' and '.join(names)}"
        parts.insert(1 if parts[0] == EMBEDDINGS else 0, text)
    return ", ".join(parts)


def _failed(key: str) -> Callable[[Values], bool]:
    return lambda row: not row[key]
