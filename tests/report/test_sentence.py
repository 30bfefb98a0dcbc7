"""The sentences of answers: one file, ``sentences.txt``, has all of them. Folds, failures and doubts have cases of their own."""

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from frostline.cli.answer_output import answer_lines
from frostline.report import formatting
from frostline.report.figures.score_figures import validation_curve
from frostline.report.names import score_title
from frostline.report.tables.curve_tables import choices_table, scores_table
from frostline.statistics.answer import Answer
from frostline.statistics.predictions import Labelled
from frostline.statistics.recipe import FULL, Recipe
from frostline.statistics.run_group import SearchOutcome
from frostline.statistics.run_result import PROBE, RunResult
from snapshots import assert_like
from synthetic_answer import VALIDATION, Made, answer_of, clear, logits_with, make_runs, with_named

K = int | str


def levels(scores: Mapping[Any, float], spread: float = 0.0, **how: Any) -> Made:
    """Runs of these k with these scores, which vary by seed."""
    noise = (1, -1, 0.7, -0.7, 0)
    how.setdefault("ks", tuple(scores))
    return make_runs(lambda k, seed, *_: scores[k] + spread * noise[seed], **how)


def if_(**changes: str) -> Callable[[K, int, float], str]:
    """An outcome by k, as in ``k_full="pending"``, or by seed, as in ``from_1="diverged"``; all others succeed."""

    def outcome(k: K, seed: int, rate: float) -> str:
        from_seed = next(
            (how for name, how in changes.items() if name.startswith("from_") and seed >= int(name[5:])), "ok"
        )
        return changes.get(f"k_{k}", from_seed)

    return outcome


def changed(made: Made, which: Callable[[RunResult], bool] = lambda run: True, **values: Any) -> Made:
    """The runs, some of them with other values."""
    return [replace(run, **values) if which(run) else run for run in made[0]], made[1]


def is_(recipe: K) -> Callable[[RunResult], bool]:
    return lambda run: run.recipe == Recipe(recipe)


WAYS = [Recipe("setfit"), Recipe("mean-pooled-1")]


def with_probe(score: float, **how: Any) -> tuple[Made, SearchOutcome]:
    runs, logits = make_runs(lambda *_: 0.8, **how)
    logits["probe"] = logits_with(score, np.random.default_rng(1))
    return (runs, logits), SearchOutcome(alternatives=[PROBE])


LIKE_FULL, NO_BUDGET = {0: 0.6, 1: 0.75, 2: 0.9}, "Full fine-tuning was not run: only 1 min of the budget are left."
UNKNOWN_DEPTH: dict[str, Any] = {"tuned_layers": None, "tune_embeddings": None}
CASES: dict[str, Made | tuple[Made, SearchOutcome]] = {
    "a clear difference": levels({0: 0.55, 1: 0.55, 2: 0.99, "full": 0.99}),
    "a close difference": levels({0: 0.6, 1: 0.79, 2: 0.8, "full": 0.8}, 0.03),
    "a smaller k that scores higher": levels({1: 0.9, "full": 0.85}, seeds=3),
    "full, and the next best choice": levels({0: 0.6, 1: 0.7, 2: 0.86, "full": 0.9}),
    "full, and the next best way": levels({1: 0.6, "llrd": 0.88, "full": 0.9}),
    "less memory": changed(make_runs(clear), is_(2), peak_memory_bytes=840),
    "no comparable times": changed(make_runs(clear), is_(2), concurrent_runs=2),
    "one seed": make_runs(clear, seeds=1),
    "without full, the largest k": levels(LIKE_FULL),
    "without full, another k": levels({0: 0.5, 1: 0.9, 2: 0.9}),
    "a probe beside the head only": levels({0: 0.6, "probe": 0.8}),
    "without full, with ways": levels({1: 0.7, "lora-1": 0.8}),
    "without full, after a search": (levels(LIKE_FULL), SearchOutcome(skipped=[Recipe(3)])),
    "full was too dear": (levels(LIKE_FULL), SearchOutcome(instead=NO_BUDGET)),
    "full was too dear, and nothing was learned": (levels({0: 0.5, 1: 0.5}), SearchOutcome(instead=NO_BUDGET)),
    "a single k": levels({1: 0.75}),
    "only the head": levels({0: 0.6}),
    "a way": levels({1: 0.6, "lora-2": 0.9, "full": 0.9}),
    "a head that reads the mean": levels({1: 0.6, "mean-pooled-2": 0.9, "full": 0.9}),
    "a way that trains no layer": levels({1: 0.6, "probe": 0.9, "full": 0.9}),
    "ways without any k at the baseline": levels(
        {"lora-2": 0.49, "norms": 0.48, "full": 0.9}, outcome=if_(k_full="diverged")
    ),
    "ways without any k": levels({"lora-2": 0.9, "full": 0.9}, outcome=if_(k_full="diverged")),
    "a probe beside full": with_probe(0.9, ks=(0, "full"), seeds=1),
    "a probe beside the largest k": with_probe(0.9, ks=(0, 3), seeds=1),
    "a probe without any k": with_probe(0.9, ks=(0, "full"), seeds=1, outcome=lambda *_: "diverged"),
    "a probe, and nothing was learned": with_probe(0.5, ks=(0, "full"), seeds=1, outcome=if_(k_0="diverged")),
    "pending runs": make_runs(clear, outcome=if_(from_3="pending")),
    "full is pending": make_runs(clear, outcome=if_(k_full="pending")),
    "full is pending, ways are done": levels({"lora-2": 0.9, "full": 0.9}, outcome=if_(k_full="pending")),
    "full is awaited": (levels({0: 0.6, 1: 0.75}), SearchOutcome(awaited=FULL)),
    "full is pending after a search": (make_runs(clear, outcome=if_(k_full="pending")), SearchOutcome(over=True)),
    "nothing has run": make_runs(clear, outcome=lambda *_: "pending"),
    "everything diverged": make_runs(clear, outcome=lambda *_: "diverged"),
    "nothing was learned": levels({0: 0.49, 1: 0.5, "full": 0.5}),
    "nothing was learned with one seed": levels({0: 0.4, "full": 0.4}, seeds=1),
    "nothing was learned, and others failed": levels({0: 0.51, "full": 0.51}, outcome=if_(from_1="diverged")),
    "recommended, but not shown to be above the baseline": levels({0: 0.5, 2: 0.52, "full": 0.53}, seeds=2),
    "nothing was learned so far": levels({0: 0.51, "full": 0.51}, outcome=if_(from_1="pending")),
    "only a smaller k has learned": levels({0: 0.51, 1: 0.51, 2: 0.6, "full": 0.51}, seeds=3),
    "only the head has learned, and a k failed": levels({0: 0.6, 2: 0.5, "full": 0.51}, outcome=if_(k_2="degenerate")),
    "most runs failed": make_runs(clear, outcome=if_(from_1="diverged")),
    "all runs of a k failed": make_runs(clear, outcome=if_(k_1="diverged")),
    "a k was not tried": (levels({0: 0.6, 2: 0.9, "full": 0.9}), SearchOutcome(skipped=[Recipe(1), Recipe(3)])),
    "a way was not tried": (levels({0: 0.6, 2: 0.9, "full": 0.9}), SearchOutcome(skipped=WAYS)),
    "some k were not tried": (levels({0: 0.6, "full": 0.9}), SearchOutcome(skipped=[*map(Recipe, (1, 2, 4))])),
    "named parts": make_runs(with_named, ks=(0, 1, 2, "full", "named")),
    "named parts without full": levels({0: 0.6, 2: 0.7, "named": 0.97}),
    "named parts alone": make_runs(with_named, ks=("named",)),
    "named parts alone with one seed": make_runs(with_named, ks=("named",), seeds=1),
    "named parts, and a k failed": make_runs(with_named, ks=(1, "named"), outcome=if_(k_1="diverged")),
    "named parts are pending": changed(
        make_runs(with_named, ks=(1, "named"), outcome=if_(k_named="pending")), is_("named"), **UNKNOWN_DEPTH
    ),
    "named parts of two lengths": levels(
        {
            "last 2 for 3 epochs": 0.7,
            "last 2 for 10 epochs": 0.9,
            "named for 3 epochs": 0.8,
            "named for 10 epochs": 0.88,
        }
    ),
    "named parts of two lengths alone": levels({"named for 3 epochs": 0.8, "named for 10 epochs": 0.88}),
    "named parts failed": make_runs(with_named, ks=("named",), outcome=lambda *_: "diverged"),
}


def test_sentences() -> None:
    """What a simulation estimates is not compared."""
    found = {}
    for name, case in CASES.items():
        made, search = case if isinstance(case[1], SearchOutcome) else (case, SearchOutcome())
        answer = answer_of(made, **({"search": search} if search != SearchOutcome() else {}))  # type: ignore[arg-type]
        text = re.sub(r"(difference is) [\d.]+( points \w+)? to [\d.]+( points)?", r"\1 …\2 to …\3", answer.sentence)
        found[name] = re.sub(r"(more than 99|less than 1|\d+) % sure", "… % sure", text)
    assert_like(Path(__file__).with_name("sentences.txt"), found)


def test_too_few_validation_examples() -> None:
    runs, logits = make_runs(clear)

    def sentence(rows: int) -> str:
        validation = Labelled(VALIDATION.targets[:rows], "text-classification", ("0", "1"), "accuracy")
        few = {name: values[:rows] for name, values in logits.items()}
        return answer_of((runs, few), validation=validation).sentence

    assert sentence(9).endswith(" 9 validation examples are too few for any conclusion: label more.")
    assert "too few" not in sentence(10)


DOUBT = (
    " Do not trust the training times: tuning the last layer took 112 % of the time of full fine-tuning, so other programs "
    "probably slowed some runs down."
)
AT_THE_END = " At the end of training, full fine-tuning scores 0.933 on examples that it was trained on and 0.900 "
EPOCHS = "on validation. It has not fitted its examples yet, so longer training may help."


@pytest.mark.parametrize(
    ("made", "recipe", "values", "remark"),
    [
        (make_runs(clear), 1, {"train_seconds": 5.4}, None),  # full fine-tuning took 5 seconds
        (make_runs(clear), 1, {"train_seconds": 5.6}, DOUBT),
        (make_runs(clear), 1, {"train_seconds": 5.6, "concurrent_runs": 2}, None),  # these times are not compared
        (make_runs(clear), "full", {"train_last": 0.934}, None),  # full fine-tuning reaches .9 on validation
        (make_runs(clear), "full", {"train_last": 0.933, "validation_last": 0.9}, AT_THE_END + EPOCHS),
        (make_runs(clear), "full", {"train_last": 0.3}, EPOCHS),
        (make_runs(clear), "full", {"train_last": None}, None),
        (levels({0: 0.6, "full": 0.98}), "full", {"train_last": 0.97}, None),  # little is left to learn
        (levels({0: 0.8}), 0, {"train_last": 0.7}, None),  # no layer is trained
    ],
)
def test_doubts(made: Made, recipe: K, values: dict[str, float | None], remark: str | None) -> None:
    said = answer_of(changed(made, is_(recipe), **values)).sentence
    assert said.endswith(remark) if remark else "Do not trust" not in said and "epochs" not in said


@pytest.mark.parametrize(("best", "embeddings"), [("last 2", False), ("full", True)])
def test_named_parts_are_neither_the_reference_nor_recommended(best: str, embeddings: bool) -> None:
    """This holds even if they are the best, or include lower layers than any k."""
    ks = (0, 2, "full", "named") if best == "full" else (0, 2, "named")
    made = levels({0: 0.6, 2: 0.7, "full": 0.9, "named": 0.97}, ks=ks)
    size = answer_of(changed(made, is_("named"), tuned_layers=4, tune_embeddings=embeddings)).sizes[0]
    assert size.reference == best and size.reference_is_full == (best == "full") and size.recommended.recipe == best
    points = {getattr(p, how) for p in size.operating_points for how in ("estimate", "confident", "not_ruled_out")}
    assert "named" not in points


Scores = Mapping[str, Mapping[int, float]]
PROBE_ON_FOLDS = {0: 0.875, 1: 0.85, 2: 0.825, 3: 0.85, 4: 0.8}  # 0.840 on all rows


def answer_with_folds(scores: Scores, probe: Mapping[int, float], **settings: Any) -> Answer:
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
    search = SearchOutcome(alternatives=[PROBE] if probe else [])
    return answer_of((runs, logits), validation=validation, layers=6, search=search, **settings)


@pytest.mark.parametrize(
    ("scores", "probe"),
    [
        ({"head only": {0: 0.6}, "full": {0: 0.95}}, PROBE_ON_FOLDS),  # its easiest fold is the only one of the runs
        ({"full": {0: 0.7, 1: 0.6}}, PROBE_ON_FOLDS),  # a recommended probe
        ({"last 2": {0: 0.9, 1: 0.85, 2: 0.8, 3: 0.8, 4: 0.8}, "full": {0: 0.9, 1: 0.8}}, {}),
        ({"last 2": {0: 0.9}, "full": {1: 0.8}}, {}),  # the seed of the first fold failed, so there is no common one
    ],
)
def test_both_scores_are_expected_on_all_rows(scores: Scores, probe: Mapping[int, float]) -> None:
    """Measured scores beside each other would be of different folds."""
    (size,) = answer_with_folds(scores, probe).sizes
    expected = {one.choice: formatting.score(one.expected) for one in size.choices}
    ours, theirs = re.findall(r"0\.\d{3}", size.sentence.split(". ")[1])
    assert ours == expected[size.decision.choice]
    assert theirs in {expected[name] for name in expected if name != size.decision.choice}
    table = choices_table(size, price=0.02)
    assert "expected\nscore" in [column.title for column in table.columns]


@pytest.mark.parametrize(
    ("scores", "probe", "chosen", "rows"),
    [
        ({"head only": {0: 0.6, 1: 0.6, 2: 0.6}, "last 2": {0: 0.95}, "full": {0: 0.8, 1: 0.8}}, {}, "last 2", 40),
        ({"head only": {0: 0.6}, "full": {0: 0.6, 1: 0.6}}, PROBE_ON_FOLDS, "probe", 200),
        ({"full": {0: 0.9, 1: 0.9}}, {}, "full", 80),
        ({"last 2": {0: 0.5}, "full": {0: 0.5, 1: 0.5}}, {}, "last 2", 40),
    ],
)
def test_the_examples_are_those_of_the_recommended_choice(
    scores: Scores, probe: Mapping[int, float], chosen: str, rows: int
) -> None:
    """With folds, these may be some of the validation examples. Elsewhere an answer has the number of all, and their baseline."""
    answer = answer_with_folds(scores, probe)
    (size,) = answer.sizes
    assert size.decision.choice == chosen and answer.validation_rows == 200 and answer.chance == 0.5
    shown = "200" if rows == 200 else f"{rows} of 200"
    assert re.findall(r"on ([\d,of ]+) validation examples", size.sentence) == [shown]
    assert {cell.validation_rows for cell in size.cells if cell.recipe == chosen} <= {rows}
    screen = " ".join(line for line, _ in answer_lines(answer, Path()))
    assert "on 200 validation examples (majority-class baseline 0.500)" in screen
    assert re.findall(r"baseline \(([\d.]+)\)", size.sentence) in ([], ["0.500"])


@pytest.mark.parametrize("right", range(24, 40, 2))
def test_the_reference_is_above_the_baseline_if_and_only_if_it_has_learned(right: int) -> None:
    """Else an answer would say Undecided beside a recommended row, or recommend what is not shown to have learned."""
    others = {name: dict.fromkeys(range(5), 0.5) for name in ("head only", "last 1", "last 2", "last 3")}
    (size,) = answer_with_folds({**others, "full": {0: right / 40}}, {}, price=0.0).sizes
    assert size.decision.choice == size.reference == "full"
    assert size.decision.above_baseline is size.learned is not size.sentence.startswith("Undecided")
    marks = {tag for row in scores_table(size, "accuracy").rows for tag in row.tags}
    assert marks == {"recommended" if size.learned else "best so far", "reference"}


def test_curves_compare_scores_without_the_effects_of_folds() -> None:
    """Last 3 is behind the reference on their common fold. Its mean is higher only because that fold is the easiest."""
    hard = {0: 0.9, 1: 0.75, 2: 0.75, 3: 0.75, 4: 0.75}
    one, other = (
        answer_with_folds({"head only": hard, "last 3": {0: 0.85}, "full": all_seeds}, hard).sizes[0]
        for all_seeds in ({**hard, 1: 0.8}, {0: 0.9})
    )
    found = {cell.recipe: cell for cell in one.cells}
    assert found["last 3"].validation.mean == 0.85 > found["full"].validation.mean == pytest.approx(0.79)
    assert found["last 3"].comparable < found["full"].comparable == pytest.approx(0.79, abs=0.005)
    for k in ("last 3", "full"):
        label = str(validation_curve(one, metric="accuracy").get_label())
        assert f"{k} {formatting.score(found[k].comparable)}" in label
    title = "accuracy, without the effects of folds"
    assert title == score_title("accuracy", one.cells)
    rows = {row["tuned"]: row for row in scores_table(one, "accuracy").records()}
    assert rows["last 3"]["comparable"] == found["last 3"].comparable
    assert "mean without\nfold effects" in [column.title for column in scores_table(one, "accuracy").columns]
    assert {cell.recipe: cell.comparable for cell in other.cells}["full"] < 0.9
