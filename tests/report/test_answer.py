"""The answer from made-up runs: what wins, what cannot be told, and what test may not touch."""

import json
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from frostline.report.answer.answer import add_test, make_answer
from frostline.report.answer.sentence import NO_SEARCH, Searched
from frostline.statistics.choices import Choices
from frostline.statistics.evidence import Labelled, Predictions

ROWS, LAYERS = 1000, 4
TARGETS = np.arange(ROWS) % 2
VALIDATION = Labelled(TARGETS, "single_label_classification", ("no", "yes"), "accuracy")
KS: tuple[int | str, ...] = (0, 1, 2, "all")
Made = tuple[list[dict[str, Any]], dict[str, np.ndarray]]


def logits_with(accuracy: float, draw: np.random.Generator) -> np.ndarray:
    """Right on exactly this share of the rows."""
    wrong = draw.permutation(ROWS) >= round(accuracy * ROWS)
    return np.eye(2, dtype=np.float32)[np.where(wrong, 1 - TARGETS, TARGETS)]


def make_runs(
    quality: Callable[[int | str, int, float, int], float],
    *,
    ks: tuple[int | str, ...] = KS,
    seeds: int = 5,
    rates: tuple[float, ...] = (1e-4,),
    sizes: tuple[int, ...] = (1000,),
    outcome: Callable[[int | str, int, float], str] = lambda k, seed, rate: "ok",
) -> Made:
    """Runs whose accuracy is ``quality(k, seed, rate, size)``; ``outcome`` may also be failed or pending."""
    draw, rows, logits = np.random.default_rng(0), [], {}
    for size in sizes:
        for seed in range(seeds):
            for rate in rates:
                for k in ks:
                    name, how = f"{k}-{seed}-{rate}-{size}", outcome(k, seed, rate)
                    done = how in ("ok", "degenerate", "diverged")
                    score = quality(k, seed, rate, size) if how in ("ok", "degenerate") else None
                    if score is not None:
                        logits[name] = logits_with(score, draw)
                        score = float((logits[name].argmax(1) == TARGETS).mean())
                    number = {"all": LAYERS, "named": 2}.get(k, k)
                    rows.append(
                        {
                            **{"model": "m", "task": "t", "train_size": size, "seed": seed, "learning_rate": rate},
                            **{"trainable": f"last {k}" if isinstance(k, int) else k, "tuned_layers": number},
                            **{"tune_embeddings": k == "all", "status": "done" if done else how},
                            **{"outcome": how if done else None, "reason": "", "run": name, "metric": "accuracy"},
                            **{"validation_best": score, "validation_last": score, "train_last": score, "test": score},
                            **{"trainable_parameters": 10 * (int(number) + 1) if done else None},
                            **{"train_seconds": 1.0 + int(number) if done else None, "peak_memory_bytes": 1000},
                            "cache_seconds": (0.0 if k == "all" else 0.5) if done else None,
                        }
                    )
    return rows, logits


def answer_of(made: Made, target: float = 0.95, searched: Searched = NO_SEARCH) -> dict[str, Any]:
    runs, logits = made
    answer = make_answer(runs, VALIDATION, logits.__getitem__, Choices(target=target), layers=LAYERS, searched=searched)
    json.dumps(answer, allow_nan=False)  # plain values, all of them defined or None
    return answer


def test_a_search_speaks_of_its_own_train_size_alone() -> None:
    made = make_runs(lambda k, seed, rate, size: {0: 0.6, 1: 0.9, 2: 0.9, "all": 0.9}[k], sizes=(1000, 500))
    plain = answer_of(made)
    found = answer_of(made, searched=Searched("last 2", train_size=500))
    assert [size["train_size"] for size in found["sizes"]] == [1000, 500]
    assert [size["recommended"]["trainable"] for size in plain["sizes"]] == ["last 1", "last 1"]
    assert [size["recommended"]["trainable"] for size in found["sizes"]] == ["last 1", "last 2"]
    assert found["sizes"][0]["sentence"] == plain["sizes"][0]["sentence"]


def point(size: Mapping[str, Any], target: float = 0.95, corrected: bool = True) -> dict[str, Any]:
    return next(p for p in size["operating_points"] if (p["target"], p["corrected"]) == (target, corrected))


def cells(size: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    return {cell["trainable"]: cell for cell in size["cells"]}


def clear(k: int | str, seed: int, rate: float, size: int) -> float:
    return {0: 0.6, 1: 0.75, 2: 0.9, "all": 0.9}[k]


def test_a_clear_winner() -> None:
    answer = answer_of(make_runs(clear))
    (size,) = answer["sizes"]
    assert size["recommended"]["trainable"] == "last 2" and size["reference"] == "all" and size["learned"]
    assert (size["recommended"]["tuned_layers"], size["recommended"]["tune_embeddings"]) == (2, False)
    assert answer["chance"] == 0.5 and answer["sentence"] == size["sentence"]
    assert cells(size)["last 1"]["share_corrected"]["estimate"] == pytest.approx(0.25 / 0.4)
    assert cells(size)["last 1"]["share"]["estimate"] == pytest.approx(0.75 / 0.9)
    assert cells(size)["last 2"]["times_cheaper"] == pytest.approx(5 / 3.5)  # its share of the pass counts


def test_seconds_are_compared_of_runs_in_like_company() -> None:
    rows, logits = make_runs(clear)
    for row in rows:
        alone = row["trainable"] == "last 1" or (row["trainable"] == "last 2" and row["seed"] == 0)
        row["abreast"] = 1 if alone else 2
        row["train_seconds"] *= 1.5 if alone else 1.0
    (size,) = answer_of((rows, logits))["sizes"]
    found = cells(size)
    assert (found["last 2"]["seconds"], found["last 2"]["abreast"]) == (3.0, 2)
    assert found["last 2"]["times_cheaper"] == pytest.approx(5 / 3.5)
    assert (found["last 1"]["seconds"], found["last 1"]["abreast"]) == (3.0, 1)
    assert found["last 1"]["times_cheaper"] is None and found["all"]["times_cheaper"] == 1.0
    assert size["pareto"]["seconds"] == ["last 0", "last 2"] and "last 1" in size["pareto"]["trainable_parameters"]


def test_an_overwhelming_difference_is_told() -> None:
    answer = answer_of(make_runs(lambda k, *_: 0.99 if k in (2, "all") else 0.55))
    (size,) = answer["sizes"]
    assert point(size, 0.9) == {
        **{"target": 0.9, "corrected": True, "margin": None, "verdict": "holds"},
        **dict.fromkeys(("estimate", "sure", "possible"), "last 2"),
    }
    assert answer["sentence"].startswith("Tune the last 2 of 4 layers: 100.0 % of what full fine-tuning gains")
    assert "cannot tell" not in answer["sentence"] and "1.4 times cheaper to train" in answer["sentence"]


def test_a_margin_decides_in_place_of_a_share() -> None:
    made = make_runs(lambda k, *_: {0: 0.6, 1: 0.75, 2: 0.88, "all": 0.9}[k])
    runs, logits = made
    near, far = (
        make_answer(runs, VALIDATION, logits.__getitem__, Choices(margin=margin, by_margin=True), layers=LAYERS)
        for margin in (0.1, 0.5)
    )
    assert near["target"] is None and near["margin"] == 0.1
    assert near["sizes"][0]["recommended"]["trainable"] == "last 2"
    assert (
        "accuracy 0.880 against 0.900 by full fine-tuning, a difference of -0.020 (95 % interval " in near["sentence"]
    )
    assert far["sizes"][0]["recommended"]["trainable"] == "last 0"
    strict = make_answer(runs, VALIDATION, logits.__getitem__, Choices(margin=1e-4, by_margin=True), layers=LAYERS)
    assert strict["sizes"][0]["recommended"]["trainable"] == "all"
    assert "nothing smaller comes within 0.0001 of it" in strict["sentence"] or "above -0.0001" in strict["sentence"]


def test_more_looks_make_intervals_wider() -> None:
    runs, logits = make_runs(clear)
    once, thrice = (
        make_answer(runs, VALIDATION, logits.__getitem__, Choices(), layers=LAYERS, searched=Searched(looks=looks))
        for looks in (1, 3)
    )
    for one, other in zip(once["sizes"][0]["cells"][:-1], thrice["sizes"][0]["cells"][:-1], strict=True):
        for name in ("validation", "share_corrected", "difference"):
            assert one[name]["high"] - one[name]["low"] < other[name]["high"] - other[name]["low"]
    assert (once["looks"], thrice["looks"]) == (1, 3)


def test_it_says_when_it_cannot_tell() -> None:
    noise = {0: 0.03, 1: -0.03, 2: 0.02, 3: -0.02, 4: 0.0}
    answer = answer_of(make_runs(lambda k, seed, *_: {0: 0.6, 1: 0.79, 2: 0.8, "all": 0.8}[k] + noise[seed]))
    (size,) = answer["sizes"]
    assert point(size)["verdict"] == "cannot tell" and point(size)["possible"] == "last 1"
    assert size["recommended"]["trainable"] == point(size)["sure"] != "last 1"
    assert answer["sentence"].endswith(
        "With 5 seeds and 1,000 validation rows it cannot be told whether tuning the last layer is enough."
    )


def test_where_only_full_is_surely_enough_what_is_likely_is_named_first() -> None:
    noise = {0: 0.04, 1: -0.04, 2: 0.0}
    answer = answer_of(
        make_runs(lambda k, seed, *_: (0.9 if k == 1 else 0.85) + noise[seed] * (k == 1), ks=(1, "all"), seeds=3)
    )
    (size,) = answer["sizes"]
    assert size["recommended"]["trainable"] == "all"
    assert answer["sentence"].startswith(
        "With 3 seeds and 1,000 validation rows it cannot be told whether tuning the last layer is enough: it reaches 114.3 %"
    )
    assert answer["sentence"].endswith(
        "accuracy 0.900 against 0.850. Enough is an interval above 95 %; until then tune all layers and the embeddings."
    )


def test_the_smallest_k_is_first_in_numbers_not_in_words() -> None:
    made = make_runs(lambda k, *_: 0.9, ks=("all", 10, 2, 0))
    size = answer_of(made)["sizes"][0]
    assert [cell["trainable"] for cell in size["cells"]] == ["last 0", "last 2", "last 10", "all"]
    with_all = [run | ({"tuned_layers": 12} if run["tune_embeddings"] else {}) for run in made[0]]
    size = answer_of((with_all, made[1]))["sizes"][0]
    assert [cell["trainable"] for cell in size["cells"]] == ["last 0", "last 2", "last 10", "all"]
    assert size["reference"] == "all" and size["recommended"]["trainable"] == "last 0"


def test_full_comes_after_all_layers_without_embeddings() -> None:
    size = answer_of(make_runs(lambda k, *_: 0.9, ks=("all", LAYERS)))["sizes"][0]
    assert [cell["trainable"] for cell in size["cells"]] == ["last 4", "all"] and size["reference_is_full"]


def test_without_all_the_largest_k_is_the_reference() -> None:
    answer = answer_of(make_runs(clear, ks=(0, 1, 2)))
    size = answer["sizes"][0]
    assert size["reference"] == "last 2" and not size["reference_is_full"]
    assert answer["sentence"] == (
        "Tune the last 2 of 4 layers: accuracy 0.900; nothing smaller reaches 95 % of its gain over guessing. "
        "Full fine-tuning was not run: add all to --tune."
    )


def test_an_answer_before_the_end_says_so() -> None:
    answer = answer_of(make_runs(clear, outcome=lambda k, seed, rate: "pending" if seed > 2 else "ok"))
    assert answer["sentence"].endswith(" So far 12 of 20 runs have ended.")


def test_one_k_alone_is_compared_with_nothing() -> None:
    assert answer_of(make_runs(clear, ks=(1,)))["sentence"] == "Tune the last layer of 4: accuracy 0.750."
    assert answer_of(make_runs(clear, ks=(0,)))["sentence"] == "Tune the head only, none of 4 layers: accuracy 0.600."


def test_failures_are_counted_and_not_averaged_away() -> None:
    def outcome(k: int | str, seed: int, rate: float) -> str:
        return {(2, 0): "diverged", (2, 1): "degenerate", (2, 2): "failed", (1, 0): "pending"}.get((k, seed), "ok")  # type: ignore[arg-type]

    answer = answer_of(
        make_runs(lambda k, seed, *_: 0.5 if (k, seed) == (2, 1) else clear(k, 0, 0, 0), outcome=outcome)
    )
    (size,) = answer["sizes"]
    two = cells(size)["last 2"]
    assert (two["runs"], two["validation"]["n"], two["validation"]["mean"]) == (4, 2, pytest.approx(0.9))
    assert (two["failures"]["failed"], two["failures"]["diverged"], two["failures"]["degenerate"]) == (2, 1, 1)
    assert two["failures"]["interval"] == pytest.approx([0.0676, 0.9324], abs=1e-4)
    assert two["validation_with_failures"]["n"] == 3 and two["validation_with_failures"]["mean"] < 0.8
    assert two["errors"] == 1
    assert [(run["trainable"], run["seed"], run["status"]) for run in size["missing"]] == [
        ("last 1", 0, "pending"),
        ("last 2", 2, "failed"),
    ]
    assert answer["runs"] == {"done": 18, "failed": 1, "pending": 1}


def test_when_full_fails_everywhere_the_next_is_the_reference() -> None:
    answer = answer_of(make_runs(clear, outcome=lambda k, *_: "diverged" if k == "all" else "ok"))
    assert answer["sizes"][0]["reference"] == "last 2" and not answer["sizes"][0]["reference_is_full"]


def test_no_run_has_succeeded() -> None:
    answer = answer_of(make_runs(clear, outcome=lambda *_: "diverged"))
    assert answer["sizes"][0]["recommended"] is None
    assert answer["sentence"] == "There is no answer: all 20 finished runs diverged or predict a constant."
    pending = answer_of(make_runs(clear, outcome=lambda *_: "pending"))
    assert pending["sentence"] == "There is no answer: no run has finished."


def test_nothing_learned_is_no_answer() -> None:
    answer = answer_of(make_runs(lambda k, seed, *_: 0.49 + 0.01 * (seed % 3)))
    assert not answer["sizes"][0]["learned"]
    assert answer["sentence"].startswith("Cannot tell: full fine-tuning reaches accuracy 0.4")
    assert answer["sentence"].endswith("which 5 seeds do not show to be above guessing (0.500).")
    assert all(p["verdict"] == "undefined" for p in answer["sizes"][0]["operating_points"] if p["corrected"])


def test_what_a_mean_rests_on_is_said() -> None:
    def but_one(k: int | str, seed: int, rate: float) -> str:
        return "ok" if seed == 0 else "diverged"

    weak = answer_of(make_runs(lambda *_: 0.51, outcome=but_one))
    assert "which 1 of 5 seeds (the others failed) does not show" in weak["sentence"]
    later = answer_of(make_runs(lambda *_: 0.51, outcome=lambda k, seed, rate: "ok" if seed < 1 else "pending"))
    assert "which 1 of 5 seeds (the others failed or have not run) does not show" in later["sentence"]
    failed = "4 of 5 runs of tuning the last 2 layers failed and 4 of 5 runs of full fine-tuning failed."
    assert answer_of(make_runs(clear, outcome=but_one))["sentence"].endswith(failed)


def test_a_run_that_its_rows_show_to_be_above_guessing_has_learned_however_far_the_others_are() -> None:
    def score(k: int | str, seed: int, rate: float, size: int) -> float:
        return {0: 0.5, 1: 0.5, 2: 0.86}.get(k, 0.9 if seed else 0.7)  # type: ignore[call-overload, no-any-return]

    answer = answer_of(make_runs(score, seeds=2))
    size = answer["sizes"][0]
    full, two = cells(size)["all"], cells(size)["last 2"]
    assert size["learned"] and full["validation"]["low"] < 0.5  # by the mean of two seeds nothing is sure
    assert two["share_corrected"]["estimate"] == pytest.approx(0.36 / 0.3, abs=0.01)
    assert two["share_corrected"]["low"] is two["share_corrected"]["high"] is None
    assert "cannot be told whether tuning the last 2 layers is enough: it reaches 120" in answer["sentence"]


def test_where_full_has_learned_nothing_no_share_is_given_and_what_is_kept_is_said() -> None:
    answer = answer_of(make_runs(lambda k, *_: 0.6 if k == 2 else 0.51, seeds=3))
    assert not answer["sizes"][0]["learned"]
    assert all(cell["share_corrected"]["estimate"] is None for cell in answer["sizes"][0]["cells"])
    assert answer["sentence"].endswith(
        "which 3 seeds do not show to be above guessing (0.500). Tuning the last 2 layers reaches 0.600, which is above it."
    )


def test_before_full_has_run_there_is_no_answer_yet() -> None:
    answer = answer_of(make_runs(clear, outcome=lambda k, *_: "pending" if k == "all" else "ok"))
    assert answer["sizes"][0]["recommended"] is None
    assert answer["sentence"] == (
        "No answer yet: full fine-tuning, with which everything is compared, has not run. The best so far, tuning the "
        "last 2 layers, reaches accuracy 0.900. So far 15 of 20 runs have ended."
    )
    rates = make_runs(clear, rates=(1e-4, 2e-4), outcome=lambda k, *_: "pending" if k == "all" else "ok")
    assert answer_of(rates)["sentence"].endswith("So far 30 of 40 runs have ended.")
    beside = make_runs(
        lambda k, *_: 0.9 if k == "named" else 0.8,
        ks=(0, "named", "all"),
        outcome=lambda k, *_: "pending" if k == "all" else "ok",
    )
    assert "The best so far, tuning the head only, reaches accuracy 0.800." in answer_of(beside)["sentence"]
    awaited = answer_of(make_runs(clear, ks=(0, 1)), searched=Searched(awaits="all"))
    assert awaited["sentence"].startswith("No answer yet: full fine-tuning") and not awaited["sizes"][0]["recommended"]


def test_too_few_validation_rows_are_said() -> None:
    runs, logits = make_runs(clear)

    def sentence(rows: int) -> str:
        validation = Labelled(VALIDATION.targets[:rows], "single_label_classification", ("0", "1"), "accuracy")
        few = {name: values[:rows] for name, values in logits.items()}
        said: str = make_answer(runs, validation, few.__getitem__, Choices(), layers=LAYERS)["sentence"]
        return said

    assert sentence(9).endswith(" 9 validation rows are too few to tell anything: label more.")
    assert "too few to tell" not in sentence(10)


def test_where_runs_went_in_other_company_the_saving_is_in_operations() -> None:
    runs, logits = make_runs(clear)
    alone = [{**run, "abreast": 1 if run["trainable"] == "last 2" else 2} for run in runs]
    search = Searched("last 2", operations={"last 2": 1e9, "all": 2.5e9})
    said = answer_of((alone, logits), searched=search)["sentence"]
    assert ", with 2.5 times fewer operations to train, with 100.0 % of the memory" in said
    alike = [{**run, "abreast": 2} for run in runs]
    assert " times cheaper to train" in answer_of((alike, logits), searched=search)["sentence"]


def test_what_a_search_left_out_is_said_and_not_taken_for_too_little() -> None:
    def sentence(named: str, *skipped: str, made: Made | None = None) -> str:
        made = made or make_runs(lambda k, *_: {0: 0.6, 1: 0.7, 2: 0.9, "all": 0.9}[k], ks=(0, 1, 2, "all"))
        said: str = answer_of(made, searched=Searched(named, skipped=skipped))["sentence"]
        return said

    assert sentence("last 2").endswith("That is sure, and so is that nothing smaller is enough.")
    assert sentence("last 2", "last 3").endswith("and so is that nothing smaller is enough.")
    weak = make_runs(lambda k, *_: 0.9 if k == "all" else 0.6, ks=(0, "all"))
    full = sentence("all", "last 1", "last 2", "last 4", made=weak)
    assert (
        "; nothing smaller that was tried reaches 95 % of its gain over guessing. Of what was tried, that is sure."
        in full
    )
    assert full.endswith(" Tuning the last 1 to 2 layers and tuning the last 4 layers were not tried.")
    assert "; nothing smaller reaches 95 %" in sentence("all", made=weak)
    gap = make_runs(lambda k, *_: 0.9 if k != 0 else 0.6, ks=(0, 2, "all"))
    assert sentence("last 2", "last 1", made=gap).endswith(
        "That is sure, but not that nothing smaller is enough. Tuning the last layer was not tried."
    )
    failed = make_runs(clear, outcome=lambda k, *_: "diverged" if k == 1 else "ok")
    assert sentence("last 2", made=failed).endswith(
        "That is sure, but not that nothing smaller is enough. 5 of 5 runs of tuning the last layer failed."
    )


def test_one_seed_is_an_estimate() -> None:
    answer = answer_of(make_runs(clear, seeds=1))
    assert answer["sizes"][0]["recommended"]["trainable"] == "last 2"
    assert answer["sentence"].endswith("One seed has no spread, so this is an estimate: run it with --seeds 5.")
    assert answer["sizes"][0]["cells"][0]["share"]["low"] is None
    bad = answer_of(make_runs(lambda *_: 0.4, seeds=1))
    assert bad["sentence"] == (
        "Cannot tell: full fine-tuning reaches accuracy 0.400, which one seed does not show to be above guessing (0.500)."
    )


def test_one_seed_beside_several_is_compared_on_that_seed_and_that_is_said() -> None:
    made = make_runs(
        lambda k, seed, *_: 0.9 if k != "all" or seed else 0.7,
        ks=(2, "all"),
        seeds=3,
        outcome=lambda k, seed, rate: "ok" if k == "all" or not seed else "pending",
    )
    answer = answer_of(made)
    two = cells(answer["sizes"][0])["last 2"]
    assert two["difference"]["means"] == pytest.approx([0.9, 0.7])
    assert two["difference"]["low"] is None
    assert "accuracy 0.900 against 0.700 on the one seed that both have" in answer["sentence"]


def test_with_folds_one_seed_in_common_is_compared_on_its_rows() -> None:
    easy = np.arange(len(TARGETS)) < len(TARGETS) // 2
    right, wrong = np.eye(2)[TARGETS], np.eye(2)[1 - TARGETS]
    folds = {"easy": np.where(easy[:, None], right, np.nan), "hard": np.where(easy[:, None], np.nan, wrong)}
    runs = [{"run": name, "seed": seed} for seed, name in enumerate(folds)]
    both = Predictions(VALIDATION, folds.__getitem__).pair(runs[:1], runs)
    assert both is not None and both.means.tolist() == [1.0, 1.0] and both.runs == 1
    assert both.covered == pytest.approx(0.5)


def test_without_a_seed_in_common_all_are_compared_without_pairing() -> None:
    made = make_runs(
        clear, ks=(2, "all"), seeds=4, outcome=lambda k, seed, rate: "ok" if (k == "all") == (seed < 2) else "diverged"
    )
    answer = answer_of(made)
    share = cells(answer["sizes"][0])["last 2"]["share_corrected"]
    assert share["low"] < 1 < share["high"] and share["estimate"] == pytest.approx(1)
    assert answer["sizes"][0]["recommended"]["trainable"] == "last 2"


def test_each_k_takes_its_best_learning_rate_on_validation() -> None:
    best = {0: 1e-2, 1: 1e-3, 2: 1e-3, "all": 1e-4}
    made = make_runs(
        lambda k, seed, rate, size: clear(k, seed, rate, size) - (0 if rate == best[k] else 0.1),
        rates=(1e-4, 1e-3, 1e-2),
    )
    size = answer_of(made)["sizes"][0]
    assert {name: cell["learning_rate"] for name, cell in cells(size).items()} == {
        "last 0": 1e-2,
        "last 1": 1e-3,
        "last 2": 1e-3,
        "all": 1e-4,
    }
    assert all(cell["learning_rates_tried"] == [1e-4, 1e-3, 1e-2] for cell in size["cells"])
    assert cells(size)["last 2"]["validation"]["mean"] == pytest.approx(0.9)
    assert size["recommended"]["learning_rate"] == 1e-3 and size["recommended"]["run"].startswith("2-")


def test_a_rate_that_diverges_at_times_counts_as_guessing_then() -> None:
    def quality(k: int | str, seed: int, rate: float, size: int) -> float:
        return 0.9 if rate == 1e-2 else 0.8

    made = make_runs(
        quality, rates=(1e-3, 1e-2), outcome=lambda k, s, rate: "diverged" if s < 2 and rate == 1e-2 else "ok"
    )
    assert {cell["learning_rate"] for cell in answer_of(made)["sizes"][0]["cells"]} == {1e-3}


def test_several_sizes_are_answered_each_and_the_largest_speaks() -> None:
    made = make_runs(
        lambda k, seed, rate, size: clear(k, seed, rate, size) if size == 1000 else 0.85, sizes=(100, 1000)
    )
    answer = answer_of(made)
    assert [size["train_size"] for size in answer["sizes"]] == [1000, 100]
    assert [size["recommended"]["trainable"] for size in answer["sizes"]] == ["last 2", "last 0"]
    assert answer["sentence"] == answer["sizes"][0]["sentence"]


def test_the_recommended_run_is_the_best_seed_and_ties_go_to_the_first() -> None:
    made = make_runs(lambda k, seed, *_: clear(k, 0, 0, 0) + (0.02 if seed in (2, 3) else 0))
    assert answer_of(made)["sizes"][0]["recommended"]["seed"] == 2


def test_another_target_is_another_operating_point() -> None:
    made = make_runs(lambda k, *_: {0: 0.6, 1: 0.88, 2: 0.99, "all": 0.99}[k])
    assert answer_of(made, 0.7)["sizes"][0]["recommended"]["trainable"] == "last 1"
    points = answer_of(made, 0.7)["sizes"][0]["operating_points"]
    assert {p["target"] for p in points if p["margin"] is None} == {0.7, 0.9, 0.95, 0.99}
    assert answer_of(made, 0.99)["sizes"][0]["recommended"]["trainable"] != "last 1"


def test_raw_and_corrected_shares_are_two_things() -> None:
    size = answer_of(make_runs(lambda k, *_: {0: 0.6, 1: 0.93, 2: 0.985, "all": 0.99}[k]))["sizes"][0]
    assert point(size, 0.9, corrected=False)["estimate"] == "last 1"
    assert point(size, 0.9, corrected=True)["estimate"] == "last 2"


def test_regression_has_no_guessing_to_correct_for() -> None:
    draw = np.random.default_rng(0)
    targets = draw.normal(size=ROWS)
    runs, _ = make_runs(clear)
    noise = {"last 0": 3.0, "last 1": 1.0, "last 2": 0.3, "all": 0.3}
    logits = {run["run"]: (targets + noise[run["trainable"]] * draw.normal(size=ROWS))[:, None] for run in runs}
    answer = make_answer(
        runs, Labelled(targets, "regression", (), "spearmanr"), logits.__getitem__, Choices(), layers=LAYERS
    )
    assert answer["chance"] == 0 and answer["sizes"][0]["recommended"]["trainable"] == "last 2"
    assert all(cell["share"] == cell["share_corrected"] for cell in answer["sizes"][0]["cells"])


def test_test_never_changes_what_was_chosen() -> None:
    runs, logits = make_runs(clear, rates=(1e-4, 1e-3))
    chosen = json.dumps([_choice(size) for size in answer_of((runs, logits))["sizes"]])
    draw = np.random.default_rng(1)
    for _ in range(2):
        shuffled = {run: values[draw.permutation(ROWS)] for run, values in logits.items()}
        answer = add_test(answer_of((runs, logits)), runs, VALIDATION, shuffled.__getitem__)
        assert json.dumps([_choice(size) for size in answer["sizes"]]) == chosen
        assert all(0.3 < cell["test"]["mean"] < 0.7 for cell in answer["sizes"][0]["cells"])


def _choice(size: Mapping[str, Any]) -> Any:
    recommended = {name: x for name, x in size["recommended"].items() if not name.startswith("test")}
    return [size["operating_points"], recommended, size["sentence"], size["learned"]]


def test_test_scores_are_of_the_runs_that_were_chosen() -> None:
    made = make_runs(clear, rates=(1e-4, 1e-3))
    answer = add_test(answer_of(made), made[0], VALIDATION, made[1].__getitem__)
    (size,) = answer["sizes"]
    assert {name: cell["test"]["mean"] for name, cell in cells(size).items()} == {
        name: pytest.approx(cell["validation"]["mean"]) for name, cell in cells(size).items()
    }
    assert size["recommended"]["test_share_corrected"]["estimate"] == pytest.approx(1)
    assert size["recommended"]["test"] == size["recommended"]["validation_best"]


def test_a_run_without_a_test_score_is_left_out_of_test() -> None:
    runs, logits = make_runs(clear)
    answer = answer_of((runs, logits))
    recommended = answer["sizes"][0]["recommended"]["run"]
    answer = add_test(answer, [run for run in runs if run["run"] != recommended], VALIDATION, logits.__getitem__)
    assert answer["sizes"][0]["recommended"]["test"] is None
    assert cells(answer["sizes"][0])["last 2"]["test"]["n"] == 4


def with_named(k: int | str, seed: int, rate: float, size: int) -> float:
    return 0.89 if k == "named" else clear(k, seed, rate, size)


def test_named_parts_stand_apart_from_the_k_that_costs_the_same() -> None:
    runs, logits = make_runs(with_named, ks=(0, 1, 2, "all", "named"))
    size = answer_of((runs, logits))["sizes"][0]
    without = answer_of(make_runs(clear))["sizes"][0]
    assert [cell["trainable"] for cell in size["cells"]] == ["last 0", "last 1", "last 2", "all", "named"]
    assert cells(size)["named"]["tuned_layers"] == cells(size)["last 2"]["tuned_layers"] == 2
    assert [cells(size)[name]["validation"]["n"] for name in ("last 2", "named")] == [5, 5]
    assert cells(size)["named"]["validation"]["mean"] == pytest.approx(0.89)
    assert size["recommended"]["trainable"] == without["recommended"]["trainable"] == "last 2"
    assert [p["estimate"] for p in size["operating_points"]] == [p["estimate"] for p in without["operating_points"]]
    assert size["sentence"].endswith(
        " The named parts reach 97.5 % of what full fine-tuning gains over guessing (95 % interval 94.7 to 100.3), "
        "accuracy 0.890 against 0.900."
    )


@pytest.mark.parametrize("best", ["last 2", "all"])
def test_named_parts_are_never_full_nor_recommended(best: str) -> None:
    """Not even where they are the best, or reach deeper than any number that was run."""
    ks = (0, 2, "all", "named") if best == "all" else (0, 2, "named")
    runs, logits = make_runs(lambda k, *_: {0: 0.6, 2: 0.7, "all": 0.9, "named": 0.97}[k], ks=ks)
    for reach, embeddings in ((4, False), (4, True)):
        some = [
            run | {"tuned_layers": reach, "tune_embeddings": embeddings} if run["trainable"] == "named" else run
            for run in runs
        ]
        size = answer_of((some, logits))["sizes"][0]
        assert size["reference"] == best and size["reference_is_full"] == (best == "all")
        assert size["recommended"]["trainable"] == best
        assert "named" not in {p[how] for p in size["operating_points"] for how in ("estimate", "sure", "possible")}
        assert ("Full fine-tuning was not run" in size["sentence"]) == (best != "all")


def test_named_parts_alone_are_scored_and_compared_with_nothing() -> None:
    answer = answer_of(make_runs(with_named, ks=("named",)))
    size = answer["sizes"][0]
    assert size["reference"] is None and not size["reference_is_full"] and not size["learned"]
    assert size["recommended"]["trainable"] == "named" and cells(size)["named"]["share"] is None
    assert {p["verdict"] for p in size["operating_points"]} == {"undefined"}
    assert answer["sentence"] == (
        "The named parts reach accuracy 0.890 (5 seeds, 95 % interval 0.880 to 0.900; guessing 0.500). Nothing was compared: "
        "add numbers of layers and all to --tune to compare."
    )
    one = answer_of(make_runs(with_named, ks=("named",), seeds=1))["sentence"]
    assert one.startswith("The named parts reach accuracy 0.890 (one seed; guessing 0.500). Nothing was compared")


def test_named_parts_beside_what_failed_or_has_not_run() -> None:
    failed = make_runs(with_named, ks=(1, "named"), outcome=lambda k, *_: "diverged" if k == 1 else "ok")
    assert "Nothing was compared: no other run has succeeded so far." in answer_of(failed)["sentence"]
    pending = make_runs(with_named, ks=(1, "named"), outcome=lambda k, *_: "pending" if k == "named" else "ok")
    runs = [
        run | {"tuned_layers": None, "tune_embeddings": None} if run["trainable"] == "named" else run
        for run in pending[0]
    ]
    said = answer_of((runs, pending[1]))["sentence"]
    assert said.startswith("Tune the last layer of 4") and "The named parts cannot be compared" in said
    nothing = make_runs(with_named, ks=("named",), outcome=lambda *_: "diverged")
    assert answer_of(nothing)["sentence"].startswith("There is no answer: all 5")


def test_test_scores_of_named_parts() -> None:
    made = make_runs(with_named, ks=("named",))
    answer = add_test(answer_of(made), made[0], VALIDATION, made[1].__getitem__)
    assert cells(answer["sizes"][0])["named"]["test"]["mean"] == pytest.approx(0.89)
