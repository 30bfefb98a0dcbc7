"""The progress display of a sweep: what is running, the time left, and a line for each result."""

import html
import logging
import os
import sys
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from time import monotonic

from rich.console import Console
from rich.file_proxy import FileProxy
from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar

from frostline import FrostlineError
from frostline.data.wording import HarmlessStream, harmless, spoken, unchecked
from frostline.training.result import Failure, RunRecord

LOG = logging.getLogger("frostline")
LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")
ENOUGH = 0.05  # of all work is done before its speed predicts the rest: the first steps are slow


class Progress:
    """Tracks progress and shows nothing. Subclasses show it.

    Work is measured as predicted cost, in any unit, so that the time left does not depend on the order of the runs.
    """

    def __init__(self) -> None:
        self.total = 0.0  # work of all runs
        self.done = 0.0  # work of finished runs
        self.under_way = 0.0  # work that is done of the current run
        self.predicted: float | None = None  # predicted wall-clock seconds of all runs; None if unknown
        self.started = monotonic()
        self.activity = ""
        self.runs = self.runs_done = 0
        self.lengths: Collection[float] = ()  # the training lengths of all runs
        self.deadline: float | None = None  # when a search will have spent its budget; None: unknown, or no search

    def note(self, sentence: str) -> None:
        """Show a sentence that the user should read. The logger ``frostline`` gets it, too, at the level INFO."""
        said = spoken(sentence)
        LOG.info(said)
        if is_wanted():
            self.say(harmless(said, keep=""))

    def say(self, sentence: str) -> None:
        """Show a sentence that is ready to be shown."""

    def show(self) -> None:
        """Show the current state. It is called after every change."""

    def close(self) -> None:
        """End the display."""

    def start(self, runs: int, work: float, seconds: float | None = None) -> None:
        """Start ``runs`` more runs with this much work in total, which take so many ``seconds`` if that is predicted."""
        self.runs, self.total, self.started, self.predicted = self.runs_done + runs, work, monotonic(), seconds
        self.done = 0.0
        self.show()

    def begin(self, what: str) -> None:
        """A run, or another activity, begins. The logger gets it at the level DEBUG."""
        LOG.debug(what)
        self.activity, self.under_way = what, 0.0
        self.show()

    def set_done(self, work: float) -> None:
        """Set how much work of the current run is done so far."""
        self.under_way = work
        self.show()

    def finish(self, work: float) -> None:
        """The current run is finished; it was this much work."""
        self.done, self.under_way = self.done + work, 0.0
        self.show()

    def limit(self, seconds: float | None) -> None:
        """All that follows takes at most so many seconds; None: that is unknown."""
        self.deadline = None if seconds is None else monotonic() + seconds

    def done_before(self, runs: int, requested: int | None = None) -> None:
        """Say how many runs an earlier call has trained, of those that are ``requested`` if their number is known."""
        if runs:
            of = "" if requested is None else f" of {requested:,}"
            self.note(f"{runs:,}{of} {'run was' if (requested or runs) == 1 else 'runs were'} done before.")

    def result(self, ended: RunRecord | Failure) -> None:
        """A run has ended."""
        self.runs_done += 1
        self.note(f"{self.runs_done}/{self.runs}  {describe(ended, self.lengths)}")

    @property
    def seconds_left(self) -> float | None:
        """The time left, from the speed so far. With little work done: the predicted time, or None if there is none."""
        done = self.done + self.under_way
        if not done or done < ENOUGH * self.total:
            return None if self.predicted is None else self.predicted * (1 - done / self.total if self.total else 1)
        return (monotonic() - self.started) * (self.total - done) / done

    @property
    def eta(self) -> str:
        """The time left, and that of the whole search if this is a step of one; empty after the last run."""
        if self.runs_done >= self.runs:
            return ""
        whole = "" if self.deadline is None else f", search at most {_rounded(self.deadline - monotonic())}"
        return whole.removeprefix(", ") if self.seconds_left is None else f"ETA {_rounded(self.seconds_left)}{whole}"

    @property
    def state(self) -> str:
        """What is under way, how many runs have ended, and the time left."""
        if not self.runs:
            return self.activity
        return " · ".join(filter(None, (self.activity, f"{self.runs_done} of {self.runs} runs", self.eta)))


def describe(ended: RunRecord | Failure, lengths: Collection[float] = ()) -> str:
    """One line for a run that has ended, with its training length if it is one of several ``lengths``."""
    spec = ended.spec
    width = 22 if len({*lengths}) > 1 else 9
    rate = "" if spec.learning_rate is None else f"  lr {spec.learning_rate:g}"
    run = f"{spec.named_among(lengths):<{width}} seed {spec.seed}  {spec.train_size} examples{rate}"
    if isinstance(ended, Failure):
        return f"{run}  failed: {ended.reason}"
    score = "" if ended.validation_best is None else f"  {ended.metric} {ended.validation_best:.4f}"
    outcome = "" if ended.outcome == "ok" else f"  {ended.outcome}: {ended.reason}"
    return f"{run}{score}  {ended.cost.train_seconds:.1f} s{outcome}"


class LineProgress(Progress):
    """Prints one line per result, for logs. If nothing was printed for a while, it says what is under way."""

    BEGIN_AFTER = 10.0  # seconds without a line, after which the begin of an activity is printed
    AGAIN_AFTER = 60.0  # the same for an activity that is under way

    def __init__(self) -> None:
        super().__init__()
        self.last = monotonic()

    def say(self, sentence: str) -> None:
        if not (LOG.hasHandlers() and LOG.isEnabledFor(logging.INFO)):  # else the program shows what is logged
            with suppress(OSError):  # nobody reads the log any more; training continues
                print(sentence, file=sys.stderr, flush=True)
        self.last = monotonic()

    def begin(self, what: str) -> None:
        super().begin(what)
        self._say_state(0.0 if LOG.level == logging.DEBUG else self.BEGIN_AFTER)

    def show(self) -> None:
        self._say_state(self.AGAIN_AFTER)

    def _say_state(self, after: float) -> None:
        if self.activity and is_wanted() and monotonic() - self.last >= after:
            self.say(harmless(spoken(self.state), keep=""))


def _rounded(seconds: float) -> str:
    """A time left in a convenient unit."""
    if seconds < 90:
        return f"{max(0, round(seconds))} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


class TerminalProgress(Progress):
    """A live progress bar below the results."""

    def __init__(self, console: Console | None = None) -> None:
        super().__init__()
        self.bar = Bar(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=30),
            TextColumn("{task.fields[runs]}"),
            TimeElapsedColumn(),
            TextColumn("{task.fields[eta]}", style="progress.remaining"),
            console=console or Console(file=unchecked(sys.stderr)),
            transient=True,
        )
        self.task = self.bar.add_task("", total=None, runs="", eta=self.eta)
        self.bar.start()
        for name in ("stdout", "stderr"):  # rich obeys what others print meanwhile
            if isinstance(getattr(sys, name), FileProxy):
                setattr(sys, name, HarmlessStream(getattr(sys, name)))

    def say(self, sentence: str) -> None:
        self.bar.console.print(sentence, markup=False, highlight=False, emoji=False)

    def show(self) -> None:
        runs = f"{self.runs_done} of {self.runs} runs" if self.runs else ""
        self.bar.update(
            self.task,
            description=harmless(self.activity, keep=""),
            total=self.total or None,
            completed=self.done + self.under_way,
            runs=runs,
            eta=self.eta,
        )

    def close(self) -> None:
        self.bar.stop()


class NotebookProgress(Progress):
    """One cell output that is updated in place. It needs no widgets."""

    def __init__(self) -> None:
        super().__init__()
        from IPython.display import HTML, display

        self.lines: list[str] = []
        self.last, self.html = 0.0, HTML
        self.handle = display(HTML(self._page()), display_id=True)

    def say(self, sentence: str) -> None:
        self.lines.append(sentence)
        self._update()

    def show(self) -> None:
        if monotonic() - self.last > 0.5:
            self._update()

    def close(self) -> None:
        self.handle.update(self.html(self._lines()))

    def _update(self) -> None:
        self.last = monotonic()
        self.handle.update(self.html(self._page()))

    def _page(self) -> str:
        share = 100 * (self.done + self.under_way) / self.total if self.total else 0
        bar = f"<progress max='100' value='{share:.1f}' style='width:20em'></progress>"
        return f"{bar} {html.escape(harmless(self.state))}{self._lines()}"

    def _lines(self) -> str:
        """The last lines, which stay when the bar is gone."""
        lines = "\n".join(self.lines[-12:])
        return f"<pre style='font-family:monospace'>{html.escape(lines)}</pre>" if lines else ""


def is_wanted() -> bool:
    """Whether notes are shown. ``FROSTLINE_LOG=warning``, or this level of the logger, hides them."""
    return (LOG.level or logging.INFO) <= logging.INFO


def suitable_progress() -> Progress:
    """The display for a notebook, a terminal or a log, depending on where this runs.

    Raises:
        FrostlineError: The environment variable ``FROSTLINE_LOG`` is no level.
    """
    if level := os.environ.get("FROSTLINE_LOG"):
        if level.upper() not in LEVELS:
            raise FrostlineError(f"FROSTLINE_LOG cannot be {level!r}: give {', '.join(LEVELS).lower()}.")
        LOG.setLevel(level.upper())
    if "IPython" in sys.modules:
        from IPython import get_ipython

        if hasattr(get_ipython(), "kernel"):  # also that of Colab, whose shell has another name
            return NotebookProgress()
    return TerminalProgress() if sys.stderr.isatty() else LineProgress()


@contextmanager
def displayed(progress: Progress | None) -> Iterator[Progress]:
    """The given display, or the suitable one. It is closed at the end."""
    shown = progress or suitable_progress()
    try:
        yield shown
    finally:
        shown.close()
