"""A grid of runs: :func:`sweep`, and its plan."""

from collections.abc import Collection, Mapping
from dataclasses import fields, replace
from pathlib import Path
from time import perf_counter
from typing import Any, Unpack

from frostline import FrostlineError
from frostline.api.keywords import Grid, Location, require_known, split_off_tables, takes
from frostline.api.results import Results
from frostline.data.wording import spoken
from frostline.fast.switch import objects_frozen
from frostline.report.plan_text import forecast_lines, group_lines, plan_lines
from frostline.report.rebuild import finish
from frostline.sweeps import plan as plans
from frostline.sweeps import slurm
from frostline.sweeps.execution.execute import Executor, execute
from frostline.sweeps.execution.forecast import make_forecast
from frostline.sweeps.execution.workers import OtherGpus
from frostline.sweeps.prepare import prepare
from frostline.sweeps.progress import Progress, displayed
from frostline.sweeps.results.folder import register
from frostline.sweeps.results.forecast_record import Taken, record, record_measured
from frostline.sweeps.results.search_record import request_again
from frostline.sweeps.results.tensor_files import BestWeights
from frostline.sweeps.settings import PLANNED_FOLDER, Settings, make_settings, retry_kinds
from frostline.sweeps.slurm import TASKS


@takes(Grid)
def sweep(
    *,
    out: Location,
    save_model: bool = True,
    retry: Collection[str] = ("failed",),
    executor: Executor | None = None,
    progress: Progress | None = None,
    **settings: Unpack[Grid],
) -> Results:
    """Train a grid of runs (k x train size x seed x learning rate), and write tables, answer, report and model into ``out``.

    Runs that have a result are not trained again, so the same call continues where it stopped, and more values add to the grid.

    Args:
        out: The folder for results, answer, report and model.
        save_model: Whether to save the model of the recommended run.
        retry: Which runs that have ended are trained again: ``failed``, ``diverged``. What is known of them is kept in
            ``retried/``.
        executor: Trains them instead of this machine: :class:`frostline.Ray`.
        progress: Shows progress; by default on the terminal, or below the cell of a notebook.
        **settings: The settings of :class:`frostline.Settings`. ``train``, ``validation`` and ``test`` may also be a
            ``datasets.Dataset``, a pandas ``DataFrame`` or a ``pyarrow.Table``.

    Raises:
        FrostlineError: Data, model or settings are unusable, or the folder contains another sweep.
    """
    require_known(settings, sweep)
    tables, plain = split_off_tables({**settings, "out": out})
    spec, retry = make_settings(plain), retry_kinds(retry)
    with displayed(progress) as shown:
        plan = _begun(spec, tables, shown, retry)
        out, results = plan.store.out, Results(plan.store.out, tables)
        with objects_frozen():
            ended = plan.store.ended()
            missing = [run for run in plan.requested if run.digest not in ended]
            shown.done_before(len(plan.requested) - len(missing), len(plan.requested))
            plan = replace(plan, forecast=make_forecast(plan, plan.requested, missing, shown))
            _register(plan)
            weights = BestWeights(out) if save_model else None
            if executor is not None:
                if missing:
                    with executor.driver(plan, shown) as driver:
                        execute(plan, missing, shown, driver=driver, weights=weights)
                finish(plan, shown, save_model=save_model)
                return results
            forecast = plan.forecast
            call = record(out, forecast) if missing and forecast else None
            begun = perf_counter()
            with OtherGpus(plan, shown) as others:
                others.start(len(missing))
                execute(plan, plan.requested, shown, weights=weights)
            if call is not None:
                of_pass = plan.experiment.worker.forward_pass_seconds
                record_measured(out, call, Taken(seconds=perf_counter() - begun, forward_pass_seconds=of_pass))
            finish(plan, shown, save_model=save_model)
            return results


class Plan(plans.Plan):
    """The plan of a sweep, which prints as on the command line: also the parameter groups of all but the last layers."""

    def __repr__(self) -> str:
        groups = {recipe: groups for recipe, groups in self.groups.items() if not recipe.is_k}
        forecast = forecast_lines(self.forecast) if self.forecast else ()
        return spoken("\n".join((*plan_lines(self), *group_lines(groups), *forecast)))


@takes(Grid)
def plan(
    *, out: Location = PLANNED_FOLDER, timed: bool = True, progress: Progress | None = None, **settings: Unpack[Grid]
) -> Plan:
    """Plan what :func:`sweep` would do with these settings: its runs, what they share, and what they cost. Nothing is written.

    Args:
        out: The folder of the sweep, which may have runs already.
        timed: Whether to time a few training steps, to forecast time and memory. This takes about ten seconds.
        progress: Shows progress, as in :func:`sweep`.
        **settings: Those of :func:`sweep`.

    Raises:
        FrostlineError: The same errors that :func:`sweep` raises before the first run.
    """
    require_known(settings, plan)
    tables, plain = split_off_tables({**settings, "out": out})
    spec = make_settings(plain)
    with displayed(progress) as shown:
        made = prepare(spec, tables, shown)
        made = Plan(**{field.name: getattr(made, field.name) for field in fields(made)})
        if timed:
            with objects_frozen():
                forecast = make_forecast(made, made.requested, made.missing(made.requested), shown, plain=True)
                made = replace(made, forecast=forecast)
        return made


def submit(
    *,
    tasks: int = TASKS,
    options: str = "",
    retry: Collection[str] = ("failed",),
    progress: Progress | None = None,
    **settings: Any,
) -> str:
    """Plan a sweep in ``out``, and submit a SLURM job array that trains its runs. :func:`sweep` then makes the answer.

    Args:
        tasks: The number of tasks of the array. Each is one ``frostline work``.
        options: Options of sbatch for each task, as on a command line, such as ``--partition=gpu --gres=gpu:1``.
        retry: As for :func:`sweep`.
        progress: As for :func:`sweep`.
        **settings: Those of :func:`sweep`.

    Returns:
        The number of the job.

    Raises:
        FrostlineError: As for :func:`sweep`. Or a table is in no file, or sbatch is not there or refuses the options.
    """
    tables, plain = split_off_tables(settings)
    spec, retry = make_settings(plain), retry_kinds(retry)
    out = Path(spec.out).expanduser()
    text = slurm.script(out, tasks=tasks, options=options, trust_remote_code=spec.trust_remote_code)
    if tables:
        raise FrostlineError(
            f"The {next(iter(tables))} table was given in Python: write it into a file that other machines can read."
        )
    with displayed(progress) as shown:
        plan = _begun(spec, tables, shown, retry)
        if plan.missing(plan.requested):
            shown.begin("checking that the model can be cut")
            plan.check_cuts()
        _register(plan)
    return slurm.submit(out, text)


def _begun(spec: Settings, tables: Mapping[str, Any], progress: Progress, retry: Collection[str]) -> plans.Plan:
    """The plan, after its notes are shown, and damaged results and those that no longer count are set aside."""
    plan = prepare(spec, tables, progress)
    for note in (*plan.notes, *plan.store.check()):
        progress.note(note)
    plan.store.retry({run.digest for run in plan.requested}, retry)
    return plan


def _register(plan: plans.Plan) -> None:
    register(plan)
    request_again(plan.store.out, {run.digest for run in plan.requested})
