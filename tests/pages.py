"""Pages and figures of reports: their text, a browser that opens them, and figures that are not drawn."""

import csv
import io
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from frostline.report.answer.analysis import analyze
from frostline.report.pages.analysis_page import write_analysis
from frostline.report.rebuild import write_report
from frostline.statistics.analysis_settings import AnalysisSettings
from frostline.statistics.answer import Answer
from frostline.studies.comparison import publication_of
from frostline.studies.protocol import load_protocol
from synthetic_results import RISING, noisy, synthetic_group
from synthetic_sweep import HOSTILE, make_folder

VOID = frozenset({"meta", "link", "br", "img", "hr", "input"})


class Page(HTMLParser):
    """A parsed page: the elements that are not closed, the tags, the attributes, and the visible text."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.text = ""
        self.feed(path.read_text(encoding="utf-8"))
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_startendtag(tag, attrs)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not {"style", "script"} & set(self.open):
            self.text += data

    @property
    def words(self) -> str:
        """The visible text with single spaces."""
        return " ".join(self.text.split())


def page_of(out: Path) -> Page:
    """Write and parse the page of a sweep's folder. Asserts that it is valid and needs no network access."""
    write_report(out)
    page = Page(out / "report.html")
    assert not page.open, "every element is closed"
    ids = [value for name, value in page.attributes if name == "id"]
    assert len(ids) == len(set(ids)), "figures share no ids"
    for name, value in page.attributes:
        assert name not in ("src", "srcset", "action") and not name.startswith("on")
        if name in ("href", "xlink:href"):
            ours = value == "data:," or value.startswith("data:application/octet-stream;")
            assert ours or (value.startswith("#") and value[1:] in ids)
    style = (out / "report.html").read_text(encoding="utf-8")
    assert "url(http" not in style and "@import" not in style
    return page


def answer_of(out: Path) -> Answer:
    """The content of answer.json in a sweep's folder."""
    return Answer.read(out / "answer.json")


DRAW = Figure.savefig
SVG = '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 10 10"><rect id="blank" width="10" height="10"/></svg>'


def save_blank(figure: Figure, target: Any, *, format: str | None = None, **options: Any) -> None:
    """Save a blank figure, in place of ``Figure.savefig``."""
    if isinstance(target, str | Path):
        Path(target).write_text(SVG)
    else:
        target.write(SVG if format == "svg" else SVG.encode())


def draw_nothing() -> None:
    """Let matplotlib save blank figures from now on."""
    Figure.savefig = save_blank  # type: ignore[method-assign]


@contextmanager
def drawn() -> Iterator[None]:
    """Let matplotlib save real figures inside the context."""
    before, Figure.savefig = Figure.savefig, DRAW  # type: ignore[method-assign]
    try:
        yield
    finally:
        Figure.savefig = before  # type: ignore[method-assign]


def with_failures(out: Path) -> None:
    """A sweep with several train sizes and learning rates, failed runs and named parts."""
    make_folder(
        out,
        tune=(0, 1, 2, 4, 6, "full", "named"),
        tune_modules=("layer.3", "layer.5"),
        seeds=3,
        sizes=(100, 1000),
        learning_rates=(5e-5, 1e-4),
        diverged=[("full", 1)],
        degenerate=[(6, 2)],
        missing=[(2, 0)],
        errors=[(1, 1)],
        notes=["These texts are generated."],
    )
    write_report(out)


def classes(out: Path) -> None:
    """A sweep with many classes and hostile names."""
    labels = [*HOSTILE, *(f"class {n}" for n in range(30))]
    write_report(make_folder(out, labels=labels, tune=(0, 1, "full"), seeds=2, texts=HOSTILE))


def regression(out: Path) -> None:
    """A regression with one seed."""
    write_report(make_folder(out, labels=(), tune=(0, 2, 3, "full"), seeds=1))


def study(out: Path) -> None:
    """A study with two train sizes, failed runs, training scores and published numbers."""

    def quality(k: int | str, seed: int, size: int | None) -> float | None:
        if (k, seed) == (2, 0):
            return None
        return 0.5 if (k, seed) == (1, 1) else noisy({**RISING, 6: 0.9}, 0.02)(k, seed, size)

    protocol = load_protocol("lowdata2021")
    group = synthetic_group(
        quality, sizes=(50, 100), layers=6, ks=(0, 1, 2, 4, 6, "full"), model="a-model", task="SST-2"
    )
    group = replace(group, runs=[replace(run, train_last=0.95) for run in group.runs])
    analysis = analyze([group], AnalysisSettings())
    write_analysis(out, analysis, [group], protocol.title, publication_of(protocol, analysis))


def many_tasks(out: Path) -> None:
    """Two models on four tasks, with hostile names."""
    tasks = ("CoLA", "SST-2", "<b>bold</b>", 'a "task" & more')
    groups = [
        synthetic_group(noisy(RISING, 0.02, seed), model=model, task=task)
        for model in ("one", "a-model-with-a-very-long-name-that-does-not-end")
        for seed, task in enumerate(tasks)
    ]
    write_analysis(
        out, analyze(groups, AnalysisSettings(by_mean=True, leave_out=("CoLA",))), groups, "Many <i>tasks</i>"
    )


MAKERS: Mapping[str, Callable[[Path], None]] = {
    "with_failures": with_failures,
    "classes": classes,
    "regression": regression,
    "study": study,
    "many_tasks": many_tasks,
}


def raw(folder: Path, name: str) -> list[dict[str, str]]:
    """The rows of a table's CSV."""
    return list(csv.DictReader(io.StringIO((folder / "tables" / f"{name}.csv").read_text())))
