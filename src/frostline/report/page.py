"""report.html: one file, no network, no script, built only from what lies in the sweep's folder."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from matplotlib.figure import Figure

from frostline.report import readable, sentences
from frostline.report.drawing import save_figures, svg
from frostline.report.figures import cost_curve, learning_curves, predictions_over_targets, validation_curve
from frostline.report.mistakes import confusion, mistakes
from frostline.statistics import failure_interval
from frostline.sweep.folder import Folder
from frostline.sweep.store import replace

Answer = Mapping[str, Any]


def write_page(out: Path) -> Path:
    """Write ``out``/report.html and ``out``/figures from answer and results in ``out``; gives the page's path.

    Whatever users wrote (labels, texts, names) is text on the page, never markup.
    """
    folder = Folder(out)
    answer = json.loads((out / "answer.json").read_bytes())
    results = folder.store.results()
    page, figures = out / "report.html", _figures(answer)
    template = _environment().get_template("report.html.j2")
    text = template.render(
        answer=answer,
        spec=folder.spec.model_dump(mode="json", exclude_none=True),
        identity=folder.identity,
        sizes=[_size(size, answer, results) for size in answer["sizes"]],
        figures={name: Markup(svg(figure, name)) for name, figure in figures.items()},
        headline=_headline(answer["sentence"]),
        failures=_failures(results),
        missing=[
            {**run, "train_size": size["train_size"], "state": run["status"]}
            for size in answer["sizes"]
            for run in size["missing"]
        ],
        failed_runs=_failed_rate(results),
        evidence=_evidence(folder, answer),
        machines=sentences.machines([facts["provenance"] for facts in results.values()]),
        model=readable.model_name(answer["model"]),
    )
    save_figures(out, {name: figure for name, figure in figures.items() if not name.endswith("_narrow")})
    replace(page, text.encode())
    return page


def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("frostline.report", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    names = ("score", "percent", "seconds", "size", "parameters", "times", "rate", "trainable", "target")
    environment.filters |= {name: getattr(readable, name) for name in names}
    environment.globals |= {
        "score_interval": readable.score_interval,
        "percent_interval": readable.percent_interval,
        "point_sentence": sentences.point,
        "places": sentences.trained_places,
    }
    return environment


def _headline(sentence: str) -> tuple[str, str]:
    """The answer itself, and what is said beside it."""
    head, stop, rest = readable.unbroken(sentence).partition(". ")
    return (f"{head}.", rest) if stop else (head, "")


def _figures(answer: Answer) -> dict[str, Figure]:
    """Every figure of the page, by name; ``_narrow`` is what a phone shows."""
    figures = {}
    for n, size in enumerate(answer["sizes"]):
        suffix = "" if n == 0 else f"_{size['train_size']}"
        for narrow in ("", "_narrow"):
            figures[f"validation_curve{suffix}{narrow}"] = validation_curve(
                size, metric=answer["metric"], chance=answer["chance"], narrow=bool(narrow)
            )
        figures[f"cost_curve{suffix}"] = cost_curve(size)
    if len(answer["sizes"]) > 1:
        figures["learning_curves"] = learning_curves(answer)
    return figures


def _size(size: Mapping[str, Any], answer: Answer, results: Mapping[str, Any]) -> dict[str, Any]:
    """One train size, with what the page says beside its numbers."""
    main = next(p for p in size["operating_points"] if p["corrected"] and p["target"] == answer["target"])
    seeds = len({point["seed"] for cell in size["cells"] for point in cell["points"]})
    recommended = size["recommended"]
    samples = [
        (cell["trainable"], results[cell["points"][0]["run"]]["audit"]) for cell in size["cells"] if cell["points"]
    ]
    return {
        **size,
        "seeds": seeds,
        "best": readable.cell_of(size, recommended["trainable"]) if recommended else None,
        "full": readable.cell_of(size, size["reference"]),
        "cannot_tell": sentences.cannot_tell(size, main, seeds),
        "test_sentences": sentences.tested(size, answer["metric"].replace("_", " "))
        if answer["tested"] and recommended
        else [],
        "audits": samples,
        "tuned": _tuned(results[recommended["run"]]["audit"]["by_place"]) if recommended else None,
    }


def _tuned(by_place: Mapping[str, Mapping[str, int]]) -> dict[str, Any]:
    """What the page draws as tuned: whether the embeddings, and which layers."""
    places = [place for place, counts in by_place.items() if counts["trained"]]
    layers = [int(place.removeprefix("layer ")) for place in places if place.startswith("layer ")]
    return {"embeddings": "embeddings" in places, "layers": layers}


def _failures(results: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Every run that diverged or is degenerate, of every learning rate and size."""
    return sorted(
        (
            {
                "train_size": facts["spec"]["train_size"],
                "trainable": f"last {tune}" if isinstance(tune := facts["spec"]["tune"], int) else tune,
                "seed": facts["spec"]["seed"],
                "learning_rate": facts["spec"]["learning_rate"],
                "state": facts["outcome"],
                "reason": facts["reason"],
            }
            for facts in results.values()
            if facts["outcome"] != "ok"
        ),
        key=lambda run: (-run["train_size"], run["trainable"], run["learning_rate"], run["seed"]),
    )


def _failed_rate(results: Mapping[str, Any]) -> dict[str, Any] | None:
    """How many of all finished runs failed, with Clopper and Pearson's interval; None where no run has finished."""
    if not results:
        return None
    failed = sum(facts["outcome"] != "ok" for facts in results.values())
    low, high = failure_interval(failed, len(results))
    return {"failed": failed, "runs": len(results), "low": low, "high": high}


def _evidence(folder: Folder, answer: Answer) -> dict[str, Any] | None:
    """What the recommended run got wrong on validation; None where nothing is recommended."""
    recommended = answer["sizes"][0]["recommended"]
    examples = folder.split("validation")
    if recommended is None or examples is None:
        return None
    logits, labels = folder.store.predictions(recommended["run"])["validation_best"], folder.identity.labels
    found = {"mistakes": mistakes(examples, logits, labels), "rows": len(examples), "confusion": None, "scatter": None}
    if labels:
        found["confusion"] = confusion(examples.targets, logits.argmax(1), labels)
        found["wrong"] = int((examples.targets != logits.argmax(1)).sum())
    else:
        found["scatter"] = Markup(svg(predictions_over_targets(examples.targets, logits[:, 0])))
    return found
