"""``frostline.find``: the k to tune, with as little training as possible."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Unpack

from frostline import FrostlineError
from frostline.api.keywords import Location, Training, Tunes, require_known, split_off_tables, takes
from frostline.api.results import Results, SeveralModels
from frostline.data.files import make_folder
from frostline.data.kinds import TOKENS
from frostline.data.load import Data
from frostline.data.wording import comma_joined
from frostline.fast.switch import objects_frozen
from frostline.model.pretrained import Pretrained
from frostline.model.terms import MEAN, HeadKind, opened_by
from frostline.model.ways import MEAN_POOLED
from frostline.search import DEFAULTS, ENOUGH_STEPS, LONG, SHORT
from frostline.search.probing import Alternatives
from frostline.search.search import Search, unnamed_ways
from frostline.search.search_plan import SearchPlan
from frostline.search.several_models import search_models
from frostline.statistics.recipe import AUTO, FULL, HEAD_ONLY, Recipe
from frostline.sweeps import slurm
from frostline.sweeps.execution.execute import Executor
from frostline.sweeps.grid import read_sweep
from frostline.sweeps.inputs import OneModel, models_to_search, require_comparable
from frostline.sweeps.plan import Plan
from frostline.sweeps.prepare import prepare
from frostline.sweeps.progress import Progress, displayed
from frostline.sweeps.results.search_record import read_search
from frostline.sweeps.settings import (
    ALL,
    NOT_OF_SEARCH,
    TRANSFORMERS,
    MoreRuns,
    budget_seconds,
    search_settings,
)
from frostline.training.run import StepPlan


@takes(Training, DEFAULTS)
def find(
    *,
    out: Location,
    budget: float | str | None = None,
    tune: Tunes = AUTO,
    only: str = ALL,
    exhaustive: bool = False,
    processes: int | None = None,
    price_inference: float = 0.0,
    executor: Executor | None = None,
    progress: Progress | None = None,
    **settings: Unpack[Training],
) -> Results:
    """Search for what to tune, with few runs; also for the model to tune, if ``model`` names several.

    Ctrl-C interrupts the search and writes the best answer so far. The same call continues it.

    Args:
        out: The folder for results, answer, report and model.
        budget: Wall-clock seconds of training, or a text such as ``90s``, ``10min`` or ``2h``. By default it is the larger
            of four full fine-tunings and two minutes.
        tune: The candidates. By default ``auto``: every k, full fine-tuning, and some of the last layers with a head that reads
            the mean of all tokens, if probes score better on it than on what the head of the model reads. ``auto,lora-2`` adds
            a way to tune. A list such as ``last-2,lora-2,full`` has only these, and k = 0. Without ``full``, the largest k
            replaces it as the reference.
        only: ``transformers`` tries nothing that transformers cannot open: no probe, no TF-IDF model, no other head.
        exhaustive: Train the whole grid.
        processes: How many processes train the runs: this one, and others that call :func:`frostline.work`. A step then has
            runs for all of them. By default it is the number of GPUs of this machine, or 1. With an executor: how many runs it
            trains at the same time, by default all that fit into its cluster.
        price_inference: With several models: the points of the metric that predictions with the first model are worth. A
            model whose predictions take twice the operations pays twice as much.
        executor: Trains the runs instead of this machine: :class:`frostline.Ray`.
        progress: Shows progress; by default on the terminal.
        **settings: The settings of :func:`frostline.api.sweep.sweep`, except ``tune_modules`` and ``grid``, with one train size.
            ``learning_rate`` lists the learning rates to try for what trains a layer, ``head_learning_rate`` those for heads.
            ``seeds`` is the largest number of seeds of any k. ``num_train_epochs`` is by default ``auto``: 3, and also 10 if
            these are fewer than 60 steps, if nothing is learned, or if full fine-tuning has not fitted its examples.

    Raises:
        FrostlineError: A setting, the data or the model is unusable; the message says what to do.
    """
    seconds = budget_seconds(budget, processes)
    require_known(settings, find, but=NOT_OF_SEARCH)
    tables, plain = split_off_tables({**settings, "tune": tune, "out": out})
    models = models_to_search(plain)
    named = search_settings({**DEFAULTS, **plain, **models[0].settings}, only)[0].tune
    more: dict[str, Any] = {"untrained": only == ALL, "named": named}
    if not 0 <= price_inference < math.inf:
        raise FrostlineError(f"--price-inference cannot be {price_inference:g}: give points from 0 on.")
    one_process = processes is None and executor is None
    require_comparable(models, settings, price_inference=price_inference, one_process=one_process)
    with displayed(progress) as shown:
        planned = partial(_planned, tables=tables, shown=shown, only=only)
        if len(models) > 1:
            folder = Path(out).expanduser()
            make_folder(folder, inside=folder)
            plans = _plans(models, plain, planned)
            more |= {"price_inference": price_inference / 100, "exhaustive": exhaustive}
            search_models(plans, folder, shown, seconds, **more)
            return SeveralModels(folder, tables)
        plan, longer = planned({**plain, "depth": models[0].depth})
        make_folder(plan.store.out, inside=plan.store.out)
        with nullcontext() if executor is None else executor.driver(longer or plan, shown) as driver:
            shown.note(
                "The budget is for training: hidden states, probes, the saved model and the report come on top. --plan forecasts "
                "how much."
            )
            search = Search.start(plan, shown, seconds, processes=processes, driver=driver, longer=longer, **more)
            with search.others:
                search.run(exhaustive=exhaustive)
        return Results(plan.store.out, tables)


def plan(*, exhaustive: bool = False, progress: Progress | None = None, **arguments: Any) -> SearchPlan:
    """Plan what :func:`find` would do with these ``arguments``, with time and memory. Nothing is trained or written.

    A few training steps are timed, which takes about ten seconds.
    """
    with _without_probes(progress, **arguments) as search, objects_frozen():
        return SearchPlan.of(search, exhaustive=exhaustive)


def submit(script: str, *, exhaustive: bool = False, progress: Progress | None = None, **arguments: Any) -> str:
    """Write the first step of a search, and submit the script of a SLURM job array of which a task calls :func:`find`.

    Returns:
        The number of the job.
    """
    with _without_probes(progress, **arguments) as search:
        out = search.plan.store.out
        make_folder(out, inside=out)
        search.request_first_step(exhaustive=exhaustive)
    return slurm.submit(out, script)


@contextmanager
def _without_probes(
    progress: Progress | None,
    *,
    budget: float | str | None = None,
    only: str = ALL,
    processes: int | None = None,
    **settings: Any,
) -> Iterator[Search]:
    """A search that has fitted and trained nothing, with these arguments of :func:`find`."""
    seconds = budget_seconds(budget, processes)
    tables, plain = split_off_tables(settings)
    models = models_to_search(plain)
    if len(models) > 1:
        raise FrostlineError("A plan is about one model with one depth: give one of them.")
    with displayed(progress) as shown:
        one = {**plain, "depth": models[0].depth}
        plan, longer = _planned(one, tables=tables, shown=shown, only=only)
        shown.begin("checking that the model can be cut")
        plan.check_cuts()
        # the estimate of an earlier search in the folder; else the dearest k that probes may suggest
        earlier = read_search(plan.store.out)
        no_probes = Alternatives(estimated_k=earlier.estimated_k if earlier else plan.identity.layers)
        without = unnamed_ways(plan, search_settings({**DEFAULTS, **one}, only)[0].tune)
        yield Search(plan, shown, seconds, no_probes, without=without, processes=processes, longer=longer)


def _planned(
    plain: Mapping[str, Any],
    *,
    tables: Mapping[str, Any],
    shown: Progress,
    only: str,
    data: Data | None = None,
) -> tuple[Plan, Plan | None]:
    """The plan of a search with one model, and the same with longer trainings, if these may turn out to be needed.

    What the user should know of model and data is shown.
    """
    settings = {**DEFAULTS, **plain}
    spec, every_k = search_settings(settings, only)

    def grid(pretrained: Pretrained, data: Data) -> MoreRuns:
        """Every k that the search may train, then the ways, and the reference last; and the training lengths."""
        layers = pretrained.anatomy.count
        ks = {HEAD_ONLY, *(one for one in spec.tune if one.is_k)}
        if every_k:
            ks |= {FULL, *map(Recipe, range(layers + 1))}
        *smaller, reference = sorted(ks, key=lambda one: one.order)
        # up to half of the layers: no gain was seen beyond (docs/log.md)
        most = -(-layers // 2) if every_k and only == ALL and _can_read_mean(pretrained, data) else 0
        ways = dict.fromkeys(
            [*(one for one in spec.tune if one.is_way), *(Recipe(f"{MEAN_POOLED}-{k}") for k in range(1, most + 1))]
        )
        lengths = (SHORT, LONG) if settings["num_train_epochs"] == AUTO else spec.num_train_epochs
        return MoreRuns(tune=(*smaller, *ways, reference), num_train_epochs=lengths)

    plan = prepare(spec, tables, shown, grid_of=grid, probes=True, data=data)
    for note in plan.notes:
        if data is None or note not in data.notes:  # those of the data are shown once
            shown.note(note)
    if every_k and FULL not in plan.spec.tune:
        left = [one for one in spec.tune if one not in plan.spec.tune and one != FULL]
        shown.note(
            f"The search compares k = 0 to {plan.spec.tune[-1].k}, as many layers as fit into memory beside their "
            f"optimizer. Full fine-tuning cannot be streamed{f', and so it leaves out {comma_joined(left)}' if left else ''}."
        )
    if only == TRANSFORMERS:
        _require_opened(plan)
    older = read_sweep(plan.store)  # of a search that has gone on with longer trainings, or of a sweep with them
    if settings["num_train_epochs"] != AUTO or (older is not None and LONG in older.spec.values_of("num_train_epochs")):
        return plan, None
    one_length = spec.model_copy(update={"num_train_epochs": SHORT})
    if StepPlan.of(one_length, spec.train_size[0] if spec.train_size else plan.data.train_rows).total < ENOUGH_STEPS:
        return plan, None
    runs, requested = (
        tuple(run for run in some if run.num_train_epochs != LONG) for some in (plan.runs, plan.requested)
    )
    short = plan.spec.model_copy(update={"num_train_epochs": (SHORT,)})
    return replace(plan, spec=short, runs=runs, requested=requested), plan


def _plans(
    models: Sequence[OneModel], plain: Mapping[str, Any], planned: Callable[..., tuple[Plan, Plan | None]]
) -> dict[str, tuple[Plan, Plan | None]]:
    """What is planned for each of several models, by its name, with a folder of its own. The data are read once.

    Raises:
        FrostlineError: Two of them are the same.
    """
    out, plans, data = Path(plain["out"]).expanduser(), dict[str, tuple[Plan, Plan | None]](), None
    for model in models:
        plan, longer = planned({**plain, **model.settings}, data=data)
        if same := next((one for one, _ in plans.values() if one.identity.weights == plan.identity.weights), None):
            raise FrostlineError(f"{same.store.out.name} and {model.out.name} are the same model: give each once.")
        make_folder(model.out, inside=out)
        plans[model.out.name], data = (plan, longer), plan.data
    return plans


def _require_opened(plan: Plan) -> None:
    """Refuse a folder with runs that transformers does not open, because one of them could be recommended."""
    kept = (run for run in plan.runs if run.way.in_loop and opened_by(run.way.head) == TRANSFORMERS)
    if other := next(iter({run.recipe.trained for run in plan.runs} - {run.recipe.trained for run in kept}), None):
        raise FrostlineError(
            f"{plan.store.out} has runs of {other}, which transformers does not open: give another --out, or leave out --only."
        )


def _can_read_mean(pretrained: Pretrained, data: Data) -> bool:
    """Whether the head can be replaced by one that reads the mean of all tokens."""
    try:
        pretrained.with_head(HeadKind(MEAN))
    except FrostlineError:
        return False
    return data.task.task_type != TOKENS
