"""The plan of a search: its first steps, its budget, and the forecast of their time and memory. Nothing is trained."""

from dataclasses import dataclass, replace
from statistics import median
from typing import Self

from frostline.search import default_budget
from frostline.search.observations import Observations
from frostline.search.policy import initial_design
from frostline.search.search import Search
from frostline.sweeps.execution.forecast import make_forecast
from frostline.sweeps.plan import Plan
from frostline.sweeps.results.forecast_record import KindForecast, makespan
from frostline.sweeps.results.search_record import read_search


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
        measured: The median wall-clock seconds of the runs of the reference that are done; None if none is.
        exhaustive: Whether the whole grid is trained in one step, whatever the budget.
        seen: The candidates, the budget that was given, and the number of runs that are trained at the same time.
        spent: Wall-clock seconds that an earlier search in the folder has trained for.
        over: Whether it has ended.
        longer: The epochs of a longer training that may follow; None: none may.
    """

    plan: Plan
    steps: tuple[PlannedStep, ...]
    measured: float | None
    exhaustive: bool
    seen: Observations
    spent: float
    over: bool
    longer: float | None

    @classmethod
    def of(cls, search: Search, *, exhaustive: bool) -> Self:
        """Check that the model can be cut, time a few training steps, and plan.

        Args:
            search: A search that has trained nothing.
            exhaustive: Whether the whole grid is trained in one step.
        """
        seen, plan = search.seen, search.plan
        batches = [search.whole_grid()] if exhaustive else list(initial_design(seen.space, seen.workers))
        tunes = {one.recipe for batch in batches for one in batch.candidates}
        runs = [run for one, run in search.runs.items() if one.recipe in tunes]
        forecast = make_forecast(plan, runs, plan.missing(runs), search.progress, plain=True)
        plan, earlier = replace(plan, forecast=forecast), read_search(plan.store.out)
        steps = []
        for batch in batches:
            missing = plan.missing([search.runs[one] for one in batch.candidates])
            costs, in_seconds = plan.costs(missing)
            seconds = makespan(list(costs.values()), seen.workers) if in_seconds or not missing else None
            steps.append(PlannedStep(batch.why, len(batch.candidates), len(batch.candidates) - len(missing), seconds))
        return cls(
            plan=plan,
            steps=tuple(steps),
            measured=_measured(search),
            exhaustive=exhaustive,
            seen=seen,
            spent=earlier.spent_seconds if earlier else 0.0,
            over=earlier is not None and earlier.over,
            longer=max(search.longer.spec.num_train_epochs) if search.longer and not exhaustive else None,
        )

    @property
    def of_reference(self) -> KindForecast | None:
        """The forecast of its runs; None if all are done or none could be timed."""
        cells = self.plan.forecast.cells if self.plan.forecast else ()
        own = (self.seen.space.reference.trained, self.seen.space.lengths.shortest)
        return next((cell for cell in cells if (cell.recipe, cell.num_train_epochs) == own), None)

    @property
    def reference_seconds(self) -> float | None:
        """Wall-clock seconds of one run of the reference: measured, or as forecast."""
        if self.measured is not None or self.of_reference is None or self.plan.forecast is None:
            return self.measured
        return self.plan.forecast.workers * self.of_reference.seconds

    @property
    def budget(self) -> float | None:
        """Wall-clock seconds of training; None: a default that is not known before a run is timed."""
        seen, lengths = self.seen, self.seen.space.lengths
        if seen.budget_given is not None or self.reference_seconds is None:
            return seen.budget_given
        return default_budget(self.reference_seconds / seen.workers * (lengths.longest / lengths.shortest))

    @property
    def enough(self) -> float | None:
        """The budget that allows a run of the reference; None if that is unknown."""
        before = [step.seconds for step in self.steps[:-1]]
        if self.reference_seconds is None or None in before:
            return None
        return self.spent + sum(filter(None, before)) + self.reference_seconds


def _measured(search: Search) -> float | None:
    """The median wall-clock seconds of the runs of the reference that have a score; None if none has."""
    store, runs = search.plan.store, search.runs.values()
    done = [run for run in runs if run.recipe == search.seen.space.reference and store.has(run.digest)]
    seconds = [found.seconds for found in map(search.observation, done) if found.score is not None]
    return median(seconds) if seconds else None
