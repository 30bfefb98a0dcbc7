"""The folder of a sweep, read without loading its model or its data."""

from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from frostline import FrostlineError
from frostline.data.examples import Examples
from frostline.statistics.run_result import RunResult
from frostline.sweep.plan import expand, read_identity, read_origin, read_settings
from frostline.sweep.results.rows import read_folds, read_rows
from frostline.sweep.results.search_record import read_search
from frostline.sweep.results.store import Store
from frostline.sweep.results.tables import run_rows, score_rows
from frostline.sweep.toml import TRUST


class Folder:
    """The folder of a sweep, read without loading its model or its data.

    Attributes:
        out: The folder.
        store: The results in it.
        identity: What identifies the sweep besides its settings.
        origin: Where the sweep was started.
        spec: The settings. The grid is the union of all requested grids.
        own_code: Whether the runs need code that comes with the model. ``spec`` does not say so.
        requested: All runs of the grid.
        search: The record of the search that trained them; None for a plain sweep.
        runs: The requested runs without those that a search has abandoned.
        folds: The fold of each validation example; None without folds.

    Raises:
        FrostlineError: The folder contains no sweep.
    """

    def __init__(self, out: str | Path) -> None:
        self.out = Path(out)
        self.store = Store(self.out)
        written = self.store.read_spec()
        if written is None:
            raise FrostlineError(_no_sweep(self.out))
        self.identity = read_identity(written, self.out)
        self.origin = read_origin(written, self.out)
        self.spec = read_settings(written, self.out)
        self.own_code = written.get(TRUST, False) is not False
        self.requested = expand(self.spec, self.identity)
        self.search = search = read_search(self.out)
        if abandoned := set(search.abandoned) if search else set():
            abandoned -= self.store.ended()
        self.runs = [run for run in self.requested if run.digest not in abandoned]
        self._by_digest = {run.digest: run for run in self.runs}

    @cached_property
    def folds(self) -> NDArray[np.int64] | None:
        """The fold of each validation row; None without folds."""
        return read_folds(self.out) if self.identity.folds else None

    @property
    def is_complete(self) -> bool:
        """Whether every run has ended and no search continues.

        Until then the answer may change, so test scores stay hidden.
        """
        return not (self.search and not self.search.over) and "pending" not in self.states()

    def states(self) -> list[str]:
        """For each of the runs: ``done``, ``failed`` or ``pending``. No result is read."""
        known = self.store.states()
        return [known.get(run.digest, "pending") for run in self.runs]

    def counts(self) -> dict[str, int]:
        """How many of the runs are ``done``, ``failed`` and ``pending``."""
        states = self.states()
        return {state: states.count(state) for state in ("done", "failed", "pending")}

    def rows(self) -> list[RunResult]:
        """The table of runs, with test scores if the sweep is complete."""
        return run_rows(
            self.runs,
            self.store,
            model=self.spec.model,
            task=self.identity.task,
            layers=self.identity.layers,
            with_test=self.is_complete,
        )

    def scores(self) -> list[dict[str, Any]]:
        """Every score of every run, with test scores if the sweep is complete."""
        return score_rows(self.runs, self.store, with_test=self.is_complete)

    @property
    def scored_splits(self) -> list[str]:
        """The validation set, and others that runs were scored on (MNLI has a mismatched one)."""
        return ["validation", *sorted(path.stem for path in self.out.glob("validation_*.parquet"))]

    def predictions(self, run: str, split: str = "validation_best") -> NDArray[np.float32]:
        """Logits of a run on all rows of a split, ``[rows, C]``; NaN on rows that it was not scored on."""
        return self.store.predictions_on_all_rows(self._by_digest[run], self.folds, split)

    def split(self, name: str) -> Examples | None:
        """The scored examples of a split; None if there is no such split."""
        return read_rows(self.out, name)


def _no_sweep(out: Path) -> str:
    """What to do about a folder without a sweep, which may be that of a study."""
    if of_study := sorted(out.glob("*/*/sweep.toml")):
        return (
            f"{out} holds the sweeps of a study: give the folder of one, such as {of_study[0].parent}. To train a study with "
            "several processes, start the study's command again, here or on another machine."
        )
    return f"{out} holds no sweep (no sweep.toml): give the folder of a sweep or search."
