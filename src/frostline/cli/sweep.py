"""`frostline sweep` and `frostline plan`: a grid of runs, carried out or only planned."""

from typing import Annotated, Any

import typer

from frostline.cli.answer_output import run_and_print
from frostline.cli.flags import with_settings
from frostline.cli.help import PanelCommand
from frostline.cli.parameter_counts import print_counts
from frostline.cli.plan_output import print_forecast, print_groups, print_plan
from frostline.cli.program import app

PLANNED_FOLDER = "frostline-sweep"  # the folder that a plan names where none is given; nothing is written into it

DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Show the plan and every parameter group; train and write nothing.")
]
Study = Annotated[
    str | None,
    typer.Option(help="A published study: count the parameters that each k trains, without weights or network."),
]


@app.command(cls=PanelCommand, short_help="Train every cell of a grid and answer.")
@with_settings()
def sweep(settings: dict[str, Any], dry_run: DryRun = False) -> None:
    """Train every cell of a grid (tuned layers x train size x seed x learning rate) and answer.

    Needs --model, --tune, --out and one of --train, --data and --glue, as flags or in a TOML file. Run the same command
    again to continue where it stopped. More seeds, layers or sizes add to the grid.
    """
    from frostline.api.sweep import Sweep

    if not dry_run:
        run_and_print(Sweep(**settings))
        return
    plan = Sweep(**{"out": PLANNED_FOLDER, **settings}).plan(timed=False)
    print_plan(plan)
    print_groups(plan.groups)


@app.command(cls=PanelCommand, short_help="Show what a sweep would run, and its time, memory and disk space.")
@with_settings(out=PLANNED_FOLDER)
def plan(settings: dict[str, Any], study: Study = None) -> None:
    """Show what a sweep would run and share, and how much time, memory and disk space it takes. Nothing is written.

    The forecast times a few steps of your model on your examples, which takes about ten seconds. With --study NAME, count the
    parameters that each k of a published study trains, from the configurations of its models.
    """
    if study is not None:
        print_counts(study, settings)
        return
    from frostline.api.sweep import Sweep

    made = Sweep(**settings).plan()
    print_plan(made)
    print_forecast(made.forecast)
