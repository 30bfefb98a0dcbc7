"""The plan of a search: its first steps, its budget, and the forecast of their time and memory. Nothing is trained."""

from dataclasses import dataclass, replace
from statistics import median
from typing import Self

from frostline.search import default_budget
from frostline.search.policy import initial_design
from frostline.search.search import Search
from frostline.statistics.recipe import Recipe
from frostline.sweep.execution.forecast import make_forecast
from frostline.sweep.plan import Plan
from frostline.sweep.results.forecast_record import Cell, makespan
from frostline.sweep.results.search_record import read_search


@dataclass(frozen=True)
class PlannedStep:
    """A step of a search before it is trained.

    Attributes:
        why: The reason, as a sentence.
        runs: The number of its runs.
        done: How many of them have a result.
        seconds: The forecast wall-clock time of the others; None if no step of one of them could be timed.
    """

    why: str
    runs: int
    done: int
    seconds: float | None


@dataclass(frozen=True)
class SearchPlan:
    """The plan of a search.

    Attributes:
        plan: The plan of all runs that it may train, with a forecast of those of the first steps.
        steps: The first steps. What follows them depends on their scores.
        reference: What every k is compared with.
        of_reference: The forecast of its runs; None if all are done or none could be timed.
        measured: The median wall-clock seconds of those of its runs that are done; None if none is.
        exhaustive: Whether the whole grid is trained in one step, whatever the budget.
        budget: Wall-clock seconds of training; None: a default that is not known before a run is timed.
        budget_given: Whether the budget is not the default.
        spent: Wall-clock seconds that an earlier search in the folder has trained for.
        over: Whether it has ended.
    """

    plan: Plan
    steps: tuple[PlannedStep, ...]
    reference: Recipe
    of_reference: Cell | None
    measured: float | None
    exhaustive: bool
    budget: float | None
    budget_given: bool
    spent: float
    over: bool

    @classmethod
    def of(cls, search: Search, *, exhaustive: bool) -> Self:
        """Check that the model can be cut, time a few training steps, and plan.

        Args:
            search: A search that has trained nothing.
            exhaustive: Whether the whole grid is trained in one step.
        """
        seen, prepared = search.seen, search.prepared
        batches = [search.whole_grid()] if exhaustive else list(initial_design(seen.space, seen.workers))
        tunes = {one.recipe for batch in batches for one in batch.candidates}
        runs = [run for run in search.runs.values() if run.recipe in tunes]
        forecast = make_forecast(prepared, runs, prepared.missing(runs), search.progress, plain=True)
        plan = replace(prepared, forecast=forecast)
        cells = {cell.recipe: cell for cell in plan.forecast.cells} if plan.forecast else {}
        at_a_time = plan.forecast.workers if plan.forecast else 1
        seconds = {name: at_a_time * cell.seconds for name, cell in cells.items()}  # wall-clock seconds of one run
        earlier, of_reference = read_search(prepared.store.out), seen.space.reference
        measured, budget = _measured(search), seen.budget_given
        of_one_run = measured or seconds.get(of_reference)
        if budget is None and of_one_run is not None:
            budget = default_budget(of_one_run / seen.workers)
        steps = []
        for batch in batches:
            missing = [one for one in batch.candidates if not prepared.store.has(search.runs[one].digest)]
            each = [seconds.get(one.recipe) for one in missing]
            known = [one for one in each if one is not None]
            left = makespan(known, seen.workers) if len(known) == len(each) else None
            steps.append(PlannedStep(batch.why, len(batch.candidates), len(batch.candidates) - len(missing), left))
        return cls(
            plan=plan,
            steps=tuple(steps),
            reference=seen.space.reference,
            of_reference=cells.get(of_reference),
            measured=measured,
            exhaustive=exhaustive,
            budget=budget,
            budget_given=seen.budget_given is not None,
            spent=earlier.spent_seconds if earlier else 0.0,
            over=earlier is not None and earlier.over,
        )

    @property
    def reference_seconds(self) -> float | None:
        """Wall-clock seconds of one run of the reference: measured, or as forecast."""
        if self.measured is not None:
            return self.measured
        if self.of_reference is None or self.plan.forecast is None:
            return None
        return self.plan.forecast.workers * self.of_reference.seconds

    @property
    def enough(self) -> float | None:
        """The budget that allows a run of the reference; None if that is unknown."""
        before = [step.seconds for step in self.steps[:-1]]
        if self.reference_seconds is None or None in before:
            return None
        return self.spent + sum(filter(None, before)) + self.reference_seconds


def _measured(search: Search) -> float | None:
    """The median wall-clock seconds of the runs of the reference that have a score; None if none has."""
    store, runs = search.prepared.store, search.runs.values()
    done = [run for run in runs if run.recipe == search.seen.space.reference and store.has(run.digest)]
    seconds = [found.seconds for found in map(search.observation, done) if found.score is not None]
    return median(seconds) if seconds else None
