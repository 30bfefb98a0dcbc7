"""A sweep's folder, read without its model or its data."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from frostline import FrostlineError
from frostline.data.examples import Examples
from frostline.statistics.predictions import among_all
from frostline.sweep.plan import expand, read_identity, read_settings
from frostline.sweep.results.rows import read_folds, read_rows
from frostline.sweep.results.search_record import read_search
from frostline.sweep.results.store import Store
from frostline.sweep.results.tables import run_rows, score_rows


class Folder:
    """A sweep's folder, read without its model or its data.

    Raises:
        FrostlineError: there is no sweep in it.
    """

    def __init__(self, out: str | Path) -> None:
        self.out = Path(out)
        self.store = Store(self.out)
        written = self.store.read_spec()
        if written is None:
            raise FrostlineError(f"{out} holds no sweep (no sweep.toml): give the folder of a sweep's --out.")
        self.identity = read_identity(written, self.out)
        self.spec = read_settings(written, self.out)
        self.asked = expand(self.spec, self.identity)
        self.search = search = read_search(self.out)
        if given_up := set(search["given_up"]) if search else set():
            given_up -= {*self.store.failures(), *filter(self.store.has, given_up)}
        self.runs = [run for run in self.asked if run.digest not in given_up]
        self.folds = read_folds(self.out)
        self._fold = {run.digest: run.fold for run in self.runs}

    @property
    def stands(self) -> bool:
        """Whether no run is to come that could change the answer; before, nobody looks at test. A search may want more as long
        as it is not over."""
        if self.search and not self.search["over"]:
            return False
        failed = self.store.failures()
        return all(self.store.has(run.digest) or run.digest in failed for run in self.runs)

    def rows(self) -> list[dict[str, Any]]:
        """The table of runs; with test scores once the answer stands."""
        return run_rows(
            self.runs,
            self.store,
            model=self.spec.model,
            task=self.identity.task,
            layers=self.identity.layers,
            with_test=self.stands,
        )

    def scores(self) -> list[dict[str, Any]]:
        """Every score of every run; those on test once the answer stands."""
        return score_rows(self.runs, self.store, with_test=self.stands)

    @property
    def scored_splits(self) -> list[str]:
        """The validation set, and further ones that runs were scored on (MNLI's mismatched)."""
        return ["validation", *sorted(path.stem for path in self.out.glob("validation_*.parquet"))]

    def predictions(self, run: str, split: str = "validation_best") -> NDArray[np.float32]:
        """Logits of a run on the rows of a split, ``[rows, C]``; those of rows that it was not scored on are NaN."""
        found = self.store.predictions(run)[split]
        if self.folds is None or split not in ("validation_best", "validation_last"):
            return found
        return among_all(found, self.folds == self._fold[run])

    def split(self, name: str) -> Examples | None:
        """The rows of a split that was scored; None where there is no such split."""
        return read_rows(self.out, name)
