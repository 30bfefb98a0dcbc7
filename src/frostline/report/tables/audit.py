"""The tables of the audit, which checks that frozen parameters stay frozen, and shows what each phase changed."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from frostline.data.wording import ranges
from frostline.model.terms import EMBEDDINGS, layer_number
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
                **{"tuned": name, "place": n, "trained": _parts(_trained(audit["by_place"]))},
                **{key: audit[key] for key in shown},
                "merged": len(audit.get("merged", ())),
            }
        )
        for n, (name, audit) in enumerate(samples)
    ]
    columns = (
        TUNED,
        Column("trained", "trained", number=False, small=_merged),
        Column("merged"),
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
    if any(row.values["merged"] for row in rows):
        caption += " Of merged matrices, low-rank updates were trained and added to the weights."
    return ReportTable("audit", "Audit", caption, columns, tuple(rows))


def phases_table(samples: Sequence[tuple[str, Mapping[str, Any]]]) -> ReportTable | None:
    """The phases of one run of each way that has several; None if none has. ``samples`` are those of :func:`audit_table`."""
    rows = [
        Row({"tuned": name, "place": n, "phase": number, "steps": phase["steps"], "moved": _parts(phase["moved"])})
        for n, (name, audit) in enumerate(samples)
        for number, phase in enumerate(audit.get("phases", []), 1)
    ]
    columns = (
        *(TUNED, Column("phase", "phase"), Column("steps", "steps", formatting.count)),
        Column("moved", "changed", number=False),
    )
    caption = (
        "One run of each way that is trained in phases, and what has other values at the end of each than at its start."
    )
    return ReportTable("phases", "Phases", caption, columns, tuple(rows)) if rows else None


def is_checked(audit: Mapping[str, Any]) -> bool:
    """Whether a run was trained in the training loop, which checks what it trains."""
    return CHECKS.keys() <= audit.keys()


def _trained(by_place: Mapping[str, Mapping[str, int]]) -> list[str]:
    """The places with trained parameters."""
    return [place for place, counts in by_place.items() if counts["trained"]]


def _parts(places: Iterable[str]) -> str:
    """Places of the model as text, such as ``layers 4 to 6, head``."""
    parts, layers = list[str](), list[int]()
    for place in places:
        number = layer_number(place)
        if number is None:
            parts.append(place)
        else:
            layers.append(number)
    if layers:
        names = [f"{first + 1} to {last + 1}" if last > first else str(first + 1) for first, last in ranges(layers)]
        text = f"layer{'s' if len(layers) > 1 else ''} {' and '.join(names)}"
        parts.insert(1 if parts[:1] == [EMBEDDINGS] else 0, text)
    return ", ".join(parts)


def _merged(row: Values) -> list[str]:
    count = row["merged"]
    return [f"{count} matri{'x' if count == 1 else 'ces'} merged"] if count else []


def _failed(key: str) -> Callable[[Values], bool]:
    return lambda row: not row[key]
