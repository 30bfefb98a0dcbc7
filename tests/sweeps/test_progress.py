"""The progress display: result lines, the time left, and the displays for logs, terminals and notebooks."""

import io
import logging
import os
from collections.abc import Callable
from contextlib import redirect_stderr
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient
from rich.console import Console

import frostline.sweeps.progress as progress_module
from frostline import FrostlineError
from frostline.sweeps.progress import LOG, LineProgress, Progress, TerminalProgress, describe, suitable_progress
from frostline.training.result import RunRecord
from hostile import nobody_reads
from records import failure, record, spec_of_run


def ended(recipe: int | str = 2, **changes: Any) -> RunRecord:
    spec = spec_of_run(recipe=recipe, seed=1, train_size=500, learning_rate=3e-4)
    return record(spec, **{"validation_best": 0.87654, "cost": {"train_seconds": 2.34}, **changes})


def test_a_result_is_described_in_one_line() -> None:
    assert describe(ended()) == "last 2    seed 1  500 examples  lr 0.0003  accuracy 0.8765  2.3 s"
    bad = ended("full", outcome="diverged", reason="the loss is not finite", validation_best=None)
    assert describe(bad) == "full      seed 1  500 examples  lr 0.0003  2.3 s  diverged: the loss is not finite"
    assert describe(failure(bad.spec, "RuntimeError: no memory")).endswith("lr 0.0003  failed: RuntimeError: no memory")
    longer = record(ended().spec.model_copy(update={"num_train_epochs": 10.0}), validation_best=0.9)
    assert describe(longer, (1.0, 10.0)).startswith("last 2 for 10 epochs   seed 1")
    assert describe(longer, (10.0,)).startswith("last 2    seed 1")


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The clock of this process, which a test can set."""
    now = [100.0]
    monkeypatch.setattr(progress_module, "monotonic", lambda: now[0])
    return now


def test_the_time_left_of_a_search_is_shown_beside_that_of_its_step(now: list[float]) -> None:
    progress = Progress()
    progress.start(2, 10.0, 20.0)
    progress.limit(240.0)
    now[0] += 60.0
    assert progress.state == "0 of 2 runs · ETA 20 s, search at most 3 min"
    progress.predicted = None
    assert progress.state == "0 of 2 runs · search at most 3 min"
    progress.limit(None)
    assert progress.state == "0 of 2 runs"
    progress.predicted = 20.0
    assert progress.eta == "ETA 20 s"


def test_the_time_left_follows_from_the_speed_so_far(now: list[float]) -> None:
    progress = Progress()
    now[0] = 150.0  # the model was loaded
    progress.start(3, 60.0)
    assert progress.seconds_left is None
    progress.begin("last 1, seed 0")
    now[0] = 159.0
    progress.set_done(0.05 * 60.0 - 0.01)  # too little to tell, unless there is a forecast
    assert progress.seconds_left is None
    progress.predicted = 30.0
    assert progress.seconds_left == pytest.approx(28.505)
    progress.predicted = None
    now[0] = 160.0
    progress.set_done(10.0)
    assert progress.seconds_left == pytest.approx(50)
    now[0] = 170.0
    progress.finish(20.0)
    assert progress.seconds_left == pytest.approx(40)
    progress.begin("last 2, seed 0")
    progress.set_done(20.0)
    assert progress.seconds_left == pytest.approx(10)
    progress.finish(40.0)
    assert progress.seconds_left == 0


def test_logs_say_what_is_under_way_after_a_silence(capsys: pytest.CaptureFixture[str], now: list[float]) -> None:
    def printed_after(seconds: float, change: Callable[..., None], *arguments: Any) -> str:
        now[0] += seconds
        change(*arguments)
        return capsys.readouterr().err

    progress = LineProgress()
    assert printed_after(9, progress.begin, "loading the model") == ""
    assert printed_after(1, progress.begin, "timing a few steps") == "timing a few steps\n"
    assert printed_after(9, progress.start, 4, 100.0) == ""
    assert printed_after(2, progress.begin, "hidden states") == "hidden states · 0 of 4 runs\n"
    assert printed_after(59, progress.set_done, 50.0) == ""
    assert printed_after(1, progress.set_done, 75.0) == "hidden states · 0 of 4 runs · ETA 21 s\n"
    assert printed_after(9, progress.note, "A sentence.") == "A sentence.\n"
    assert printed_after(9, progress.begin, "last 1, seed 0") == ""


def test_training_continues_when_nobody_reads_the_log_any_more() -> None:
    with nobody_reads() as log, redirect_stderr(log):
        progress = LineProgress()
        progress.start(1, 10.0)
        progress.result(ended())
    assert progress.runs_done == 1


def test_a_terminal_shows_a_live_bar() -> None:
    stream = io.StringIO()
    progress = TerminalProgress(Console(file=stream, force_terminal=True, width=120, color_system=None))
    progress.note("text is column [bold]'text'[/bold].")
    progress.begin("hidden [red]states")
    progress.start(4, 100.0)
    progress.set_done(25.0)
    progress.bar.refresh()
    progress.result(ended())
    progress.finish(25.0)
    progress.bar.refresh()
    assert progress.bar.tasks[0].percentage == 25
    progress.close()
    shown = stream.getvalue()
    assert "text is column [bold]'text'[/bold]." in shown and "hidden [red]states" in shown  # it is not markup
    assert "0 of 4 runs" in shown and "1 of 4 runs" in shown and "ETA" in shown
    assert "1/4  last 2    seed 1" in shown
    assert progress.bar.finished is False and not progress.bar.live.is_started


def test_the_display_depends_on_where_it_runs() -> None:
    assert type(suitable_progress()) is LineProgress
    _, terminal = os.openpty()
    with open(terminal, "w") as stream, redirect_stderr(stream):
        made = suitable_progress()
        made.close()
    assert type(made) is TerminalProgress


def test_notes_go_to_the_logger_whose_level_hides_them(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FROSTLINE_LOG", "warning")
    suitable_progress().note("a run has ended")
    assert capsys.readouterr().err == ""
    monkeypatch.setenv("FROSTLINE_LOG", "debug")
    shown = suitable_progress()
    shown.begin("loading")
    shown.note("a run has ended")  # where the program shows the log, it is not shown twice
    assert caplog.messages == ["loading", "a run has ended"] and capsys.readouterr().err == ""
    monkeypatch.setenv("FROSTLINE_LOG", "loud")
    LOG.setLevel(logging.NOTSET)
    with pytest.raises(FrostlineError, match="give debug, info, warning, error"):
        suitable_progress()


def test_a_notebook_shows_one_output_that_is_updated_in_place(
    tiny_bert: Path, tiny_table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    code = f"""
import sys
sys.path.append({str(Path(__file__).parents[1])!r})
from pages import draw_nothing
import frostline
draw_nothing()
found = frostline.sweep(
    model={str(tiny_bert)!r}, train={str(tiny_table)!r}, tune="0", seeds=1, num_train_epochs=1, train_size=20,
    out={str(tmp_path / "o")!r}, task="<b>films</b>", save_model=False,
)
found
"""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(code)])
    NotebookClient(notebook, timeout=120, kernel_name="python3").execute()
    pages = [one["data"]["text/html"] for one in notebook.cells[0].outputs if one.output_type == "display_data"]
    assert len(pages) == 1
    assert "1/1  head only seed 0" in pages[0] and "<progress" not in pages[0]  # the bar is gone, the lines stay
    (result,) = [one for one in notebook.cells[0].outputs if one.output_type == "execute_result"]
    page = result["data"]["text/html"]
    assert "There is no answer" in page and "<svg" in page and "<table" not in page  # which would be empty
    assert "text is column &#x27;text&#x27;" in pages[0]
    streams = "".join(one.text for one in notebook.cells[0].outputs if one.output_type == "stream")
    assert "films" not in streams and "seed" not in streams and streams.count("\n") <= 2  # tqdm misses its widgets
    assert (tmp_path / "o" / "report.html").exists()
