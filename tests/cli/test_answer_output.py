"""The answer on the terminal."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frostline.cli.answer_output import LINES, answer_lines, by_interest, choices_table, print_answer, why_points_differ
from frostline.statistics.answer import Answer, Calibration, CalibrationError, Threshold
from synthetic_answer import LAYERS, answer_of, clear, make_runs

DEPTH = 12


def deep_answer(**changes: Any) -> Answer:
    """An answer with 14 choices for a model of 12 layers, in which half of the layers are enough."""
    runs, logits = make_runs(
        lambda k, seed, *_: 0.95 - 0.3 / (1 + (9 if k == "full" else k)) - 0.01 * (k == 11) + 0.002 * seed,
        ks=(*range(DEPTH + 1), "full"),
        seeds=3,
    )
    whole = {"tuned_layers": DEPTH, "train_seconds": 1.0 + DEPTH}
    runs = [replace(run, **whole) if run.tune_embeddings else run for run in runs]
    return as_in_a_sweep(replace(answer_of((runs, logits)), layers=DEPTH, **changes))


def as_in_a_sweep(answer: Answer) -> Answer:
    """The answer with the keys that a sweep's folder adds."""
    return replace(answer, opened_by="transformers")


def test_it_fits_on_a_screen() -> None:
    answer = deep_answer()
    answer.sentence += " A sentence that fills the lines of the terminal." * 6
    answer.decision.next_command = "frostline sweep reviews/sweep.toml --seeds 7"
    lines = answer_lines(answer, Path("reviews"))
    assert len(lines) == LINES and all(len(line) <= 80 for line, _ in lines)
    text = "\n".join(line for line, _ in lines)
    assert " ".join(text.split()).startswith(answer.sentence.replace("\n", " ")[:60])
    assert "To be surer  frostline sweep reviews/sweep.toml --seeds 7" in text
    assert "Report       reviews/report.html\nModel        reviews/model\nLoad         from transformers" in text
    size = answer.sizes[0]
    (chosen,) = [line for line, kind in lines if kind == "chosen"]
    assert chosen.startswith(">") and chosen.endswith("recommended")
    assert any(line.startswith("   full ") for line, _ in lines) and " more in the report" in text
    shown = sum(line.rstrip().split("%")[0] != line for line, _ in choices_table(size, 99)[1:])
    assert shown == len(size.choices) == DEPTH + 2


def test_a_short_table_is_complete() -> None:
    answer = as_in_a_sweep(answer_of(make_runs(clear)))
    lines = answer_lines(answer, Path("o"))
    names = [line[3:].split("  ")[0] for line, _ in lines if "%" in line and "." in line[:30]]
    assert names[-4:] == ["head only", "last 1", "last 2", "full"] and len(lines) < LINES
    assert not any("more in the report" in line for line, _ in lines)
    (full,) = [line for line, _ in lines if line.startswith("   full ")]
    assert "(" not in full and full.count("%") == 1  # neither an interval nor a probability, only its cost


def test_without_full_the_layers_are_a_share_of_the_reference() -> None:
    lines = answer_lines(as_in_a_sweep(answer_of(make_runs(clear, ks=(0, 1, 2)))), Path("o"))
    (head,) = [line for line, _ in lines if line.startswith("   choice")]
    assert "points below last 2  of last 2  sure" in head


@pytest.mark.parametrize(("accuracy", "mark"), [(0.7, "recommended"), (0.5, "best so far")])
def test_a_model_that_is_not_above_the_baseline_is_not_recommended(accuracy: float, mark: str) -> None:
    made = make_runs(lambda k, seed, *_: accuracy + 0.002 * seed)
    answer = as_in_a_sweep(answer_of(made))
    assert answer.sentence.startswith("Undecided: ") == (mark == "best so far")
    assert answer.decision.above_baseline == (mark == "recommended")
    lines = answer_lines(answer, Path("o"))
    (chosen,) = [line for line, kind in lines if kind == "chosen"]
    assert chosen.endswith(mark)
    doubt = " (not shown to be above the majority-class baseline)" if mark == "best so far" else ""
    assert f"Model        o/model{doubt}" in [line for line, _ in lines]


def test_different_numbers_of_seeds_are_shown_and_explained() -> None:
    equal = as_in_a_sweep(answer_of(make_runs(clear)))
    runs, logits = make_runs(lambda k, seed, *_: 0.9 - 0.1 * (k == 0) - (0.03 if k == 2 else 0.03 * (-1) ** seed))
    fewer = as_in_a_sweep(answer_of(([run for run in runs if run.recipe != "last 2" or run.seed == 0], logits)))
    texts = ["\n".join(line for line, _ in answer_lines(one, Path("o"))) for one in (equal, fewer)]
    assert not any("folds" in text or "of different rows" in text for text in texts)
    for choice in fewer.sizes[0].choices:
        choice.part_of_rows, choice.reference_score = choice.choice == "last 2", 0.87
    fewer.sizes[0].folds = 5
    of_folds = " ".join(" ".join(line for line, _ in answer_lines(fewer, Path("o"))).split())
    assert "validation examples; each seed is scored on one of 5 folds (majority-class" in of_folds
    beside = "Each score is of the folds that full fine-tuning is scored on, too; beside it is the score of full"
    assert f"similar choices. {beside} fine-tuning on these." in of_folds and "seeds points" not in of_folds
    assert "last 2 0.870 0.870" in of_folds and why_points_differ(fewer.sizes[0]) in of_folds
    remark = "a score of few seeds is pulled towards"
    assert [remark in " ".join(text.split()) for text in texts] == ["seeds" in text for text in texts] == [False, True]
    (last_2,) = [line for line in texts[1].splitlines() if line[3:].startswith("last 2 ")]
    assert last_2[3:].split()[2:4] == ["0.870", "1"]


@given(st.data())
def test_the_most_interesting_choices_come_first(data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 40))
    choices = [
        SimpleNamespace(
            choice=f"last {n}",
            **{name: data.draw(st.floats(0, 1)) for name in ("score", "value")},
            dominated_by=data.draw(st.sampled_from([None, "head only"])),
        )
        for n in range(count)
    ]
    chosen, reference = (f"last {data.draw(st.integers(0, count - 1))}" for _ in range(2))
    order = by_interest(choices, chosen, reference)
    assert sorted(order) == sorted(choice.choice for choice in choices)
    assert order[0] == chosen and reference in order[:2]
    best = max(choices, key=lambda choice: choice.score).choice
    second = max((one for one in choices if one.choice != chosen), key=lambda one: one.value, default=choices[0])
    assert second.choice in order[:3] and best in order[:4]


def test_without_a_decision_the_scores_are_shown() -> None:
    none = make_runs(clear, outcome=lambda k, *_: "pending" if k == "full" else "ok")
    answer = as_in_a_sweep(answer_of(none))
    assert answer.decision is None
    text = "\n".join(line for line, _ in answer_lines(answer, Path("o")))
    assert "\nlast 2     0.900\n" in text and "Load" not in text and "cost" not in text
    assert "5 runs not trained yet." in text


def test_failed_runs_are_always_counted(capsys: pytest.CaptureFixture[str]) -> None:
    made = make_runs(clear, outcome=lambda k, seed, _: "diverged" if (k, seed) == (1, 0) else "ok")
    print_answer(as_in_a_sweep(answer_of(made)), Path("o"))
    assert capsys.readouterr().out.splitlines()[-2].startswith("1 of 20 finished runs failed (diverged")
    made = make_runs(clear, outcome=lambda k, seed, _: "failed" if (k, seed) == (1, 0) else "ok")
    with pytest.raises(SystemExit, match="1"):
        print_answer(as_in_a_sweep(answer_of(made)), Path("o"))
    assert "1 run ended in an error. `frostline status o` gives the reason;" in capsys.readouterr().out


def test_a_file_has_no_colours(capsys: pytest.CaptureFixture[str]) -> None:
    assert LAYERS == 4
    print_answer(as_in_a_sweep(answer_of(make_runs(clear))), Path("o"))
    assert "\x1b" not in capsys.readouterr().out


def test_what_a_saved_threshold_changes_is_printed() -> None:
    half, more = {"f1": 0.7}, {"f1": 0.8}
    answer = as_in_a_sweep(answer_of(make_runs(clear)))
    answer.threshold = Threshold(
        rule="f1", metric="f1", not_chosen=[], at_half=half, cross_fitted=more, label="yes", threshold=0.3
    )
    bins: Any = {"confidence": [], "accuracy": [], "examples": []}
    judged = CalibrationError(error=0.1, by_chance=0.0, by_chance_high=0.01, log_loss=0.5, **bins)
    answer.calibration = Calibration(
        examples=9, counted="examples", saved=False, temperature=2.0, before=judged, after=judged
    )
    text = " ".join(line for line, _ in answer_lines(answer, Path("o")))
    assert "The F1 changes from 0.700 at 0.5 to 0.800 on examples" in " ".join(text.split())
    asked_for_nothing = answer_lines(replace(answer, threshold=None), Path("o"))
    assert "temperature" not in " ".join(line for line, _ in asked_for_nothing)
