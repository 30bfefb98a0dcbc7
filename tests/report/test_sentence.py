"""The sentence of an answer."""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from frostline.report import formatting
from frostline.report.figures.score_figures import validation_curve
from frostline.report.names import score_title
from frostline.report.tables.curve_tables import choices_table, scores_table
from frostline.statistics.answer import OperatingPoint
from frostline.statistics.predictions import Labelled
from frostline.statistics.recipe import Recipe
from frostline.statistics.run_group import SearchOutcome
from frostline.statistics.run_result import RunResult
from synthetic_answer import VALIDATION, answer_of, clear, logits_with, make_runs, point

COST = ", at 70 % of the training time."
SURE = " It is more than 99 % sure to reach 95 % of full fine-tuning's gain over the majority-class baseline."


def test_a_large_difference_is_decided() -> None:
    answer = answer_of(make_runs(lambda k, *_: 0.99 if k in (2, "full") else 0.55))
    (size,) = answer.sizes
    assert point(size, 0.9) == OperatingPoint(
        **{"target": 0.9, "corrected": True, "margin": None, "verdict": "decided"},
        **dict.fromkeys(("estimate", "confident", "not_ruled_out"), "last 2"),
    )
    difference = r"The expected difference is 0\.\d points below to 0\.\d above \(95 % interval\)\."
    scores = r"Tune the last 2 of 4 layers: accuracy 0\.990 against 0\.990 with full fine-tuning"
    assert re.fullmatch(f"{scores}{re.escape(COST)} {difference}{re.escape(SURE)}", answer.sentence)


def test_an_undecided_k_is_recommended_with_its_probability() -> None:
    noise = {0: 0.03, 1: -0.03, 2: 0.02, 3: -0.02, 4: 0.0}
    answer = answer_of(make_runs(lambda k, seed, *_: {0: 0.6, 1: 0.79, 2: 0.8, "full": 0.8}[k] + noise[seed]))
    (size,) = answer.sizes
    assert point(size).verdict == "undecided" and point(size).not_ruled_out == "last 1"
    assert size.recommended.recipe == size.decision.choice == "last 2"
    assert 0.7 < size.decision.probability < 0.95
    assert re.search(r"It is [789]\d % sure to reach 95 % of full fine-tuning's gain", answer.sentence)


def test_a_smaller_k_that_scores_higher_is_recommended() -> None:
    noise = {0: 0.04, 1: -0.04, 2: 0.0}
    answer = answer_of(
        make_runs(lambda k, seed, *_: (0.9 if k == 1 else 0.85) + noise[seed] * (k == 1), ks=(1, "full"), seeds=3)
    )
    assert answer.sentence.startswith(
        "Tune the last layer of 4: accuracy 0.900 against 0.850 with full fine-tuning, at 50 % of the training time. "
    )


def test_if_everything_is_tuned_the_next_best_choice_follows() -> None:
    answer = answer_of(make_runs(lambda k, *_: {0: 0.6, 1: 0.7, 2: 0.86, "full": 0.9}[k]))
    next_best = (
        r"Tuning the last 2 layers reaches 0\.860, at 70 % of the training time\. Its expected difference is [23]\.\d to "
        r"[45]\.\d points below \(95 % interval\)\. Tuning the last 2 layers is .+ % sure to reach 95 % of full "
        r"fine-tuning's gain over the majority-class baseline\."
    )
    assert re.fullmatch(rf"Tune all layers and the embeddings: accuracy 0\.900\. {next_best}", answer.sentence)


def test_memory_is_mentioned_if_it_is_saved() -> None:
    runs, logits = make_runs(clear)
    less = [replace(run, peak_memory_bytes=840 if run.recipe == "last 2" else 1000) for run in runs]
    assert "at 70 % of the training time and 84 % of the peak memory. " in answer_of((less, logits)).sentence
    assert "memory" not in answer_of((runs, logits)).sentence


def test_without_all_the_largest_k_is_the_reference() -> None:
    answer = answer_of(make_runs(clear, ks=(0, 1, 2)))
    size = answer.sizes[0]
    assert size.reference == "last 2" and not size.reference_is_full
    assert answer.sentence.startswith(
        "Tune the last 2 of 4 layers, the largest k with a score: accuracy 0.900. Tuning the last layer reaches 0.750, at "
    )
    assert answer.sentence.endswith(
        "Tuning the last layer is less than 1 % sure to reach 95 % of the last 2 layers' gain over the majority-class baseline. "
        "Full fine-tuning was not run: add full to --tune."
    )


def test_the_reference_is_said_to_be_the_largest_k_with_a_score_where_it_is_named() -> None:
    answer = answer_of(make_runs(lambda k, *_: {0: 0.5, 1: 0.9, 2: 0.9}[k], ks=(0, 1, 2)))
    assert answer.sentence.startswith("Tune the last layer of 4: accuracy 0.900 against 0.900 with ")
    assert "with the last 2 layers, the largest k with a score, at " in answer.sentence
    assert "largest k" not in answer_of(make_runs(clear)).sentence


def test_a_comparison_names_its_own_flag_if_full_was_not_run() -> None:
    answer = answer_of(make_runs(lambda k, *_: {1: 0.7, "lora-1": 0.8}[k], ks=(1, "lora-1")))
    assert answer.sentence.endswith("Full fine-tuning was not run: add full to --tune, or full to --ways of `compare`.")


def test_a_search_names_its_own_flag_if_full_was_not_run() -> None:
    runs = make_runs(clear, ks=(0, 1, 2))
    assert answer_of(runs, search=SearchOutcome(skipped=[])).sentence.endswith(
        "Full fine-tuning was not run: leave out --max-k."
    )
    why = "Full fine-tuning was not run: one run takes about 2 min, but only 1 min of the budget are left."
    sentence = answer_of(runs, search=SearchOutcome(instead=why)).sentence
    assert sentence.endswith(why) and sentence.count("was not run") == 1


def test_pending_runs_are_counted() -> None:
    answer = answer_of(make_runs(clear, outcome=lambda k, seed, rate: "pending" if seed > 2 else "ok"))
    assert answer.sentence.endswith(" So far 12 of 20 runs have ended.")


def test_a_single_k_is_compared_with_nothing() -> None:
    assert answer_of(make_runs(clear, ks=(1,))).sentence == "Tune the last layer of 4: accuracy 0.750."
    assert (
        answer_of(make_runs(clear, ks=(0,))).sentence
        == "Tune the classifier head only, none of 4 layers: accuracy 0.600."
    )


def test_too_few_validation_examples() -> None:
    runs, logits = make_runs(clear)

    def sentence(rows: int) -> str:
        validation = Labelled(VALIDATION.targets[:rows], "text-classification", ("0", "1"), "accuracy")
        few = {name: values[:rows] for name, values in logits.items()}
        return answer_of((runs, few), validation=validation).sentence

    assert sentence(9).endswith(" 9 validation examples are too few for any conclusion: label more.")
    assert "too few" not in sentence(10)


def test_one_seed_is_less_sure() -> None:
    one, five = (answer_of(make_runs(clear, seeds=seeds)) for seeds in (1, 5))
    assert one.sizes[0].recommended.recipe == "last 2"
    assert one.sentence.startswith("Tune the last 2 of 4 layers: accuracy 0.900 with one seed against 0.900")
    assert one.sizes[0].decision.probability < five.sizes[0].decision.probability
    assert one.sizes[0].cells[0].share.low is None
    bad = answer_of(make_runs(lambda *_: 0.4, seeds=1))
    assert bad.sentence == (
        "Undecided: full fine-tuning reaches accuracy 0.400, and one seed does not show that this is above the majority-class "
        "baseline (0.500). To learn the task, train with more epochs, another learning rate or more examples."
    )


def test_without_comparable_times_no_cost_is_stated() -> None:
    runs, logits = make_runs(clear)
    alone = [replace(run, concurrent_runs=1 if run.recipe == "last 2" else 2) for run in runs]
    answer = answer_of((alone, logits))
    assert "training time" not in answer.sentence
    assert answer.sizes[0].decision.cost_of_full == 0.5  # 2 of 4 layers


def test_a_way_is_recommended_by_its_name() -> None:
    answer = answer_of(make_runs(lambda k, *_: 0.6 if k == 1 else 0.9, ks=(1, "lora-2", "full")))
    assert answer.sentence.startswith(
        "Tune with lora-2: accuracy 0.900 against 0.900 with full fine-tuning, at 70 % of the training time. "
    )
    (size,) = answer.sizes
    assert size.recommended.recipe == "lora-2" and size.reference == "full"
    assert [point.estimate for point in size.operating_points] == ["full"] * len(size.operating_points)


def test_a_probe_is_recommended_as_a_model_that_trains_no_layer() -> None:
    answer = answer_of(make_runs(lambda k, *_: 0.6 if k == 1 else 0.9, ks=(1, "probe", "full")))
    assert answer.sentence.startswith(
        "Train no layer, but fit a linear probe on frozen features: accuracy 0.900 against"
    )
    assert answer.sizes[0].recommended.recipe == "probe"


@pytest.mark.parametrize(
    ("recipe", "named"),
    [("last 3", "with the last 3 layers, the largest k with a score. "), ("full", "with full fine-tuning. ")],
)
def test_a_model_that_trains_no_layer_is_compared_with_the_largest_k_that_has_a_score(recipe: str, named: str) -> None:
    runs, logits = make_runs(lambda *_: 0.8, ks=(0, 3 if recipe == "last 3" else "full"), seeds=1)
    logits["probe"] = logits_with(0.9, np.random.default_rng(1))
    found = answer_of((runs, logits), search=SearchOutcome(alternatives=["probe"]))
    assert (
        f"Train no layer: a linear probe on frozen features reaches accuracy 0.900 against 0.800 {named}"
        in found.sentence
    )


def test_a_way_that_comes_next_is_named() -> None:
    answer = answer_of(make_runs(lambda k, *_: {"llrd": 0.88, "full": 0.9}.get(k, 0.6), ks=(1, "llrd", "full")))
    assert ". Tuning with llrd reaches 0.880" in answer.sentence


def test_ways_without_any_k_that_succeeded_are_not_compared() -> None:
    made = make_runs(lambda *_: 0.9, ks=("lora-2", "full"), outcome=lambda k, *_: "diverged" if k == "full" else "ok")
    assert answer_of(made).sentence == (
        "Nothing was compared: no run of full fine-tuning or of the last k layers succeeded. "
        "The best way, lora-2, reaches accuracy 0.900."
    )


def test_an_awaited_reference_comes_before_any_way() -> None:
    made = make_runs(lambda *_: 0.9, ks=("lora-2", "full"), outcome=lambda k, *_: "pending" if k == "full" else "ok")
    assert answer_of(made).sentence.startswith("No answer yet: full fine-tuning, the reference")


Scores = Mapping[str, Mapping[int, float]]
PROBE_ON_FOLDS = {0: 0.875, 1: 0.85, 2: 0.825, 3: 0.85, 4: 0.8}  # 0.840 on all rows


def answer_with_folds(scores: Scores, probe: Mapping[int, float], **settings: Any) -> dict[str, Any]:
    """The answer of a search with five folds of 40 rows: the score of each k on the fold of each of its seeds."""
    fold_of, runs = np.arange(200) // 40, []
    targets, logits = np.arange(200) % 2, {}

    def right_on(fold: int, score: float) -> NDArray[np.float64]:
        found = np.full((200, 2), np.nan)
        rows = np.flatnonzero(fold_of == fold)
        right = np.arange(40) < round(40 * score)
        found[rows] = np.eye(2)[np.where(right, targets[rows], 1 - targets[rows])]
        return found

    for k, of_seeds in scores.items():
        for seed, score in of_seeds.items():
            logits[f"{k}/{seed}"] = right_on(seed % 5, score)
            layers = 6 if k == "full" else Recipe(k).k or 0
            runs.append(
                RunResult(
                    **{"model": "m", "task": "t", "train_size": 160, "recipe": Recipe(k), "tuned_layers": layers},
                    **{"tune_embeddings": k == "full", "tuned_share": layers / 6, "learning_rate": 1e-4, "seed": seed},
                    **{"status": "done", "outcome": "ok", "run": f"{k}/{seed}", "validation_best": score},
                    **{"validation_last": score, "train_last": 1.0, "train_seconds": 1.0 + layers},
                )
            )
    if probe:
        parts = [right_on(fold, score) for fold, score in probe.items()]
        logits["probe"] = np.nanmax(np.nan_to_num(parts, nan=-1.0), 0)
        logits["probe"][np.all(np.isnan(parts), 0)] = np.nan
    validation = Labelled(targets, "text-classification", ("a", "b"), "accuracy")
    search = SearchOutcome(alternatives=["probe"] if probe else [])
    return answer_of((runs, logits), validation=validation, layers=6, search=search, **settings)


@pytest.mark.parametrize(
    ("scores", "probe", "text", "beside"),
    [
        (  # the case: .840 is the probe on all rows, .875 on the fold of the only run
            {"head only": {0: 0.6}, "full": {0: 0.95}},
            PROBE_ON_FOLDS,
            "embeddings: accuracy 0.950 with one seed. A linear probe on frozen features reaches 0.875 on the same rows",
            {"head only": (0.6, 0.95), "probe": (0.875, 0.95), "full": (0.95, 0.95)},
        ),
        (  # a recommended probe beside two runs of the reference
            {"full": {0: 0.7, 1: 0.6}},
            PROBE_ON_FOLDS,
            "reaches accuracy 0.863 against 0.650 with full fine-tuning on the same rows",
            {"probe": (0.8625, 0.65)},
        ),
        (  # unequal numbers of seeds: 0.830 of last 2 is over all folds
            {"last 2": {0: 0.9, 1: 0.85, 2: 0.8, 3: 0.8, 4: 0.8}, "full": {0: 0.9, 1: 0.8}},
            {},
            "accuracy 0.875 against 0.850 with full fine-tuning on the same rows",
            {"last 2": (0.875, 0.85), "full": (0.85, 0.85)},
        ),
        (  # the seed of the first fold failed for the reference, so there is no common one
            {"last 2": {0: 0.9}, "full": {1: 0.8}},
            {},
            "accuracy 0.900 with one seed; full fine-tuning was not scored on the same rows",
            {"last 2": (0.9, None), "full": (0.8, 0.8)},
        ),
        (  # a further seed on a fold that both have
            {"last 2": {0: 0.9, 5: 0.8, 1: 0.9}, "full": {0: 0.9, 1: 0.8}},
            {},
            "accuracy 0.875 against 0.850 with full fine-tuning,",
            {"last 2": (0.875, 0.85)},
        ),
        (  # the same folds for all: nothing changes
            {"last 2": {0: 0.9, 1: 0.8}, "full": {0: 0.9, 1: 0.85}},
            {0: 0.6, 1: 0.65},
            "accuracy 0.850 against 0.875 with full fine-tuning,",
            {"last 2": (0.85, 0.875), "probe": (0.625, 0.875)},
        ),
        (  # nothing is shown to be learned: all three numbers are of the first fold, where all models are alike
            {"last 2": {0: 0.6, 1: 0.5, 2: 0.5}, "full": {0: 0.55}},
            {},
            "full fine-tuning reaches accuracy 0.550, and",
            {"last 2": (0.6, 0.55)},
        ),
    ],
)
def test_scores_beside_each_other_are_of_the_same_rows(
    scores: Scores, probe: Mapping[int, float], text: str, beside: Mapping[str, tuple[float, float | None]]
) -> None:
    (size,) = answer_with_folds(scores, probe).sizes
    assert text in size.sentence
    choices = {one.choice: one for one in size.choices}
    found = {name: (choices[name].score, choices[name].reference_score) for name in beside}
    assert found == {name: pytest.approx(pair) for name, pair in beside.items()}
    table = choices_table(size, price=0.02)
    assert ("full on\nthe same rows" in [column.title for column in table.columns]) == any(
        one.part_of_rows for one in choices.values()
    )


def test_curves_compare_scores_without_the_effects_of_folds() -> None:
    """Last 3 is behind the reference on their common fold. Its mean is higher only because that fold is the easiest."""
    hard = {0: 0.9, 1: 0.75, 2: 0.75, 3: 0.75, 4: 0.75}
    one, other = (
        answer_with_folds({"head only": hard, "last 3": {0: 0.85}, "full": all_seeds}, {}).sizes[0]
        for all_seeds in ({**hard, 1: 0.8}, {0: 0.9})
    )
    found = {cell.recipe: cell for cell in one.cells}
    assert found["last 3"].validation.mean == 0.85 > found["full"].validation.mean == pytest.approx(0.79)
    assert found["last 3"].comparable < found["full"].comparable == pytest.approx(0.79)
    for k in ("last 3", "full"):
        label = str(validation_curve(one, metric="accuracy").get_label())
        assert f"{k} {formatting.score(found[k].comparable)}" in label
    title = "accuracy, without the effects of folds"
    assert title == score_title("accuracy", one.cells)
    rows = {row["tuned"]: row for row in scores_table(one, "accuracy").records()}
    assert rows["last 3"]["comparable"] == found["last 3"].comparable
    assert "mean without\nfold effects" in [column.title for column in scores_table(one, "accuracy").columns]
    assert {cell.recipe: cell.comparable for cell in other.cells}["full"] < 0.9
