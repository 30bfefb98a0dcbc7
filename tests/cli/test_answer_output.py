"""The answer on the terminal: ``answers.txt`` has whole screens."""

import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frostline.cli.answer_output import LINES, answer_lines, by_interest, choices_table, print_answer, print_models
from frostline.report.answer.models_answer import answer_over_models
from frostline.report.explanations import sentence_without_command
from frostline.report.pages.models_page import models_table
from frostline.report.plain_text import wrapped
from frostline.statistics.answer import Answer, Calibration, CalibrationError, ModelAnswer, Threshold
from snapshots import assert_like
from synthetic_answer import Made, answer_of, clear, make_runs

DEPTH = 12


def of_sweep(made: Made, **changes: Any) -> Answer:
    """The answer of a sweep's folder whose model transformers opens."""
    return replace(answer_of(made), opened_by="transformers", **changes)


def deep() -> Answer:
    """An answer with 14 choices for a model of 12 layers, in which half of the layers are enough."""
    runs, logits = make_runs(
        lambda k, seed, *_: 0.95 - 0.3 / (1 + (9 if k == "full" else k)) - 0.01 * (k == 11) + 0.002 * seed,
        ks=(*range(DEPTH + 1), "full"),
        seeds=3,
    )
    whole = {"tuned_layers": DEPTH, "train_seconds": 1.0 + DEPTH}
    runs = [replace(run, **whole) if run.tune_embeddings else run for run in runs]
    answer = of_sweep((runs, logits), layers=DEPTH)
    answer.sentence += " A sentence that fills the lines of the terminal." * 6
    answer.next_command = "frostline sweep reviews/sweep.toml --seeds 7"
    return answer


def with_fewer_seeds(*, folds: bool) -> Answer:
    """An answer in which the last 2 layers have one seed."""
    runs, logits = make_runs(lambda k, seed, *_: 0.9 - 0.1 * (k == 0) - (0.03 if k == 2 else 0.03 * (-1) ** seed))
    answer = of_sweep(([run for run in runs if run.recipe != "last 2" or run.seed == 0], logits))
    answer.sizes[0].folds = 5 if folds else None
    return answer


def with_threshold() -> Answer:
    """An answer whose saved model has a threshold."""
    scores = {"at_half": {"f1": 0.7}, "cross_fitted": {"f1": 0.8}}
    threshold = Threshold(rule="f1", metric="f1", not_chosen=[], label="yes", threshold=0.3, **scores)
    bins: Any = {"confidence": [], "accuracy": [], "examples": [], "texts": []}
    error = CalibrationError(error=0.1, by_chance=0.0, by_chance_high=0.01, log_loss=0.5, **bins)
    judged = {"temperature": 2.0, "before": error, "after": error}
    calibration = Calibration(rows=1000, examples=9, counted="examples", saved=False, **judged)
    return of_sweep(make_runs(clear), threshold=threshold, calibration=calibration)


def failing(how: str) -> Made:
    return make_runs(clear, outcome=lambda k, seed, _: how if (k, seed) == (1, 0) else "ok")


CASES = {
    "a deep model": deep(),
    "four choices": of_sweep(make_runs(clear)),
    "without full": of_sweep(make_runs(clear, ks=(0, 1, 2))),
    "not above the baseline": of_sweep(make_runs(lambda k, seed, *_: 0.5 + 0.002 * seed)),
    "different numbers of seeds": with_fewer_seeds(folds=False),
    "folds": with_fewer_seeds(folds=True),
    "full is pending": of_sweep(make_runs(clear, outcome=lambda k, *_: "pending" if k == "full" else "ok")),
    "a diverged run": of_sweep(failing("diverged")),
    "an error": of_sweep(failing("failed")),
    "a saved threshold": with_threshold(),
    "a temperature that is not saved": replace(with_threshold(), threshold=None),
}


def test_screens() -> None:
    """Each begins with the sentence of the answer, which has tests of its own. What a simulation estimates is not compared."""
    estimate = re.compile(r"(?<![\d.])\d+\.\d(?!\d)|(?<![<>\d])\d+(?= %(?:  |$))|\d+(?= % sure)", re.MULTILINE)
    texts = dict[str, str]()
    for name, answer in CASES.items():
        lines = [line for line, _ in answer_lines(answer, Path("reviews"))]
        assert name != "a deep model" or (len(lines) == LINES and max(map(len, lines)) <= 80)
        said = wrapped(sentence_without_command(answer))
        assert lines[: len(said)] == said
        texts[name] = estimate.sub(lambda m: re.sub("[0-9]", "#", m[0]), "\n".join(lines[len(said) :]).strip("\n"))
    assert texts.pop("a temperature that is not saved") == texts["four choices"]
    assert texts.pop("folds") == texts["different numbers of seeds"].replace(
        "baseline 0.500)", "baseline 0.500); each seed is scored on one of 5 folds"
    )
    *above, one, other = texts["an error"].splitlines()
    texts["an error"] = f"{one}\n{other}"
    assert texts["a diverged run"].splitlines()[:-2] == above
    assert_like(Path(__file__).with_name("answers.txt"), texts)


def test_without_a_reference_choices_are_compared_with_the_best() -> None:
    size = replace(CASES["four choices"].sizes[0], reference=None, reference_is_full=False)
    assert "points below the best" in choices_table(size, 99)[0][0]


def test_the_chosen_line_is_marked_and_every_choice_fits_in_a_long_table() -> None:
    lines = choices_table(CASES["a deep model"].sizes[0], 99)
    assert [kind for _, kind in lines].count("chosen") == 1 and len(lines) == 1 + DEPTH + 2


@given(st.data())
def test_the_most_interesting_choices_come_first(data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 40))
    choices = [
        SimpleNamespace(
            choice=f"last {n}",
            **{name: data.draw(st.floats(0, 1)) for name in ("expected", "value")},
            dominated_by=data.draw(st.sampled_from([None, "head only"])),
        )
        for n in range(count)
    ]
    chosen, reference = (f"last {data.draw(st.integers(0, count - 1))}" for _ in range(2))
    order = by_interest(choices, chosen, reference)
    assert sorted(order) == sorted(choice.choice for choice in choices)
    assert order[0] == chosen and reference in order[:2]
    best = max(choices, key=lambda choice: choice.expected).choice
    second = max((one for one in choices if one.choice != chosen), key=lambda one: one.value, default=choices[0])
    assert second.choice in order[:3] and best in order[:4]


def test_an_error_is_the_exit_code_and_a_file_has_no_colours(capsys: pytest.CaptureFixture[str]) -> None:
    print_answer(CASES["a diverged run"], Path("o"))
    assert "\x1b" not in capsys.readouterr().out
    with pytest.raises(SystemExit, match="1"):
        print_answer(CASES["an error"], Path("o"))


def test_a_model_that_computes_no_layer_has_no_factor_of_zero(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """A probe on the embeddings, or a TF-IDF model: ``takes 0.0× the operations``, and ``0.0e+00`` in the table."""
    answer = of_sweep(make_runs(clear))
    measured: dict[str, Any] = {"expected": 0.9, "value": 0.9, "inference_operations": 1.2e8, "seconds": 1.0, "why": ""}
    measured |= {"layers": 2, "parameters": 20_000, "probe": 0.9, "above_baseline": True, "rows": 200, "runs": 3}
    measured |= dict.fromkeys(("below", "low", "high", "training_operations"), 0.0)
    best = ModelAnswer(model="two", folder="two", choice="probe", **measured)
    cheap = replace(
        best, model="one", folder="one", layers=1, below=None, low=None, high=None, value=0.8, inference_operations=0.0
    )
    models = [best, replace(cheap, enough=130.0)]
    found = answer_over_models(models, {"two": answer, "one": answer}, price=0.02, price_inference=0.0)
    assert "and computes no layer for a prediction." in found.sentence and "0.0×" not in found.sentence
    assert found.sentence.endswith("The budget ended before the next runs of one: `--budget 3min` allows them.")
    print_models(found, tmp_path)
    shown = capsys.readouterr().out
    assert "1.2e+08" in shown and "0.0e+00" not in shown and shown.count("none") == 1
    (tmp_path / "model").mkdir()  # before, there is none to be named
    print_models(found, tmp_path)
    assert str(tmp_path / "model") not in shown and str(tmp_path / "model") in capsys.readouterr().out
    records = models_table(found).entries()
    assert [entries[1].small[0] for _, entries in records] == ["of 2 layers", "of 1 layer"]
