"""What an analysis writes and prints, and the settings that it uses."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from shutil import get_terminal_size
from typing import Any

from frostline.cli.printing import wrapped
from frostline.data.wording import harmless
from frostline.report.formatting import UNBROKEN


def settings_for(protocol: Any, **given: Any) -> Any:
    """The settings for an analysis: those given as flags, else those of the study, else frostline's defaults."""
    from frostline.statistics.analysis_settings import AnalysisSettings

    chosen = {name: value for name, value in given.items() if value is not None}
    return replace(AnalysisSettings() if protocol is None else protocol.as_published, **chosen)


def protocol_named(name: str | None) -> Any:
    """The protocol of a study, or None."""
    if name is None:
        return None
    from frostline.studies.protocol import load_protocol

    return load_protocol(name)


def write_analysis_page(
    out: Path, analysis: Mapping[str, Any], protocol: Any, title: str, groups: Sequence[Any]
) -> Path:
    """Write the page of an analysis, with the published numbers of a study if there is one."""
    from frostline.report.pages.analysis_page import write_analysis

    folders = {(group.model, group.task): group.folder for group in groups}
    if protocol is None:
        return write_analysis(out, analysis, title=title, folders=folders)
    from frostline.studies.comparison import compare, gap_summary

    rows = compare(protocol, analysis)
    facts = {name: getattr(protocol, name) for name in ("question", "source", "contradictions", "differences")}
    return write_analysis(
        out,
        analysis,
        title=protocol.title,
        publication={**facts, "summary": gap_summary(rows)},
        rows=rows,
        folders=folders,
    )


def print_analysis(analysis: Mapping[str, Any], protocol: Any) -> None:
    """Print one table with tasks down and models across, and the sentence over all tasks of each model."""
    diverged = sum(row["diverged"] for row in analysis["failures"])
    if diverged:
        print(f"Runs without a score, counted as diverged: {diverged}.")
    if len(analysis["groups"]) == 1:
        (group,) = analysis["groups"]
        print("\n".join(wrapped(f"{group['model']}, {group['task']}: {group['sentence']}")))
    else:
        _print_recommendations(analysis)
    for model in analysis["models"]:
        if model["sentence"]:
            print("\n".join(["", *wrapped(f"{model['model']}: {model['sentence']}")]))
    if protocol is not None:
        from frostline.studies.comparison import compare, gap_summary

        compared = gap_summary(compare(protocol, analysis))
        if compared:
            mean, largest = 100 * compared["mean_gap"], 100 * compared["largest_gap"]
            print(
                f"\nCompared with {compared['cells']} published means: mean gap {mean:.2f} points, largest {largest:.2f}."
            )


def _print_recommendations(analysis: Mapping[str, Any]) -> None:
    """Print what to tune for every task and model; below each other if the terminal is too narrow for the table."""
    from frostline.report.tables.analysis_tables import recommendations_table

    table = recommendations_table(analysis)
    head = [column.title for column in table.shown]
    lines = [head, *([_cell(entry) for entry in entries] for _, entries in table.entries())]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    if sum(widths) + 2 * (len(widths) - 1) > get_terminal_size().columns:
        for task, *cells in lines[1:]:
            for model, cell in zip(head[1:], cells, strict=True):
                print(f"{task}, {model}: {cell}")
    else:
        for line in lines:
            print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())
    print("\n".join(["", *wrapped(table.caption.replace(UNBROKEN, " "))]))


def _cell(entry: Any) -> str:
    """``last 5 of 12 (0.3 below, 98 % sure)``."""
    text = f"{entry.text} ({entry.small[0]})" if entry.small else str(entry.text)
    return harmless(text.replace(UNBROKEN, " "), keep="")
