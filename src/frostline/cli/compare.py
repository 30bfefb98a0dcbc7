"""`frostline compare`: other ways to tune beside the last k layers."""

from typing import Annotated, Any

import typer

from frostline.cli.executor import Executor, with_executor
from frostline.cli.flags import with_settings
from frostline.cli.help import PanelCommand
from frostline.cli.plan_output import print_groups, print_plan
from frostline.cli.program import app
from frostline.cli.sweep import DryRun
from frostline.training.ways.names import DEFAULT_RATES, DEFAULT_WAYS, EXAMPLES

Ways = Annotated[
    str,
    typer.Option(
        metavar="LIST",
        help=f"Ways to tune: last-2, full, {', '.join(EXAMPLES)}, or names of [way.NAME] in the TOML file.",
        rich_help_panel="Grid",
    ),
]


@app.command(cls=PanelCommand, short_help="Compare other ways to tune with the last k layers.")
@with_settings(leave_out=("tune",), others={"out": "frostline-compare", **DEFAULT_RATES})
@with_executor
def compare(
    settings: dict[str, Any],
    *,
    who: Executor,
    ways: Ways = DEFAULT_WAYS,
    dry_run: DryRun = False,
) -> None:
    """Compare other ways to tune with the last k layers, and recommend one: score against cost.

    Needs --model and one of --train, --data and --glue. Every way is trained with three learning rates by default. Those of
    ways that train only a head are --head-learning-rate. Run the same command again to continue where it stopped. More ways,
    seeds or train sizes add to the folder.

    Example: frostline compare --model ORG/NAME --train reviews.csv --ways last-2,lora-2,lp-ft,full --out ways
    """
    from frostline.api.sweep import sweep_of

    sweep = sweep_of(ways, **settings)
    if not dry_run:
        who.run(sweep)
        return
    plan = sweep.plan(timed=False)
    print_plan(plan)
    print_groups(plan.groups)
