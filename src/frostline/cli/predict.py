"""`frostline predict`: label new texts. `frostline evaluate`: score a model on texts with labels."""

import io
import json
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from frostline import FrostlineError
from frostline.cli.flags import TrustRemoteCode, with_fields
from frostline.cli.program import PanelCommand, app
from frostline.data.files import with_nulls
from frostline.data.kinds import ENDINGS, FORMAT_OF, MULTI_LABEL, TOKENS, either
from frostline.data.wording import comma_separated, counted, first_line, listed, quoted
from frostline.report.plain_text import table_lines, wrapped

if TYPE_CHECKING:  # needs numpy
    from frostline.api.prediction import Evaluation, Outputs, Predicted
    from frostline.data.columns import Columns
    from frostline.data.examples import Texts
    from frostline.data.table import Table
    from frostline.statistics.inference import Ratio

Rows = Sequence[Mapping[str, Any]]


def _csv(rows: Rows, *, safe: bool = False) -> bytes:
    from frostline.sweeps.results.tables import csv_bytes

    def cell(value: Any) -> Any:
        return _json(value) if isinstance(value, list | dict) else value

    return csv_bytes([{name: cell(value) for name, value in row.items()} for row in rows], list(rows[0]), safe=safe)


def _json(value: Any) -> str:
    """A value as JSON, with the texts that a CSV file has of copied times and decimals."""
    return json.dumps(with_nulls(value), ensure_ascii=False, default=str)


def _json_lines(rows: Rows) -> bytes:
    return "".join(_json(row) + "\n" for row in rows).encode()


def _parquet(rows: Rows) -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    buffer = io.BytesIO()  # not by way of pandas, which rounds large integers if one is missing
    pq.write_table(pa.table({name: pa.array([row[name] for row in rows]) for name in rows[0]}), buffer)
    return buffer.getvalue()


def _conll(rows: Rows) -> bytes:
    sentences = [
        "".join(f"{word}\t{tag or '_'}\n" for word, tag in zip(row["tokens"], row["tags"], strict=True)) for row in rows
    ]
    return "\n".join(sentences).encode()


WRITERS: dict[str, Callable[[Rows], bytes]] = {".csv": _csv, ".jsonl": _json_lines, ".parquet": _parquet}
WRITTEN = either(*(FORMAT_OF[ending] for ending in WRITERS))
TAG_WRITERS = {".conll": _conll, ".jsonl": _json_lines, ".parquet": _parquet}  # of tags of words, which are lists


@dataclass(frozen=True, kw_only=True)
class Reading:
    """How a table of texts is read. Each attribute is a flag."""

    text_column: Annotated[str | None, typer.Option(help="Column with the text. [default: as in training]")] = None
    text_pair_column: Annotated[
        str | None, typer.Option(help="Column with the second text of a pair. [default: as in training]")
    ] = None
    column_names: Annotated[str | None, typer.Option(help="Column names, for files without a header line.")] = None
    word_column: Annotated[
        int | None,
        typer.Option(min=1, help="Column of the words in a CoNLL file, counted from 1. [default: the first]"),
    ] = None
    encoding: Annotated[
        str | None, typer.Option(help="Encoding of FILE if it is not UTF-8, such as cp1252. [default: UTF-8]")
    ] = None

    def read(
        self, file: Path, trained: "Columns | None", *, of_words: bool, tag_column: int | None = None
    ) -> "tuple[Table, Texts, Columns]":
        """A table, its texts, and their columns, for a model that was trained on these columns."""
        from frostline.data.load import read_unlabelled
        from frostline.data.reader import read_table

        table = read_table(
            file,
            column_names=None if self.column_names is None else comma_separated(self.column_names),
            of_tokens=of_words,
            word_column=self.word_column,
            tag_column=tag_column,
            encoding=self.encoding,
        )
        texts, found = read_unlabelled(
            table,
            trained=trained,
            task_type=TOKENS if of_words else None,
            text_column=self.text_column,
            text_pair_column=self.text_pair_column,
        )
        return table, texts, found


@dataclass(frozen=True, kw_only=True)
class Options:
    """How a model predicts: the options of :func:`frostline.predict`. Each attribute is a flag."""

    threshold: Annotated[
        float | None,
        typer.Option(
            help="Probability from which the second of two labels is predicted, or each label if a text can have several. "
            "[default: as saved with the model, else 0.5]"
        ),
    ] = None
    stream: Annotated[
        bool | None,
        typer.Option(
            "--stream/--no-stream",
            help="Read the layers from the model folder one at a time, for a model that is larger than memory. "
            "[default: yes if its weights do not fit into memory]",
            show_default=False,
        ),
    ] = None
    base: Annotated[
        str | None,
        typer.Option(
            help="Pretrained model that a probe reads, if it was moved. [default: as when the probe was fitted]"
        ),
    ] = None
    trust_remote_code: TrustRemoteCode = False


@app.command(cls=PanelCommand, short_help="Predict labels and probabilities for a table of texts.")
@with_fields
def predict(
    model: Annotated[
        Path, typer.Argument(help="Folder of a classifier: OUT/model of a sweep, OUT/probe of a probe, or a bundle.")
    ],
    file: Annotated[Path, typer.Argument(help=f"Table of texts: {either(*ENDINGS)}.")],
    *,
    out: Annotated[
        Path | None,
        typer.Option(
            help=f"{WRITTEN} file; for tags of words CoNLL, JSON lines or Parquet. "
            "[default: FILE without its ending, plus .predictions.csv, for tags .predictions.conll or .jsonl]"
        ),
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an existing file.")] = False,
    copy_columns: Annotated[
        str | None,
        typer.Option(help="Columns of FILE to copy into the output, such as id,date. [default: none]"),
    ] = None,
    safe_csv: Annotated[
        bool, typer.Option("--safe-csv", help="Quote cells of a CSV file that a spreadsheet would run as formulas.")
    ] = False,
    reading: Reading,
    options: Options,
) -> None:
    """Predict labels and probabilities for a table of texts.

    The output has one row per text: its row number in the file (the header is row 1), the text, the predicted label (or a list of
    labels) and the probability of each label. With a bundle, these columns begin with the name of each task. A model that
    predicts tags of words writes a row per sentence with lists of words, tags and probabilities, or a CoNLL file. --copy-columns
    adds columns of the file, such as an id.
    """
    from frostline.api.prediction import predict as predict_texts
    from frostline.api.prediction import predicts_tags, require_model, trained_task
    from frostline.data.checks import notes_on_new
    from frostline.data.reader import require_file
    from frostline.model.model_files import is_bundle

    require_file(file)
    require_model(model)
    of_words, several = predicts_tags(model), is_bundle(model)
    target = _target_of(file, out, of_words=of_words, overwrite=overwrite, safe_csv=safe_csv)
    if several:
        _refuse_options(model, options)
        from frostline.api.bundle import bundle_columns, joined, load_bundle
    trained_on = trained_task(model)
    trained = bundle_columns(model) if several else trained_on.columns if trained_on else None
    table, texts, columns = reading.read(file, trained, of_words=of_words)
    copied = copied_columns(table, comma_separated(copy_columns) if copy_columns else ())
    notes = list(table.notes)
    _require_storable(target, texts, copied)
    by_task: Mapping[str, Any] = (
        load_bundle(model)(texts) if several else {"": predict_texts(model, texts, **vars(options))}
    )
    first = next(iter(by_task.values()))
    rows = beside(copied, list(joined(by_task) if several else first.rows()))
    if target.suffix == ".csv" and not safe_csv:
        notes += _formulas(target, rows)
    for note in (f"{file}: {columns}.", *notes, *notes_on_new(texts)):
        print(note, file=sys.stderr)
    for task, of_task in by_task.items():
        _print_outputs(f"{task}: " if task else "", of_task)
    _write(target, rows, of_words=of_words, overwrite=overwrite, safe_csv=safe_csv)
    tasks = f", {len(by_task)} tasks" if several else ""
    if first.truncated:
        tasks += f"; {first.truncated:,} truncated to the length that the model was trained with"
    if missing := without_token(first):
        tasks += f"; {missing}, and no tag"
    unit = "sentence" if of_words else "text"
    print(f"{target}: {counted(len(texts), unit)}{tasks}")


@app.command(cls=PanelCommand, short_help="Score a model on a table of texts with labels.")
@with_fields
def evaluate(
    model: Annotated[Path, typer.Argument(help="Folder of a model: OUT/model of a sweep, or OUT/probe of a probe.")],
    file: Annotated[Path, typer.Argument(help=f"Table of texts with labels: {either(*ENDINGS)}.")],
    *,
    label_column: Annotated[str | None, typer.Option(help="Column with the labels. [default: as in training]")] = None,
    tag_column: Annotated[
        int | None,
        typer.Option(min=1, help="Column of the tags in a CoNLL file, counted from 1. [default: the second of two]"),
    ] = None,
    reading: Reading,
    options: Options,
) -> None:
    """Print the scores of a model for texts with labels: every metric of its task, and precision, recall and F1 of each class.

    Intervals have 95 % confidence and cover the sample of texts. For labels of texts, it also prints how well the probabilities
    agree with the accuracy. Rows without a label are left out. Nothing is written.
    """
    from frostline.api.prediction import evaluate as evaluation_of
    from frostline.api.prediction import predict as predict_texts
    from frostline.api.prediction import refit_rows, require_model, trained_task
    from frostline.data.checks import notes_on_new
    from frostline.data.load import labelled_rows
    from frostline.data.reader import require_file
    from frostline.model.model_files import is_bundle

    require_file(file)
    require_model(model)
    if is_bundle(model):
        raise FrostlineError(
            f"{model} is a bundle: run `frostline evaluate` with the model of each task that it was made from, such as OUT/model "
            "of a sweep, which predicts bitwise the same."
        )
    task = trained_task(model)
    if task is None:
        raise FrostlineError(
            f"{model} is no model whose labels are known: give OUT/model of a sweep or OUT/probe of a probe."
        )
    if label_column is not None:
        task = replace(task, columns=replace(task.columns, label=label_column, indicators=()))
    of_words = task.task_type == TOKENS
    table, _, columns = reading.read(file, task.columns, of_words=of_words, tag_column=tag_column)
    for name in task.columns.of_labels:
        table.require_column(name, f" with labels; pass one of {listed(table.columns)} with --label-column")
    labelled = labelled_rows(table, task, columns)
    if labelled is None:
        raise FrostlineError(
            f"{table.name}: no row has a label: write labels, or name their column with --label-column."
        )
    examples, without = labelled
    predictions = predict_texts(model, examples, **vars(options))
    group = None if examples.groups is None else task.columns.group
    labels = replace(task.columns, text=columns.text, text_pair=columns.text_pair, group=group)
    own = notes_on_new(examples)
    if examples.repeats:
        own.append(
            f"{counted(examples.repeats, 'text reads', 'texts read')} like an earlier one; intervals count it once."
        )
    rows = refit_rows(model)
    trained = "" if rows is None else f", which are all {rows:,} labelled rows of its sweep but its test set"
    own.append(f"If texts are among those that this model was trained on{trained}, scores are too high.")
    for note in (f"{file}: {labels}.", *table.notes, *without, *own):
        print(note, file=sys.stderr)
    _print_outputs("", predictions)
    if predictions.truncated:
        lost = ". Their words after it have no tag, and are not scored" if of_words else ""
        have = counted(predictions.truncated, "text has", "texts have")
        print(f"{have} more tokens than the model was trained with{lost}.", file=sys.stderr)
    if missing := without_token(predictions):
        print(f"{missing}, and no tag: an entity that begins with one counts as missed.", file=sys.stderr)
    print(*_evaluation(evaluation_of(predictions, examples), examples), sep="\n")


def without_token(predictions: "Predicted") -> str:
    """How many words have no token, such as words of invisible characters; empty for none."""
    from frostline.api.prediction import TagPredictions

    count = predictions.without_token if isinstance(predictions, TagPredictions) else 0
    return counted(count, "word has no token", "words have no token") if count else ""


def _evaluation(evaluation: "Evaluation", examples: "Texts") -> Iterator[str]:
    """The lines that show the scores."""
    from frostline.report import formatting, names

    unit = "sentence" if evaluation.calibration is None and evaluation.classes else "text"
    yield f"{counted(len(examples), unit)} with labels"
    scores = [
        {
            "metric": names.metric(name) + (f" of {evaluation.classes[1].label}" if name == "f1" else ""),
            "score": formatting.score(found.estimate),
            "95 % interval": formatting.interval(found.low, found.high),
        }
        for name, found in evaluation.scores.items()
    ]
    yield from table_lines(scores, tuple(scores[0]))
    if evaluation.classes:
        classes = [
            {
                "class": one.label,
                "examples": one.examples,
                "precision": _with_interval(one.precision),
                "recall": _with_interval(one.recall),
                "F1": _with_interval(one.f1),
            }
            for one in evaluation.classes
        ]
        yield ""
        yield from table_lines(classes, tuple(classes[0]))
    if found := evaluation.calibration:
        yield ""
        chance = " Chance alone explains this." if found.error <= found.by_chance_high else ""
        error, expected = map(formatting.score, (found.error, found.by_chance_high))
        yield from wrapped(
            f"The probability of the most probable class differs from its accuracy by {error} on average (expected calibration "
            f"error). Were it exactly right, this would be up to {expected} in 95 % of samples.{chance}"
        )


def _with_interval(share: "Ratio") -> str:
    """A score with its interval, for a narrow column."""
    if share.estimate is None:
        return "–"
    return f"{share.estimate:.2f} ({share.low:.2f} to {share.high:.2f})"


def _formulas(target: Path, rows: Rows) -> list[str]:
    """A warning if a spreadsheet would run cells of a CSV file as formulas."""
    from frostline.sweeps.results.tables import is_formula

    found = [(row["row"], name, cell) for row in rows for name, cell in row.items() if is_formula(cell)]
    if not found:
        return []
    row, name, cell = found[0]
    cells = counted(len(found), "cell as a formula", "cells as formulas")
    return [
        f"Warning: {target}: a spreadsheet would run {cells}, such as {quoted(cell)} (row {row}, column {quoted(name)}); "
        "--safe-csv quotes them."
    ]


def _require_storable(target: Path, texts: "Texts", copied: Mapping[str, Any]) -> None:
    """Refuse words and copied columns that the output file cannot hold, before anything is computed."""
    from frostline.data.conll import DOCUMENT
    from frostline.data.tags import words_of

    lines = target.suffix == ".conll"
    if lines and copied:
        raise FrostlineError("--copy-columns: a CoNLL file has words and tags only; write to a .jsonl file with --out.")
    for row, sentence in zip(texts.rows, texts.texts, strict=True) if lines else ():
        if wrong := [word for word in words_of(sentence) if word in ("", DOCUMENT) or "\t" in word]:
            raise FrostlineError(
                f"{texts.name}, row {row}: a CoNLL file cannot hold the word {quoted(wrong[0])}; write to a .jsonl or .parquet "
                "file with --out."
            )
    for name, cells in copied.items():
        try:
            WRITERS[target.suffix]([{name: cell} for cell in cells])
        except (TypeError, ValueError, OverflowError, NotImplementedError) as error:
            raise FrostlineError(
                f"{texts.name}, column {quoted(name)}: a {target.suffix} file cannot hold its cells ({first_line(error)}); leave "
                "it out of --copy-columns."
            ) from error


def _print_outputs(task: str, outputs: "Outputs") -> None:
    """Print which temperature and threshold were applied, if there are any, after the name of the ``task``."""
    from frostline.report import formatting

    if outputs.temperature != 1:
        print(f"{task}The logits are divided by the temperature {outputs.temperature:.3g}.", file=sys.stderr)
    if outputs.task_type != MULTI_LABEL:
        for label, least in outputs.thresholds.items():
            print(
                f"{task}The label {label!r} is predicted from probability {formatting.threshold(least)} on.",
                file=sys.stderr,
            )
    elif (limits := set(outputs.thresholds.values())) - {0.5}:
        lowest, highest = map(formatting.threshold, (min(limits), max(limits)))
        applied = f"Labels are predicted from probability {lowest} on."
        if len(limits) > 1:
            applied = f"Each label has its own threshold, from {lowest} to {highest}."
        print(f"{task}{applied}", file=sys.stderr)


def _target_of(file: Path, out: Path | None, *, of_words: bool, overwrite: bool, safe_csv: bool) -> Path:
    """The output file. It is refused before anything is computed: an unknown format, the input file, or one that exists."""
    # tags of words are written as CoNLL if the words are read from such a file
    from_lines = FORMAT_OF.get(file.suffix.lower()) in ("CoNLL", "TSV")
    ending = (".conll" if from_lines else ".jsonl") if of_words else ".csv"
    target = out.expanduser() if out else file.with_name(f"{file.stem}.predictions{ending}")
    writers = TAG_WRITERS if of_words else WRITERS
    if target.suffix not in writers:
        raise FrostlineError(f"{target} has an unknown ending: use {either(*writers)}.")
    exists = target.exists() and file.exists()  # a missing input is reported when it is read
    if exists and target.samefile(file):
        raise FrostlineError(f"{target} is the input file and would be overwritten: give another --out.")
    if exists and not overwrite:
        raise FrostlineError(f"{target} exists: give another --out, or --overwrite.")
    if safe_csv and target.suffix != ".csv":
        raise FrostlineError(f"--safe-csv is for CSV files, but the output is {target}: leave it out.")
    return target


def _write(target: Path, rows: Rows, *, of_words: bool, overwrite: bool, safe_csv: bool) -> None:
    """Write the predictions in the format of the output file, which :func:`_target_of` has allowed."""
    from frostline.data.files import create_file, replace_file

    writers = TAG_WRITERS if of_words else WRITERS
    content = _csv(rows, safe=safe_csv) if target.suffix == ".csv" else writers[target.suffix](rows)
    if overwrite:
        replace_file(target, content, inside=target)
    elif not create_file(target, content, inside=target):
        raise FrostlineError(f"{target} exists, which another process has written meanwhile: give another --out.")


def _refuse_options(bundle: Path, options: Options) -> None:
    """Refuse the options of a model for a bundle."""
    known = {name: value for name, value in vars(options).items() if value is not None and value is not False}
    if given := [f"--{name.replace('_', '-')}" for name in known]:
        raise FrostlineError(
            f"{bundle} is a bundle: leave {' and '.join(given)} out, or predict with the model of each task."
        )


TAKEN = ("row", "text", "text_pair", "label", "labels", "prediction", "tokens", "tags", "probabilities")


def copied_columns(table: "Table", names: Sequence[str]) -> dict[str, list[Any]]:
    """The cells of these columns of the table, by name.

    Raises:
        FrostlineError: The table has no column of this name, or the predictions may have one.
    """
    _refuse_taken(names, TAKEN)
    for name in names:
        table.require_column(name, f"; pass some of {listed(table.columns)} with --copy-columns")
    return {name: table.cells(name) for name in names}


def beside(copied: Mapping[str, Sequence[Any]], rows: Rows) -> Rows:
    """The rows of predictions, with the copied columns after the row number.

    Raises:
        FrostlineError: A copied column has the name of a column of the predictions.
    """
    _refuse_taken(copied, rows[0].keys())
    return [
        {"row": row["row"], **{name: cells[n] for name, cells in copied.items()}, **row} for n, row in enumerate(rows)
    ]


def _refuse_taken(names: Collection[str], taken: Collection[str]) -> None:
    """Refuse to copy a column that has the name of a column of the predictions."""
    if both := [name for name in names if name in taken]:
        raise FrostlineError(
            f"--copy-columns: {quoted(both[0])} is the name of a column of the predictions; rename that of the table, or leave "
            "it out."
        )
