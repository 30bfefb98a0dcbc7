"""`frostline sweep` and `frostline plan`: run or only plan a grid of runs.

`frostline plan --study`: how many parameters each k of a published study trains.
"""

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from frostline import FrostlineError
from frostline.cli.executor import Executor, with_executor
from frostline.cli.flags import retry_kinds, retry_option, with_settings
from frostline.cli.help import PanelCommand
from frostline.cli.plan_output import print_forecast, print_groups, print_plan
from frostline.cli.printing import print_table
from frostline.cli.program import app
from frostline.cli.values import split_words
from frostline.model.places import EMBEDDINGS, HEAD, POOLER, layer_number, layer_place
from frostline.statistics.recipe import NAMED


def print_parameter_counts(name: str, settings: Mapping[str, Any]) -> None:
    """Print the parameters of a study's models, or of the models in ``settings``, by part of the model and by k."""
    from frostline.studies.parameters import model_config, parameter_counts
    from frostline.studies.protocol import load_protocol
    from frostline.studies.tune_values import tune_values

    protocol = load_protocol(name)
    for model in split_words([settings["model"]] if "model" in settings else None) or protocol.models:
        config = model_config(protocol, model)
        values = {**protocol.settings_of(model, protocol.tasks[0]), **settings}
        ks = tune_values(settings.get("tune", protocol.tune), config.num_hidden_layers)
        parts = values.get("tune_modules")
        parts = split_words([parts] if isinstance(parts, str) else parts)
        if NAMED in ks and not parts:
            raise FrostlineError(f"{name} names no modules to tune: give --tune-modules with module paths.")
        counts = parameter_counts(config, ks, tune_pooler=bool(values.get("tune_pooler", True)), tune_modules=parts)
        print(f"\n{model}: {counts.layers} layers, {counts.total:,} parameters")
        printed = [row for row in protocol.published if row.model == protocol.short_name(model)]
        totals = {row.statistic.removeprefix("parameters_"): row.value for row in printed}
        _print_places(counts, totals)
        by_k = {row.tuned: int(row.value) for row in printed if row.statistic == "trainable_parameters"}
        rows = [
            {
                "tune": k,
                "trainable parameters": f"{number:,}",
                "share": f"{100 * number / counts.total:.1f} %",
                "printed": f"{by_k[k]:,}" if k in by_k else "",
            }
            for k, number in counts.trained.items()
        ]
        print_table(rows, ("tune", "trainable parameters", "share", *["printed"] * bool(by_k)))


def _print_places(counts: Any, printed: Mapping[str, float]) -> None:
    """Print the parameters of each part of a model, next to the published numbers if there are any."""
    output = POOLER if POOLER in counts.places else HEAD
    names = {EMBEDDINGS: "embedding", "a layer": "per_layer", output: "output", "total": "total"}
    places = {place: number for place, number in counts.places.items() if layer_number(place) is None}
    parts = {
        EMBEDDINGS: places.pop(EMBEDDINGS),
        "a layer": counts.places[layer_place(0)],
        **places,
        "total": counts.total,
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

    Example: frostline sweep --model ORG/NAME --train reviews.csv --tune 0,1,2,4,full --out reviews
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
