"""The verbs of many results: analyze, study."""

import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from frostline import FrostlineError
from frostline.cli.flags import shown, with_settings
from frostline.cli.printing import print_groups, print_table
from frostline.cli.program import FAILED_RUNS, app
from frostline.data.folding import between_commas, plain


@app.command(short_help="Cells, operating points and failures of anybody's results.")
def analyze(
    sources: Annotated[
        list[Path],
        typer.Argument(help="tables with one row a run (CSV, TSV, JSON lines, Parquet), or folders of sweeps"),
    ],
    out: Annotated[Path, typer.Option(help="folder for the page, tables and figures")],
    columns: Annotated[
        list[str] | None,
        typer.Option(help="OURS=THEIRS, several with commas: a column of the table and what it is called there"),
    ] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="OURS=VALUE: one value for a column that the table lacks")
    ] = None,
    metric: Annotated[
        list[str] | None, typer.Option(help="NAME, or TASK=NAME: which metric, where a run has several")
    ] = None,
    chance: Annotated[
        list[str] | None, typer.Option(help="TASK=SCORE: what the best constant prediction scores")
    ] = None,
    as_published: Annotated[
        str | None, typer.Option(help="a study: make the choices that make its headline, and show its numbers beside")
    ] = None,
    target: Annotated[
        float | None,
        typer.Option(
            min=0, max=1, help="share of full that is enough, whatever goal a sweep had [default: 0.95, or the study's]"
        ),
    ] = None,
    margin: Annotated[
        float | None,
        typer.Option(
            min=0, help="a point of its own: so far below full at most [default: 0.01]; the answer is --target's"
        ),
    ] = None,
    one_rate: Annotated[
        bool | None, typer.Option("--one-rate/--own-rate", help="the learning rate that is best for full, for every k")
    ] = None,
    failed_below: Annotated[
        float | None, typer.Option(help="leave out runs at most this share of the best of their cell")
    ] = None,
    leave_out: Annotated[list[str] | None, typer.Option(help="tasks that count in no point over several tasks")] = None,
    by_mean: Annotated[
        bool | None, typer.Option("--by-mean/--by-interval", help="an operating point rests on the means alone")
    ] = None,
    corrected: Annotated[
        bool | None, typer.Option("--corrected/--raw", help="shares of the gain over guessing, or of the score")
    ] = None,
    paired: Annotated[
        bool, typer.Option("--paired/--unpaired", help="runs of the same seed are compared with each other")
    ] = True,
) -> None:
    """What results say: cells, failures, operating points with intervals, train sizes, several tasks.

    Needs no model and no data: a table with one row a run is enough. Its columns are found by their usual names (score or
    value, tuned_layers or k or frozen_layers, full, seed; also model, task, metric, train_size, learning_rate, outcome,
    costs), or mapped with --columns.
    """
    from frostline.report.answer.analysis import analyze as analyze_groups
    from frostline.report.answer.gather import gather
    from frostline.sweep.results.store import make_folder

    protocol = _protocol(as_published)
    groups = gather(
        sources,
        columns=_pairs("--columns", columns),
        constants=_pairs("--set", set_),
        metrics=_by_task(metric),
        chances={task: _number("--chance", value) for task, value in _pairs("--chance", chance).items()},
        paired=paired,
    )
    given = {
        **{
            "target": target,
            "margin": margin,
            "one_rate": one_rate,
            "failed_below": failed_below,
            "by_mean": by_mean,
            "corrected": corrected,
        },
        "leave_out": tuple(_words(leave_out) or ()) or None,
    }
    tasks = {group.task for group in groups}
    _demand_tasks("--chance", list(_pairs("--chance", chance)), tasks)
    _demand_tasks("--metric", [name for name in _by_task(metric) if name], tasks)
    _demand_tasks("--leave-out", _words(leave_out) or [], tasks)
    choices, out = _choices(protocol, given), out.expanduser()
    make_folder(out)
    analysis = analyze_groups(groups, choices)
    page = _write(out, analysis, protocol, ", ".join(source.name for source in sources), groups)
    _print_analysis(analysis, protocol)
    print(f"\n{page}")


def _demand_tasks(flag: str, names: Sequence[str], tasks: Collection[str]) -> None:
    """Refuse a task that none of the results is of."""
    from frostline.data.wording import nearest

    known = {plain(task) for task in tasks}
    unknown = next((name for name in names if plain(name) not in known), None)
    if unknown is not None:
        raise FrostlineError(
            f"{flag} {unknown}: there is no such task{nearest(unknown, tasks)}; there are {', '.join(sorted(tasks))}."
        )


def _write(out: Path, analysis: Mapping[str, Any], protocol: Any, title: str, groups: Sequence[Any]) -> Path:
    """The page of an analysis; with a study its numbers beside."""
    from frostline.report.pages.analysis import write_analysis

    folders = {(group.model, group.task): group.folder for group in groups}
    if protocol is None:
        return write_analysis(out, analysis, title=title, folders=folders)
    from frostline.studies.comparison import beside, summary_of

    rows = beside(protocol, analysis)
    facts = {name: getattr(protocol, name) for name in ("asks", "source", "contradictions", "differs")}
    return write_analysis(
        out,
        analysis,
        title=protocol.title,
        publication={**facts, "summary": summary_of(rows)},
        rows=rows,
        folders=folders,
    )


@app.command(short_help="A published protocol, measured, beside what it printed.")
@with_settings(
    file=False, leave_out=("model", "data", "task", "out", "glue", "train"), defaults="the study's, else as in sweep"
)
def study(
    settings: dict[str, Any],
    name: Annotated[str, typer.Argument(help="lee2019, jeong2025, lowdata2021 or amazon-tutorial")],
    model: Annotated[
        list[str] | None,
        typer.Option(help="a model in place of the study's: a hub name or a folder; several with commas"),
    ] = None,
    task: Annotated[list[str] | None, typer.Option(help="fewer of its tasks; several with commas")] = None,
    data: Annotated[
        list[str] | None, typer.Option(help="TASK=FOLDER, or a hub set: where a task's data are; several with commas")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="folder for sweeps, page, tables and figures [default: NAME]")
    ] = None,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="show the sweeps, their settings and every parameter group; nothing is run"),
    ] = False,
) -> None:
    """Run a published protocol as sweeps, one for each model and task, and put what was measured beside what was printed.

    Any setting of a sweep replaces the protocol's. The same command again goes on where it stopped; with more seeds, sizes
    or tasks it adds to what is there.
    """
    from frostline.studies import load_protocol
    from frostline.studies.execute import parts

    protocol, folder = load_protocol(name), (out or Path(name)).expanduser()
    all_parts = parts(
        protocol, folder, models=_words(model), tasks=_words(task), data=_pairs("--data", data), settings=settings
    )
    if dry_run:
        _show(protocol, all_parts)
        return
    _run_study(protocol, all_parts, folder)


def _show(protocol: Any, all_parts: Sequence[Any]) -> None:
    """The sweeps of a study, and what each of its models would train; neither weights nor data are read."""
    from frostline.studies.counts import configuration, groups

    shared = [
        (key, value)
        for key, value in all_parts[0].settings.items()
        if all(p.settings.get(key) == value for p in all_parts)
    ]
    print("Every sweep:" if len(all_parts) > 1 else "The sweep:")
    for key, value in shared:
        print(f"    {key} = {shown(value)}")
    for part in all_parts:
        own = {key: value for key, value in part.settings.items() if (key, value) not in shared}
        print(f"{part.model} on {part.task}, into {part.out}")
        for key, value in own.items():
            print(f"    {key} = {shown(value)}")
    for model, part in {part.model: part for part in all_parts}.items():
        print(f"\n{model}")
        print_groups(groups(configuration(protocol, model), part.settings))


def _run_study(protocol: Any, all_parts: Sequence[Any], folder: Path) -> None:
    from frostline.report.answer.analysis import analyze as analyze_groups
    from frostline.report.answer.gather import gather
    from frostline.report.formatting import model_name
    from frostline.studies.execute import carry_out

    failed = 0
    for part, answer in carry_out(all_parts):
        print(f"{part.task}, {model_name(part.model)}: {answer['sentence']}", flush=True)
        failed += answer["runs"]["failed"]
    groups = gather([folder])
    own = analyze_groups(groups, _choices(None, {}))
    theirs = analyze_groups(groups, _choices(protocol, {}))
    _print_analysis(theirs, protocol)
    print(f"\nWith our own choices: {_write(folder, own, protocol, protocol.title, groups)}")
    print(f"With those of the publication: {_write(folder / 'as-published', theirs, protocol, protocol.title, groups)}")
    if failed:
        print(f"{failed} {'run' if failed == 1 else 'runs'} ended in an error; the same command tries again.")
        sys.exit(FAILED_RUNS)


def print_counts(name: str, settings: Mapping[str, Any]) -> None:
    """Parameters by place and by k of a study's models, or of those in ``settings``."""
    from frostline.studies import load_protocol
    from frostline.studies.counts import configuration, count
    from frostline.studies.protocol import depths

    protocol = load_protocol(name)
    for model in _words([settings["model"]] if "model" in settings else None) or protocol.models:
        config = configuration(protocol, model)
        values = {**protocol.settings_of(model, protocol.tasks[0]), **settings}
        ks = depths(settings.get("tune", protocol.tune), config.num_hidden_layers)
        parts = values.get("tune_modules")
        parts = _words([parts] if isinstance(parts, str) else parts)
        if "named" in ks and not parts:
            raise FrostlineError(f"{name} names no parts to be tuned: give --tune-modules with module paths.")
        counts = count(config, ks, tune_pooler=bool(values.get("tune_pooler", True)), tune_modules=parts)
        print(f"\n{model}: {counts.layers} layers, {counts.total:,} parameters")
        printed = [row for row in protocol.printed if row.model == protocol.short_name(model)]
        totals = {row.statistic.removeprefix("parameters_"): row.value for row in printed}
        _print_places(counts, totals)
        by_k = {row.tuned: int(row.value) for row in printed if row.statistic == "trainable_parameters"}
        rows = [
            {
                "tune": f"last {k}" if isinstance(k, int) else k,
                "trainable parameters": f"{number:,}",
                "share": f"{100 * number / counts.total:.1f} %",
                "printed": f"{by_k[k]:,}" if k in by_k else "",
            }
            for k, number in counts.trainable.items()
        ]
        print_table(rows, ("tune", "trainable parameters", "share", *["printed"] * bool(by_k)))


def _print_places(counts: Any, printed: Mapping[str, float]) -> None:
    """Parameters by place; where the publication prints them, beside."""
    output = "pooler" if "pooler" in counts.places else "head"
    names = {"embeddings": "embedding", "a layer": "per_layer", output: "output", "in all": "total"}
    places = {place: number for place, number in counts.places.items() if not place.startswith("layer ")}
    parts = {
        "embeddings": places.pop("embeddings"),
        "a layer": counts.places["layer 0"],
        **places,
        "in all": counts.total,
    }
    rows = [
        {
            "part": part,
            "parameters": f"{number:,}",
            "share": f"{100 * number / counts.total:.1f} %",
            "printed": f"{printed[names[part]] / 1e6:g} million" if names.get(part) in printed else "",
        }
        for part, number in parts.items()
    ]
    print_table(rows, ("part", "parameters", "share", *["printed"] * any(row["printed"] for row in rows)))


def _words(words: Sequence[str] | None) -> list[str] | None:
    """Several values, each word with commas or not; None where none is given."""
    return [part for some in words for part in between_commas(some) if part] if words else None


def _choices(protocol: Any, given: Mapping[str, Any]) -> Any:
    """Ours, then the study's, then what was said."""
    from frostline.statistics.choices import Choices

    said = {name: value for name, value in given.items() if value is not None}
    return replace(Choices() if protocol is None else protocol.as_published, **said)


def _protocol(name: str | None) -> Any:
    if name is None:
        return None
    from frostline.studies import load_protocol

    return load_protocol(name)


def _print_analysis(analysis: Mapping[str, Any], protocol: Any) -> None:
    lost = sum(row["diverged"] for row in analysis["failures"])
    if lost:
        print(f"{lost} finished {'run has' if lost == 1 else 'runs have'} no score, and count as diverged.")
    for group in analysis["groups"]:
        print(f"{group['model']}, {group['task']}: {group['sentence']}")
    for model in analysis["models"]:
        if model["tasks"]:
            layers = f", {model['layers']} layers" if model["layers"] else ""
            print(f"\n{model['model']}{layers}, over {len(model['tasks']['tasks'])} tasks")
            print_table(model["tasks"]["points"], ("target", "estimate", "sure", "possible"))
    if protocol is not None:
        from frostline.studies.comparison import beside, summary_of

        compared = summary_of(beside(protocol, analysis))
        if compared:
            print(
                f"\nBeside {compared['cells']} published means: {100 * compared['mean_gap']:.2f} points apart on average, "
                f"{100 * compared['largest_gap']:.2f} at most."
            )


def _pairs(flag: str, words: Sequence[str] | None) -> dict[str, str]:
    """``a=b,c=d`` as a dictionary."""
    found = {}
    for word in (part for some in words or () for part in between_commas(some)):
        name, equals, value = word.partition("=")
        if not (name.strip() and equals and value.strip()):
            raise FrostlineError(f"{flag} {word!r} is no pair: give NAME=VALUE, several with commas.")
        found[name.strip()] = value.strip()
    return found


def _by_task(words: Sequence[str] | None) -> dict[str, str]:
    """``f1`` for every task, or ``MRPC=f1``."""
    single = [word for some in words or () for word in between_commas(some) if "=" not in word]
    paired = [word for some in words or () for word in between_commas(some) if "=" in word]
    return {**({"": single[0]} if single else {}), **_pairs("--metric", paired)}


def _number(flag: str, value: str) -> float:
    try:
        return float(value)
    except ValueError:
        raise FrostlineError(f"{flag}: {value!r} is not a number.") from None
