"""`frostline find`: search for the smallest k that reaches the target."""

from pathlib import Path
from typing import Annotated, Any

import typer

from frostline.cli.answer_output import print_answer
from frostline.cli.flags import with_settings
from frostline.cli.help import PanelCommand
from frostline.cli.program import app
from frostline.sweep.specification import CHOSEN_BY_SEARCH

# Settings for which a search has defaults of its own.
OWN_DEFAULTS = ("learning_rate", "head_learning_rate", "seeds", "folds", "evaluations_per_epoch")
SEARCH = "Search"

Budget = Annotated[
    str | None,
    typer.Option(
        metavar="TIME",
        help="Training time, such as 90s, 10min or 2h. k = 0 and two runs of a small k are always trained. [default: the time "
        "of four full fine-tunings]",
        rich_help_panel=SEARCH,
    ),
]
MaxK = Annotated[
    int | None,
    typer.Option(metavar="NUMBER", help="Largest k to train; it then stands in for full.", rich_help_panel=SEARCH),
]
LearningRate = Annotated[
    str | None,
    typer.Option(
        metavar="LIST", help="Learning rates of the layers to try. [default: 5e-5,1e-4,2e-4]", rich_help_panel=SEARCH
    ),
]
HeadLearningRate = Annotated[
    str | None,
    typer.Option(
        metavar="LIST",
        help="Learning rates of the head; k = 0 uses its best, every other k the first. [default: 1e-3,3e-3,1e-2,3e-2]",
        rich_help_panel=SEARCH,
    ),
]
Seeds = Annotated[
    str | None,
    typer.Option(
        metavar="LIST", help="Maximum number of seeds per k, or a list of seeds. [default: 5]", rich_help_panel=SEARCH
    ),
]
Folds = Annotated[
    str | None,
    typer.Option(
        metavar="VALUE",
        help="Cross-validation folds, 0 for none, or auto (5 for under 2,000 rows without validation data). [default: auto]",
        rich_help_panel=SEARCH,
    ),
]
EvaluationsPerEpoch = Annotated[
    str | None,
    typer.Option(
        metavar="NUMBER",
        help="Evaluations per epoch; 0: after the last step only. [default: 0]",
        rich_help_panel=SEARCH,
    ),
]
Exhaustive = Annotated[
    bool, typer.Option("--exhaustive", help="Train the whole grid, to audit the search.", rich_help_panel=SEARCH)
]


@app.command(cls=PanelCommand, short_help="Search for the smallest k that reaches the target, with few runs.")
@with_settings(file=False, leave_out=(*CHOSEN_BY_SEARCH, *OWN_DEFAULTS), out="frostline-find")
def find(
    settings: dict[str, Any],
    *,
    budget: Budget = None,
    max_k: MaxK = None,
    learning_rate: LearningRate = None,
    head_learning_rate: HeadLearningRate = None,
    seeds: Seeds = None,
    folds: Folds = None,
    evaluations_per_epoch: EvaluationsPerEpoch = None,
    exhaustive: Exhaustive = False,
) -> None:
    """Search for the smallest k that reaches the target, with as few runs as that takes.

    Needs --model and one of --train, --data and --glue. Ctrl-C leaves the best answer so far; the same command continues.
    The report shows every step of the search and its reason.

    Example: frostline find --model ORG/NAME --train reviews.csv --budget 10min --out reviews
    """
    from frostline.api.find import find as search

    given = dict(
        zip(OWN_DEFAULTS, (learning_rate, head_learning_rate, seeds, folds, evaluations_per_epoch), strict=True)
    )
    settings |= {name: value for name, value in given.items() if value is not None}
    answer = search(budget=budget, max_k=max_k, exhaustive=exhaustive, **settings)
    print_answer(answer, Path(settings["out"]).expanduser())
