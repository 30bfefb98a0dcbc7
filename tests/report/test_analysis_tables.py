"""The table that opens an analysis: what to tune."""

from dataclasses import replace
from typing import Any

from frostline.report.answer.analysis import analyze
from frostline.report.tables.analysis_tables import recommendations_table
from frostline.report.tables.table import ReportTable
from frostline.statistics.analysis_settings import AnalysisSettings
from synthetic_results import noisy, synthetic_group

EARLY = {0: 0.6, 1: 0.75, 2: 0.9, 4: 0.9, "full": 0.9}  # two layers are enough
FLAT = {0: 0.9, 1: 0.9, 2: 0.9, 4: 0.9, "full": 0.9}


def groups() -> list[Any]:
    """Two models on three tasks, without one of the six pairs. Nothing is learned on the third task."""
    made = [("early", EARLY), ("flat", FLAT), ("nothing", dict.fromkeys(EARLY, 0.45))]
    return [
        synthetic_group(noisy(level, 0.004, seed), model=model, task=task)
        for seed, model in enumerate(("one", "two"))
        for task, level in made
        if (model, task) != ("two", "flat")
    ]


def entries(table: ReportTable) -> dict[str, list[str]]:
    """The printed cells of each task."""
    return {
        first.text: [" ".join([entry.text, *entry.small]).replace("\xa0", " ") for entry in others]
        for _, (first, *others) in table.entries()
    }


def test_tasks_are_down_and_models_across() -> None:
    table = recommendations_table(analyze(groups(), AnalysisSettings()))
    assert [column.title for column in table.shown] == ["task", "one", "two"]
    shown = entries(table)
    assert list(shown) == ["early", "flat", "nothing"]
    assert all(text.startswith("last 2 of 4 0.") and text.endswith(" >99 % sure") for text in shown["early"])
    assert shown["flat"][0].startswith("head only 0.") and shown["flat"][1] == "–"
    assert shown["nothing"] == ["undecided", "undecided"]
    assert "reach 95 % of full fine-tuning’s gain" in table.caption.replace("\xa0", " ")


def test_the_csv_has_the_numbers_of_the_answer() -> None:
    analysis = analyze(groups(), AnalysisSettings())
    first = recommendations_table(analysis).records()[0]
    choices = analysis.groups[0].sizes[0].choices
    choice = next(choice for choice in choices if choice.choice == first["one choice"])
    assert (first["one below_full"], first["one probability"]) == (choice.below_full, choice.probability)


def test_a_point_above_full_has_the_other_sign() -> None:
    better = {**EARLY, 2: 0.95}
    analysis = analyze([synthetic_group(noisy(better, 0.004), task=task) for task in "ab"], AnalysisSettings())
    (text,) = entries(recommendations_table(analysis))["a"]
    assert text.startswith("last 2 of 4 ") and " above, " in text


def test_by_mean_it_has_measured_differences_and_no_probability() -> None:
    analysis = analyze(groups(), AnalysisSettings(by_mean=True))
    table = recommendations_table(analysis)
    shown = entries(table)["early"][0]
    assert shown.startswith("last 2 of 4 ") and "sure" not in shown and "mean reaches" in table.caption
    cell = next(one for one in analysis.groups[0].sizes[0].cells if one.recipe == "last 2")
    assert table.records()[0]["one below_full"] == -100 * cell.difference.estimate != 0


def test_sorting_is_by_the_number_of_layers() -> None:
    table = recommendations_table(analyze(groups(), AnalysisSettings()))
    ranks = [row[1].rank for _, row in table.entries()]
    assert ranks == ["2", "0", ""]
    needed = [synthetic_group(noisy({**EARLY, "full": 0.99}, 0.004), task=task) for task in "ab"]
    table = recommendations_table(analyze(needed, AnalysisSettings()))
    assert [row[1].rank for _, row in table.entries()] == ["10000", "10000"]  # full fine-tuning


def test_a_model_that_trains_no_layer_is_named_and_sorted_first() -> None:
    analysis = analyze(groups()[:2], AnalysisSettings())
    size = analysis.groups[0].sizes[0]
    probe = replace(size.choices[0], choice="probe", below_full=0.3, probability=0.8)
    size.recommended, size.decision, size.choices = None, probe, [probe, *size.choices]
    table = recommendations_table(analysis)
    assert entries(table)["early"] == ["linear probe 0.3 below, 80 % sure"]
    ranks = [row[1].rank for _, row in table.entries()]
    assert ranks == ["-1", "0"]
    size.decision = None
    assert entries(recommendations_table(analysis))["early"] == ["no answer"]
