"""report.html: one file, no network, readable without script, built only from what lies in the sweep's folder."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from markupsafe import Markup
from matplotlib.figure import Figure

from frostline.report import formatting, sentences
from frostline.report.figures.curves import cost_curve, learning_curves, predictions_over_targets, validation_curve
from frostline.report.figures.drawing import save_figures, svg
from frostline.report.figures.fronts import pareto_fronts
from frostline.report.mistakes import confusion, mistakes
from frostline.report.pages.probes import probe_curve, probe_table
from frostline.report.pages.templates import render
from frostline.report.tables import curve as curvetables
from frostline.report.tables import rules
from frostline.report.tables import sweep as sweeptables
from frostline.report.tables.table import Table, save_tables
from frostline.statistics.curve import main_point
from frostline.statistics.intervals import failure_interval
from frostline.statistics.outcomes import FAILURES, done, judged
from frostline.sweep.forecast.record import recorded
from frostline.sweep.results.folder import Folder
from frostline.sweep.results.store import replace

Answer = Mapping[str, Any]


def write_page(out: Path) -> Path:
    """Write ``out``/report.html, ``out``/figures and ``out``/tables from answer and results in ``out``; gives the page's
    path.

    Whatever users wrote (labels, texts, names) is text on the page, never markup.
    """
    folder = Folder(out)
    answer = json.loads((out / "answer.json").read_bytes())
    results, runs = folder.store.results(), _judged(folder.rows(), answer)
    page, figures = out / "report.html", _figures(answer)
    sizes = [_size(size, n, answer, results) for n, size in enumerate(answer["sizes"])]
    tables, evidence = _tables(folder, answer, runs, sizes[0]["audits"]), _evidence(folder, answer)
    tables["predicted"] = sweeptables.predicted(recorded(out), results.values())
    search = answer["search"]
    probes = search and search["probes"]
    tables["search"] = sweeptables.search(search) if search else None
    tables["guesses"] = sweeptables.guesses(search) if search and search["guesses"] else None
    tables["probes"] = probe_table(probes) if probes else None
    if probes:
        figures["probe_curve"] = probe_curve(probes)
    svgs = {name: svg(figure, name) for name, figure in figures.items()}
    text = render(
        "report.html.j2",
        answer=answer,
        spec=folder.spec.model_dump(mode="json", exclude_none=True),
        identity=folder.identity,
        sizes=sizes,
        tables=tables,
        figures={name: Markup(text) for name, text in svgs.items()},
        headline=sentences.headline(answer["sentence"]),
        failed_runs=_failed_rate(done(runs)),
        several_rates=any(len(cell["learning_rates_tried"]) > 1 for size in answer["sizes"] for cell in size["cells"]),
        evidence=evidence,
        machines=sentences.machines([facts["provenance"] for facts in results.values()]),
        model=formatting.model_name(answer["model"]),
    )
    save_figures(out, figures, svgs)
    everything = [
        *tables.values(),
        evidence and evidence["confusion"],
        *(t for s in sizes for t in s["tables"].values()),
    ]
    save_tables(out, [table for table in everything if table])
    replace(page, text.encode())
    return page


def _judged(rows: Sequence[Mapping[str, Any]], answer: Answer) -> list[dict[str, Any]]:
    """Every run with its outcome, each train size judged for itself."""
    return [
        run
        for size in answer["sizes"]
        for run in judged(
            [row for row in rows if row["train_size"] == size["train_size"]], answer["chance"], size["clear_distance"]
        )
    ]


def _tables(
    folder: Folder, answer: Answer, runs: Sequence[Mapping[str, Any]], audits: Sequence[tuple[str, Any]]
) -> dict[str, Table | None]:
    """The tables that are of the whole sweep."""
    labels = folder.identity.labels
    return {
        "failure_rates": sweeptables.failure_rates(done(runs)),
        "failed_runs": sweeptables.failed_runs(runs),
        "missing_runs": sweeptables.missing_runs(runs),
        "splits": sweeptables.splits(answer["data"]),
        "classes": sweeptables.classes(answer["data"], labels) if labels else None,
        "audit": sweeptables.audit(audits),
    }


def _suffix(size: Mapping[str, Any], n: int) -> str:
    """What sets names of the n-th train size apart; the first is the one that the page is about."""
    return "" if n == 0 else f"_{size['train_size']}"


def _figures(answer: Answer) -> dict[str, Figure]:
    """Every figure of the page, by name; ``_narrow`` is what a phone shows."""
    figures = {}
    for n, size in enumerate(answer["sizes"]):
        suffix = _suffix(size, n)
        for narrow in ("", "_narrow"):
            figures[f"validation_curve{suffix}{narrow}"] = validation_curve(
                size, metric=answer["metric"], chance=answer["chance"], narrow=bool(narrow)
            )
            figures[f"pareto_fronts{suffix}{narrow}"] = pareto_fronts(
                size, metric=answer["metric"], narrow=bool(narrow)
            )
        figures[f"cost_curve{suffix}"] = cost_curve(size)
    if len(answer["sizes"]) > 1:
        figures["learning_curves"] = learning_curves(answer)
    return figures


def _size(size: Mapping[str, Any], n: int, answer: Answer, results: Mapping[str, Any]) -> dict[str, Any]:
    """One train size, with what the page says beside its numbers."""
    main = main_point(size)
    seeds = len({point["seed"] for cell in size["cells"] for point in cell["points"]})
    recommended, metric, suffix = size["recommended"], answer["metric"].replace("_", " "), _suffix(size, n)
    samples = [
        (cell["trainable"], results[cell["points"][0]["run"]]["audit"]) for cell in size["cells"] if cell["points"]
    ]
    return {
        **size,
        "seeds": seeds,
        "best": formatting.cell_of(size, recommended["trainable"]) if recommended else None,
        "full": formatting.cell_of(size, size["reference"]),
        "cannot_tell": sentences.cannot_tell(size, main, seeds, searched=answer["search"] is not None)
        if recommended
        else None,
        "test_sentences": sentences.tested(size, metric) if answer["tested"] and recommended else [],
        "rules": rules.others(size, main),
        "front": rules.front(size),
        "tables": {
            "scores": curvetables.scores(size, metric, tested=answer["tested"], suffix=suffix),
            "shares": curvetables.shares(size, metric, suffix=suffix),
            "costs": curvetables.costs(size, suffix=suffix),
            "failures": curvetables.failures(size, suffix=suffix),
            "points": curvetables.points(size, main, suffix=suffix),
        },
        "audits": samples,
        "tuned": _tuned(results[recommended["run"]]["audit"]["by_place"]) if recommended else None,
    }


def _tuned(by_place: Mapping[str, Mapping[str, int]]) -> dict[str, Any]:
    """What the page draws as tuned: whether the embeddings, and which layers."""
    places = [place for place, counts in by_place.items() if counts["trained"]]
    layers = [int(place.removeprefix("layer ")) for place in places if place.startswith("layer ")]
    return {"embeddings": "embeddings" in places, "layers": layers}


def _failed_rate(runs: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """How many of all finished runs failed, with Clopper and Pearson's interval; None where no run has finished."""
    if not runs:
        return None
    failed = sum(run["outcome"] in FAILURES for run in runs)
    low, high = failure_interval(failed, len(runs))
    return {"failed": failed, "runs": len(runs), "low": low, "high": high}


def _evidence(folder: Folder, answer: Answer) -> dict[str, Any] | None:
    """What the recommended run got wrong on validation; None where nothing is recommended."""
    recommended = answer["sizes"][0]["recommended"]
    examples = folder.split("validation")
    if recommended is None or examples is None:
        return None
    logits, labels = folder.predictions(recommended["run"]), folder.identity.labels
    scored = np.flatnonzero(~np.isnan(logits).any(1))
    examples, logits = examples.take(scored), logits[scored]
    found = {"mistakes": mistakes(examples, logits, labels), "rows": len(examples), "confusion": None, "scatter": None}
    if labels:
        found["confusion"] = sweeptables.confusion_matrix(confusion(examples.targets, logits.argmax(1), labels))
        found["wrong"] = int((examples.targets != logits.argmax(1)).sum())
    else:
        found["scatter"] = Markup(svg(predictions_over_targets(examples.targets, logits[:, 0])))
    return found
