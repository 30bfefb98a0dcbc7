"""The runs that a search may train, how many of them are trained at the same time, and the settings of its race."""

import math
from collections.abc import Mapping, Sequence

from frostline.report.rebuild import settings_of
from frostline.search.trials import RaceSettings, Trial
from frostline.statistics.decision import Rule
from frostline.statistics.tune import Tune
from frostline.sweep.execution.stacks import stack_size
from frostline.sweep.execution.workers import workers_for
from frostline.sweep.grids import MoreRuns
from frostline.sweep.plan import expand
from frostline.sweep.prepare import Prepared
from frostline.sweep.ray.driver import Driver
from frostline.sweep.specification import SweepSpec
from frostline.sweep.work.workload import Workload
from frostline.training.specification import RunSpec
from frostline.training.step_profile import profile_step

Runs = Mapping[Trial, RunSpec]
STACK, FREE = 4, 1.5  # runs of a stack in a search on a GPU, and the most times as long as one run that it may take


def runs_of(prepared: Prepared) -> Runs:
    """Every run that the search may train."""
    return {
        Trial(run.tune, run.learning_rate, run.seed): run
        for run in expand(prepared.requested, prepared.identity)
        if run.learning_rate is not None
    }


def run_together(prepared: Prepared, runs: Runs, processes: int | None, ray: Driver | None) -> int | None:
    """How many runs are trained at the same time, by all processes; None if this one is alone."""
    if ray is not None:
        return processes or max(1, ray.capacity(list(runs.values())))
    processes = processes or prepared.plan.device.processes
    return None if processes == 1 else processes * run_here(prepared, runs)


def run_here(prepared: Prepared, runs: Runs) -> int:
    """How many long runs this process trains at the same time."""
    return workers_for(prepared, [run for run in runs.values() if run.tune == prepared.requested.tune[-1]][:2])


def stacked_on_gpu(prepared: Prepared, runs: Runs) -> int:
    """How many runs of one k a GPU trains as one stack in about the time of one: ``STACK``, or 1.

    A few steps of the reference are timed, alone and stacked. Every other k takes less time and memory.
    """
    spec, context = prepared.requested, prepared.context
    own = [run for trial, run in runs.items() if trial.tune == spec.tune[-1]]
    some = [run for run in own if run.learning_rate == own[0].learning_rate][:STACK]
    on_gpu = context.machine.device.type == "cuda"
    if not on_gpu or prepared.identity.folds or spec.stack != "auto" or len(some) < STACK:
        return 1
    if stack_size(some, context, "auto", lambda sentence: None) < STACK:
        return 1
    alone, together = (profile_step(stack, context)[0] for stack in (some[:1], some))
    return STACK if together <= FREE * alone < math.inf else 1  # infinite if no loss was finite


def sweep_of(spec: SweepSpec, trials: Sequence[Trial]) -> SweepSpec:
    """The sweep that consists of these trials."""
    seeds: dict[tuple[Tune, tuple[float, ...] | None], list[int]] = {}
    for trial in trials:  # k = 0 is trained at all of its own learning rates
        seeds.setdefault((trial.tune, (trial.learning_rate,) if trial.tune else None), []).append(trial.seed)
    first, *others = [
        MoreRuns(tune=(tune,), learning_rate=rates, seeds=tuple(dict.fromkeys(some)))
        for (tune, rates), some in seeds.items()
    ]
    return spec.model_copy(update={**first.values(), "grid": tuple(others)})


def race_settings(prepared: Prepared, runs: Runs, chance: float, budget: float | None) -> RaceSettings:
    """The settings of the race, without what the alternatives contribute."""
    spec = prepared.requested
    *ks, reference = spec.tune
    workload = Workload(prepared.context, prepared.plan.cached)
    return RaceSettings(
        ks=tuple(k for k in ks if isinstance(k, int)),
        reference=reference,
        learning_rates=tuple(sorted(spec.learning_rate)),
        head_learning_rates=tuple(rate for rate, _ in spec.learning_rate_pairs(0) if rate is not None),
        seeds=spec.seeds,
        chance=chance,
        rule=Rule.of(settings_of(spec), chance),
        operations={tune: workload.operations(run) for tune, run in {r.tune: r for r in runs.values()}.items()},
        budget=budget,
        folds=prepared.identity.folds,
        workers=run_here(prepared, runs),
    )
