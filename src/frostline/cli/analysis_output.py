"""What an analysis writes and prints, and the choices that it uses."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from frostline.cli.printing import print_table


def choices_for(protocol: Any, **given: Any) -> Any:
    """The choices for an analysis: those given as flags, else those of the study, else frostline's defaults."""
    from frostline.statistics.choices import Choices

    chosen = {name: value for name, value in given.items() if value is not None}
    return replace(Choices() if protocol is None else protocol.as_published, **chosen)


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
    from frostline.report.pages.analysis import write_analysis

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
    """Print the answer for each model and task, and the summary over several tasks."""
    diverged = sum(row["diverged"] for row in analysis["failures"])
    if diverged:
        print(f"Runs without a score, counted as diverged: {diverged}.")
    for group in analysis["groups"]:
        print(f"{group['model']}, {group['task']}: {group['sentence']}")
    for model in analysis["models"]:
        if model["tasks"]:
            layers = f", {model['layers']} layers" if model["layers"] else ""
            print(f"\n{model['model']}{layers}, over {len(model['tasks']['tasks'])} tasks")
            print_table(model["tasks"]["points"], ("target", "estimate", "confident", "not_ruled_out"))
    if protocol is not None:
        from frostline.studies.comparison import compare, gap_summary

        compared = gap_summary(compare(protocol, analysis))
        if compared:
            mean, largest = 100 * compared["mean_gap"], 100 * compared["largest_gap"]
            print(
                f"\nCompared with {compared['cells']} published means: mean gap {mean:.2f} points, largest {largest:.2f}."
            )
