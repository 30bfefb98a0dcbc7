"""Scores by class, calibration and threshold of the recommended model, in the answer and on the page."""

import csv
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import f1_score

import synthetic_answer
from frostline.data.kinds import CLASSIFICATION, MULTI_LABEL
from frostline.report.answer.recommended_classes import add_classes, output_sentences, threshold_sentences
from frostline.report.formatting import UNKNOWN
from frostline.report.rebuild import write_report
from frostline.report.tables.sweep_tables import class_scores_table
from frostline.statistics.answer import Answer, Threshold
from frostline.statistics.class_outputs import OUTPUTS, fit_temperature, scores_by_class, softmax
from frostline.statistics.metrics import f1_macro_of_sets as f1_macro
from frostline.statistics.predictions import Labelled
from frostline.statistics.run_result import PROBE
from frostline.sweeps.results.folder import Folder
from frostline.sweeps.settings import make_settings
from pages import Page, answer_of, drawn, page_of
from snapshots import assert_like
from synthetic_sweep import HOSTILE, make_folder
from tiny import change_settings


def with_settings(out: Path, settings: str) -> dict[str, Any]:
    """The answer of a folder with other settings for the saved model, as lines of TOML."""
    change_settings(out, "calibrate = false\n", settings)
    return write_report(out)


def answered(targets: np.ndarray, *logits: np.ndarray, **settings: Any) -> Answer:
    """What the answer says of runs of one k on these targets: label sets ``[n, C]``, or two classes ``[n]``."""
    task, metric = (MULTI_LABEL, "f1_macro") if targets.ndim > 1 else (CLASSIFICATION, "f1")
    answer = synthetic_answer.answer_of(synthetic_answer.make_runs(lambda *_: 0.9, ks=(0,), seeds=len(logits)))
    runs = [run.run for run in answer.sizes[0].cells[0].points]
    validation = Labelled(targets, task, ("price", "story", "plot")[: logits[0].shape[1]], metric)
    spec = make_settings({"model": "m", "train": "t", "tune": 0, "out": "o", **settings})
    answer.validation_rows = len(targets)
    add_classes(answer, validation, dict(zip(runs, logits, strict=True)).__getitem__, spec)
    return answer


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any], Page]:
    """A sweep with two classes that asks for a temperature and a threshold: its folder, answer and page."""
    out = make_folder(tmp_path_factory.mktemp("two") / "out", tune=(0, "full"), seeds=3)
    answer = with_settings(out, 'calibrate = true\nthreshold = "f1"\n')
    with drawn():
        return out, answer, page_of(out)


def best_run(out: Path, answer: dict[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    """Logits and targets of the saved run."""
    folder = Folder(out)
    examples = folder.split("validation")
    assert examples is not None
    return folder.predictions(answer.sizes[0].recommended.run), examples.targets


def test_classes_are_scored_over_the_runs_of_the_recommended_k(two: tuple[Path, dict[str, Any], Page]) -> None:
    out, answer, page = two
    size, folder = answer.sizes[0], Folder(out)
    _, targets = best_run(out, answer)
    cell = next(cell for cell in size.cells if cell.recipe == size.recommended.recipe)
    predicted = [folder.predictions(run.run).argmax(1) for run in cell.points]
    assert len(predicted) == 3
    scores = [f1_score(targets, one) for one in predicted]
    positive = answer.classes[1]
    assert positive.label == "positive" and positive.examples == (targets == 1).sum()
    assert positive.f1.estimate == pytest.approx(f1_score(np.tile(targets, 3), np.concatenate(predicted)))
    assert (positive.f1.low, positive.f1.high) == pytest.approx((min(scores), max(scores)))
    assert f"{min(scores):.3f} to {max(scores):.3f}" in page.words and "its 3 runs together" in page.words
    with (out / "tables" / "class_scores.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["class"] for row in rows] == ["negative", "positive"]
    assert float(rows[1]["f1"]) == positive.f1.estimate and (out / "tables" / "class_scores.tex").exists()


def test_calibration_is_that_of_the_saved_run(two: tuple[Path, dict[str, Any], Page]) -> None:
    out, answer, page = two
    logits, targets = best_run(out, answer)
    found = answer.calibration
    assert found.temperature == fit_temperature(logits, targets) and found.examples == len(targets)
    assert found.saved and found.before.error != found.after.error
    assert "is saved as calibration_temperature in config.json" in page.words
    assert f"log loss changes from {found.before.log_loss:.3f} to {found.after.log_loss:.3f}" in page.words
    assert (out / "figures" / "reliability.svg").exists()


def test_the_threshold_is_compared_with_one_half_on_examples_it_was_not_chosen_on(
    two: tuple[Path, dict[str, Any], Page],
) -> None:
    out, answer, page = two
    logits, targets = best_run(out, answer)
    found = answer.threshold
    assert (found.rule, found.metric, found.label) == ("f1", "f1", "positive")
    assert found.at_half["f1"] == pytest.approx(f1_score(targets, logits.argmax(1)))
    positive = softmax(logits / answer.calibration.temperature)[:, 1]
    chosen = f1_score(targets, positive >= found.threshold)
    assert chosen >= max(f1_score(targets, positive >= other) for other in np.linspace(0.05, 0.95, 91))
    assert found.cross_fitted["f1"] < chosen
    assert "It maximizes the F1 on validation." in page.words and "The threshold" in page.words


def test_a_given_threshold_and_a_recall(tmp_path: Path) -> None:
    out = make_folder(tmp_path / "out", tune=(0, "full"), seeds=2)
    given = with_settings(out, "calibrate = false\nthreshold = 0.9\n")
    logits, targets = best_run(out, given)
    at = softmax(logits)[:, 1] >= 0.9
    assert given.threshold.threshold == 0.9 and given.threshold.metric is None
    assert given.threshold.cross_fitted["recall"] == pytest.approx(at[targets == 1].mean())
    assert "This threshold was given." in page_of(out).words
    change_settings(out, "threshold = 0.9\n", 'threshold = "recall=0.95"\n')
    found = write_report(out).threshold
    assert (softmax(logits)[targets == 1, 1] >= found.threshold).mean() >= 0.95
    assert "a recall of at least 0.95 on validation" in page_of(out).words


@pytest.mark.parametrize("calibrate", [False, True])
def test_thresholds_of_labels_are_scored_on_examples_they_were_not_chosen_on(calibrate: bool) -> None:
    draw = np.random.default_rng(0)
    targets, logits = draw.random((40, 3)) < 0.5, draw.normal(size=(40, 3))
    found = answered(targets, logits, threshold="best", calibrate=calibrate)
    temperature = found.calibration.temperature if calibrate else 1.0
    predicted = OUTPUTS[MULTI_LABEL](logits / temperature) >= list(found.threshold.by_label.values())
    assert found.threshold.cross_fitted["f1_macro"] < f1_macro(targets, predicted) - 0.01


def test_a_label_that_no_validation_example_has_keeps_one_half() -> None:
    draw = np.random.default_rng(0)
    targets, logits = draw.random((40, 3)) < [0.5, 0.5, 0.0], draw.normal(size=(40, 3)) - [0.0, 0.0, 9.0]
    found = answered(targets, logits, threshold="recall=0.9").threshold
    assert found.not_chosen == ["plot"] and found.by_label["plot"] == 0.5 > found.by_label["story"]
    second = answered(np.zeros(40, np.int64), logits[:, [0, 2]], threshold="recall=0.9").threshold
    assert second.not_chosen == ["story"] and second.threshold == 0.5


def test_a_label_that_only_the_held_out_fold_has_is_predicted_from_one_half() -> None:
    targets = np.column_stack([np.arange(20) % 2 == 0, np.arange(20) == 3])
    found = answered(targets, np.where(targets, 3.0, -2.0), threshold="recall=0.9").threshold
    assert found.not_chosen == [] and found.cross_fitted["subset_accuracy"] == 1


@pytest.mark.parametrize("sets", [False, True])
@pytest.mark.parametrize("held_out", [[1], [1, 2], [2, 2, 0, 1]])
def test_with_folds_all_rows_count_that_a_run_is_scored_on(sets: bool, held_out: list[int]) -> None:
    """Each run is scored on its own fold of three only."""
    draw = np.random.default_rng(0)
    targets = draw.random((80, 3)) < 0.5 if sets else draw.integers(0, 2, 80)
    logits, fold = draw.normal(size=(80, 3 if sets else 2)), np.arange(80) % 3
    runs, scored = [np.where((fold == one)[:, None], logits, np.nan) for one in held_out], np.isin(fold, held_out)
    settings: dict[str, Any] = {"threshold": "best", "calibrate": True}
    found, alone = answered(targets, *runs, **settings), answered(targets[scored], logits[scored], **settings)
    assert found.calibration == alone.calibration and found.threshold == alone.threshold
    counted = [
        text for text in output_sentences(found) if text.startswith(f"Of 80 labelled rows, {scored.sum()} count")
    ]
    assert len(counted) == (not scored.all()) and not any("labelled rows" in text for text in output_sentences(alone))


def test_without_settings_nothing_is_saved(tmp_path: Path) -> None:
    out = make_folder(tmp_path / "out", labels=HOSTILE, tune=(0, "full"), seeds=2, rows=60)
    answer = answer_of(out)
    assert answer.threshold is None and answer.calibration.saved is False
    page = page_of(out)
    assert "--calibrate saves the temperature" in page.words and "The threshold" not in page.words
    assert [one.label for one in answer.classes] == list(HOSTILE)
    assert sum(one.examples for one in answer.classes) == 60


def test_where_nothing_is_above_the_baseline_the_page_recommends_no_k(tmp_path: Path) -> None:
    out = make_folder(tmp_path / "out", labels=HOSTILE, tune=(0, 1), seeds=2, rows=12)
    assert answer_of(out).sizes[0].decision.above_baseline is False
    words = page_of(out).words
    assert "The k that is best so far is shaded." in words and "Of the k that is best so far, from the" in words
    assert not any(said in words for said in ("that is recommended is shaded", "Of the k that is recommended"))


def test_a_class_that_is_never_predicted_has_a_dash_for_its_precision() -> None:
    logits = np.eye(2)[[0, 0, 0]]
    split = Labelled(np.array([0, 0, 1]), "text-classification", ("often", "never"), "accuracy")
    table = class_scores_table(scores_by_class(split, [logits]), 1, split.task_type, "recommended")
    (_, often), (_, never) = table.entries()
    assert [entry.text for entry in never] == ["never", "1", UNKNOWN, "0.000", "0.000"]
    assert table.records()[1]["precision"] is None and not often[2].small


def test_a_model_that_trains_no_layer_has_classes_only() -> None:
    found = synthetic_answer.answer_of(synthetic_answer.make_runs(lambda *_: 0.9, ks=(0,), seeds=1))
    found.sizes[0].recommended, found.sizes[0].decision = None, replace(found.sizes[0].decision, choice=PROBE)
    validation = Labelled(np.array([0, 1, 1]), "text-classification", ("no", "yes"), "accuracy")
    values = {"probe": np.eye(2)[[0, 1, 0]]}
    spec = make_settings({"model": "m", "train": "t", "tune": 0, "out": "o", "calibrate": True, "threshold": "best"})
    add_classes(found, validation, values.__getitem__, spec)
    assert found.calibration is found.threshold is None
    assert [one.recall.estimate for one in found.classes] == [1.0, 0.5]


def test_every_key_is_documented(two: tuple[Path, dict[str, Any], Page]) -> None:
    text = (Path(__file__).parents[2] / "docs" / "reference" / "answer-json.md").read_text(encoding="utf-8")
    found = {name: two[1].to_json()[name] for name in ("classes", "calibration", "threshold")}
    assert not {key for key in re.findall(r'"(\w+)":', json.dumps(found)) if f"`{key}`" not in text}


def judged(rule: str, threshold: float | tuple[float, ...], half: float, cross_fitted: float, **more: Any) -> Threshold:
    """A threshold of the class ``yes``, or of two labels, with its scores at 0.5 and on examples that it was not chosen on."""
    name = rule.partition("=")[0]
    several = isinstance(threshold, tuple)
    metric = None if name[0].isdigit() else name
    where = {"by_label": dict(zip(("price", "story"), threshold, strict=True))} if several else {"threshold": threshold}
    scored = (metric if metric in ("f1_micro", "f1_macro") else "f1_micro") if several else metric or "f1"
    scores = {"at_half": {scored: half}, "cross_fitted": {scored: cross_fitted}}
    label = {} if several else {"label": "yes"}
    return Threshold(**{"rule": rule, "metric": metric, "not_chosen": [], **where, **label, **scores, **more})


def test_sentences_on_thresholds() -> None:
    cases = {
        "given": judged("0.9", 0.9, 0.8, 0.7),
        "a metric": judged("f1", 0.3, 0.7, 0.8),
        "a metric that loses on new texts": judged("f1", 0.3, 0.8, 0.75),
        "one half": judged("f1", 0.5, 0.8, 0.8),
        "a recall": judged("recall=0.9", 0.2, 0.8, 0.75),
        "a label without examples": judged("recall=0.9", 0.5, 0.8, 0.8, not_chosen=["yes"]),
        "labels: given": judged("0.3", (0.3, 0.3), 0.5, 0.6),
        "labels: a recall": judged("recall=0.9", (0.2, 0.4), 0.5, 0.6),
        "labels: a metric that loses on new texts": judged("f1_macro", (0.2, 0.4), 0.4, 0.3),
        "labels: one without examples": judged("f1_macro", (0.2, 0.5), 0.4, 0.5, not_chosen=["story"]),
    }
    texts = {name: " ".join(threshold_sentences(one)) for name, one in cases.items()}
    for given, shown in ((0.00042, "0.00042"), (0.9997, "0.9997"), (0.9, "0.900"), (1e-7, "0.0000001"), (1.0, "1.000")):
        rare = replace(cases["labels: one without examples"], by_label={"film": given, "story": given})
        assert (
            f"at least {shown}." in threshold_sentences(rare)[0]
        )  # not 0 or 1, from which all or no labels are predicted
    assert_like(Path(__file__).with_name("thresholds.txt"), texts)
