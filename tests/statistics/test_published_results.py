"""Tables of results from any source: which columns are found, and what is refused."""

from pathlib import Path
from typing import Any

import pytest

from frostline import FrostlineError
from frostline.statistics.results_table import NAMES, read_results
from frostline.statistics.run_group import RunGroup

ROWS = [
    {"model": "m", "task": "CoLA", "metric": "mcc", "k": "0", "full": "0", "seed": "1", "value": "0.1"},
    {"model": "m", "task": "CoLA", "metric": "acc", "k": "0", "full": "0", "seed": "1", "value": "0.7"},
    {"model": "m", "task": "CoLA", "metric": "mcc", "k": "4", "full": "1", "seed": "1", "value": "nan"},
    {"model": "m", "task": "mine", "metric": "acc", "k": "2", "full": "0", "seed": "b", "value": "0.8"},
]


def table(path: Path, rows: list[dict[str, str]]) -> Path:
    path.write_text("\n".join([",".join(rows[0]), *(",".join(row.values()) for row in rows)]) + "\n")
    return path


def read(path: Path, rows: list[dict[str, str]] = ROWS, **how: Any) -> list[RunGroup]:
    return read_results(table(path / "runs.csv", rows), **how)


def refusal(path: Path, rows: list[dict[str, str]] = ROWS, **how: Any) -> str:
    with pytest.raises(FrostlineError) as caught:
        read(path, rows, **how)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_columns_are_found_by_their_usual_names(tmp_path: Path) -> None:
    cola, mine = read(tmp_path)
    assert (cola.model, cola.task, cola.evidence.metric, cola.evidence.chance, cola.layers) == (
        "m",
        "CoLA",
        "matthews_correlation",
        0.0,
        4,
    )
    assert [(run.recipe, run.tuned_layers, run.tune_embeddings) for run in cola.runs] == [
        ("head only", 0, False),
        ("full", 4, True),
    ]
    assert [run.validation_best for run in cola.runs] == [0.1, None]  # not a number: it has no score
    assert [run.run for run in cola.runs] == ["row 2", "row 4"]
    assert (mine.evidence.metric, mine.evidence.chance, mine.layers, mine.runs[0].seed) == ("accuracy", None, None, "b")
    assert mine.runs[0].train_size is None and mine.runs[0].status == "done"


def test_a_column_of_recipes_counts_more_than_numbers_of_layers(tmp_path: Path) -> None:
    """``trainable`` was its name before."""
    for name in ("recipe", "trainable"):
        rows = [
            {"seed": "0", name: kind, "tuned_layers": "2", "layers": "4", "score": "0.5"}
            for kind in ("lora-2", "last 2")
        ]
        (found,) = read(tmp_path, rows)
        assert [run.recipe for run in found.runs] == ["lora-2", "last 2"]


def test_columns_are_named_and_set(tmp_path: Path) -> None:
    rows = [{"who": "0", "froze": "3", "f-one": "0.5"}, {"who": "0", "froze": "0", "f-one": "0.6"}]
    (found,) = read(
        tmp_path,
        rows,
        columns={"seed": "who", "frozen_layers": "froze", "score": "f-one"},
        constants={"layers": "4", "task": "t", "metric": "f1", "train_size": "50"},
        chances={"t": 0.4},
    )
    assert [run.recipe for run in found.runs] == ["last 1", "last 4"]
    assert (found.task, found.evidence.metric, found.evidence.chance, found.layers) == ("t", "f1", 0.4, 4)
    assert found.runs[0].train_size == 50


def test_names_of_full_fine_tuning(tmp_path: Path) -> None:
    rows = [
        {"tuned_layers": word, "seed": str(n), "score": "0.5"}
        for n, word in enumerate(("full", "full", "last 2", "2.0"))
    ]
    (found,) = read(tmp_path, rows)
    assert [run.recipe for run in found.runs] == ["full", "full", "last 2", "last 2"]


def test_all_layers_frozen_is_the_classifier_head_only(tmp_path: Path) -> None:
    rows = [{"frozen_layers": word, "seed": "0", "score": "0.5", "layers": "12"} for word in ("all", "12", "0")]
    (found,) = read(tmp_path, [{**row, "seed": str(n)} for n, row in enumerate(rows)])
    assert [run.recipe for run in found.runs] == ["head only", "head only", "last 12"]
    assert "is not a number of layers" in refusal(tmp_path, [{**rows[0], "frozen_layers": "full"}])


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [("FINISHED", "done"), ("Success", "done"), ("", "done"), ("Crashed", "failed"), ("queued", "pending")],
)
def test_other_names_of_a_status(tmp_path: Path, theirs: str, ours: str) -> None:
    (found,) = read(tmp_path, [{"k": "0", "seed": "0", "score": "0.5", "Status": theirs}])
    assert found.runs[0].status == ours
    assert "'zapped' is none of done, failed, pending" in refusal(
        tmp_path, [{"k": "0", "seed": "0", "score": "0.5", "status": "zapped"}]
    )


def test_the_score_of_the_baseline(tmp_path: Path) -> None:
    def chance(task: str, metric: str, **how: Any) -> float | None:
        (found,) = read(tmp_path, [{"task": task, "metric": metric, "k": "0", "seed": "0", "value": "0.5"}], **how)
        return found.evidence.chance

    assert chance("SST-2", "acc") == pytest.approx(444 / 872) and chance("sst2", "accuracy") == pytest.approx(
        0.509, abs=1e-3
    )
    assert chance("MNLI-MM", "acc") == pytest.approx(0.352, abs=1e-3) and chance("MRPC", "f1") == pytest.approx(
        0.8122, abs=1e-4
    )
    assert chance("anything", "mcc") == chance("anything", "spearmanr") == 0.0
    assert chance("anything", "acc") is None and chance("anything", "acc", chances={"anything": 0.3}) == 0.3


def test_the_metric_of_a_task(tmp_path: Path) -> None:
    assert read(tmp_path, ROWS[:2])[0].evidence.metric == "matthews_correlation"  # GLUE's metric of CoLA
    assert read(tmp_path, ROWS[:2], metrics={"": "acc"})[0].evidence.metric == "accuracy"
    assert read(tmp_path, ROWS[:2], metrics={"CoLA": "accuracy"})[0].runs[0].validation_best == 0.7
    other = [{**row, "task": "mine"} for row in ROWS[:2]]
    assert "mine has scores in 'matthews_correlation', 'accuracy'; choose one with --metric mine=NAME" in refusal(
        tmp_path, other
    )
    assert "but not in 'f1'" in refusal(tmp_path, other, metrics={"mine": "f1"})


@pytest.mark.parametrize(
    "change, said",
    [
        ({"value": "good"}, "runs.csv, row 2, column 'value': 'good' is not a number"),
        ({"k": "two"}, "row 2, column 'k': 'two' is not a number of layers; give whole numbers from 0, or full"),
        ({"k": "-1"}, "'-1' is not a number of layers"),
        ({"k": "1.5"}, "'1.5' is not a number of layers"),
        ({"seed": ""}, "row 2, column 'seed': the seed is missing"),
    ],
)
def test_an_invalid_value_is_refused(tmp_path: Path, change: dict[str, str], said: str) -> None:
    assert said in refusal(tmp_path, [{**ROWS[0], **change}, *ROWS[2:]])


def test_a_repeated_run_is_refused(tmp_path: Path) -> None:
    assert "row 3: this run (head only, seed 1) is already in row 2" in refusal(tmp_path, [ROWS[0], ROWS[0]])
    twice = [{**ROWS[0], "lr": rate} for rate in ("1e-5", "2e-5")]
    assert len(read(tmp_path, twice)[0].runs) == 2


def test_missing_and_unknown_columns_are_refused(tmp_path: Path) -> None:
    rows = [{"seed": "0", "k": "1"}]
    assert (
        "none of its columns ('seed', 'k') is known as score; name the column with --columns score=COLUMN"
        in refusal(tmp_path, rows)
    )
    rows = [{"seed": "0", "value": "1"}]
    assert "--set tuned_layers=VALUE" in refusal(tmp_path, rows)
    assert read(tmp_path, rows, constants={"tuned_layers": "full"})[0].runs[0].recipe == "full"
    assert "no column 'valu' (did you mean 'value'?)" in refusal(tmp_path, columns={"score": "valu"})
    assert "There is no column 'scor' (did you mean 'score'?)" in refusal(tmp_path, columns={"scor": "value"})
    assert "frozen layers count from the bottom; give the number of layers with --set layers=L" in refusal(
        tmp_path, [{"seed": "0", "frozen": "1", "value": "1"}]
    )
    with pytest.raises(FrostlineError, match="no such file"):
        read_results(tmp_path / "none.csv")


def test_every_name_belongs_to_one_column() -> None:
    names = [name for names in NAMES.values() for name in names]
    assert len(names) == len(set(names))


def test_the_table_of_a_sweep(finished_sweep: Path) -> None:
    (found,) = read_results(finished_sweep / "results.csv")
    assert [run.recipe for run in found.runs] == ["head only", "last 1", "full"] * 2
    assert found.layers == 3 and found.evidence.metric == "accuracy" and found.runs[0].trainable_parameters > 0
    assert all(run.train_seconds >= 0 and run.outcome in ("ok", "degenerate") for run in found.runs)


def test_a_failed_run_needs_no_metric(tmp_path: Path) -> None:
    rows = [
        {"k": "0", "full": "0", "seed": "1", "metric": "accuracy", "score": "0.7", "status": "done"},
        {"k": "0", "full": "0", "seed": "2", "metric": "", "score": "", "status": "failed"},
        {"k": "4", "full": "1", "seed": "1", "metric": "accuracy", "score": "0.8", "status": "done"},
    ]
    for order in (rows, rows[::-1]):
        (found,) = read(tmp_path, order)
        assert found.evidence.metric == "accuracy" and len(found.runs) == 3
        assert sorted(run.status for run in found.runs) == ["done", "done", "failed"]
    assert "no row has a score" in refusal(tmp_path, [rows[1]])


@pytest.mark.parametrize("task", ["CoLA", "cola", "co-la"])
def test_a_task_is_the_same_however_it_is_spelled(tmp_path: Path, task: str) -> None:
    found = read(tmp_path, metrics={task: "acc"}, chances={task: 0.6})
    assert (found[0].evidence.metric, found[0].evidence.chance) == ("accuracy", 0.6)


@pytest.mark.parametrize(
    "change, said",
    [
        (
            {"metric": "acc", "value": "85.5"},
            "85.5 cannot be accuracy, which goes from 0 to 1; divide percentages by 100",
        ),
        ({"metric": "val_loss"}, "val_loss is better when it is lower"),
        ({"lr": "-1"}, "-1 is not a learning rate"),
        ({"n": "0.5"}, "0.5 is not a whole number of at least 1"),
        ({"n": "inf"}, "inf is not a whole number of at least 1"),
        ({"k": "1e999"}, "'1e999' is not a number of layers"),
        ({"layers": "4", "k": "5"}, "row 2: that is more layers than the 4 of m"),
        ({"layers": "4", "frozen": "5", "k": ""}, "'' is not a number of layers"),
    ],
)
def test_an_impossible_value_is_refused(tmp_path: Path, change: dict[str, str], said: str) -> None:
    base = {"model": "m", "task": "t", "metric": "mcc", "k": "0", "seed": "1", "value": "0.1", "full": "0"}
    assert said in refusal(tmp_path, [{**base, **change}])


def test_a_train_size_is_in_all_rows_or_none(tmp_path: Path) -> None:
    rows = [{"k": "0", "seed": str(n), "value": "0.1", "n": size} for n, size in enumerate(("50", ""))]
    assert "row 3: the train size is missing" in refusal(tmp_path, rows)


@pytest.mark.parametrize("seed", ["--1", "²", "a.0"])
def test_a_seed_may_be_text(tmp_path: Path, seed: str) -> None:
    (found,) = read(tmp_path, [{"k": "0", "seed": seed, "score": "0.5"}])
    assert found.runs[0].seed == seed


def test_seeds_written_as_floats_and_a_score_column_named_after_its_metric(tmp_path: Path) -> None:
    (found,) = read(
        tmp_path, [{"k": "0", "seed": "1.0", "accuracy": "0.5"}, {"k": "full", "seed": "x", "accuracy": "0.6"}]
    )
    assert [run.seed for run in found.runs] == [1, "x"] and found.evidence.metric == "accuracy"


def test_named_parts_of_a_sweeps_table_stay_named(tmp_path: Path) -> None:
    rows = [
        {"recipe": word, "tuned_layers": k, "tune_embeddings": full, "seed": "0", "validation_best": "0.5"}
        for word, k, full in (
            ("last 2", "2", "False"),
            ("named", "4", "True"),
            ("named", "", ""),
            ("full", "4", "True"),
        )
    ]
    rows[2]["seed"] = "1"
    (found,) = read(tmp_path, rows)
    assert [run.recipe for run in found.runs] == ["last 2", "named", "named", "full"] and found.layers == 4
