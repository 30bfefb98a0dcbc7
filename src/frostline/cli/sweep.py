"""`frostline sweep` and `frostline plan`: run or only plan a grid of runs."""

from typing import Annotated, Any

import typer

from frostline import FrostlineError
from frostline.cli.executor import Executor, with_executor
from frostline.cli.flags import retry_kinds, retry_option, with_settings
from frostline.cli.help import PanelCommand
from frostline.cli.parameter_counts import print_parameter_counts
from frostline.cli.plan_output import print_forecast, print_groups, print_plan
from frostline.cli.program import app

PLANNED_FOLDER = "frostline-sweep"  # the default --out of a plan, which writes nothing

DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Print the plan and all parameter groups; train and write nothing.")
]
Retry = Annotated[str, retry_option("failed")]
Study = Annotated[
    str | None,
    typer.Option(help="Count the parameters that each k of this published study trains."),
]


class SweepCommand(PanelCommand):
    """The command. It names `frostline plan` if somebody adds ``--plan``, which `frostline find` has."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Refuse ``--plan``, and parse the arguments."""
        if "--plan" in args:
            raise FrostlineError("`frostline sweep` has no --plan: run `frostline plan` with the same arguments.")
        return super().parse_args(ctx, args)


@app.command(cls=SweepCommand, short_help="Train a grid of runs and recommend a k.")
@with_settings()
@with_executor
def sweep(
    settings: dict[str, Any],
    *,
    who: Executor,
    dry_run: DryRun = False,
    retry: Retry = "failed",
) -> None:
    """Train a grid of runs (k x train size x seed x learning rate) and recommend a k: score against cost.

    Needs --model, --tune, --out and one of --train, --data and --glue, as flags or in a TOML file. Run the same command
    again to continue where it stopped. More seeds, values of k or train sizes add to the grid.

    Example: frostline sweep --model ORG/NAME --train reviews.csv --tune 0,1,2,4,all --out reviews
    """
    from frostline.api.sweep import Sweep

    if dry_run:
        plan = Sweep(**{"out": PLANNED_FOLDER, **settings}).plan(timed=False)
        print_plan(plan)
        print_groups(plan.groups)
    else:
        who.run(Sweep(**settings), retry_kinds(retry))


@app.command(cls=PanelCommand, short_help="Show what a sweep would run, with its time, memory and disk space.")
@with_settings(others={"out": PLANNED_FOLDER})
def plan(settings: dict[str, Any], study: Study = None) -> None:
    """Show what a sweep would run, and how much time, memory and disk space it needs. Nothing is written.

    The forecast times a few steps of your model on your examples, which takes about ten seconds. --study NAME counts
    parameters instead, from the configurations of the study's models, without weights or network.
    """
    if study is not None:
        print_parameter_counts(study, settings)
        return
    from frostline.api.sweep import Sweep

    made = Sweep(**settings).plan()
    print_plan(made)
    print_forecast(made.forecast)
