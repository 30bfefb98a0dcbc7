"""Several tasks of one model: operating points, and the tasks that do not count."""

from dataclasses import replace
from typing import Any

from frostline.report.answer.analysis import analyze
from frostline.statistics.analysis_settings import AnalysisSettings
from frostline.statistics.run_result import RunResult
from synthetic_results import RISING, noisy, synthetic_group

BAD = {**RISING, 2: 0.7}
TWO = [synthetic_group(noisy(level, 0.0), task=task) for task, level in (("a", RISING), ("b", BAD))]
EXACT = {"by_mean": True, "corrected": False, "target": 0.9}


def test_the_target_is_reached_in_every_task() -> None:
    (found,) = analyze(TWO, AnalysisSettings(**EXACT)).over_tasks  # type: ignore[arg-type]
    assert [p.estimate for p in found.points if p.target == 0.9] == ["last 4"]


def test_an_excluded_task_is_mentioned_and_does_not_count() -> None:
    (found,) = analyze(TWO, AnalysisSettings(**EXACT, leave_out=("B",))).over_tasks  # type: ignore[arg-type]
    assert found.sentence == (
        "Tuning the last 2 layers of 4 reaches 90 % of the score of full fine-tuning in the one task that counts, by mean score"
        " (without b: excluded by choice)."
    )
    assert (found.tasks, found.left_out) == (["a", "b"], ["b"])
    assert [p.estimate for p in found.points if p.target == 0.9] == ["last 2"]


def test_a_k_is_confident_only_if_it_is_in_every_task() -> None:
    groups = [synthetic_group(noisy(RISING, spread), task=task) for task, spread in (("a", 0.002), ("b", 0.05))]
    point = next(p for p in analyze(groups, AnalysisSettings()).over_tasks[0].points if p.target == 0.9)
    alone = analyze(groups[:1], AnalysisSettings()).groups[0].sizes[0].operating_points
    assert next(p for p in alone if p.target == 0.9 and p.corrected).confident == "last 4"
    assert point.confident == "full" and point.not_ruled_out in ("last 2", "last 4")


def test_without_baselines_shares_are_of_the_score() -> None:
    groups = [synthetic_group(noisy(RISING, 0.002), task=task, chance=None) for task in "ab"]
    (found,) = analyze(groups, AnalysisSettings(target=0.9)).over_tasks
    assert (found.undefined, found.raw) == ([], ["a", "b"])
    assert found.sentence == (
        "Tuning the last 2 layers of 4 reaches 90 % of the score of full fine-tuning in each of 2 tasks, with 95 % confidence."
    )
    mixed = [groups[0], synthetic_group(noisy(RISING, 0.002), task="b", chance=0.5)]
    said = analyze(mixed, AnalysisSettings(target=0.9)).over_tasks[0].sentence
    assert "of the gain of full fine-tuning over the baseline in each of 2 tasks, with 95 % confidence" in said
    assert "(of the score in a, where the score of the baseline is unknown)" in said


def test_fewer_than_two_tasks_with_full_have_no_summary() -> None:
    assert analyze([synthetic_group(noisy(RISING))], AnalysisSettings()).over_tasks == []
    without = [synthetic_group(noisy(RISING), task=task, ks=(0, 1, 2)) for task in "ab"]
    assert analyze(without, AnalysisSettings()).over_tasks == []


def test_a_task_without_a_score_of_full_is_mentioned() -> None:
    groups = [*TWO, synthetic_group(noisy(BAD, 0.0), task="c", ks=(0, 2, 4))]
    (found,) = analyze(groups, AnalysisSettings(**EXACT)).over_tasks  # type: ignore[arg-type]
    assert (found.tasks, found.excluded) == (["a", "b"], ["c"])
    assert (
        "in each of 2 tasks" in found.sentence and "(without c: full fine-tuning has no usable score)" in found.sentence
    )


def test_a_k_missing_in_one_task_is_not_named() -> None:
    groups = [synthetic_group(noisy(RISING), task="a"), synthetic_group(noisy(RISING), task="b", ks=(0, 2, "full"))]
    points = analyze(groups, AnalysisSettings()).over_tasks[0].points
    assert {point.estimate for point in points} <= {"head only", "last 2", "full"}


def test_a_task_in_which_full_is_not_above_the_baseline_does_not_count() -> None:
    nothing = dict.fromkeys(RISING, 0.45)
    groups = [synthetic_group(noisy(RISING, 0.005), task="a"), synthetic_group(noisy(nothing, 0.01), task="b")]
    (found,) = analyze(groups, AnalysisSettings(target=0.9)).over_tasks
    assert found.undefined == ["b"]
    confident = next(p for p in found.points if p.target == 0.9).confident
    assert confident == "last 4" and found.sentence.startswith(
        "Tuning the last 4 layers of 4 reaches 90 % of the gain of full fine-tuning over the baseline in the one task that "
        "counts, with 95 % confidence (without b: full fine-tuning is not above the baseline)"
    )


def of_length(run: RunResult, **changes: Any) -> RunResult:
    """The run with what its name says."""
    known = {"tune_embeddings": run.recipe.is_full, "num_train_epochs": run.recipe.epochs, "train_size": 100}
    return replace(run, **known, **changes)  # type: ignore[arg-type]


def test_a_training_length_of_which_every_run_failed_takes_no_answer_away() -> None:
    level: dict[int | str, float] = {"full for 3 epochs": 0.5, "last 2 for 10 epochs": 0.85, "full for 10 epochs": 0.9}
    group = synthetic_group(noisy(level, 0.001), ks=list(level), sizes=(100,))
    runs = [of_length(run, outcome="degenerate" if run.recipe.epochs == 3 else "ok") for run in group.runs]
    (size,) = analyze([replace(group, runs=runs)], AnalysisSettings()).groups[0].sizes
    assert size.reference == "full for 10 epochs" and len(size.choices) == 2


def test_full_fine_tuning_of_several_training_lengths_is_the_reference_of_every_task() -> None:
    level: dict[int | str, float] = {
        **{"last 2 for 3 epochs": 0.8, "last 2 for 10 epochs": 0.85},
        **{"full for 3 epochs": 0.85, "full for 10 epochs": 0.9},
    }
    groups = [synthetic_group(noisy(level, 0.001), task=task, ks=list(level), sizes=(100,)) for task in "ab"]
    groups = [replace(one, runs=[of_length(run) for run in one.runs]) for one in groups]
    found = analyze(groups, AnalysisSettings(**EXACT))  # type: ignore[arg-type]
    (over_tasks,) = found.over_tasks
    assert over_tasks.counted == 2 and next(p for p in over_tasks.points if p.target == 0.9).estimate is not None
