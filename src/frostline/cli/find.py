"""`frostline find`: search for what to tune."""

from typing import Annotated, Any

import typer

from frostline.cli.executor import Executor, with_executor
from frostline.cli.flags import as_typed, with_settings
from frostline.cli.help import PanelCommand
from frostline.cli.program import app
from frostline.data.wording import UNITS
from frostline.search.defaults import DEFAULTS, FULL_RUNS, SECONDS
from frostline.sweep.settings import CHOSEN_BY_SEARCH

SEARCH = "Search"


def _option(help_text: str, metavar: str) -> Any:
    return typer.Option(metavar=metavar, help=help_text, rich_help_panel=SEARCH)


def _setting(name: str, help_text: str, metavar: str) -> Any:
    """The flag of a setting whose default in a search differs from that in a sweep."""
    return _option(f"{help_text} [default: {as_typed(DEFAULTS[name])}]", metavar)


Budget = Annotated[
    str | None,
    _option(
        "Training time, such as 90s, 10min or 2h; a number alone is seconds. k = 0 and one run of a small k are always "
        f"trained. [default: the larger of {FULL_RUNS} full fine-tunings and {SECONDS:g} s]",
        "TIME",
    ),
]
MaxK = Annotated[int | None, _option("Largest k to train; it then replaces full as the reference.", "NUMBER")]
LearningRate = Annotated[str | None, _setting("learning_rate", "Learning rates of the layers to try.", "LIST")]
HeadLearningRate = Annotated[
    str | None,
    _setting("head_learning_rate", "Learning rates of the head; k = 0 uses its best, every other k the first.", "LIST"),
]
Seeds = Annotated[str | None, _setting("seeds", "Maximum number of seeds per k, or a list of seeds.", "LIST")]
Folds = Annotated[
    str | None,
    _setting(
        "folds",
        "Cross-validation folds, 0 for none, or auto (5 for under 2,000 rows without validation data).",
        "VALUE",
    ),
]
EvaluationsPerEpoch = Annotated[
    str | None,
    _setting("evaluations_per_epoch", "Evaluations per epoch; 0: after the last step only.", "NUMBER"),
]
Exhaustive = Annotated[
    bool, typer.Option("--exhaustive", help="Train the whole grid, to verify the search.", rich_help_panel=SEARCH)
]
Plan = Annotated[
    bool,
    typer.Option(
        "--plan",
        help="Show the budget, the first steps, and the time, memory and disk space that they need; train and write nothing.",
        rich_help_panel=SEARCH,
    ),
]

Processes = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Processes that train the runs: this one, and each `frostline work FOLDER --wait`. A step has runs for all of "
        "them. [default: one for each GPU, or 1; the tasks of SLURM, or those that fit into a cluster of Ray]",
        show_default=False,
        rich_help_panel=SEARCH,
    ),
]


class FindCommand(PanelCommand):
    """The command, with a budget of one or two words: ``5min`` or ``5 minutes``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Join the two words of a budget, and parse the arguments."""
        place = args.index("--budget") if "--budget" in args else len(args)
        if args[place + 2 : place + 3] and args[place + 2] in UNITS:
            args[place + 1 : place + 3] = ["".join(args[place + 1 : place + 3])]
        return super().parse_args(ctx, args)


@app.command(cls=FindCommand, short_help="Search for what to tune, with few runs.")
@with_settings(file=False, leave_out=(*CHOSEN_BY_SEARCH, *DEFAULTS), others={"out": "frostline-find"})
@with_executor
def find(
    settings: dict[str, Any],
    *,
    who: Executor,
    budget: Budget = None,
    max_k: MaxK = None,
    learning_rate: LearningRate = None,
    head_learning_rate: HeadLearningRate = None,
    seeds: Seeds = None,
    folds: Folds = None,
    evaluations_per_epoch: EvaluationsPerEpoch = None,
    exhaustive: Exhaustive = False,
    processes: Processes = None,
    plan: Plan = False,
) -> None:
    """Search for what to tune, with few runs.

    Needs --model and one of --train, --data and --glue. Ctrl-C interrupts the search and writes the best answer so far; the
    same command continues it. The report shows every step of the search and its reason. --plan shows beforehand what it costs.

    Example: frostline find --model ORG/NAME --train reviews.csv --budget 10min --out reviews
    """
    given = {
        "learning_rate": learning_rate,
        "head_learning_rate": head_learning_rate,
        "seeds": seeds,
        "folds": folds,
        "evaluations_per_epoch": evaluations_per_epoch,
    }
    settings |= {name: value for name, value in given.items() if value is not None}
    if plan:
        from frostline.api import find
        from frostline.cli.search_plan_output import print_search_plan

        print_search_plan(find.plan(budget=budget, max_k=max_k, exhaustive=exhaustive, processes=processes, **settings))
        return
    who.search(processes, budget=budget, max_k=max_k, exhaustive=exhaustive, **settings)
