"""The command line: few verbs over the objects that Python users have. What is heavy is imported by the verb."""

import errno
import inspect
import json
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Optional

import typer

from frostline.errors import FrostlineError
from frostline.specification import Settings, SweepSpec, read_toml

FAILED_RUNS, INTERRUPTED = 1, 130  # exit codes: some runs ended in an error; Ctrl-C

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


@app.callback(invoke_without_command=True)
def program(
    version: Annotated[bool, typer.Option("--version", is_eager=True, help="Show the version and exit.")] = False,
) -> None:
    """How many of the last layers of a pretrained transformer should I fine-tune on my data, what does it cost, and how
    sure is that?"""
    if version:
        from importlib.metadata import version as version_of

        print(f"frostline {version_of('frostline')}")
        raise typer.Exit


cache_app = typer.Typer(no_args_is_help=True, help="Hidden states that are kept on this machine.")
app.add_typer(cache_app, name="cache")


def main() -> None:
    """The program. A mistake of the user's is one sentence on stderr and exit code 2."""
    try:
        app(prog_name="frostline")
    except SystemExit as leaving:
        if leaving.code == INTERRUPTED:
            _leave("stopped. What is finished is kept; the same command goes on from there.", INTERRUPTED)
        raise
    except FrostlineError as error:
        _leave(str(error), 2)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EPERM, errno.EROFS):
            raise
        _leave(
            f"{error.filename or 'A file'} cannot be written or read ({error.strerror}): put that right and run the "
            "same command again; finished runs are kept.",
            2,
        )


def _leave(sentence: str, code: int) -> None:
    print(f"frostline: {sentence}", file=sys.stderr)
    sys.exit(code)


def _with_settings(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command one flag for each setting of a sweep, by the setting's name; its own and the grid's come first."""

    own = [p.replace(kind=p.KEYWORD_ONLY) for p in list(inspect.signature(command).parameters.values())[1:]]

    def run(file: Path | None, **flags: Any) -> None:
        more = {parameter.name: flags.pop(parameter.name) for parameter in own}
        given = {name: value for name, value in flags.items() if value is not None}
        command({**(_settings_in(file) if file else {}), **_plain(given)}, **more)

    argument = Annotated[Optional[Path], typer.Argument(help="TOML file with the same settings; flags go before it")]  # noqa: UP045
    keyword = inspect.Parameter.KEYWORD_ONLY
    parameters = [inspect.Parameter("file", keyword, default=None, annotation=argument), *own]
    names = [name for name in SweepSpec.model_fields if name != "grid"]  # tables of a file
    for name in sorted(names, key=lambda name: name in Settings.model_fields):
        field = SweepSpec.model_fields[name]
        kind: Any = Optional[bool] if field.annotation is bool else Optional[str]  # noqa: UP045
        default = "" if field.default is None else f" [default: {_shown(field.default)}]"
        default = " [required]" if field.is_required() else default
        flag = "--" + name.replace("_", "-")
        flags = [f"{flag}/--no-{flag[2:]}"] if field.annotation is bool else [flag]
        metavar = None if field.annotation is bool else "VALUE"
        option = typer.Option(*flags, metavar=metavar, help=f"{field.description}{default}", show_default=False)
        parameters.append(inspect.Parameter(name, keyword, default=None, annotation=Annotated[kind, option]))
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    run.__doc__, run.__name__ = command.__doc__, command.__name__
    return run


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _settings_in(file: Path) -> dict[str, Any]:
    """What a TOML file sets; of a sweep's own sweep.toml, what the sweep found out about itself is left out."""
    return {name: value for name, value in read_toml(file).items() if name != "identity"}


def _plain(flags: dict[str, Any]) -> dict[str, Any]:
    """Words of the command line that a TOML file has other means for."""
    weights = flags.get("class_weights", "")
    if "=" in weights:
        parts = [part.rpartition("=") for part in weights.split(",")]
        flags["class_weights"] = {label: weight for label, _, weight in parts}
    return flags


@app.command(short_help="The embedded example, offline, in about a minute.")
def demo(
    out: Annotated[Path, typer.Option(help="folder for results, answer, report and model")] = Path("frostline-demo"),
    task: Annotated[str, typer.Option(help="polarity or agreement; the sentences are generated")] = "polarity",
    seeds: Annotated[int, typer.Option(min=1, help="runs of each k")] = 3,
) -> None:
    """The embedded example: answer, report and model in about a minute, offline (agreement takes four)."""
    from frostline.demo import demo_sweep

    _run(demo_sweep(out, task=task, seeds=seeds))


@app.command(short_help="Run every cell of a grid, and answer.")
@_with_settings
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
    from frostline.api import Sweep

    if not dry_run:
        _run(Sweep(**settings))
        return
    settings.setdefault("out", "frostline-sweep")
    made = Sweep(**settings).plan()
    _print_plan(made)
    _print_groups(made)


@app.command(short_help="What a sweep would run and take; nothing is run.")
@_with_settings
def plan(settings: dict[str, Any]) -> None:
    """What a sweep would run, share and take of the disk; nothing is trained or written."""
    from frostline.api import Sweep

    settings.setdefault("out", "frostline-sweep")
    _print_plan(Sweep(**settings).plan())


@app.command(short_help="The runs of a sweep: done, failed or pending.")
def status(folder: Annotated[Path, typer.Argument(help="a sweep's --out")]) -> None:
    """Every run of a sweep: done, failed (and why) or pending."""
    from frostline.sweep.folder import Folder

    rows = [{**row, "learning_rate": f"{row['learning_rate']:g}"} for row in Folder(folder).rows()]
    counts = {state: sum(row["status"] == state for row in rows) for state in ("done", "failed", "pending")}
    print(f"{folder}: " + ", ".join(f"{count} {state}" for state, count in counts.items()))
    columns = ("trainable", "train_size", "seed", "learning_rate", "status", "outcome", "validation_best", "reason")
    _print_table(rows, columns)


@app.command(short_help="Rebuild tables, answer and page of a sweep.")
def report(folder: Annotated[Path, typer.Argument(help="a sweep's --out")]) -> None:
    """Rebuild tables, answer and report.html from the runs in a folder."""
    from frostline.api import write_report

    path = write_report(folder)
    print(json.loads((folder / "answer.json").read_text())["sentence"])
    print(path)


@app.command(short_help="Labels and probabilities for a table of texts.")
def predict(
    model: Annotated[Path, typer.Argument(help="DIR/model of a sweep, or any classifier's folder")],
    file: Annotated[Path, typer.Argument(help="table with the texts: CSV, TSV, JSON lines or Parquet")],
    out: Annotated[
        Path | None, typer.Option(help=".csv, .jsonl or .parquet [default: texts.predictions.csv beside texts.csv]")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="write over a file that is there already")] = False,
    text_column: Annotated[str | None, typer.Option(help="column with the text")] = None,
    text_pair_column: Annotated[str | None, typer.Option(help="column with the second text of a pair")] = None,
) -> None:
    """Labels and probabilities for a table of texts.

    One row a text: where it stands in the file (a header is row 1), the text, its label, the probability of each label.
    """
    from frostline.data import read_unlabelled
    from frostline.prediction import predict as predict_texts
    from frostline.prediction import trained_columns

    target = out or file.with_name(f"{file.stem}.predictions.csv")
    if target.suffix not in (".csv", ".jsonl", ".parquet"):
        raise FrostlineError(f"{target} has no known ending: name it .csv, .jsonl or .parquet.")
    if target.exists() and target.samefile(file):
        raise FrostlineError(f"{target} holds the texts themselves and would be overwritten: give another --out.")
    if target.exists() and not overwrite:
        raise FrostlineError(f"{target} is there already: give another --out, or --overwrite.")
    texts, columns = read_unlabelled(
        file, text_column=text_column, text_pair_column=text_pair_column, trained=trained_columns(model)
    )
    predictions = predict_texts(model, texts)
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
    from frostline.checking import TOLERANCE
    from frostline.checking import check as check_model
    from frostline.pretrained import load_pretrained

    pretrained = load_pretrained(
        model, labels=("0", "1"), problem_type="single_label_classification", revision=revision
    )
    checks = check_model(pretrained.model)
    rows = [{**vars(row), "tuned_layers": "all" if row.tuned_layers is None else row.tuned_layers} for row in checks]
    refused = [row for row in checks if row.refused]
    columns = ("tuned_layers", "path", "max_logit_difference", "max_gradient_difference", *["refused"] * bool(refused))
    _print_table(rows, columns)
    if refused:
        raise FrostlineError(
            f"{model} cannot be swept at {len(refused)} of {len(checks)} values of k: {refused[0].refused}"
        )
    print(
        f"Equal: every difference is below {TOLERANCE:g} of the largest value. Compared in fp32, so that rounding hides "
        "nothing; packed batches drop the padding."
    )


@cache_app.command("ls")
def cache_ls() -> None:
    """List what is kept, with its size."""
    from datetime import datetime

    from frostline.cache import kept_states
    from frostline.hidden import cache_folder
    from frostline.sweep.plan import readable_bytes

    entries = list(kept_states())
    rows = [
        {
            "key": kept.key[:12],
            "model": kept.recipe["model"],
            "precision": kept.recipe["precision"],
            "texts": kept.rows,
            "after layers": " ".join(map(str, kept.cuts)),
            "size": readable_bytes(kept.bytes),
            "written": datetime.fromtimestamp(kept.modified).strftime("%Y-%m-%d %H:%M"),
        }
        for kept in entries
    ]
    print(f"{cache_folder()}: {readable_bytes(sum(kept.bytes for kept in entries))}")
    if rows:
        _print_table(rows, tuple(rows[0]))


@cache_app.command("rm", short_help="Remove it; it is computed again when needed.")
def cache_rm(
    keys: Annotated[list[str] | None, typer.Argument(help="keys, or how they begin")] = None,
    everything: Annotated[bool, typer.Option("--all", help="remove all")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="do not ask")] = False,
) -> None:
    """Remove what is kept; it is computed again when it is needed."""
    from frostline.cache import kept_states, remove
    from frostline.sweep.plan import readable_bytes

    if bool(keys) == everything:
        raise FrostlineError("Say what to remove: keys from `frostline cache ls`, or --all.")
    if everything and not yes:
        size = readable_bytes(sum(kept.bytes for kept in kept_states()))
        if not sys.stdin.isatty():
            raise FrostlineError(f"Removing all {size} asks first, and nobody is there to answer: add --yes.")
        typer.confirm(f"Remove {size} of hidden states?", abort=True)
    gone = remove(None if everything else keys)
    print(f"Removed {len(gone)}, {readable_bytes(sum(kept.bytes for kept in gone))}.")


@cache_app.command("verify", short_help="Read it again and compare checksums.")
def cache_verify() -> None:
    """Read everything that is kept again and compare it with its checksums."""
    from frostline.cache import verify

    bad = 0
    for kept, problem in verify():
        print(f"{kept.key[:12]}  {kept.recipe['model']}  {problem or 'as it was written'}")
        bad += bool(problem)
    if bad:
        raise FrostlineError(f"{bad} damaged: remove them with `frostline cache rm KEY`; they are computed again.")


def _run(sweep: Any) -> None:
    answer = sweep.run()
    largest = answer["sizes"][0]
    print(
        f"{answer['task']}, {largest['train_size']:,} examples, {answer['metric']} on {answer['validation_rows']:,} "
        f"validation rows (guessing {answer['chance']:.3f})"
    )
    full = "full" if largest["reference_is_full"] or not largest["reference"] else largest["reference"]
    rows = [_answer_row(cell, full) for cell in largest["cells"]]
    _print_table(rows, tuple(rows[0]))
    print(f"\n{answer['sentence']}")
    if answer["tested"] and largest["recommended"]:
        from frostline.report.sentences import tested

        print(" ".join(tested(largest, answer["metric"].replace("_", " "))))
    print(f"\n{sweep.out / 'report.html'}")
    if largest["recommended"]:
        print(sweep.out / "model")
    if failed := answer["runs"]["failed"]:
        print(
            f"{failed} {'run' if failed == 1 else 'runs'} ended in an error; `frostline status {sweep.out}` says why, and "
            "the same command tries again."
        )
        sys.exit(FAILED_RUNS)


def _answer_row(cell: Mapping[str, Any], full: str) -> dict[str, Any]:
    """What the terminal shows of a cell."""
    return {
        "tune": cell["trainable"],
        "rate": f"{cell['learning_rate']:g}",
        "runs": cell["runs"],
        **{name: cell["validation"][name] for name in ("mean", "median", "std", "min", "max")},
        f"% of {full}": _share(cell["share"]),
        "% of gain": _share(cell["share_corrected"]),
        "parameters": cell["trainable_parameters"],
        "seconds": None if cell["seconds"] is None else f"{cell['seconds']:.2g}",
        "+ shared": None if cell["seconds"] is None else f"{cell['shared_seconds']:.2g}",
        "memory": cell["peak_memory_bytes"] and f"{cell['peak_memory_bytes'] / 1e9:.2f} GB",
        "failed": cell["failures"]["failed"] + cell["errors"],
    }


def _share(share: Mapping[str, float | None] | None) -> str:
    if share is None or share["estimate"] is None:
        return "-"
    between = (
        ""
        if share["low"] is None or share["high"] is None
        else f" ({100 * share['low']:.0f} to {100 * share['high']:.0f})"
    )
    return f"{100 * share['estimate']:.1f}{between}"


def _print_plan(plan: Any) -> None:
    from frostline.sweep.plan import readable_bytes

    for note in plan.notes:
        print(note)
    print(f"\n{len(plan.runs)} runs, {len(plan.done)} of them done; {plan.parameters:,} parameters in the model.")
    done = {k: [run for run in plan.runs if run.tune == k] for k in plan.trainable}
    rows = [
        {
            "tune": runs[0].trainable,
            "runs": len(runs),
            "done": sum(run.digest in plan.done for run in runs),
            "trainable parameters": f"{plan.trainable[k]:,}",
        }
        for k, runs in done.items()
        if runs
    ]
    _print_table(rows, tuple(rows[0]))
    states = [f"of all tokens after layer {cut}" for cut in plan.kept.cuts]
    states += ["of the token that the head reads"] * plan.kept.head
    if states:
        print(
            f"\nShared: one pass of {plan.rows:,} texts ({plan.tokens:,} tokens) through the frozen layers keeps hidden"
        )
        print(f"states {', '.join(states)}: {readable_bytes(plan.cache_bytes)} of cache.")
    else:
        print("\nShared: nothing; every run computes its frozen layers itself.")
    if left_out := len(plan.wanted.cuts) - len(plan.kept.cuts):
        print(
            f"Not kept, since they do not fit into {readable_bytes(plan.limit_bytes)}: the states after {left_out} more "
            f"{'layer' if left_out == 1 else 'layers'}; runs that want them go on from the nearest that are kept."
        )
    print(
        f"Free for the cache: {readable_bytes(plan.free_bytes)}. Results and model take {readable_bytes(plan.disk_bytes)}."
    )
    cut = ", ".join(f"{100 * share:.1f} % of {split}" for split, share in plan.truncated.items())
    print(f"Texts cut at {plan.max_length} tokens: {cut}.")


def _print_groups(plan: Any) -> None:
    for tune, groups in plan.groups.items():
        name = next(run.trainable for run in plan.runs if run.tune == tune)
        print(f"\ntune {name}: {plan.trainable[tune]:,} of {plan.parameters:,} parameters are trained")
        rows = [
            {
                "": "trained" if group.trained else "frozen",
                "place": ", ".join(group.places),
                "parameters": f"{group.parameters:,}",
                "tensors": group.tensors,
                "learning rate": ", ".join(f"{rate:g}" for rate in group.learning_rates),
                "weight decay": "" if group.weight_decay is None else f"{group.weight_decay:g}",
                "modules": ", ".join(group.modules),
            }
            for group in groups
        ]
        _print_table(rows, tuple(rows[0]))


def _write_rows(target: Path, rows: list[dict[str, Any]], columns: list[str]) -> None:
    from frostline.sweep.store import replace
    from frostline.sweep.tables import csv_bytes

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


def _print_table(rows: Iterable[Mapping[str, Any]], columns: tuple[str, ...]) -> None:
    """Rows as plain columns of text, numbers to the right."""
    cells = [[_text(row[name]) for name in columns] for row in rows]
    widths = [max(len(name), *(len(row[n]) for row in cells)) if cells else len(name) for n, name in enumerate(columns)]
    right = [all(row[n][:1] in "-0123456789" for row in cells) for n in range(len(columns))]
    for row in [list(columns), *cells]:
        parts = [cell.rjust(w) if r else cell.ljust(w) for cell, w, r in zip(row, widths, right, strict=True)]
        print("  ".join(parts).rstrip())


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.4g}" if abs(value) < 1e-3 or abs(value) >= 100 else f"{value:.4f}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) and abs(value) > 9999 else str(value)
