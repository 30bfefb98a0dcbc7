"""The commands that train: `frostline find`, `sweep` and `demo`, with their plans, and who trains the runs.

This process trains them, or the tasks of a SLURM job array, or tasks of Ray.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from frostline import FrostlineError
from frostline.cli.answer_output import print_answer, print_models
from frostline.cli.flags import as_words, retry_option, with_settings
from frostline.cli.program import PanelCommand, app, runs_saved
from frostline.data.files import require_writable
from frostline.data.wording import capitalized, duration, duration_at_least
from frostline.report.plain_text import print_table, size_of, wrapped
from frostline.report.plan_text import device_lines, refit_seconds, space_lines
from frostline.search import DEFAULTS, FULL_RUNS, SECONDS
from frostline.statistics.recipe import AUTO
from frostline.sweeps.settings import (
    ALL,
    NOT_OF_SEARCH,
    PLANNED_FOLDER,
    TRANSFORMERS,
    Settings,
    budget_seconds,
    make_settings,
    retry_kinds,
    search_settings,
)
from frostline.sweeps.slurm import FILE, TASKS, script
from frostline.sweeps.toml import TRUST

if TYPE_CHECKING:  # they import torch, which --help does not need
    from frostline.search.search_plan import SearchPlan
    from frostline.sweeps.execution.execute import Executor

of_cluster = partial(typer.Option, rich_help_panel="Cluster")
of_search = partial(typer.Option, rich_help_panel="Search")


@dataclass(frozen=True, kw_only=True)
class WhoTrains:
    """Who trains the runs, as the flags of a command say. Each attribute is a flag.

    Raises:
        FrostlineError: A flag is for another executor.
    """

    name: Annotated[
        Literal["local", "slurm", "ray"],
        of_cluster(
            "--executor",
            metavar="NAME",
            help="Who trains the runs: local (this process), slurm (the tasks of a job array, which end a search; after a sweep, "
            "run the command without this flag), or ray (tasks of Ray).",
        ),
    ] = "local"
    tasks: Annotated[int, of_cluster(min=1, help="SLURM: tasks of the job array.")] = TASKS
    sbatch: Annotated[
        str,
        of_cluster(
            metavar="OPTIONS",
            help='SLURM: options of sbatch for each task, such as "--partition=gpu --gres=gpu:1 --time=2:00:00".',
        ),
    ] = ""
    print_only: Annotated[
        bool,
        of_cluster("--print", help="SLURM: only print the script for sbatch; write nothing."),
    ] = False
    address: Annotated[
        str | None,
        of_cluster(
            metavar="ADDRESS",
            help="Ray: the address of a cluster, such as auto. [default: RAY_ADDRESS, or a cluster on this machine for this "
            "command]",
            show_default=False,
        ),
    ] = None
    cpus: Annotated[int, of_cluster(min=1, help="Ray: CPU cores of each task.")] = 1
    gpus: Annotated[
        float | None,
        of_cluster(
            min=0,
            help="Ray: GPUs of each task, or a share such as 0.5. [default: 1 if the cluster has GPUs]",
            show_default=False,
        ),
    ] = None

    def __post_init__(self) -> None:
        misplaced = "{} are for --executor {}: add it, or leave them out."
        if self.name != "slurm" and (self.print_only or self.sbatch or self.tasks != TASKS):
            raise FrostlineError(misplaced.format("--tasks, --sbatch and --print", "slurm"))
        if self.name != "ray" and (self.address is not None or self.cpus != 1 or self.gpus is not None):
            raise FrostlineError(misplaced.format("--address, --cpus and --gpus", "ray"))

    @runs_saved()
    def run(self, settings: dict[str, Any], retry: Collection[str] = ("failed",)) -> None:
        """Train the runs of a sweep and print its answer, or submit them and print what to do next."""
        out = self._folder(settings)
        from frostline.api import sweep as api

        if self.name != "slurm":
            print_answer(api.sweep(retry=retry, executor=self.executor, **settings).answer, out)
        elif self.print_only:
            trust = settings.get(TRUST) is True
            print(script(out, tasks=self.tasks, options=self.sbatch, trust_remote_code=trust), end="")
        else:
            job = api.submit(tasks=self.tasks, options=self.sbatch, retry=retry, **settings)
            print(
                f"Job {job} trains the runs: {self.tasks} tasks of {out / FILE}. `frostline status {out} --watch` "
                "shows them.\nWhen they have ended, the same command without --executor writes the answer, the report and the "
                "model."
            )

    @runs_saved()
    def run_each(self, grids: Sequence[dict[str, Any]], retry: Collection[str], spec: Settings) -> None:
        """Train the runs of several sweeps beside each other, and print what to tune in each. ``spec`` has what they share."""
        from frostline.api import sweep as api
        from frostline.cli.analyze import leave_if_failed, print_analysis
        from frostline.report.answer.analysis import analyze
        from frostline.report.answer.run_groups import load_groups
        from frostline.report.pages.analysis_page import write_analysis
        from frostline.report.rebuild import settings_of

        groups, failed, out = [], 0, self._folder({"out": spec.out})
        for grid in grids:
            name = Path(grid["out"]).name
            print(f"{name}:", flush=True)
            answer = api.sweep(retry=retry, executor=self.executor, **grid).answer
            failed += answer.runs.failed
            groups += [replace(group, model=name) for group in load_groups([grid["out"]])]
        analysis = analyze(groups, settings_of(spec))
        page = write_analysis(out, analysis, groups, f"{len(grids)} models")
        print_analysis(analysis)
        print(f"\n{page}")
        leave_if_failed(failed)

    @runs_saved()
    def search(self, processes: int | None, **settings: Any) -> None:
        """Search with these settings and print the answer, or submit the search and print what to do next."""
        out = self._folder(settings)
        from frostline.api import find
        from frostline.api.results import SeveralModels

        if self.name != "slurm":
            found = find.find(processes=processes, executor=self.executor, **settings)
            if isinstance(found, SeveralModels):
                print_models(found.answer, out)
            else:
                print_answer(found.answer, out)
            return
        exhaustive = settings["exhaustive"] or None  # it has no flag for the opposite
        words = ["find", *as_words({**settings, "exhaustive": exhaustive, "processes": processes or self.tasks})]
        trust = settings.get(TRUST) is True
        text = script(out, tasks=self.tasks, options=self.sbatch, search=words, trust_remote_code=trust)
        if self.print_only:
            print(text, end="")
            return
        job = find.submit(text, **settings)
        print(
            f"Job {job} searches with {self.tasks} tasks of {out / FILE}. `frostline status {out} --watch` shows its runs.\n"
            f"When they have ended, the answer is in {out / f'slurm-{job}_1.log'} and in {out / 'report.html'}."
        )

    def _folder(self, settings: dict[str, Any]) -> Path:
        """The folder for results. One that cannot be made is refused before torch is imported."""
        out = Path(settings["out"]).expanduser()
        if not self.print_only:
            require_writable(out)
        return out

    @property
    def executor(self) -> "Executor | None":
        """Who trains runs while this process waits; None for this machine and SLURM."""
        if self.name != "ray":
            return None
        from frostline.sweeps.execution.ray_tasks import Ray

        return Ray(address=self.address, cpus=self.cpus, gpus=self.gpus)


@app.command(cls=PanelCommand, short_help="Search for what to tune, with few runs.")
@with_settings(file=False, leave_out=("tune", *NOT_OF_SEARCH), others={"out": "frostline-find", **DEFAULTS})
def find(
    settings: dict[str, Any],
    *,
    who: WhoTrains,
    budget: Annotated[
        str | None,
        of_search(
            metavar="TIME",
            help="Training time, such as 90s, 10min or 2h; a number alone is seconds. k = 0 and one run of a small k are always "
            f"trained. [default: the larger of {FULL_RUNS} full fine-tunings and {SECONDS:g} s]",
        ),
    ] = None,
    tune: Annotated[
        str,
        typer.Option(
            metavar="LIST",
            help="Candidates: auto (every k, full, and heads that read the mean of all tokens if probes score better on it), a "
            "list such as last-2,lora-2,full, to which k = 0 is added, or both: auto,lora-2. Without full, the largest k is the "
            "reference.",
            rich_help_panel="Grid",
        ),
    ] = AUTO,
    only: Annotated[
        str,
        of_search(
            help=f"{TRANSFORMERS}: try nothing that transformers cannot open, such as a probe, a TF-IDF model or another head."
        ),
    ] = ALL,
    exhaustive: Annotated[bool, of_search("--exhaustive", help="Train the whole grid, to verify the search.")] = False,
    processes: Annotated[
        int | None,
        of_search(
            min=1,
            help="Processes that train the runs: this one, and each `frostline work FOLDER --wait`. A step has runs for all of "
            "them. [default: one for each GPU, or 1; the tasks of SLURM, or those that fit into a cluster of Ray]",
            show_default=False,
        ),
    ] = None,
    price_inference: Annotated[
        float,
        of_search(
            metavar="POINTS",
            min=0,
            help="Several models: points of the metric that predictions with the first model are worth; predictions that take "
            "twice the operations cost twice as much.",
        ),
    ] = 0.0,
    plan: Annotated[
        bool,
        of_search(
            "--plan",
            help="Show the budget, the first steps, and the time, memory and disk space that they need; train and write nothing.",
        ),
    ] = False,
) -> None:
    """Search for what to tune, with few runs.

    Needs --model and one of --train, --data and --glue. --model A,B also says which model to take. Ctrl-C interrupts the search
    and writes the best answer so far; the same command continues it. The report shows every step of the search and its reason.
    --plan shows beforehand what it costs. --seeds is the largest number of seeds of any k. A run has 3 epochs. 10 are tried too
    where these are fewer than 60 steps, where nothing is learned, or where full fine-tuning has not fitted its examples.

    Example: frostline find --model ORG/NAME --train reviews.csv --budget 10min --out reviews
    """
    budget_seconds(budget, processes)
    from frostline.sweeps.inputs import models_to_search, require_comparable

    settings["tune"], models = tune, models_to_search(settings)
    one_process = processes is None and who.name == "local"
    require_comparable(models, settings, price_inference=price_inference, one_process=one_process)
    for one in models:
        _check(search_settings({**DEFAULTS, **settings, **one.settings}, only)[0])
    settings |= {"budget": budget, "only": only, "exhaustive": exhaustive}
    if plan:
        from frostline.api import find

        for one in models:
            if len(models) > 1:
                print(f"{one.out.name}:")
            print_search_plan(find.plan(processes=processes, **{**settings, **one.settings}))
        if len(models) > 1:
            print("\nAll models share one budget. By default it is that of the best one.")
    elif len(models) > 1:
        who.search(processes, price_inference=price_inference, **settings)
    else:
        who.search(processes, **settings)


@app.command(cls=PanelCommand, short_help="Train a grid of runs and recommend a k.")
@with_settings()
def sweep(
    settings: dict[str, Any],
    *,
    who: WhoTrains,
    plan: Annotated[
        bool,
        typer.Option(
            "--plan", help="Show the runs, and the time, memory and disk space that they need; train and write nothing."
        ),
    ] = False,
    retry: Annotated[str, retry_option("failed")] = "failed",
) -> None:
    """Train a grid of runs (k x train size x seed x learning rate) and recommend a k: score against cost.

    Needs --model, --tune, --out and one of --train, --data and --glue, as flags or in a TOML file. Run the same command
    again to continue where it stopped. More seeds, values of k or train sizes add to the grid. --plan shows beforehand what it
    costs: it times a few steps of your model on your examples, which takes about ten seconds.

    Example: frostline sweep --model ORG/NAME --train reviews.csv --tune 0,1,2,4,full --out reviews
    """
    kinds, settings = retry_kinds(retry), {"out": PLANNED_FOLDER, **settings} if plan else settings
    grids = _grids(settings)
    if plan:
        for grid in grids:
            if len(grids) > 1:
                print(f"{Path(grid['out']).name}:")
            _print_plan(grid)
    elif len(grids) == 1 or who.name == "slurm":
        for grid in grids:
            who.run(grid, kinds)
    else:
        who.run_each(grids, kinds, make_settings({**grids[0], "out": settings["out"]}))


@app.command(cls=PanelCommand, short_help="Run the built-in example, offline: one to two minutes on two cores.")
def demo(
    out: Annotated[Path, typer.Option(help="Folder for results, answer, report and model.")] = Path("frostline-demo"),
    seeds: Annotated[int, typer.Option(min=1, help="Number of runs per k.")] = 3,
) -> None:
    """Run the built-in example offline. That takes one to two minutes on two cores."""
    require_writable(out.expanduser())
    from frostline.api.demo import demo_grid, demo_tables

    grid = demo_grid(out, seeds=seeds)
    _check(make_settings(grid))
    WhoTrains().run({**grid, **demo_tables()})


COLUMNS = ("first steps", "runs", "done", "time")


def print_search_plan(made: "SearchPlan") -> None:
    """Print the budget of a search, its first steps, and the time, memory and disk space that they need."""
    print(*device_lines(made.plan), sep="\n")
    print(*wrapped(f"{_of_reference(made)} {_of_budget(made)}"), "", sep="\n")
    print_table(list(_steps(made)), COLUMNS)
    if not made.exhaustive:
        print(
            "\nThen each step trains what is expected to gain the most, until more runs would hardly\n"
            "change the choice or the budget is spent. Probes choose the small k whose learning rates are\n"
            "compared; before they are fitted, the plan assumes the dearest one."
        )
    if made.longer is not None:
        length = f"{made.longer:g} epochs"
        budget = f", and the budget is then the larger of {FULL_RUNS} such runs for {length} and {SECONDS:g} s"
        text = f"If nothing is learned, or if full fine-tuning has not fitted its examples, {length} are tried, too"
        print(*wrapped(f"{text}{'' if made.seen.budget_given is not None else budget}."), sep="\n")
    print(f"\nHidden states of the frozen layers: {size_of(made.plan.states.bytes)}.")
    print(*space_lines(made.plan), sep="\n")


def _of_reference(made: "SearchPlan") -> str:
    """The time and the memory of one run of the reference."""
    from frostline.report.names import tuning  # needs numpy

    cell, name = made.of_reference, capitalized(tuning(made.seen.space.reference))
    forecast, seconds = made.plan.forecast, made.reference_seconds
    if made.measured is not None:
        return f"{name}: {duration(made.measured)} a run, as measured in this folder."
    if cell is None or forecast is None or seconds is None:
        return f"{name}: no forecast, because {'all its runs are done' if forecast else 'no step could be timed'}."
    trainer = "" if cell.trainer_seconds is None else f" ({duration(cell.trainer_seconds)} with transformers' Trainer)"
    text = f"{name}: about {duration(seconds)} a run{trainer} and {size_of(cell.memory_bytes)} of memory."
    if not made.plan.memory.fits(cell.memory_bytes, forecast.workers):
        text += (
            " That is more than is free: give --tune with fewer layers, fewer --workers or --gradient-checkpointing."
        )
    return text


def _of_budget(made: "SearchPlan") -> str:
    """The budget, what is spent of it, and whether it allows the reference."""
    if made.exhaustive:
        return "The whole grid is trained, whatever the budget (--exhaustive)."
    at_a_time = made.plan.forecast.workers if made.plan.forecast else 1
    together = f", {at_a_time} at a time," if at_a_time > 1 else ""
    space = made.seen.space
    longest = f" for {space.lengths.longest:g} epochs" if space.reference.epochs else ""
    rule = f"the larger of {FULL_RUNS} such runs{longest}{together} and {SECONDS:g} s"
    if made.budget is None:
        text = f"Budget: {rule}."
    elif made.seen.budget_given is not None:
        text = f"Budget: {duration(made.budget)} of training, as given."
    else:
        text = f"Budget: {duration(made.budget)} of training, {rule}; --budget sets another."
    if made.spent:
        text += f" A search in this folder has spent {duration(made.spent)}"
        text += "; this one continues it." if not made.over else ", and has ended: only a larger budget trains more."
    if made.budget is not None and made.enough is not None and made.enough > made.budget:
        from frostline.report.names import tuning

        name = tuning(space.reference)
        text += (
            f" It probably ends before {name} has run, and then nothing can be compared: give about "
            f"--budget {duration_at_least(made.enough)} or more."
        )
    return text + _of_whole(made)


def _of_whole(made: "SearchPlan") -> str:
    """What a search takes beside its budget; empty if that is unknown, or if nothing more is trained."""
    refit, forecast = refit_seconds(made.plan), made.plan.forecast
    if made.budget is None or refit is None or forecast is None or made.over:
        return ""
    seconds = max(0.0, made.budget - made.spent) + forecast.forward_pass_seconds + refit
    more = "Hidden states and the saved model" if made.plan.refit_rows else "Hidden states"
    return f" {more} come on top: at most about {duration(seconds)} in all, beside loading, probes and the report."


def _steps(made: "SearchPlan") -> Iterator[dict[str, Any]]:
    """A row for the hidden states, and one for each step."""
    forecast = made.plan.forecast
    if forecast and forecast.forward_pass_seconds:
        first = "Compute hidden states of the frozen layers; fit probes to them."
        yield dict(zip(COLUMNS, (first, "", "", duration(forecast.forward_pass_seconds)), strict=True))
    for step in made.steps:
        seconds = "unknown" if step.seconds is None else duration(step.seconds)
        yield dict(zip(COLUMNS, (step.why, step.runs, step.done, seconds), strict=True))


def _grids(settings: dict[str, Any]) -> list[dict[str, Any]]:
    """The settings of the grid of each model and depth that is named."""
    from frostline.sweeps.inputs import models_to_search

    models = models_to_search(settings)
    if len(models) == 1:
        grids = [settings]
    else:
        make_settings({**settings, "model": models[0].model, "depth": None})  # refuses settings without `out`
        grids = [{**settings, **one.settings} for one in models]
    for grid in grids:
        _check(make_settings(grid))
    return grids


def _print_plan(settings: dict[str, Any]) -> None:
    from frostline.api import sweep as api

    plan = api.plan(**settings)
    print(plan)
    if plan.forecast is None:
        print("\nNo forecast: no step could be timed.")


def _check(settings: Settings) -> None:
    """Answer a mistake before torch is imported, which takes seconds."""
    from frostline.sweeps.inputs import check_inputs

    check_inputs(settings)
