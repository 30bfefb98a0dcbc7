"""What Python users have: :class:`Sweep`, and the same steps by themselves."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

from frostline.fast.garbage_collection import objects_frozen
from frostline.report.finish import finish
from frostline.report.rebuild import rebuild
from frostline.report.recommended_model import best_weights
from frostline.sweep.execution.execute import check_cuts, execute
from frostline.sweep.execution.progress import Progress, suitable_progress
from frostline.sweep.forecast.prediction import make_forecast
from frostline.sweep.forecast.record import complete, record
from frostline.sweep.plan import Plan, expand
from frostline.sweep.prepare import Prepared, prepare
from frostline.sweep.register import register
from frostline.sweep.results.folder import Folder
from frostline.sweep.results.search_record import request_again
from frostline.sweep.results.tables import frame
from frostline.sweep.specification import SweepSpec, make_spec
from frostline.training.specification import RunSpec

if TYPE_CHECKING:
    import pandas as pd

SOURCES = ("train", "validation", "test")


class Sweep:
    """A grid of runs: tuned layers x train size x seed x learning rate, over one model and one table of texts.

    Takes the settings of :class:`frostline.sweep.specification.SweepSpec` as keywords; ``train``, ``validation`` and
    ``test`` may also be a ``datasets.Dataset``, a pandas ``DataFrame`` or a ``pyarrow.Table``.

    Raises:
        FrostlineError: a setting is unknown or impossible.
    """

    def __init__(self, *, progress: Progress | None = None, **settings: Any) -> None:
        self.sources = {
            name: settings.pop(name)
            for name in SOURCES
            if name in settings and not isinstance(settings[name], str | os.PathLike | None)
        }
        named = {
            name: os.fspath(value) if isinstance(value, os.PathLike) else value for name, value in settings.items()
        }
        self.spec: SweepSpec = make_spec(named)
        self._progress = progress
        self._prepared: Prepared | None = None

    @property
    def out(self) -> Path:
        """The sweep's folder."""
        return Path(self.spec.out).expanduser()

    def plan(self, *, timed: bool = True) -> Plan:
        """What will run, what is shared, and what it takes; nothing is written.

        ``timed``: a few steps of it are timed, in about ten seconds, for the forecast of seconds and memory.

        Raises:
            FrostlineError: as :meth:`run` would, before it runs anything.
        """
        with self._shown() as progress:
            prepared = self._prepare(progress)
            if timed:
                with objects_frozen():
                    self._foresee(prepared, progress, plain=True)
            return prepared.plan

    def run(self, *, save_model: bool = True) -> dict[str, Any]:
        """Run what has no result yet, and give the answer; tables, answer, report and model are in ``out``.

        ``save_model``: save the model of the recommended run; without it there is none.

        Raises:
            FrostlineError: whatever a user can put right: data, model, settings, a folder that holds another sweep.
        """
        with self._shown() as progress:
            prepared = self._prepare(progress)
            with objects_frozen():
                return self._run(prepared, progress, save_model=save_model)

    def table(self) -> "pd.DataFrame":
        """One row a run, as in results.csv.

        Raises:
            FrostlineError: ``out`` holds no sweep, here as in what follows.
        """
        folder = Folder(self.out)
        return frame(folder.rows())

    def answer(self) -> dict[str, Any]:
        """The answer, rebuilt from the results in ``out``."""
        return rebuild(self.out)

    def plot(self) -> Any:
        """The validation curve, as a matplotlib figure."""
        from frostline.report.figures.validation_curve import validation_curve

        answer = self.answer()
        return validation_curve(answer["sizes"][0], metric=answer["metric"], chance=answer["chance"])

    def _run(self, prepared: Prepared, progress: Progress, *, save_model: bool) -> dict[str, Any]:
        for note in prepared.plan.notes:
            progress.note(note)
        asked = self._asked(prepared)
        missing = sum(not prepared.store.has(spec.digest) for spec in asked)
        self._foresee(prepared, progress)
        register(prepared)
        request_again(self.out, {spec.digest for spec in asked})
        forecast = prepared.plan.forecast
        call = record(self.out, forecast) if missing and forecast else None
        begun = perf_counter()
        execute(prepared, asked, progress, weights=best_weights(self.out) if save_model else None)
        if call is not None:
            complete(
                self.out,
                call,
                {"seconds": perf_counter() - begun, "forward_pass_seconds": prepared.context.forward_pass_seconds},
            )
        return finish(prepared, progress, save_model=save_model)

    def _prepare(self, progress: Progress) -> Prepared:
        if self._prepared is None or self._prepared.grown():
            self._prepared = prepare(self.spec, self.sources, progress)
        return self._prepared

    def _foresee(self, prepared: Prepared, progress: Progress, *, plain: bool = False) -> None:
        """Have the cuts proven and the plan's forecast made, where something is to be run."""
        asked = self._asked(prepared)
        missing = sum(not prepared.store.has(spec.digest) for spec in asked)
        if missing:
            progress.begin("checking that the model can be cut")
            check_cuts(prepared)
        if prepared.plan.forecast is None or prepared.plan.forecast.runs != missing:
            progress.begin("timing a few steps")
            prepared.plan = replace(prepared.plan, forecast=make_forecast(prepared, asked, plain=plain))

    def _asked(self, prepared: Prepared) -> list[RunSpec]:
        """The runs of this very call; the folder may hold a larger grid."""
        return expand(self.spec, prepared.identity)

    @contextmanager
    def _shown(self) -> Iterator[Progress]:
        progress = self._progress or suitable_progress()
        try:
            yield progress
        finally:
            progress.close()
