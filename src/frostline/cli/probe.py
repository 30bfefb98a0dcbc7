"""`frostline probe`: linear probes on frozen features."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from frostline.cli.flags import with_settings
from frostline.cli.help import PanelCommand
from frostline.cli.printing import print_table
from frostline.cli.program import app
from frostline.sweep.settings import OF_MODEL_AND_DATA

LabelColumn = Annotated[
    str | None, typer.Option(help="Columns with classes or numbers. [default: found by name]", rich_help_panel="Data")
]
Kind = Annotated[str, typer.Option(help="Kind of probe: ridge or logistic.", rich_help_panel="Probe")]
Out = Annotated[Path, typer.Option(help="Folder for report, table, figure and best probe.", rich_help_panel="Output")]


@app.command(cls=PanelCommand, short_help="Train linear probes on frozen features after every layer.")
@with_settings(file=False, only=OF_MODEL_AND_DATA, leave_out=("label_column",))
def probe(
    settings: dict[str, Any],
    *,
    label_column: LabelColumn = None,
    kind: Kind = "ridge",
    out: Out = Path("frostline-probe"),
) -> None:
    """Train a linear classifier on frozen features after every layer.

    Features are the first token, the mean of all tokens, and the last token; for tags, the first token of each word. One
    forward pass over the examples serves all probes and label columns. The best probe is saved for `frostline predict`.

    Example: frostline probe --model ORG/NAME --train reviews.csv
    """
    from frostline.api.probe import probe as probe_model
    from frostline.api.probe import probe_folders
    from frostline.sweep.progress import suitable_progress

    progress = suitable_progress()
    try:
        found = probe_model(label_columns=label_column, kind=kind, out=out, progress=progress, **settings)
    finally:
        progress.close()
    for one in found:
        for note in one.facts["notes"]:
            print(note)
        print_probes(one.facts)
        print(f"\n{one.sentence}\n")
    print(out / "report.html")
    for folder in probe_folders(out, found):
        print(folder)


def print_probes(facts: Mapping[str, Any]) -> None:
    """Print validation scores: a row for each layer, a column for each feature vector."""
    from frostline.report import formatting, names

    rows: dict[str, dict[str, Any]] = {}
    vectors = dict.fromkeys(one["vector"] for one in facts["probes"])
    for one in facts["probes"]:
        name = formatting.layers(one["layers"])
        best = facts["best"]["layers"] == one["layers"] and facts["best"]["vector"] == one["vector"]
        score = "-" if one["validation"] is None else f"{one['validation']:.3f}"
        rows.setdefault(name, {"after layer": name, **dict.fromkeys(vectors, "")})[one["vector"]] = score + " *" * best
    metric, count = names.metric(facts["metric"]), facts["validation_rows"]
    print(f"\n{facts['columns']['label']}: {metric} on {count:,} validation examples")
    print_table(rows.values(), ("after layer", *vectors))
    print("* best probe, selected by its leave-one-out or held-out score on the training examples")
