"""The search for an answer: a race carried out on a model and a table. Its folder is a sweep's, with every decision beside."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from frostline.api import Sweep, best_weights, finish, write_folder
from frostline.errors import FrostlineError
from frostline.metrics import WITH_SIGN, chance
from frostline.progress import Progress, suitable_progress
from frostline.race import Board, Course, Outcome, Step, Trial, Verdict, race, said
from frostline.report import readable
from frostline.specification import CHOSEN_BY_SEARCH, MoreRuns, RunSpec, SweepSpec, Tune
from frostline.sweep.execute import execute
from frostline.sweep.outlook import Outlook
from frostline.sweep.plan import expand
from frostline.sweep.prepare import Prepared, prepare
from frostline.sweep.search import write_search

RATES = (5e-5, 1e-4, 2e-4)  # that may be tried, by default
MOST_SEEDS = 5  # of any k, by default


def find(
    *,
    budget: float | None = None,
    max_k: int | None = None,
    exhaustive: bool = False,
    progress: Progress | None = None,
    **settings: Any,
) -> dict[str, Any]:
    """Look for the smallest k that meets the target, training as little as that takes; gives the answer.

    Takes the settings of :class:`frostline.Sweep` but for ``tune``; ``learning_rate`` are the rates that may be tried,
    ``seeds`` the most of any k. ``budget``: seconds of training, by default what six full fine-tunings take. ``max_k``:
    train no more layers than these; the deepest then stands for full. ``exhaustive``: train the whole grid. The same call
    again goes on where it stopped, and Ctrl-C leaves the best answer so far.

    Raises:
        FrostlineError: whatever a user can put right.
    """
    for name in CHOSEN_BY_SEARCH:
        if settings.get(name) is not None:
            raise FrostlineError(f"A search chooses {name} itself: leave it out, or run `frostline sweep`.")
    if budget is not None and not budget > 0:
        raise FrostlineError(f"budget cannot be {budget:g}: give seconds of training, above 0.")
    if max_k is not None and max_k < 1:
        raise FrostlineError(f"max_k cannot be {max_k}: give 1 or more; of the head alone there is nothing to choose.")
    given = {"learning_rate": RATES, "seeds": MOST_SEEDS, **settings, "tune": 0}
    sweep = Sweep(**given)
    if sweep.spec.train_size and len(sweep.spec.train_size) > 1:
        raise FrostlineError(
            "A search has one train size: give one --train-size, or run `frostline sweep` for several."
        )
    shown = progress or suitable_progress()
    try:
        prepared = prepare(sweep.spec, sweep.sources, shown, tunes=lambda layers: _candidates(layers, max_k))
        tunes = _candidates(prepared.identity.layers, max_k)
        for note in prepared.plan.notes:
            shown.note(note)
        return _Search(prepared, sweep.spec.model_copy(update={"tune": tunes}), shown, budget).carry_out(
            exhaustive=exhaustive
        )
    finally:
        shown.close()


def _candidates(layers: int, max_k: int | None) -> tuple[Tune, ...]:
    return (*range(layers + 1), "all") if max_k is None or max_k > layers else tuple(range(max_k + 1))


@dataclass
class _Search:
    prepared: Prepared
    spec: SweepSpec  # every run that this search may train; its folder may hold others
    progress: Progress
    budget: float | None
    steps: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        bench, spec, identity = self.prepared.bench, self.spec, self.prepared.identity
        self.runs = {Trial(run.tune, run.learning_rate, run.seed): run for run in expand(spec, identity)}
        self.printed = {run.tune: run.trainable for run in self.runs.values()}
        *ks, reference = spec.tune
        outlook = Outlook(bench, self.prepared.plan.kept)
        guessing = chance(bench.problem.targets[bench.splits["validation"]], identity.metric, len(identity.labels))
        rows = len(bench.splits["validation"])
        self.board = Board(
            Course(
                ks=tuple(k for k in ks if isinstance(k, int)),
                reference=reference,
                rates=tuple(sorted(spec.learning_rate)),
                seeds=spec.seeds,
                chance=guessing,
                best=1.0,
                noise=lambda score: _row_error(score, identity.metric, rows),
                target=spec.target,
                operations={run.tune: outlook.operations(run) for run in self.runs.values()},
                budget=self.budget,
            )
        )

    def carry_out(self, *, exhaustive: bool) -> dict[str, Any]:
        """Run the race to its end, or to where it is interrupted; gives the answer."""
        try:
            verdict = self._grid() if exhaustive else self._race()
        except KeyboardInterrupt:
            self._write(Verdict(self.board.meets(), "It was interrupted; the same command goes on."))
            finish(self.prepared, self.progress, save_model=False)
            raise
        self._write(verdict)
        return finish(self.prepared, self.progress)

    def _race(self) -> Verdict:
        steps = race(self.board)
        try:
            step = next(steps)
            while True:
                self._take(step)
                step = next(steps)
        except StopIteration as end:
            verdict: Verdict = end.value
            return verdict

    def _grid(self) -> Verdict:
        self._take(Step(tuple(self.runs), "The whole grid, as was asked."))
        return Verdict(self.board.meets(), "The whole grid was trained.")

    def _take(self, step: Step) -> None:
        """Train what a step wants and has no result yet."""
        self.progress.note(step.why)
        asked = [self.runs[trial] for trial in step.trials]
        known = [trial for step in self.steps for trial in step["trials"]]
        write_folder(replace(self.prepared, spec=self._asked([*known, *step.trials])))
        execute(self.prepared, asked, self.progress, weights=best_weights(self.prepared.store.out))
        outcomes = {trial: self._outcome(run) for trial, run in zip(step.trials, asked, strict=True)}
        self.steps.append({"why": step.why, "trials": outcomes})
        self.board.outcomes |= outcomes
        self._write(None)
        self.progress.note(self._so_far())

    def _so_far(self) -> str:
        """Where the answer lies, and what has been spent on it."""
        *open_, found = self.board.candidates
        spent, budget = (readable.seconds(seconds) for seconds in (self.board.spent, self.board.budget))
        where = f"{said(found)} so far" + (
            f", or less ({said(open_[0])} to {said(open_[-1])} are not tried)" if open_ else ""
        )
        return f"  Enough: {where}. Trained for {spent} of at most {budget}."

    def _outcome(self, run: RunSpec) -> Outcome:
        facts = self.prepared.store.results().get(run.digest)
        if facts is None:  # it ended in an error
            return Outcome(None, 0.0)
        return Outcome(
            facts["validation_best"] if facts["outcome"] != "diverged" else None, facts["cost"]["run_seconds"]
        )

    def _asked(self, trials: Sequence[Trial]) -> SweepSpec:
        """The sweep whose runs are just these."""
        seeds: dict[tuple[Tune, float], list[int]] = {}
        for trial in trials:
            seeds.setdefault((trial.tune, trial.rate), []).append(trial.seed)
        first, *others = [
            MoreRuns(tune=(tune,), learning_rate=(rate,), seeds=tuple(dict.fromkeys(some)))
            for (tune, rate), some in seeds.items()
        ]
        return self.spec.model_copy(update={**first.values(), "grid": tuple(others)})

    def _write(self, verdict: Verdict | None) -> None:
        tune = verdict.tune if verdict else None
        tune = None if tune is None or self.board.mean(tune) is None else tune
        course, tried = self.board.course, {trial.tune for step in self.steps for trial in step["trials"]}
        write_search(
            self.prepared.store.out,
            {
                "named": None if tune is None else self.printed[tune],
                "why": verdict.why if verdict else None,
                "target": course.target,
                "budget_seconds": self.board.budget,
                "spent_seconds": self.board.spent,
                "rates": course.rates,
                "skipped": [self.printed[k] for k in (*course.ks, course.reference) if k not in tried],
                "steps": [
                    {
                        "why": step["why"],
                        "runs": [
                            {
                                "trainable": self.printed[trial.tune],
                                "learning_rate": trial.rate,
                                "seed": trial.seed,
                                "score": outcome.score,
                                "seconds": outcome.seconds,
                            }
                            for trial, outcome in step["trials"].items()
                        ],
                    }
                    for step in self.steps
                ],
            },
        )


def _row_error(score: float, metric: str, rows: int) -> float:
    """Standard error of a score of so many rows, about: of a share, or of a correlation."""
    spread = 1 - score * score if metric in WITH_SIGN else math.sqrt(max(score * (1 - score), 0.0))
    return max(spread, 1 / math.sqrt(rows)) / math.sqrt(rows)
