"""Tables of results from any source: which columns are found, and what is refused."""

from pathlib import Path
from typing import Any

import pytest

from frostline import FrostlineError
from frostline.report.answer.analysis import analyze
from frostline.statistics.analysis_settings import AnalysisSettings
from frostline.statistics.results_table import NAMES, read_results
from frostline.statistics.run_group import RunGroup
from frostline.statistics.run_result import RunResult
from loaded import sentence_of

Rows = list[dict[str, str]]
ROWS: Rows = [
    {"model": "m", "task": "CoLA", "metric": "mcc", "k": "0", "full": "0", "seed": "1", "value": "0.1"},
    {"model": "m", "task": "CoLA", "metric": "acc", "k": "0", "full": "0", "seed": "1", "value": "0.7"},
    {"model": "m", "task": "CoLA", "metric": "mcc", "k": "4", "full": "1", "seed": "1", "value": "nan"},
    {"model": "m", "task": "mine", "metric": "acc", "k": "2", "full": "0", "seed": "b", "value": "0.8"},
]
FIRST, MINE = ROWS[0], [{**row, "task": "mine"} for row in ROWS[:2]]


def read(path: Path, rows: Rows = ROWS, **how: Any) -> list[RunGroup]:
    """The groups of a table; a column that a row lacks is empty in it."""
    header = list(dict.fromkeys(name for row in rows for name in row))
    lines = [header, *([row.get(name, "") for name in header] for row in rows)]
    (path / "runs.csv").write_text("".join(",".join(line) + "\n" for line in lines))
    return read_results(path / "runs.csv", **how)


def runs(path: Path, *rows: dict[str, str], **how: Any) -> list[RunResult]:
    """The runs of a table with one group. Each row has its own seed and a score, unless it says otherwise."""
    (found,) = read(path, [{"seed": str(n), "score": "0.5", **row} for n, row in enumerate(rows)], **how)
    return list(found.runs)


def test_columns_are_found_by_their_usual_names(tmp_path: Path) -> None:
    cola, mine = read(tmp_path)
    assert (cola.model, cola.task, cola.layers) == ("m", "CoLA", 4)
    assert (cola.evidence.metric, cola.evidence.chance) == ("matthews_correlation", 0.0)
    assert [(run.recipe, run.tuned_layers, run.tune_embeddings) for run in cola.runs] == [
        ("head only", 0, False),
        ("full", 4, True),
    ]
    assert [run.validation_best for run in cola.runs] == [0.1, None]  # not a number: it has no score
    assert [run.run for run in cola.runs] == ["row 2", "row 4"]
    assert (mine.evidence.metric, mine.evidence.chance, mine.layers) == ("accuracy", None, None)
    assert (mine.runs[0].seed, mine.runs[0].train_size, mine.runs[0].status) == ("b", None, "done")


def test_columns_are_named_and_set(tmp_path: Path) -> None:
    rows = [{"who": "0", "froze": "3", "f-one": "0.5"}, {"who": "0", "froze": "0", "f-one": "0.6"}]
    (found,) = read(
        tmp_path,
        rows,
        columns={"seed": "who", "frozen_layers": "froze", "score": "f-one"},
        constants={"layers": "4", "task": "t", "metric": "f1", "train_size": "50"},
        chances={"t": 0.4},
    )
    assert [run.recipe for run in found.runs] == ["last 1", "last 4"] and found.runs[0].train_size == 50
    assert (found.task, found.evidence.metric, found.evidence.chance, found.layers) == ("t", "f1", 0.4, 4)


@pytest.mark.parametrize(
    ("column", "more", "recipes"),
    [
        ("recipe", {"tuned_layers": "2", "layers": "4"}, {"lora-2": "lora-2", "last 2": "last 2"}),
        ("recipe", {"tuned_layers": "4", "tune_embeddings": "True"}, {"named": "named", "full": "full"}),
        ("tuned_layers", {"trainable": "1538"}, {"full": "full", "last 2": "last 2", "2.0": "last 2"}),
        ("frozen_layers", {"layers": "12"}, {"all": "head only", "12": "head only", "0": "last 12"}),
    ],
)
def test_names_of_what_was_trained(tmp_path: Path, column: str, more: dict[str, str], recipes: dict[str, str]) -> None:
    found = runs(tmp_path, *({column: theirs, **more} for theirs in recipes))
    assert [run.recipe for run in found] == list(recipes.values())


def test_other_names_of_a_status_and_kinds_of_seeds(tmp_path: Path) -> None:
    statuses = {
        "FINISHED": "done",
        "Success": "done",
        "": "done",
        "Crashed": "failed",
        "queued": "pending",
        "nan": "done",
    }
    for column in ("Status", "State"):  # of MLflow, and of W&B and Optuna
        found = runs(tmp_path, *({"k": "0", column: theirs} for theirs in statuses))
        assert [run.status for run in found] == list(statuses.values())
    found = runs(tmp_path, *({"k": "0", "outcome": theirs} for theirs in ("Diverged", "at chance", "")))
    assert [run.outcome for run in found] == ["diverged", "at chance", None]
    seeds = {"--1": "--1", "²": "²", "a.0": "a.0", "1.0": 1, "x": "x"}
    found = runs(tmp_path, *({"k": "0", "seed": theirs} for theirs in seeds))
    assert [run.seed for run in found] == list(seeds.values())


def test_a_score_column_may_be_named_after_its_metric(tmp_path: Path) -> None:
    (found,) = read(tmp_path, [{"k": "0", "seed": "0", "accuracy": "0.5"}])
    assert found.evidence.metric == "accuracy" and found.runs[0].validation_best == 0.5


@pytest.mark.parametrize(
    ("task", "metric", "how", "chance"),
    [
        *((task, metric, {}, 444 / 872) for task, metric in (("SST-2", "acc"), ("sst2", "accuracy"))),
        ("MNLI-MM", "acc", {}, 0.3522),
        ("MRPC", "f1", {}, 0.8122),
        *(("anything", metric, {}, 0.0) for metric in ("mcc", "spearmanr")),
        ("anything", "acc", {}, None),
        ("anything", "acc", {"chances": {"anything": 0.3}}, 0.3),
    ],
)
def test_the_score_of_the_baseline(
    tmp_path: Path, task: str, metric: str, how: dict[str, Any], chance: float | None
) -> None:
    (found,) = read(tmp_path, [{**FIRST, "task": task, "metric": metric, "value": "0.5"}], **how)
    assert found.evidence.chance == (chance if chance is None else pytest.approx(chance, abs=2e-4))


def test_the_metric_of_a_task(tmp_path: Path) -> None:
    assert read(tmp_path, ROWS[:2])[0].evidence.metric == "matthews_correlation"  # GLUE's metric of CoLA
    assert read(tmp_path, ROWS[:2], metrics={"": "acc"})[0].evidence.metric == "accuracy"
    for task in ("CoLA", "cola", "co-la"):  # however it is spelled
        (found, _) = read(tmp_path, metrics={task: "acc"}, chances={task: 0.6})
        assert (found.evidence.metric, found.evidence.chance) == ("accuracy", 0.6)
        assert found.runs[0].validation_best == 0.7


def test_a_metric_that_is_not_chosen_may_be_a_loss(tmp_path: Path) -> None:
    loss = {**FIRST, "metric": "loss", "value": "2.5"}
    for rows in (ROWS[:2], [{**row, "metric": "Accuracy"} for row in ROWS[1:2]]):
        (found,) = read(tmp_path, [*rows, loss], metrics={"": "acc"})
        assert (found.evidence.metric, [run.validation_best for run in found.runs]) == ("accuracy", [0.7])


def test_of_two_columns_that_differ_in_case_the_usual_name_is_read(tmp_path: Path) -> None:
    found = runs(tmp_path, {"k": "0", "Score": "0.9"}, {"k": "0", "Score": "0.8"})
    assert [run.validation_best for run in found] == [0.5, 0.5]


def test_a_failed_run_needs_no_metric(tmp_path: Path) -> None:
    rows = [{"k": k, "seed": "1", "metric": "accuracy", "score": "0.7"} for k in ("0", "full")]
    of_f1 = {**rows[0], "metric": "f1"}
    failed: Rows = [
        {"k": "0", "seed": "2", "status": "failed", "score": "", "metric": metric} for metric in ("", "f1", "mcc")
    ]
    for order in ([*rows, failed[0]], [failed[0], *rows], [*rows, of_f1, *failed[1:]]):
        (found,) = read(tmp_path, order, metrics={"": "accuracy"})
        assert found.evidence.metric == "accuracy"
        assert sorted(run.status for run in found.runs) == ["done", "done", "failed"]


def test_the_table_of_a_sweep(finished_sweep: Path) -> None:
    (found,) = read_results(finished_sweep / "results.csv")
    assert [run.recipe for run in found.runs] == ["head only", "last 1", "full"] * 2
    assert found.layers == 3 and found.evidence.metric == "accuracy" and found.runs[0].trainable_parameters
    assert all(run.train_seconds is not None and run.outcome in ("ok", "degenerate") for run in found.runs)


LENGTHS = [("last 1", 3.0, 0.7), ("last 1", 10.0, 0.75), ("full", 3.0, 0.8), ("full", 10.0, 0.85)]


def test_the_table_of_a_sweep_with_several_training_lengths(tmp_path: Path) -> None:
    rows = [f"{k},{epochs},{seed},{score}" for k, epochs, score in LENGTHS for seed in (0, 1)]
    (tmp_path / "r.csv").write_text("\n".join(["recipe,epochs,seed,accuracy", *rows]))
    (group,) = read_results(tmp_path / "r.csv")
    found = {run.recipe: (run.tune_embeddings, run.num_train_epochs) for run in group.runs}
    assert found == {f"{k} for {epochs:g} epochs": (k == "full", epochs) for k, epochs, _ in LENGTHS}
    (answer,) = analyze([group], AnalysisSettings()).groups
    assert answer.sizes[0].reference == "full for 10 epochs" and "for 10 epochs" in answer.sentence


def test_every_name_belongs_to_one_column() -> None:
    names = [name for names in NAMES.values() for name in names]
    assert len(names) == len(set(names))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"value": "good"}, "runs.csv, row 2, column 'value': 'good' is not a number"),
        ({"k": "two"}, "row 2, column 'k': 'two' is not a number of layers; give whole numbers from 0"),
        *(({"k": k}, f"'{k}' is not a number of layers") for k in ("-1", "1.5", "1e999")),
        *(({name: ""}, f"row 2, column '{name}': the {name} is missing") for name in ("seed", "model", "task")),
        ({"metric": "acc", "value": "85.5"}, "85.5 cannot be accuracy, which goes from 0 to 1; divide"),
        *(
            ({"metric": name}, f"{name} is better when it is lower")
            for name in ("val_loss", "eval/loss", "test-WER", "logloss", "ECE", "nrmse")
        ),
        ({"metric": "BLEU", "value": "31.5"}, "31.5 is more than 1, the highest score, of which a point"),
        ({"lr": "-1"}, "-1 is not a learning rate"),
        *(({"seconds": cost}, f"{cost} is impossible; correct it, or leave the cell empty") for cost in ("-1", "inf")),
        *(({"n": n}, f"{n} is not a whole number of at least 1") for n in ("0.5", "inf")),
        ({"epochs": "inf"}, "inf is impossible"),
        ({"full": "-"}, "row 2, column 'full': '-' is neither yes nor no"),
        (
            {"metric": "neg_loss", "value": "-0.3"},
            "has scores below 0, of which a share means nothing; give the score of",
        ),
        ({"layers": "4", "k": "5"}, "row 2: that is more layers than the 4 of m"),
        ({"status": "zapped"}, "'zapped' is none of done, failed, pending"),
        ({"outcome": "exploded"}, "row 2, column 'outcome': 'exploded' is none of ok, at chance, collapsed, diverged"),
    ],
)
def test_a_row_that_cannot_be_used_is_refused(tmp_path: Path, changes: dict[str, str], said: str) -> None:
    assert said in sentence_of(read, tmp_path, [{**FIRST, **changes}])


BARE = {"seed": "0", "value": "1"}


@pytest.mark.parametrize(
    ("rows", "how", "said"),
    [
        ([{"k": "0", "seed": "0", "eval_loss": "0.3"}], {"columns": {"score": "eval_loss"}}, "eval_loss is better when it is"),
        ([{**BARE, "frozen": "full", "layers": "4"}], {}, "'full' is not a number of layers"),
        ([{**BARE, "frozen": "1"}], {}, "frozen layers count from the bottom; give the number of layers with --set"),
        ([FIRST, FIRST], {}, "row 3: this run (head only, seed 1) is already in row 2"),
        ([{**FIRST, "n": "50"}, {**FIRST, "k": "1"}], {}, "row 3: the train size is missing"),
        ([{**FIRST, "epochs": "3"}, {**FIRST, "k": "1"}], {}, "row 3: the number of epochs is missing"),
        ([{**FIRST, "lr": "1e-4"}, {**FIRST, "seed": "2"}], {}, "row 3: the learning rate is missing"),
        ([FIRST, {**FIRST, "seed": "2", "metric": ""}], {}, "row 3: the score has no metric, which other rows have"),
        ([{"k": "0", "seed": "2", "metric": "", "score": "", "status": "failed"}], {}, "no row has a score"),
        (MINE, {}, "mine has scores in 'matthews_correlation', 'accuracy'; choose one with --metric mine=NAME"),
        (MINE, {"metrics": {"mine": "f1"}}, "but not in 'f1'"),
        (
            [FIRST, {**ROWS[1], "seed": "2"}],
            {},
            "row 3: this run has a score in accuracy, but none in matthews_correlation",
        ),
        *(
            ([{**FIRST, "metric": "accuracy"}], {"chances": {"CoLA": chance}}, f"{chance:g} cannot be the accuracy of")
            for chance in (50.0, -0.5, float("nan"))
        ),
        (
            *([{**FIRST, "chance": "0.5"}, {**FIRST, "k": "1", "chance": "0.6"}], {}),
            "2 scores of the best constant prediction for CoLA, such as 0.5 and 0.6; give one with --chance",
        ),
        (
            *([{"seed": "0", "k": "1"}], {}),
            "none of its columns ('seed', 'k') is known as score; name the column with --columns score=COLUMN",
        ),
        ([BARE], {}, "--set tuned_layers=VALUE"),
        (ROWS, {"columns": {"score": "valu"}}, "no column 'valu' (did you mean 'value'?)"),
        (ROWS, {"columns": {"scor": "value"}}, "There is no column 'scor' (did you mean 'score'?)"),
    ],
)  # fmt: skip
def test_a_table_that_cannot_be_used_is_refused(tmp_path: Path, rows: Rows, how: dict[str, Any], said: str) -> None:
    assert said in sentence_of(read, tmp_path, rows, **how)


def test_what_looks_like_a_mistake_may_be_right(tmp_path: Path) -> None:
    assert len(read(tmp_path, [{**FIRST, "lr": rate} for rate in ("1e-5", "2e-5")])[0].runs) == 2
    assert read(tmp_path, [BARE], constants={"tuned_layers": "full"})[0].runs[0].recipe == "full"
    with pytest.raises(FrostlineError, match="no such file"):
        read_results(tmp_path / "none.csv")
