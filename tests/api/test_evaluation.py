"""Scores of predictions for texts whose labels are known."""

from typing import Any

import numpy as np
import pytest
from sklearn.metrics import precision_recall_fscore_support

from frostline.api.prediction import Outputs, Predictions, TagPredictions, evaluate
from frostline.data.examples import Examples, Texts
from frostline.data.kinds import CLASSIFICATION, MULTI_LABEL, REGRESSION, TOKENS
from frostline.statistics.evidence import summary_with_interval
from frostline.statistics.inference import Ratio
from frostline.statistics.metrics import METRICS

N, LABELS = 300, ("a", "b", "c")
RNG = np.random.default_rng(0)


def texts_of(rows: np.ndarray[Any, Any]) -> dict[str, Any]:
    return {"texts": tuple(f"text {row}" for row in rows), "pairs": None, "rows": rows, "name": "new.csv"}


@pytest.mark.parametrize("task_type", [CLASSIFICATION, MULTI_LABEL, REGRESSION])
def test_scores_are_those_of_the_predictions_with_their_threshold(task_type: str) -> None:
    """Every second text has a label."""
    labels = () if task_type == REGRESSION else LABELS[:2] if task_type == CLASSIFICATION else LABELS
    logits, rows = RNG.normal(size=(N, max(1, len(labels)))), np.arange(2, N + 2)
    outputs = Outputs.of_task(task_type, labels, 0.3 if labels else None)
    predictions = outputs.of_logits(Texts(**texts_of(rows)), logits, 0)
    assert isinstance(predictions, Predictions)
    own = np.arange(0, N, 2)
    predicted: Any = predictions.values[:, 0]
    if task_type == CLASSIFICATION:
        predicted = (predictions.values[:, 1] >= np.float32(0.3)).astype(int)
        targets: Any = np.where(RNG.random(N) < 0.7, predicted, 1 - predicted)
    elif task_type == MULTI_LABEL:
        predicted = predictions.values >= 0.3
        targets = predicted ^ (RNG.random(predicted.shape) < 0.2)
    else:
        targets = predicted + RNG.normal(size=N)
    found = evaluate(predictions, Examples(**texts_of(rows[own]), targets=targets[own]))
    for name, score in found.scores.items():
        assert score.estimate == pytest.approx(METRICS[name].score(targets[own], predicted[own]))
        assert score.low < score.estimate < score.high < score.low + 0.6  # type: ignore[operator]
    assert found.examples == N // 2 and (found.calibration is None) == (task_type == REGRESSION)
    if labels:
        reference = precision_recall_fscore_support(targets[own], predicted[own])
        for n, one in enumerate(found.classes):
            ours = (one.precision, one.recall, one.f1)
            assert [part.estimate for part in ours] == pytest.approx([part[n] for part in reference[:3]])
            assert all(part.low < part.estimate < part.high for part in ours) and one.examples == reference[3][n]  # type: ignore[operator]


@pytest.mark.parametrize("task_type", [CLASSIFICATION, MULTI_LABEL, REGRESSION])
def test_a_text_in_two_rows_counts_once_in_the_intervals(task_type: str) -> None:
    """A table with every row twice says no more than the table itself."""
    labels = () if task_type == REGRESSION else LABELS
    logits = RNG.normal(size=(N, max(1, len(labels))))
    targets: Any = {REGRESSION: logits[:, 0], MULTI_LABEL: logits > 0}.get(task_type, logits.argmax(1))
    targets = np.where(RNG.random(N) < 0.8, targets.T, RNG.permutation(targets).T).T
    once, twice = np.arange(N), np.tile(np.arange(N), 2)

    def scored(some: Any, spelled: int) -> Any:
        texts = texts_of(np.arange(len(some))) | {"texts": tuple(f"text {row}" for row in some[:spelled])}
        texts["texts"] += tuple(f" TEXT  {row}" for row in some[spelled:])
        predictions = Outputs.of_task(task_type, labels, None).of_logits(Texts(**texts), logits[some], 0)
        return evaluate(predictions, Examples(**texts, targets=targets[some]))

    def numbers(found: Any) -> list[float]:
        ratios = [one for part in found.classes for one in (part.precision, part.recall, part.f1)]
        error, ends = (
            found.calibration,
            [(one.estimate, one.low, one.high) for one in (*found.scores.values(), *ratios)],
        )
        chance = [error.by_chance, error.by_chance_high, *error.texts] if error else []
        return [*chance, *(value for one in ends for value in one)]

    assert numbers(scored(twice, N)) == pytest.approx(numbers(scored(once, N)))


def test_a_rare_class_with_two_texts_has_the_interval_of_two_examples() -> None:
    """Ten rows of two texts, all right, prove no more than two rows do; the other class has 90 different texts."""
    targets = np.repeat([0, 1], [10, 90])
    logits = np.where(targets[:, None] == np.arange(2), 1.0, -1.0)

    def rare(some: Any) -> Any:
        texts = texts_of(some) | {"texts": tuple(f"text {row % 2 if row < 10 else row}" for row in some)}
        predictions = Outputs.of_task(CLASSIFICATION, LABELS[:2], None).of_logits(Texts(**texts), logits[some], 0)
        return evaluate(predictions, Examples(**texts, targets=targets[some])).classes[0]

    every, two = rare(np.arange(100)), rare(np.array([0, 1, *range(10, 100)]))
    for name in ("precision", "recall", "f1"):
        assert getattr(every, name).low == pytest.approx(getattr(two, name).low)


def test_a_score_that_is_undefined_has_no_interval() -> None:
    """Nothing correlates with one number, and R² of one text is undefined."""
    rows, logits = np.arange(N), RNG.normal(size=(N, 1))
    for some, names in ((rows, {"pearson", "spearmanr"}), (rows[:1], {"pearson", "spearmanr", "r2"})):
        predictions = Outputs.of_task(REGRESSION, (), None).of_logits(Texts(**texts_of(some)), logits[some], 0)
        scores = evaluate(predictions, Examples(**texts_of(some), targets=np.full(len(some), 3.0))).scores
        assert {name for name, one in scores.items() if one == Ratio(None, None, None)} == names


def test_the_interval_of_r2_contains_a_score_below_its_usual_range() -> None:
    """Numbers far from the targets, as of a model that has not learned their scale."""
    rows, far = np.arange(N), RNG.normal(size=(N, 1))
    predictions = Outputs.of_task(REGRESSION, (), None).of_logits(Texts(**texts_of(rows)), far, 0)
    found = evaluate(predictions, Examples(**texts_of(rows), targets=far[:, 0] + 3)).scores["r2"]
    assert found.low < found.estimate < found.high < -1  # type: ignore[operator]
    of_runs = summary_with_interval(np.array([-4.0, -2.0]), (-5.0, -1.5), "r2")
    assert (of_runs.low, of_runs.mean, of_runs.high) == (-5.0, -3.0, -1.5)
    assert summary_with_interval(np.array([-0.4, 0.2]), (-1.5, 1.3), "r2").low == -1


def test_words_that_were_cut_off_are_not_scored() -> None:
    tags = [["O", "B-x", "I-x"], ["B-x", "O", None]]
    outputs = Outputs.of_task(TOKENS, ("O", "B-x", "I-x"), None)
    probabilities: list[list[float | None]] = [[0.5] * 3] * 2
    texts = Texts(**texts_of(np.arange(1, 3)))
    lost = {"truncated": 1, "without_token": 0}
    predictions = TagPredictions(**vars(outputs), texts=texts, tags=tags, probabilities=probabilities, **lost)
    found = evaluate(predictions, Examples(**vars(texts), targets=np.array([[0, 1, 2], [0, 0, 1]])))
    assert found.scores["entity_f1"].estimate == pytest.approx(2 / 3)
    assert found.scores["token_accuracy"].estimate == pytest.approx(4 / 5)
    assert [(one.label, one.examples, one.recall.estimate) for one in found.classes] == [("x", 1, 1.0)]


def test_small_numbers_are_not_written_as_zero() -> None:
    numbers = np.array([1234567.125, 3.14159265, -0.25, 2.5e-9])
    texts = Texts(**texts_of(np.arange(4)))
    written = Outputs.of_task(REGRESSION, (), None).of_logits(texts, numbers[:, None], 0).to_pandas()["prediction"]
    assert written.tolist() == pytest.approx(numbers.tolist(), rel=1e-5)
