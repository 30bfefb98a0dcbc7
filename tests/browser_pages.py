"""Writes report pages for tests in a browser: failures, hostile names, many classes, a study, many tasks."""

from collections.abc import Callable, Mapping
from pathlib import Path

from frostline.report.answer.analysis import analyze
from frostline.report.pages.analysis import write_analysis
from frostline.report.pages.sweep import write_page
from frostline.statistics.analysis_settings import AnalysisSettings
from frostline.studies.comparison import compare, gap_summary
from frostline.studies.protocol import load_protocol
from synthetic_results import RISING, noisy, synthetic_group
from synthetic_sweep import HOSTILE, make_folder


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
    write_page(out)


def classes(out: Path) -> None:
    """A sweep with many classes and hostile names."""
    labels = [*HOSTILE, *(f"class {n}" for n in range(30))]
    write_page(make_folder(out, labels=labels, tune=(0, 1, "full"), seeds=2, texts=HOSTILE))


def regression(out: Path) -> None:
    """A regression with one seed."""
    write_page(make_folder(out, labels=(), tune=(0, 2, 3, "full"), seeds=1))


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
    for run in group.runs:
        run["train_last"] = 0.95  # type: ignore[index]
    analysis = analyze([group], AnalysisSettings())
    rows = compare(protocol, analysis)
    facts = {name: getattr(protocol, name) for name in ("question", "source", "contradictions", "differences")}
    publication = {**facts, "summary": gap_summary(rows)}
    write_analysis(out, analysis, title=protocol.title, publication=publication, rows=rows)


def many_tasks(out: Path) -> None:
    """Two models on four tasks, with hostile names."""
    tasks = ("CoLA", "SST-2", "<b>bold</b>", 'a "task" & more')
    groups = [
        synthetic_group(noisy(RISING, 0.02, seed), model=model, task=task)
        for model in ("one", "a-model-with-a-very-long-name-that-does-not-end")
        for seed, task in enumerate(tasks)
    ]
    write_analysis(out, analyze(groups, AnalysisSettings(by_mean=True, leave_out=("CoLA",))), title="Many <i>tasks</i>")


MAKERS: Mapping[str, Callable[[Path], None]] = {
    "with_failures": with_failures,
    "classes": classes,
    "regression": regression,
    "study": study,
    "many_tasks": many_tasks,
}
