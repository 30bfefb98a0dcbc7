"""`frostline predict`: label new texts."""

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from frostline import FrostlineError
from frostline.cli.help import PanelCommand
from frostline.cli.program import app
from frostline.data.parsing import comma_separated

Model = Annotated[
    Path, typer.Argument(help="Folder of a classifier: OUT/model of a sweep, or OUT/probe of a search or probe.")
]
File = Annotated[Path, typer.Argument(help="Table of texts: CSV, TSV, JSON lines or Parquet.")]
Out = Annotated[Path | None, typer.Option(help="CSV, JSON lines or Parquet file. [default: FILE.predictions.csv]")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace an existing file.")]
TextColumn = Annotated[str | None, typer.Option(help="Column with the text. [default: as in training]")]
TextPairColumn = Annotated[
    str | None, typer.Option(help="Column with the second text of a pair. [default: as in training]")
]
ColumnNames = Annotated[str | None, typer.Option(help="Column names, for files without a header line.")]
TrustRemoteCode = Annotated[bool, typer.Option("--trust-remote-code", help="Run code that comes with the model.")]
FORMATS = (".csv", ".jsonl", ".parquet")


@app.command(cls=PanelCommand, short_help="Predict labels and probabilities for a table of texts.")
def predict(
    model: Model,
    file: File,
    *,
    out: Out = None,
    overwrite: Overwrite = False,
    text_column: TextColumn = None,
    text_pair_column: TextPairColumn = None,
    column_names: ColumnNames = None,
    trust_remote_code: TrustRemoteCode = False,
) -> None:
    """Predict labels and probabilities for a table of texts.

    Writes one row per text: its row number in the file (the header is row 1), the text, the predicted label and the
    probability of each label.
    """
    from frostline.api.prediction import predict as predict_texts
    from frostline.api.prediction import require_model, trained_columns
    from frostline.data.load import read_unlabelled

    target = out.expanduser() if out else file.with_name(f"{file.stem}.predictions.csv")
    require_writable(target, file, overwrite=overwrite)
    require_model(model)
    texts, columns = read_unlabelled(
        file,
        column_names=None if column_names is None else comma_separated(column_names),
        text_column=text_column,
        text_pair_column=text_pair_column,
        trained=trained_columns(model),
    )
    predictions = predict_texts(model, texts, trust_remote_code=trust_remote_code)
    print(f"{file}: {columns}.", file=sys.stderr)
    write_rows(target, list(predictions.rows(texts)), predictions.columns(texts))
    truncated = f"; {predictions.truncated} were truncated to the model's length limit" if predictions.truncated else ""
    print(f"{target}: {len(texts):,} {'text' if len(texts) == 1 else 'texts'}{truncated}")


def require_writable(target: Path, file: Path, *, overwrite: bool) -> None:
    """Refuse an unknown format, the input file itself, and an existing file.

    Raises:
        FrostlineError: With the flag that helps.
    """
    if target.suffix not in FORMATS:
        raise FrostlineError(f"{target} has an unknown ending: use {', '.join(FORMATS[:-1])} or {FORMATS[-1]}.")
    exists = target.exists() and file.exists()  # a missing input is reported when it is read
    if exists and target.samefile(file):
        raise FrostlineError(f"{target} is the input file and would be overwritten: give another --out.")
    if exists and not overwrite:
        raise FrostlineError(f"{target} exists: give another --out, or --overwrite.")


def write_rows(target: Path, rows: list[dict[str, Any]], columns: list[str]) -> None:
    """Write predictions in the format of the file's ending."""
    from frostline.data.files import replace_file
    from frostline.sweep.results.tables import csv_bytes

    if target.suffix == ".csv":
        replace_file(target, csv_bytes(rows, columns))
    elif target.suffix == ".jsonl":
        replace_file(target, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode())
    else:
        import io

        import pandas as pd

        buffer = io.BytesIO()
        pd.DataFrame(rows, columns=columns).to_parquet(buffer, index=False)
        replace_file(target, buffer.getvalue())
