"""The record of a search: its settings, its steps and its verdict, in ``search.json`` next to the runs."""

from collections.abc import Iterable, Sequence, Set
from pathlib import Path

from pydantic import BaseModel, ConfigDict, FiniteFloat

from frostline.data.files import read_inside, require_inside, unseal_as, write_sealed
from frostline.data.wording import counted
from frostline.statistics.recipe import Recipe
from frostline.statistics.run_result import RunResult
from frostline.sweeps.results.store import SEARCH, DamagedError
from frostline.training.result import Layer, ProbeReport

Score = FiniteFloat | None


class Tried(BaseModel):
    """A run of a step."""

    recipe: Recipe
    learning_rate: Score
    seed: int
    score: Score
    seconds: FiniteFloat  # wall-clock seconds, divided by the number of runs that were trained at the same time


class Expected(BaseModel):
    """What was known of a recipe: its runs that count, their mean score, and what the posterior says.

    ``expected`` is the expected score, ``probability`` that of reaching the target. Both are None before the reference has a
    score.
    """

    recipe: Recipe
    runs: int
    mean: FiniteFloat
    expected: Score
    probability: Score


class Step(BaseModel):
    """Runs that were trained together, why, and what was known before."""

    why: str
    results_so_far: list[Expected]
    seconds: FiniteFloat
    runs: list[Tried]


class SearchRecord(BaseModel):
    """The record of a search. ``answer.json`` repeats it under ``search``; k is written as in ``results.csv``.

    Attributes:
        train_size: The number of training examples of every run.
        why: Why the search ended, as a sentence; None while it continues.
        over: Whether the search has ended. Until then the test set is not evaluated.
        pending_reference: The reference, while the search has not trained it yet; else None.
        interim_analyses: The largest number of times that confidence intervals are read.
        budget_seconds: The wall-clock time that all runs may take; None if unknown.
        spent_seconds: The wall-clock time of all runs so far.
        elsewhere_seconds: What other models have taken of the same budget.
        operations: Multiplications and additions of one training run, by k.
        num_train_epochs: The training lengths that may be tried.
        learning_rates: The learning rates that may be tried.
        head_learning_rates: Those of k = 0.
        selected_learning_rates: The best learning rate so far, by k.
        results_so_far: For each trained k.
        skipped: Every k that was not trained, for any number of epochs.
        failed_reference: The reference, if it could not be trained; then nothing is recommended.
        enough_budget: The seconds of a budget that would allow the next step; None if the budget did not end the search.
        requested: Digests of the runs that this search, or an earlier one in the folder, requested.
        abandoned: Digests of runs that only an earlier search requested and that will not be finished.
        known: Digests of all runs in the folder that had ended when the search did. Its verdict is about these.
        probes: The facts of the probes on frozen features, or None.
        estimated_k: The k that the probes suggest.
        steps: All that were trained.
    """

    model_config = ConfigDict(frozen=True)

    train_size: int
    why: str | None
    over: bool
    pending_reference: Recipe | None
    interim_analyses: int
    budget_seconds: float | None
    spent_seconds: float
    elsewhere_seconds: float
    operations: dict[Recipe, float]
    num_train_epochs: list[float]
    learning_rates: list[float]
    head_learning_rates: list[float]
    selected_learning_rates: dict[Recipe, float]
    results_so_far: list[Expected]
    skipped: list[Recipe]
    failed_reference: Recipe | None
    enough_budget: FiniteFloat | None
    requested: list[str]
    abandoned: list[str]
    known: list[str]
    probes: ProbeReport | None
    estimated_k: Layer | None
    steps: list[Step]


def write_search(out: Path, record: SearchRecord) -> None:
    """Write ``search.json`` in place of an older one."""
    write_sealed(out / SEARCH, record.model_dump(), inside=out)


def read_search(out: Path) -> SearchRecord | None:
    """The record in a folder; None if there is none.

    Raises:
        DamagedError: It is damaged, incomplete or cannot be read. An answer without it would leave out choices.
    """
    path = out / SEARCH
    require_inside(path, out)
    try:
        return unseal_as(SearchRecord, read_inside(path, out))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise DamagedError(f"{path} cannot be read: the command of the search writes it again.") from error


def request_again(out: Path, runs: Set[str]) -> None:
    """Remove these runs from the abandoned ones, because a sweep has requested them."""
    search = read_search(out)
    if search and runs & set(search.abandoned):
        write_search(out, search.model_copy(update={"abandoned": sorted(set(search.abandoned) - runs)}))


def newer_runs(search: SearchRecord, rows: Iterable[RunResult]) -> list[RunResult]:
    """The runs with the train size of a search that have ended since it ended itself; none if it has not."""
    of_size = [row for row in rows if row.train_size == search.train_size and row.status != "pending"]
    return [row for row in of_size if search.over and row.run not in search.known]


def as_of_now(search: SearchRecord, rows: Sequence[RunResult]) -> SearchRecord:
    """The record with its verdict and its ``skipped`` brought up to date, if runs have been trained since it ended."""
    newer = newer_runs(search, rows)
    if not newer:
        return search
    since = counted(len(newer), "run has", "runs have")
    why = f"{since} been added to this folder since the search ended; the answer counts all."
    return search.model_copy(update={"why": why, "skipped": still_skipped(search, newer)})


def still_skipped(search: SearchRecord, rows: Iterable[RunResult]) -> list[Recipe]:
    """Every k that neither the search nor one of these runs has trained. Runs of another length may have changed the names."""
    trained = {row.recipe.trained for row in rows}
    return [k for k in search.skipped if k.trained not in trained]


def selected_learning_rates(search: SearchRecord, rows: Sequence[RunResult]) -> dict[Recipe, float]:
    """The learning rate that a search selected, for each k that no sweep has trained at other learning rates since."""

    def by_k(runs: Iterable[tuple[Recipe, float | None]]) -> dict[Recipe, set[float | None]]:
        rates: dict[Recipe, set[float | None]] = {}
        for k, rate in runs:
            rates.setdefault(k, set()).add(rate)
        return rates

    tried = by_k((run.recipe, run.learning_rate) for step in search.steps for run in step.runs)
    known = by_k((row.recipe, row.learning_rate) for row in rows if row.status == "done")
    selected = search.selected_learning_rates.items()
    return {k: rate for k, rate in selected if known.get(k, set()) <= tried.get(k, set())}
