"""`frostline study`: run the protocol of a published study and compare the results with its numbers."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from frostline.cli.analysis_output import print_analysis, settings_for, write_analysis_page
from frostline.cli.flags import as_typed, with_settings
from frostline.cli.help import PanelCommand
from frostline.cli.plan_output import print_groups
from frostline.cli.program import FAILED_RUNS, app, runs_saved
from frostline.cli.values import split_pairs, split_words

Name = Annotated[
    str, typer.Argument(help="Study: amazon-tutorial, jeong2025, lee2019, lowdata2021 or transferred2018.")
]
Model = Annotated[list[str] | None, typer.Option(help="Hub names or folders. [default: the study's models]")]
Task = Annotated[list[str] | None, typer.Option(help="Tasks to run. [default: the study's tasks]")]
Data = Annotated[list[str] | None, typer.Option(help="TASK=FOLDER or TASK=HUB-NAME: where the data of a task are.")]
Out = Annotated[Path | None, typer.Option(help="Folder for sweeps, report, tables and figures. [default: NAME]")]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Show the sweeps, their settings and every parameter group; run nothing.")
]
OWN = ("model", "data", "task", "out", "glue", "train")
OF_SAVED_MODEL = ("keep_adapter", "calibrate", "threshold")  # a study saves no model


@app.command(cls=PanelCommand, short_help="Run a published protocol and compare with its numbers.")
@with_settings(file=False, leave_out=(*OWN, *OF_SAVED_MODEL), defaults="the study's or sweep's")
def study(
    settings: dict[str, Any],
    name: Name,
    *,
    model: Model = None,
    task: Task = None,
    data: Data = None,
    out: Out = None,
    dry_run: DryRun = False,
) -> None:
    """Run a published protocol as sweeps, one for each model and task, and compare with the published numbers.

    Any setting of a sweep replaces the protocol's. Run the same command again to continue where it stopped. More seeds, train
    sizes or tasks add to it.
    """
    from frostline.studies.protocol import load_protocol
    from frostline.studies.sweeps import study_sweeps

    protocol, folder = load_protocol(name), (out or Path(name)).expanduser()
    sweeps = study_sweeps(
        protocol,
        folder,
        models=split_words(model),
        tasks=split_words(task),
        data=split_pairs("--data", data),
        settings=settings,
    )
    if dry_run:
        print_study(protocol, sweeps)
    else:
        run_study(protocol, sweeps, folder)


def print_study(protocol: Any, sweeps: Sequence[Any]) -> None:
    """Print the sweeps of a study and the parameter groups of each model. Neither weights nor data are read."""
    from frostline.studies.sweeps import model_config, parameter_groups

    shared = [
        (key, value)
        for key, value in sweeps[0].settings.items()
        if all(sweep.settings.get(key) == value for sweep in sweeps)
    ]
    print("Every sweep:" if len(sweeps) > 1 else "The sweep:")
    for key, value in shared:
        print(f"    {key} = {as_typed(value)}")
    for sweep in sweeps:
        own = {key: value for key, value in sweep.settings.items() if (key, value) not in shared}
        print(f"{sweep.model} on {sweep.task}, in {sweep.out}")
        for key, value in own.items():
            print(f"    {key} = {as_typed(value)}")
    for model, sweep in {sweep.model: sweep for sweep in sweeps}.items():
        print(f"\n{model}")
        print_groups(parameter_groups(model_config(protocol, model), sweep.settings))


@runs_saved()
def run_study(protocol: Any, sweeps: Sequence[Any], folder: Path) -> None:
    """Run every sweep of a study, then write two reports: with frostline's settings, and with those of the publication."""
    from frostline.data.files import make_folder
    from frostline.report.answer.analysis import analyze as analyze_groups
    from frostline.report.answer.groups import load_groups
    from frostline.report.names import model_name
    from frostline.studies.sweeps import run_sweeps

    failed = 0
    for sweep, answer in run_sweeps(sweeps):
        print(f"{sweep.task}, {model_name(sweep.model)}: {answer['sentence']}", flush=True)
        failed += answer["runs"]["failed"]
    groups = load_groups([folder])
    ours = analyze_groups(groups, settings_for(None))
    theirs = analyze_groups(groups, settings_for(protocol))
    print_analysis(theirs, protocol)
    page = write_analysis_page(folder, ours, protocol, protocol.title, groups)
    print(f"\nWith frostline's settings: {page}")
    make_folder(folder / "as-published", inside=folder)
    page = write_analysis_page(folder / "as-published", theirs, protocol, protocol.title, groups)
    print(f"With the publication's settings: {page}")
    if failed:
        print(f"{failed} {'run' if failed == 1 else 'runs'} ended in an error; the same command tries again.")
        sys.exit(FAILED_RUNS)
