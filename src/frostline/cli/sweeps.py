"""The verbs of one model: demo, sweep, find, plan, status, report, probe, predict, check."""

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from frostline import FrostlineError
from frostline.cli.flags import with_settings
from frostline.cli.printing import answer_row, print_forecast, print_groups, print_plan, print_probes, print_table
from frostline.cli.program import FAILED_RUNS, app
from frostline.cli.results import print_counts
from frostline.data.folding import between_commas
from frostline.sweep.specification import CHOSEN_BY_SEARCH, OF_MODEL_AND_DATA

SWEEP = "frostline-sweep"  # the folder of a sweep that is only planned
# Settings for which a search has defaults of its own.
OF_SEARCH = ("learning_rate", "head_learning_rate", "seeds", "folds", "evaluations_per_epoch")


@app.command(short_help="The embedded example, offline, in about a minute.")
def demo(
    out: Annotated[Path, typer.Option(help="folder for results, answer, report and model")] = Path("frostline-demo"),
    task: Annotated[str, typer.Option(help="polarity or agreement; the sentences are generated")] = "polarity",
    seeds: Annotated[int, typer.Option(min=1, help="runs of each k")] = 3,
) -> None:
    """The embedded example: answer, report and model in about a minute, offline (agreement takes four)."""
    from frostline.api.demo import demo_sweep

    _run(demo_sweep(out, task=task, seeds=seeds))


@app.command(short_help="Run every cell of a grid, and answer.")
@with_settings()
def sweep(
    settings: dict[str, Any],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="show the plan and every parameter group; nothing is trained or written")
    ] = False,
) -> None:
    """Run every cell of a grid (tuned layers x train size x seed x learning rate), and answer.

    Needs --model, --train (or --data or --glue), --tune and --out, as flags or in a TOML file. The same command again
    goes on where it stopped; with more seeds, layers or sizes it adds to what is there.
    """
    from frostline.api.sweep import Sweep

    if not dry_run:
        _run(Sweep(**settings))
        return
    made = Sweep(**{"out": SWEEP, **settings}).plan(timed=False)
    print_plan(made)
    print_groups(made.groups)


@app.command(short_help="The smallest k that is enough, looked for with as few trainings as that takes.")
@with_settings(file=False, leave_out=(*CHOSEN_BY_SEARCH, *OF_SEARCH), out="frostline-find")
def find(
    settings: dict[str, Any],
    learning_rate: Annotated[
        str | None, typer.Option(help="rates that may be tried, with commas [default: 5e-5,1e-4,2e-4]")
    ] = None,
    head_learning_rate: Annotated[
        str | None,
        typer.Option(
            help="learning rate of the head; of several, with commas, the head alone takes its best, every other k has the "
            "first [default: 1e-3,3e-3,1e-2,3e-2]"
        ),
    ] = None,
    seeds: Annotated[str | None, typer.Option(help="most seeds of any k: a number, or a list [default: 5]")] = None,
    folds: Annotated[
        str | None,
        typer.Option(
            help="set no validation rows aside, but score every row by runs that do not train on it: a number, 0, or auto "
            "(5 where there are fewer than 2,000 rows and no validation) [default: auto]"
        ),
    ] = None,
    evaluations_per_epoch: Annotated[
        int | None,
        typer.Option(min=0, help="validation scores in an epoch; 0: after the last step alone [default: 0]"),
    ] = None,
    budget: Annotated[
        str | None,
        typer.Option(
            help="time for training, as in 90s, 10min, 2h; heads and two trainings of a shallow k are done in any case "
            "[default: that of four full fine-tunings]"
        ),
    ] = None,
    max_k: Annotated[
        int | None, typer.Option(help="train no more than so many layers; they then stand for full")
    ] = None,
    exhaustive: Annotated[bool, typer.Option("--exhaustive", help="train the whole grid, for audit")] = False,
) -> None:
    """The smallest k that is enough, looked for with as few trainings as that takes.

    Needs --model and --train (or --data or --glue). Ctrl-C leaves the best answer so far; the same command goes on
    from there. The page shows every step and its reason.
    """
    from frostline.search.find import find as look_for

    own = {
        "learning_rate": learning_rate,
        "head_learning_rate": head_learning_rate,
        "seeds": seeds,
        "folds": folds,
        "evaluations_per_epoch": evaluations_per_epoch,
    }
    settings |= {name: value for name, value in own.items() if value is not None}
    answer = look_for(budget=budget, max_k=max_k, exhaustive=exhaustive, **settings)
    _show(answer, Path(settings["out"]).expanduser())


@app.command(short_help="What a sweep would run, and the seconds, memory and disk that it takes.")
@with_settings(out=SWEEP)
def plan(
    settings: dict[str, Any],
    study: Annotated[
        str | None,
        typer.Option(help="a published study: how many parameters each k trains, without weights and network"),
    ] = None,
) -> None:
    """What a sweep would run and share, and the seconds, memory and disk that it takes; nothing is written.

    For that a few steps of it are timed, in about ten seconds, on the model and the texts at hand.
    With --study NAME the parameters that each k of a published study trains, from its models' configurations.
    """
    if study is not None:
        print_counts(study, settings)
        return
    from frostline.api.sweep import Sweep

    made = Sweep(**settings).plan()
    print_plan(made)
    print_forecast(made.forecast)


@app.command(short_help="The runs of a sweep: done, failed or pending.")
def status(folder: Annotated[Path, typer.Argument(help="a sweep's --out")]) -> None:
    """Every run of a sweep: done, failed (and why) or pending."""
    from frostline.sweep.results.folder import Folder

    rows = [{**row, "learning_rate": f"{row['learning_rate']:g}"} for row in Folder(folder).rows()]
    counts = {state: sum(row["status"] == state for row in rows) for state in ("done", "failed", "pending")}
    print(f"{folder}: " + ", ".join(f"{count} {state}" for state, count in counts.items()))
    columns = ("trainable", "train_size", "seed", "learning_rate", "status", "outcome", "validation_best", "reason")
    print_table(rows, columns)


@app.command(short_help="Rebuild tables, answer and page of a sweep.")
def report(folder: Annotated[Path, typer.Argument(help="a sweep's --out")]) -> None:
    """Rebuild tables, answer and report.html from the runs in a folder."""
    from frostline.api.sweep import write_report

    path = write_report(folder)
    print(json.loads((folder / "answer.json").read_text())["sentence"])
    print(path)


@app.command(short_help="What frozen features can do alone, after every layer.")
@with_settings(file=False, only=OF_MODEL_AND_DATA, leave_out=("label_column",))
def probe(
    settings: dict[str, Any],
    label_column: Annotated[
        str | None, typer.Option(help="column with the label or number; several with commas")
    ] = None,
    kind: Annotated[str, typer.Option(help="ridge or logistic")] = "ridge",
    out: Annotated[Path, typer.Option(help="folder for page, table, figure and the best probe")] = Path(
        "frostline-probe"
    ),
) -> None:
    """What frozen features can do alone: linear probes after every layer, from one pass over the texts.

    On first token, mean and last token of each text. The best one is saved, for `frostline predict`.
    """
    from frostline.sweep.execution.progress import suitable_progress
    from frostline.training.probes.probing import probe as probe_model
    from frostline.training.probes.probing import probe_folders

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


@app.command(short_help="Labels and probabilities for a table of texts.")
def predict(
    model: Annotated[
        Path,
        typer.Argument(help="DIR/model of a sweep, DIR/probe of a probing or a search, or any classifier's folder"),
    ],
    file: Annotated[Path, typer.Argument(help="table with the texts: CSV, TSV, JSON lines or Parquet")],
    out: Annotated[
        Path | None, typer.Option(help=".csv, .jsonl or .parquet [default: texts.predictions.csv beside texts.csv]")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="write over a file that is there already")] = False,
    text_column: Annotated[str | None, typer.Option(help="column with the text")] = None,
    text_pair_column: Annotated[str | None, typer.Option(help="column with the second text of a pair")] = None,
    column_names: Annotated[
        str | None, typer.Option(help="columns of a CSV or TSV file without a header, with commas")
    ] = None,
    trust_remote_code: Annotated[
        bool, typer.Option("--trust-remote-code", help="run code that comes with the model")
    ] = False,
) -> None:
    """Labels and probabilities for a table of texts.

    One row a text: where it stands in the file (a header is row 1), the text, its label, the probability of each label.
    """
    from frostline.api.prediction import demand_model, trained_columns
    from frostline.api.prediction import predict as predict_texts
    from frostline.data import read_unlabelled

    target = out.expanduser() if out else file.with_name(f"{file.stem}.predictions.csv")
    if target.suffix not in (".csv", ".jsonl", ".parquet"):
        raise FrostlineError(f"{target} has no known ending: name it .csv, .jsonl or .parquet.")
    there = target.exists() and file.exists()  # a missing file is said where it is read
    if there and target.samefile(file):
        raise FrostlineError(f"{target} holds the texts themselves and would be overwritten: give another --out.")
    if there and not overwrite:
        raise FrostlineError(f"{target} is there already: give another --out, or --overwrite.")
    demand_model(model)
    texts, columns = read_unlabelled(
        file,
        column_names=None if column_names is None else between_commas(column_names),
        text_column=text_column,
        text_pair_column=text_pair_column,
        trained=trained_columns(model),
    )
    predictions = predict_texts(model, texts, trust_remote_code=trust_remote_code)
    print(f"{file}: {columns}.", file=sys.stderr)
    _write_rows(target, list(predictions.rows(texts)), predictions.columns(texts))
    cut = f"; {predictions.truncated} were longer than the model takes and were cut" if predictions.truncated else ""
    print(f"{target}: {len(texts):,} {'text' if len(texts) == 1 else 'texts'}{cut}")


@app.command(short_help="Prove on a model that sharing changes nothing.")
def check(
    model: Annotated[str, typer.Argument(help="a hub name, or a folder")],
    revision: Annotated[str | None, typer.Option(help="commit, tag or branch of a hub model")] = None,
) -> None:
    """Prove on a model that cut, kept and packed give what the uncut model gives: logits and gradients, for every k."""
    from frostline.frozen.check import TOLERANCE
    from frostline.frozen.check import check as check_model
    from frostline.model.pretrained import load_pretrained

    pretrained = load_pretrained(
        model, labels=("0", "1"), problem_type="single_label_classification", revision=revision
    )
    checks = check_model(pretrained.model)
    rows = [{**vars(row), "tuned_layers": "all" if row.tuned_layers is None else row.tuned_layers} for row in checks]
    refused = [row for row in checks if row.refused]
    columns = ("tuned_layers", "path", "max_logit_difference", "max_gradient_difference", *["refused"] * bool(refused))
    print_table(rows, columns)
    if refused:
        raise FrostlineError(
            f"{model} cannot be swept at {len(refused)} of {len(checks)} values of k: {refused[0].refused}"
        )
    print(
        f"Equal: every difference is below {TOLERANCE:g} of the largest value. Compared in fp32, so that rounding hides "
        "nothing; packed batches drop the padding."
    )


def _run(sweep: Any) -> None:
    _show(sweep.run(), sweep.out)


def _show(answer: dict[str, Any], out: Path) -> None:
    largest = answer["sizes"][0]
    print(
        f"{answer['task']}, {largest['train_size']:,} examples, {answer['metric']} on {answer['validation_rows']:,} "
        f"validation rows (guessing {answer['chance']:.3f})"
    )
    full = "full" if largest["reference_is_full"] or not largest["reference"] else largest["reference"]
    rows = [answer_row(cell, full) for cell in largest["cells"]]
    print_table(rows, tuple(rows[0]))
    print(f"\n{answer['sentence']}")
    why = answer["search"] and answer["search"]["why"]
    if why and why not in answer["sentence"]:
        print(why)
    if answer["tested"] and largest["recommended"]:
        from frostline.report.sentences import tested

        print(" ".join(tested(largest, answer["metric"].replace("_", " "))))
    print(f"\n{out / 'report.html'}")
    if largest["recommended"]:
        print(out / "model")
    if answer["search"]:
        from frostline.sweep.results.search_record import PROBE, has_probe

        if has_probe(out):
            print(out / PROBE)
    if failed := answer["runs"]["failed"]:
        print(
            f"{failed} {'run' if failed == 1 else 'runs'} ended in an error; `frostline status {out}` says why, and "
            "the same command tries again."
        )
        sys.exit(FAILED_RUNS)


def _write_rows(target: Path, rows: list[dict[str, Any]], columns: list[str]) -> None:
    from frostline.sweep.results.store import replace
    from frostline.sweep.results.tables import csv_bytes

    if target.suffix == ".csv":
        replace(target, csv_bytes(rows, columns))
    elif target.suffix == ".jsonl":
        replace(target, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode())
    else:
        import io

        import pandas as pd

        buffer = io.BytesIO()
        pd.DataFrame(rows, columns=columns).to_parquet(buffer, index=False)
        replace(target, buffer.getvalue())
